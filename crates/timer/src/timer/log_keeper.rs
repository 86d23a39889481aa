//! `--profile-every N`: stores some of a run's profiles where TensorBoard, xprof and `autotune-lowered profile` look
//! for them.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::events::{Event, EventKind, Sink, Slice};
use super::phases::Phases;
use super::profiled::ProfiledRound;
use crate::atomic_write::write_atomic;
use crate::failure::Failure;

/// Stores one in N of a timer's profiles, from its events, as a run of a log folder:
/// `plugins/profile/RUN/HOST.xplane.pb`.
///
/// They are for viewing, so a profile that cannot be stored only causes a warning, and they cannot be replayed, which
/// is what [`ReplayKeeper`](super::ReplayKeeper) is for. Each gets one more plane: the work on its operation until
/// then.
#[derive(Debug)]
pub struct LogKeeper {
    runs: PathBuf,
    every: u64,
    most: usize,
    /// Candidates that ran under a profile so far.
    candidates: u64,
    /// The files that this run wrote and did not remove.
    kept: VecDeque<PathBuf>,
    of_job: String,
    phases: Phases,
    has_warned: bool,
    has_warned_of_clock: bool,
}

impl LogKeeper {
    /// Keeps the profiles of the first candidate that runs and of every `every`-th after it, the newest `most` of them.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(folder: &Path, every: u64, most: usize) -> io::Result<Self> {
        let runs = folder.join("plugins/profile");
        fs::create_dir_all(&runs)?;
        Ok(Self {
            runs,
            every,
            most,
            candidates: 0,
            kept: VecDeque::new(),
            of_job: String::new(),
            phases: Phases::default(),
            has_warned: false,
            has_warned_of_clock: false,
        })
    }

    /// Counts a round's candidates, and stores its profile if one of them is the first or an N-th after it.
    fn follow(&mut self, at_ns: u64, round: &ProfiledRound, launches: &[(usize, u32)]) {
        let before = self.candidates;
        self.candidates = before.saturating_add(launches.len() as u64);
        let every = self.every.max(1);
        let is_due = before.div_ceil(every).saturating_mul(every) < self.candidates;
        if !is_due {
            return;
        }
        let Some(source) = round.bytes() else { return };
        let plane = self.phases.plane(at_ns, round, launches);
        if plane.is_none() && !std::mem::replace(&mut self.has_warned_of_clock, true) {
            tracing::warn!("the kept profiles do not say when they were taken, so they hold no phases of the run");
        }
        if let Err(error) = source.and_then(|source| self.keep(source, &plane.unwrap_or_default()))
            && !std::mem::replace(&mut self.has_warned, true)
        {
            tracing::warn!("a profile could not be kept in `{}`: {error}; the run continues", self.runs.display());
        }
    }

    fn keep(&mut self, mut source: impl Read, plane: &[u8]) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // names sort by time, by which readers find the newest run
        let run = self.runs.join(format!("tune-{}-{:06}-{}", since.as_nanos(), self.candidates, self.of_job));
        fs::create_dir(&run)?;
        let path = run.join(format!("{}.xplane.pb", host()));
        // a capture's planes are fields of one message, so another can be appended
        let written = write_atomic(&path, |file| {
            io::copy(&mut source, file)?;
            file.write_all(plane)
        });
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&run);
            return Err(error);
        }
        self.kept.push_back(run);
        while self.kept.len() > self.most {
            if let Some(oldest) = self.kept.pop_front() {
                fs::remove_dir_all(oldest)?;
            }
        }
        Ok(())
    }
}

impl Sink for LogKeeper {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        if let EventKind::Begin(Slice::Job(job)) = event.kind {
            self.of_job = plain(&format!("{}-{}", job.call.op_id, job.call.call_key));
        }
        self.phases.take(event);
        if let EventKind::Profiled { launches, round: Ok(round) } = event.kind {
            self.follow(event.at_ns, round, launches);
        }
        Ok(())
    }
}

fn host() -> String {
    plain(&rustix::system::uname().nodename().to_string_lossy())
}

/// Letters, digits, `-`, `_` and `.`: a part of a name on every system.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}
