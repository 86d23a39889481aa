//! Lines on stderr.

use std::io::Write;

use crate::printable::printable;

/// One line on stderr, which is not a warning.
pub(super) fn say(line: &str) {
    // stderr may be gone; there is nobody left to tell
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}
