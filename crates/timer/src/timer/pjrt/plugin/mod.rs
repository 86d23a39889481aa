//! A plugin: found, loaded, called, and what is beside it.

pub(crate) mod beside;
#[allow(unsafe_code)]
mod client;
mod cuda_tools;
mod digest;
mod discover;
mod error;
mod fatal_flags;
pub(crate) mod ffi;
#[allow(unsafe_code)]
mod library;
mod no_device;
mod package;
#[allow(unsafe_code)]
mod values;

pub(crate) use client::{Client, DeviceDescription};
pub(crate) use cuda_tools::{cuda_home_for, packages_for, toolchain};
pub(crate) use digest::digest_while;
pub(crate) use discover::installed_in;
pub use discover::{FoundPlugin, discover};
pub(crate) use error::{PjrtError, one_line, read_bounded};
pub(crate) use fatal_flags::{leave_out_fatal, without_fatal};
pub(crate) use library::{Plugin, call, taken, text_of};
pub(crate) use no_device::{PCI, device_failure, explained, has_tpu, without_metadata};
pub(crate) use package::package_of;
pub(crate) use values::{OptionValue, default_client_options, named_value, number_of_value, parse_client_option};
