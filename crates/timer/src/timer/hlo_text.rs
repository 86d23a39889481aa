//! Converts HLO text to the `HloModuleProto` that plugins compile, with JAX's parser.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::exec::{EXIT_MEMORY, EXIT_SIGNAL_BASE, ExecOptions};
use super::worker_command::WorkerLimits;
use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::printable::printable;
use crate::scratch::Scratch;

/// Maximum size of the proto.
const MAX_PROTO_BYTES: u64 = 1 << 30;
/// Maximum size of the end of the parser's messages that is read.
const MAX_STDERR_BYTES: u64 = 1 << 16;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Its last line is the error.
const SCRIPT: &str = "
import sys
try:
    from jaxlib._hlo import hlo_module_from_text
except ImportError:
    try:
        from jaxlib._jax import hlo_module_from_text
    except ImportError:
        from jaxlib.xla_extension import hlo_module_from_text
text, proto = sys.argv[1:]
with open(text, encoding='utf-8') as file:
    module = hlo_module_from_text(file.read())
with open(proto, 'wb') as file:
    file.write(module.as_serialized_hlo_module_proto())
";

/// The serialized `HloModuleProto` of HLO text. XLA's parser runs in its own process, with the time limit of a
/// compilation and the memory limit of a worker; `exe` is this program.
///
/// # Errors
/// If the Python's jaxlib has no such parser, the parser rejects the text, or a limit is reached.
pub fn hlo_text_to_proto(exe: &Path, python: &Path, limits: &WorkerLimits, text: &[u8]) -> Result<Vec<u8>, Failure> {
    let of_scratch = |error: io::Error| Failure::new(FailureKind::Device, format!("the scratch folder: {error}"));
    let scratch = Scratch::new().map_err(of_scratch)?;
    let place = |name: &str| scratch.path().join(name);
    let (script, from, to, stderr) = (place("hlo-text.py"), place("module.txt"), place("module.pb"), place("stderr"));
    // a file, because Python searches modules in its script's folder: nothing in the current folder is run
    fs::write(&script, SCRIPT).and_then(|()| fs::write(&from, text)).map_err(of_scratch)?;
    let stderr_file = File::create_new(&stderr).map_err(of_scratch)?;
    let command = vec![python.into(), script.into(), from.into(), to.clone().into()];
    let mut child = Command::new(exe)
        .args(
            ExecOptions::default()
                .memory_bytes(limits.memory_bytes)
                .memory_may_grow(limits.memory_may_grow)
                .command(command)
                .to_arguments(),
        )
        // keeps stdin open as long as the parser may run
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(stderr_file)
        .spawn()
        .map_err(|error| Failure::new(FailureKind::Device, format!("`{}`: {error}", exe.display())))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(of_scratch)? {
            break status;
        }
        if start.elapsed() > limits.compile {
            drop(child.stdin.take());
            child.wait().map_err(of_scratch)?;
            let message = format!("XLA's parser was not done after {} s", limits.compile.as_secs());
            return Err(Failure::new(FailureKind::Timeout, message));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if status.success() {
        let proto = outside_file::open(&to, MAX_PROTO_BYTES).and_then(|file| outside_file::read(file, MAX_PROTO_BYTES));
        return proto.map_err(of_scratch);
    }
    let stderr = end_of(&stderr, MAX_STDERR_BYTES).unwrap_or_default();
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let last = last.rsplit_once("Error: ").map_or(last, |(_, message)| message).to_owned();
    let kind = match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(EXIT_MEMORY) => FailureKind::Memory,
        Some(code) if code > EXIT_SIGNAL_BASE => FailureKind::Crash,
        _ => FailureKind::Compile,
    };
    Err(Failure::new(kind, printable(&last)))
}

/// The end of a text file: at most `bytes` bytes.
fn end_of(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = outside_file::open(path, u64::MAX)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parser_says_last_is_read_however_much_it_says() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stderr = "warning: a constant is folded\n".repeat(10_000) + "ValueError: no computation\n";
        fs::write(file.path(), &stderr).unwrap();
        let end = end_of(file.path(), MAX_STDERR_BYTES).unwrap();
        assert_eq!((end.len() as u64, end.lines().last()), (MAX_STDERR_BYTES, Some("ValueError: no computation")));
        fs::write(file.path(), b"\xff short").unwrap();
        assert_eq!(end_of(file.path(), MAX_STDERR_BYTES).unwrap(), "\u{fffd} short");
    }
}
