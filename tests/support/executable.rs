//! Scripts in place of programs.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run at once.
///
/// A shell writes it: this process starts others from several threads. Between fork and exec, each new process inherits
/// every open file. A script that was open for writing at that moment is "Text file busy" when it is run.
pub fn write_executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;

    let mut shell = Command::new("sh");
    shell.args(["-c", "cat > \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
