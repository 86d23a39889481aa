//! The system's clock, where other code relies on it: sled and TLS panic if it shows a time before 1970.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// # Errors
/// If the clock shows a time before 1970.
pub fn check_clock() -> io::Result<()> {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("the system's clock shows a time before 1970; set it and try again")),
    }
}
