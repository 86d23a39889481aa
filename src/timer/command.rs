//! `command:…`: a timer whose worker is any program that speaks the protocol of `docs/worker-protocol.md`.

use std::path::Path;

use super::bench::Bench;
use super::client::{Limits, WorkerClient, WorkerCommand};
use super::model::{Failure, FailureKind, Job, JobCandidate, OutputArray, Prepared, Source, Timer};
use super::protocol::{LoadParams, ProgramRef, capability};
use crate::device::DeviceFingerprint;

/// Drives one worker of someone else's.
pub struct CommandTimer {
    name: String,
    bench: Bench,
    device: DeviceFingerprint,
    job: Option<Job>,
}

impl CommandTimer {
    /// Starts the command, as `sh` understands it, and asks who is there. `exe` is this program.
    pub fn start(exe: &Path, command: &str, limits: Limits) -> Result<Self, Failure> {
        let worker = WorkerCommand::shell(exe, command);
        let mut client = WorkerClient::spawn(&worker, &limits)?;
        let hello = client.hello(&limits)?;
        let device = hello.devices.get(hello.device).cloned();
        let device = device.ok_or_else(|| Failure::new(FailureKind::Device, "the worker shows no device"))?;
        Ok(Self {
            name: format!("command:{command}"),
            bench: Bench::new(worker, limits, client, hello),
            device,
            job: None,
        })
    }

    /// What the worker wants the user to know.
    pub fn notes(&self) -> &[String] {
        &self.bench.hello().notes
    }
}

impl Timer for CommandTimer {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> Source {
        self.bench.hello().source
    }

    fn device(&self) -> &DeviceFingerprint {
        &self.device
    }

    fn builds_programs(&self) -> bool {
        self.bench.hello().can(capability::BUILD_PROGRAMS)
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.bench.revive()?;
        self.job = Some(job.clone());
        self.bench.begin(job)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let JobCandidate { config, program } = find(&self.job, candidate)?;
        if program.is_none() && !self.bench.hello().can(capability::BUILD_PROGRAMS) {
            let message = format!("candidate {candidate} has no program and the worker cannot build one");
            return Err(Failure::new(FailureKind::NoProgram, message));
        }
        let program = program.as_ref().map(|file| ProgramRef { format: file.program.format, path: file.path.clone() });
        let params = LoadParams { candidate, config: config.clone(), program, executable: None };
        let loaded = self.bench.load(params)?;
        Ok(Prepared { compile_ns: loaded.compile_ns, reused: false })
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.bench.measure(candidate, runs)
    }

    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        let folder = scratch(&self.job)?;
        self.bench.outputs(candidate, folder)
    }

    fn epoch(&self) -> u32 {
        self.bench.epoch()
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.bench.restart(without)
    }

    fn end(&mut self) {
        self.job = None;
        self.bench.end();
    }
}

impl Drop for CommandTimer {
    fn drop(&mut self) {
        self.bench.shutdown();
    }
}

/// A candidate of the job at hand.
pub(crate) fn find(job: &Option<Job>, candidate: usize) -> Result<&JobCandidate, Failure> {
    let job = job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was begun"))?;
    job.candidates
        .get(candidate)
        .ok_or_else(|| Failure::new(FailureKind::Protocol, format!("the job has no candidate {candidate}")))
}

pub(crate) fn scratch(job: &Option<Job>) -> Result<std::path::PathBuf, Failure> {
    let job = job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was begun"))?;
    Ok(job.scratch.clone())
}
