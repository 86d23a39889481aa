//! The documents of `docs/`, embedded: as text for a terminal or a pipe, by topic and section.

mod pages;
mod text;

pub use pages::{NoPage, Page, contents};
