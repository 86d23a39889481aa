//! Runs a command of the user: bytes to its stdin, a short answer from its stdout.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Time limit of a command: a person may have to touch a token.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of its answer.
const MAX_ANSWER: usize = 4096;
/// Maximum size of the end of its stderr that is kept.
const MAX_TALK: usize = 4096;
/// The capacity of a pipe: this much may be left in it when its writer has ended.
const PIPE: usize = 64 << 10;

/// A running command. Dropping this ends it and the processes that it started.
struct RunningCommand {
    child: Child,
    /// `None` once its leader was waited for, because the number may then be reused.
    group: Option<Pid>,
}

impl RunningCommand {
    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.child.wait()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The command's output for these bytes, or in words why it is unusable.
pub(super) fn answer_of(command: &OsStr, message: &[u8]) -> Result<Vec<u8>, String> {
    ask(command, message, PATIENCE).map_err(|error| error.to_string())
}

fn ask(command: &OsStr, message: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let mut process = Command::new("sh");
    process.arg("-c").arg(command).process_group(0);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| io::Error::other("its process id is out of range"))?;
    let mut running = RunningCommand { child, group: Some(group) };
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = pipes else {
        return Err(io::Error::other("it has no pipes"));
    };
    // a pipe holds more than this, so that nothing blocks; a command that does not read it is detected by its signature
    let _ = stdin.write_all(message);
    drop(stdin);
    let ended = pidfd_open(group, PidfdFlags::empty())?;
    for pipe in [stdout.as_fd(), stderr.as_fd()] {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    let deadline = Instant::now() + patience;
    let (mut answer, mut talk) = (Vec::new(), Vec::new());
    let (mut answers, mut talks, mut is_over) = (true, true, false);
    while !is_over {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(format!("it gave no answer within {patience:?}")));
        }
        is_over = {
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            let mut waiting = vec![PollFd::new(&ended, PollFlags::IN)];
            waiting.extend(answers.then(|| PollFd::new(&stdout, PollFlags::IN)));
            waiting.extend(talks.then(|| PollFd::new(&stderr, PollFlags::IN)));
            match poll(&mut waiting, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            waiting.first().is_some_and(|process| !process.revents().is_empty())
        };
        // once it has ended, all its output is available
        answers &= take(&mut stdout, &mut answer)?;
        talks &= take(&mut stderr, &mut talk)?;
        if answer.len() > MAX_ANSWER {
            return Err(io::Error::other(format!("it prints more than {MAX_ANSWER} bytes")));
        }
        talk.drain(..talk.len().saturating_sub(MAX_TALK));
    }
    let status = running.end()?;
    if status.success() {
        return Ok(answer);
    }
    let talk = String::from_utf8_lossy(&talk);
    let last_line = talk.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last_line = last_line.map_or_else(String::new, |line| format!(", and said `{line}`"));
    Err(io::Error::other(format!("it ended with {status}{last_line}")))
}

/// Reads some of the available bytes; `false` at the end.
fn take(from: &mut impl Read, to: &mut Vec<u8>) -> io::Result<bool> {
    let mut part = [0; 1024];
    for _ in 0..2 * PIPE / part.len() {
        match from.read(&mut part) {
            Ok(0) => return Ok(false),
            Ok(read) => to.extend_from_slice(part.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(command: &str, patience: Duration) -> Result<String, String> {
        let answer = ask(OsStr::new(command), b"message", patience);
        answer.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_gets_the_message_and_its_answer_is_bounded_in_length_and_time() {
        let long = Duration::from_secs(60);
        assert_eq!(answer_of("cat", long).unwrap(), "message");
        assert_eq!(answer_of("echo talk >&2; tr a-z A-Z", long).unwrap(), "MESSAGE");
        // it need not read its input
        assert_eq!(answer_of("echo other", long).unwrap(), "other\n");
        let failed = answer_of("echo why >&2; echo >&2; exit 3", long).unwrap_err();
        assert!(failed.contains("exit status: 3") && failed.ends_with("said `why`"), "{failed}");
        assert!(answer_of("kill -9 $$", long).unwrap_err().contains("signal: 9"));
        assert!(answer_of("exec yes", long).unwrap_err().contains("more than 4096"));
        // stderr may be of any length; only its end is reported
        let talked = answer_of("yes | head -n 100000 >&2; echo end >&2; exit 1", long).unwrap_err();
        assert!(talked.ends_with("said `end`"), "{talked}");
        let silent = answer_of("sleep 1000 & echo early; wait", Duration::from_millis(200)).unwrap_err();
        assert!(silent.contains("no answer within 200ms"), "{silent}");
        // processes that it leaves behind do not delay its answer, and end with it
        assert_eq!(answer_of("sleep 1000 & echo $!", long).map(|pid| is_alive(pid.trim())), Ok(false));
    }

    fn is_alive(pid: &str) -> bool {
        // the signal was sent; the kernel may still be processing it
        (0..1000).all(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rfind(')').is_some_and(|end| !stat[end..].starts_with(") Z"))
        })
    }
}
