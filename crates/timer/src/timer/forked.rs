//! A worker that was forked from a template: a process of the `jax` worker that has imported JAX and nothing else.
//!
//! An import takes half a second, and each fresh process of a run would spend it. `Template` in `worker.py` is the other
//! side of the socket.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal};

/// Maximum wait for a worker: a template that is still importing JAX forks when it has done so.
const FORK_LIMIT: Duration = Duration::from_secs(60);
/// Maximum wait for the end of a worker that was killed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Length of the longest line with a number, in bytes.
const LONGEST_LINE: u64 = 16;

/// A worker whose parent is a template. Its end closes the connection.
pub(super) struct ForkedWorker {
    connection: BufReader<UnixStream>,
    id: Pid,
}

impl ForkedWorker {
    /// Hands this process's stdin, stdout and stderr to a worker with this command line; `None` if there is no template
    /// or it says that it forks none.
    ///
    /// # Errors
    /// If the template ends or does not answer, or the tuner is gone meanwhile. A worker may have had the streams then and
    /// read a request from them, so that no other one can have them.
    pub(super) fn of(template: &Path, command: &[OsString]) -> io::Result<Option<Self>> {
        let Some(words) = command.iter().map(|word| word.to_str()).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let Ok(mut words) = serde_json::to_vec(&words) else { return Ok(None) };
        words.push(b'\n');
        let Ok(connection) = UnixStream::connect(template) else { return Ok(None) };
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        let is_passed = passed.push(SendAncillaryMessage::ScmRights(&streams));
        let sent = sendmsg(&connection, &[io::IoSlice::new(&words)], &mut passed, SendFlags::NOSIGNAL);
        if !is_passed || sent.ok() != Some(words.len()) {
            return Ok(None);
        }
        wait_for_answer(&connection)?;
        connection.set_read_timeout(Some(END_LIMIT))?;
        let mut connection = BufReader::new(connection);
        let id = read_number(&mut connection)?.ok_or_else(|| io::Error::other("the template has ended"))?;
        Ok(Pid::from_raw(id).map(|id| Self { connection, id }))
    }

    /// Its process, and the group that it leads.
    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Readable when it has ended.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.connection.get_ref().as_fd()
    }

    /// Lets the template end what is left of its group. Its exit code, or the signal that ended it as an error.
    pub(super) fn end(mut self) -> Result<i32, i32> {
        let connection = self.connection.get_mut();
        let _ = connection.flush().and_then(|()| connection.shutdown(Shutdown::Write));
        match read_number(&mut self.connection) {
            Ok(Some(signal @ ..0)) => Err(signal.saturating_neg()),
            Ok(Some(code)) => Ok(code),
            // the template was killed, and the worker with it
            _ => Err(Signal::KILL.as_raw()),
        }
    }
}

/// Waits until the template answers or has ended, as long as the tuner is there.
fn wait_for_answer(connection: &UnixStream) -> io::Result<()> {
    let since = Instant::now();
    let stdin = rustix::stdio::stdin();
    while since.elapsed() < FORK_LIMIT {
        let mut ready = [PollFd::new(connection, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
        match poll(&mut ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [answered, pipe] = &ready;
        if !answered.revents().is_empty() {
            return Ok(());
        }
        if pipe.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::Error::other("the tuner is gone"));
        }
    }
    Err(io::Error::other(format!("the template forked no worker within {FORK_LIMIT:?}")))
}

/// The number in a line; `None` if there is no whole line, or no number in it.
fn read_number(from: &mut BufReader<UnixStream>) -> io::Result<Option<i32>> {
    let mut line = String::new();
    from.take(LONGEST_LINE).read_line(&mut line)?;
    Ok(line.strip_suffix('\n').and_then(|number| number.parse().ok()))
}
