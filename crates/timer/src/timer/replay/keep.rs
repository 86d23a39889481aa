//! `--keep-profiles DIR`: stores a timer's profiles so that [`ProfileReplay`](super::ProfileReplay) can replay them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::calls::{RecordedCalls, RecordedFailure, RecordedMethod};
use super::index::{self, FunctionConfigs, IndexedInvocation, ProfileIndex, TakenProfile, TakenRound};
use super::json_file::wrong;
use crate::atomic_write::write_atomic;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::Source;
use crate::timer::events::{Event, EventKind, Sink, Slice};
use crate::timer::job::Job;
use crate::timer::model::Timer;
use crate::timer::profiled::ProfiledRound;

/// Stores the profiles of every round of a timer, from its events.
#[derive(Debug)]
pub struct ReplayKeeper {
    folder: PathBuf,
    index: ProfileIndex,
    /// Whether the last of the index's invocations is the job's.
    in_job: bool,
    /// Whether the index has unsaved changes.
    is_dirty: bool,
    calls: RecordedCalls,
}

impl ReplayKeeper {
    /// Stores the profiles of a timer in a folder: a new one, an empty one, or one with profiles of the same device and
    /// software.
    ///
    /// # Errors
    /// If the timer takes no profiles, or the folder holds something else or cannot be written.
    pub fn new(timer: &dyn Timer, folder: &Path) -> Result<Self, Failure> {
        if timer.info().source != Source::DeviceProfile {
            let message = format!("the timer `{}` takes no profiles that could be kept", timer.info().name);
            return Err(Failure::new(FailureKind::Device, message));
        }
        fs::create_dir_all(folder).map_err(|error| wrong(folder, format!("cannot be made: {error}")))?;
        let builds_programs = timer.info().can.build_programs;
        let is_new = fs::read_dir(folder).map_err(|error| wrong(folder, error))?.next().is_none();
        let index = if is_new {
            let device = timer.info().device.clone();
            ProfileIndex { schema: index::SCHEMA, device, builds_programs, invocations: Vec::new() }
        } else {
            let index = ProfileIndex::read(folder)?;
            check_origin(&index, timer).map_err(|what| wrong(folder, format!("{what}; keep these elsewhere")))?;
            index
        };
        let mut keeper =
            Self { folder: folder.to_owned(), index, in_job: false, is_dirty: is_new, calls: RecordedCalls::default() };
        keeper.save()?;
        Ok(keeper)
    }

    fn save(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_dirty) {
            let path = self.folder.join(index::FILE_NAME);
            let written = write_atomic(&path, |file| {
                serde_json::to_writer(&mut *file, &self.index)?;
                file.write_all(b"\n")
            });
            written.map_err(|error| not_kept(&path, &error))?;
        }
        Ok(())
    }

    /// The job's entry.
    fn invocation(&mut self) -> Option<&mut IndexedInvocation> {
        self.is_dirty = true;
        self.index.invocations.last_mut().filter(|_| self.in_job)
    }

    /// Stores a round's profile and adds it to the index.
    fn keep(&mut self, round: &ProfiledRound, launches: &[(usize, u32)]) -> Result<(), Failure> {
        let number = self.index.invocations.len().saturating_sub(1);
        let Some(invocation) = self.index.invocations.last_mut().filter(|_| self.in_job) else {
            return Err(Failure::new(FailureKind::Protocol, "no job was started"));
        };
        let module_name = round.module_name().map(str::to_owned);
        let is_first = !invocation.profiles.iter().any(|profile| match profile {
            TakenProfile::Round(round) => round.profile.is_some(),
            TakenProfile::Found(_) => true,
        });
        if !is_first && invocation.module_name != module_name {
            return Err(Failure::new(FailureKind::Protocol, "the worker's rounds name modules differently"));
        }
        let of_invocation = format!("{number:03}-{}", plain(&invocation.call.op_id));
        let name = format!("{of_invocation}/{:04}.xplane.pb.gz", invocation.profiles.len());
        let path = self.folder.join(&name);
        let source = round.bytes().ok_or_else(|| Failure::new(FailureKind::Device, "the round left no profile"))?;
        let made = fs::create_dir_all(self.folder.join(of_invocation));
        let copied = made.and(source).and_then(|source| compress(source, &path));
        copied.map_err(|error| not_kept(&path, &error))?;
        invocation.module_name = module_name;
        let round = TakenRound { profile: Some(name), failure: None, launches: launches.to_vec() };
        invocation.profiles.push(TakenProfile::Round(round));
        self.is_dirty = true;
        self.save()
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        if self.index.invocations.iter().any(|invocation| invocation.is_of(job)) {
            let message = format!("holds profiles of {} already; keep these elsewhere", job.call);
            return Err(wrong(&self.folder, message));
        }
        let configs = job.candidates.iter().map(|candidate| candidate.config.clone());
        self.index.invocations.push(IndexedInvocation {
            call: job.call.clone(),
            direction: job.direction,
            cache_state: job.cache_state.clone(),
            module_name: None,
            functions: FunctionConfigs(configs.enumerate().collect()),
            failures: BTreeMap::new(),
            profiles: Vec::new(),
        });
        (self.in_job, self.calls) = (true, RecordedCalls::default());
        Ok(())
    }

    /// Records the outcome of a call outside the rounds.
    fn note(&mut self, candidate: usize, method: RecordedMethod, failure: Option<&Failure>) {
        let Some(Failure { kind, message }) = failure else {
            let _ = self.calls.call(candidate, method, &[]);
            return;
        };
        let (kind, message, after) = (kind.clone(), message.clone(), self.calls.succeeded(candidate, method));
        if let Some(invocation) = self.invocation() {
            let failure = RecordedFailure { method, kind, message, after, times: Some(1) };
            invocation.failures.entry(candidate).or_default().push(failure);
        }
    }

    fn end(&mut self) {
        let is_empty =
            |invocation: &mut IndexedInvocation| invocation.profiles.is_empty() && invocation.failures.is_empty();
        if std::mem::take(&mut self.in_job) {
            self.index.invocations.pop_if(is_empty);
        }
        if let Err(failure) = self.save() {
            tracing::warn!("{}", failure.message);
        }
    }
}

impl Sink for ReplayKeeper {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event.kind {
            EventKind::Begin(Slice::Job(job)) => return self.begin(job),
            EventKind::Called { candidate, method, failure } => self.note(candidate, method, failure),
            EventKind::Profiled { launches, round: Ok(round) } => return self.keep(round, launches),
            EventKind::Profiled { launches, round: Err(failure) } => {
                if let Some(invocation) = self.invocation() {
                    let (failure, launches) = (Some(failure.clone()), launches.to_vec());
                    invocation.profiles.push(TakenProfile::Round(TakenRound { profile: None, failure, launches }));
                }
            }
            EventKind::End(Slice::Job(_)) => self.end(),
            _ => {}
        }
        Ok(())
    }
}

/// Why new profiles cannot be added to those of a folder.
fn check_origin(index: &ProfileIndex, timer: &dyn Timer) -> Result<(), String> {
    let (there, here) = (&index.device, &timer.info().device);
    if there.identity != here.identity {
        return Err(format!("holds profiles of another device, {}; this is {}", there.identity, here.identity));
    }
    if there.environment != here.environment {
        let differences = here.environment.differences(&there.environment);
        let differences = if differences.is_empty() { "plugin".to_owned() } else { differences.join(", ") };
        return Err(format!("holds profiles of other software ({differences})"));
    }
    if index.builds_programs != timer.info().can.build_programs {
        return Err("holds profiles of a timer that builds programs, or of one that builds none".to_owned());
    }
    Ok(())
}

fn not_kept(path: &Path, error: &io::Error) -> Failure {
    wrong(path, format!("cannot be written: {error}; free space, or omit `--keep-profiles`"))
}

/// Letters, digits, `-` and `_`: a name for files on every system.
fn plain(op_id: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    op_id.chars().take(64).map(|c| if is_plain(&c) { c } else { '_' }).collect()
}

fn compress(source: impl Read, path: &Path) -> io::Result<()> {
    let mut source = BufReader::new(source);
    write_atomic(path, |file| {
        let mut encoder = GzEncoder::new(io::BufWriter::new(file), Compression::fast());
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?.flush()
    })
}
