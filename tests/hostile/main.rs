//! What a stranger's files make the program do: every open, write, mapping and start of it is traced in a throw-away
//! root and compared with what is allowed by name.

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod cell;
