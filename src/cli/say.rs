//! Lines on stderr.

use std::io::Write;

use crate::printable::printable;

/// One line on stderr, which is not a warning.
pub(super) fn say(line: &str) {
    // stderr may be gone, and then the error cannot be reported
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}
