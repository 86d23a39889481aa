//! The beginning and the end of a worker's stderr, and the line in it that tells why the worker died.

use std::collections::VecDeque;

use super::protocol::one_line;

/// Bytes of stderr that are kept.
const TAIL_BYTES: usize = 64 << 10;
/// Bytes that are kept of its beginning.
const HEAD_BYTES: usize = 8 << 10;

/// The beginning and the end of a worker's stderr: a plugin that dies of a flag prints its reason first and then
/// its whole manual.
#[derive(Debug, Default)]
pub(super) struct StderrTail {
    head: Vec<u8>,
    bytes: VecDeque<u8>,
    /// How many of all bytes were already here when the current request started.
    earlier: usize,
    pushed: usize,
}

impl StderrTail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pushed += bytes.len();
        let to_head = HEAD_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        let (head, bytes) = bytes.split_at(to_head);
        self.head.extend_from_slice(head);
        self.bytes.extend(bytes);
        let beyond = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..beyond);
    }

    pub(super) fn to_text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[&self.head, front, back].concat()).into_owned()
    }

    /// A request starts: what was printed before it explains nothing of it.
    pub(super) fn start_request(&mut self) {
        self.earlier = self.pushed;
    }

    /// The output since the current request was sent.
    pub(super) fn to_recent_text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        let kept = [&self.head, front, back].concat();
        let recent = kept.len().saturating_sub(self.pushed - self.earlier);
        String::from_utf8_lossy(kept.get(recent..).unwrap_or_default()).into_owned()
    }
}

/// The line of a worker's stderr that most likely states the cause of death: stack traces follow the cause.
pub(crate) fn telling_line(stderr: &str) -> Option<String> {
    let last_line = || stderr.lines().rev().find(|line| !line.trim().is_empty() && !is_chatter(line));
    reason_line(stderr).or_else(|| Some(one_line(last_line()?, 300)))
}

/// The last line that names a cause of death.
pub(super) fn reason_line(stderr: &str) -> Option<String> {
    const REASONS: [&str; 7] =
        ["Check failed", "Unknown flag", "panicked at", "terminate called", "Fatal", "FATAL", "Error: "];
    let line = stderr.lines().rev().find(|line| REASONS.iter().any(|reason| line.contains(reason)))?;
    Some(one_line(line, 300))
}

/// Whether a line is a log line below the level of a warning, from glog (`I0000 00:00:…`) or `tracing`, and thus not a
/// cause.
fn is_chatter(line: &str) -> bool {
    let digits = |rest: &str| rest.len() > 4 && rest.bytes().take(4).all(|byte| byte.is_ascii_digit());
    let starts = ["TRACE ", "DEBUG ", "INFO ", "WARNING: All log messages before absl::InitializeLog()"];
    line.strip_prefix('I').is_some_and(digits) || starts.iter().any(|start| line.trim_start().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_death_is_found_among_the_chatter() {
        let chatter = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n\
                       I0000 00:00:1795261467.495203   15304 client.cc:59] cpu_device_count set: 1\nDEBUG sent\n";
        assert_eq!(telling_line(chatter), None);
        assert_eq!(telling_line(&format!("no such kernel\n{chatter}")).unwrap(), "no such kernel");
        assert_eq!(telling_line("Check failed: a\n  @ main\n").unwrap(), "Check failed: a");
        assert_eq!(telling_line("I am lost\n").unwrap(), "I am lost");
    }
}
