//! Struct layouts of the PJRT C API, version 0.81 (openxla/xla, `xla/pjrt/c/pjrt_c_api.h`), as far as a timer needs
//! them.
//!
//! Every argument struct starts with its size and an extension pointer. A plugin accepts structs of another minor
//! version if the size is right, so these layouts work with older and newer plugins.

mod arguments;
mod table;

pub(crate) use arguments::*;
pub(crate) use table::{Api, Fn};
