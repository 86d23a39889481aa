//! A job on a device: its inputs, its candidates, and their runs.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::buffer::Buffer;
use super::cache_flush::CacheFlush;
use super::executable::{DeviceArguments, Executable};
use super::inputs::{DonatedInput, ProgramArgument, check_input, donated, load, restorer_of};
use super::kept::{BaselineOutput, RunOutput};
use super::program_shardings::ProgramShardings;
use super::restore::{DonatedArguments, Restorer};
use super::sharding::Sharding;
use crate::array::Tolerance;
use crate::failure::{Failure, FailureKind};
use crate::timer::argument_check::check_signature;
use crate::timer::clock::nanoseconds;
use crate::timer::job::InputArray;
use crate::timer::pjrt::plugin::{Client, PjrtError, device_failure, one_line};
use crate::timer::protocol::{BeginParams, ComparedOutput, KeptOutput, LaunchedRuns, MAX_KEPT_OUTPUTS};

/// Completion of runs shorter than `SHORT_RUN` is polled, for up to `WATCHED`.
const SHORT_RUN: Duration = Duration::from_micros(100);
const WATCHED: Duration = Duration::from_millis(1);

/// Maximum bytes of a batch's outputs that are kept until its end and freed outside the timed region. More would evict
/// the program's own data from the caches.
const MAX_KEPT_BYTES: u64 = 256 << 10;
/// Maximum bytes of a batch's donated inputs, because all copies must exist before it starts.
const MAX_DONATED_BYTES: u64 = 256 << 20;
/// Kept outputs take at most a device's free memory divided by this, because the programs that run meanwhile need space
/// for their own outputs and temporaries.
const KEPT_PART: u64 = 4;

/// The donated inputs of a program: their numbers and shardings.
type DonatedInputs = Vec<(usize, Sharding)>;

/// The current job.
pub(crate) struct DeviceJob {
    client: Rc<Client>,
    /// The first device that every program runs on.
    device: usize,
    inputs: Vec<InputArray>,
    /// Inputs as programs take them, by number and sharding.
    arguments: BTreeMap<(usize, Sharding), Rc<ProgramArgument>>,
    /// What restores donated inputs, by number and sharding, or why nothing does.
    restorers: BTreeMap<DonatedInputs, Result<Rc<Restorer>, String>>,
    candidates: BTreeMap<usize, LoadedCandidate>,
    /// How caches are flushed, if they are to be cold.
    flush: Option<CacheFlush>,
    /// Outputs that other outputs are compared with.
    kept: Vec<BaselineOutput>,
    /// Maximum bytes of an output that are on the host for a comparison.
    block_bytes: u64,
    /// The fastest run of any candidate so far.
    fastest: Cell<Duration>,
}

/// A loaded candidate.
pub(crate) struct LoadedCandidate {
    executable: Executable,
    arguments: Vec<Rc<ProgramArgument>>,
    /// Copies its donated inputs on the device, if this pays off and they fit twice.
    restorer: Option<Rc<Restorer>>,
    /// Shardings of its outputs, if it runs on several devices.
    outputs: Option<Vec<Sharding>>,
    /// Bytes of the outputs of one run, known after the first run.
    output_bytes: Cell<Option<u64>>,
    has_run: Cell<bool>,
}

/// How the donated inputs of a program are restored before its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestoredInputs {
    /// There are none, or they are small.
    Nothing,
    /// This many bytes are copied on the device.
    OnDevice(u64),
    /// This many bytes come from the host, because the device cannot copy them.
    FromHost { bytes: u64, reason: String },
}

impl DeviceJob {
    /// Checks the inputs. They are loaded with the first candidate, which determines their devices and shardings.
    pub(crate) fn begin(
        client: &Rc<Client>,
        device: usize,
        params: &BeginParams,
        block_bytes: u64,
    ) -> Result<Self, Failure> {
        params.inputs.iter().try_for_each(check_input)?;
        // the protocol accepts only warm and cold
        let flush = match params.cache_state.is_warm() {
            true => None,
            false => Some(CacheFlush::of(client, device).map_err(|error| device_failure(&error))?),
        };
        Ok(Self {
            client: Rc::clone(client),
            device,
            inputs: params.inputs.clone(),
            arguments: BTreeMap::new(),
            restorers: BTreeMap::new(),
            candidates: BTreeMap::new(),
            flush,
            kept: Vec::new(),
            block_bytes,
            fastest: Cell::new(Duration::MAX),
        })
    }

    /// Adds or replaces a candidate and returns how its donated inputs are restored. One that runs on several devices
    /// comes with its shardings.
    pub(crate) fn insert(
        &mut self,
        candidate: usize,
        executable: Executable,
        program_shardings: Option<ProgramShardings>,
    ) -> Result<RestoredInputs, Failure> {
        let shardings: Vec<Sharding> = match &program_shardings {
            Some(of_program) => {
                check_signature(&of_program.signature(), &self.inputs)?;
                of_program.parameters.iter().map(|(_, sharding)| sharding.clone()).collect()
            }
            None => vec![Sharding::whole(1); self.inputs.len()],
        };
        let mut arguments = Vec::with_capacity(shardings.len());
        for (index, sharding) in shardings.iter().enumerate() {
            arguments.push(self.argument(index, sharding.clone(), executable.devices())?);
        }
        if let Some(flush) = &self.flush {
            flush.prepare(executable.devices()).map_err(|error| device_failure(&error))?;
        }
        let (restorer, restored) = self.restorer(&arguments, shardings, executable.devices());
        let outputs = program_shardings.map(|of_program| of_program.outputs);
        let (output_bytes, has_run) = (Cell::new(None), Cell::new(false));
        let loaded = LoadedCandidate { executable, arguments, restorer, outputs, output_bytes, has_run };
        self.candidates.insert(candidate, loaded);
        Ok(restored)
    }

    /// The restorer of a program's donated inputs, and how they are restored.
    fn restorer(
        &mut self,
        arguments: &[Rc<ProgramArgument>],
        shardings: Vec<Sharding>,
        devices: usize,
    ) -> (Option<Rc<Restorer>>, RestoredInputs) {
        let donated: Vec<&DonatedInput> = donated(arguments).collect();
        let bytes = donated.iter().map(|donated| donated.bytes()).fold(0, u64::saturating_add);
        if !Restorer::is_worth(bytes) {
            return (None, RestoredInputs::Nothing);
        }
        let is_donated = |index: &usize| self.inputs.get(*index).is_some_and(|input| input.donated);
        let key: DonatedInputs = shardings.into_iter().enumerate().filter(|(index, _)| is_donated(index)).collect();
        let (client, first) = (&self.client, self.device);
        let restorer = self.restorers.entry(key).or_insert_with(|| {
            let made = restorer_of(client, first, devices, &donated).map_err(|error| one_line(&error.message));
            made.map(Rc::new)
        });
        match restorer {
            Ok(restorer) => (Some(Rc::clone(restorer)), RestoredInputs::OnDevice(restorer.bytes())),
            Err(reason) => (None, RestoredInputs::FromHost { bytes, reason: reason.clone() }),
        }
    }

    /// An input with this sharding on this many devices, loaded on first use.
    fn argument(&mut self, index: usize, sharding: Sharding, devices: usize) -> Result<Rc<ProgramArgument>, Failure> {
        let key = (index, sharding);
        if let Some(argument) = self.arguments.get(&key) {
            return Ok(Rc::clone(argument));
        }
        let missing = || Failure::new(FailureKind::Signature, format!("there is no input {index}"));
        let input = self.inputs.get(index).ok_or_else(missing)?;
        let argument = Rc::new(load(&self.client, self.device..self.device.saturating_add(devices), input, &key.1)?);
        self.arguments.insert(key, Rc::clone(&argument));
        Ok(argument)
    }

    /// A loaded candidate.
    pub(crate) fn find(&self, candidate: usize) -> Result<&LoadedCandidate, Failure> {
        self.candidates.get(&candidate).ok_or_else(|| {
            Failure::new(FailureKind::Protocol, format!("candidate {candidate} was not loaded: `load` must come first"))
        })
    }

    /// Number of devices that a candidate runs on.
    pub(crate) fn devices(&self, candidate: usize) -> Result<usize, Failure> {
        self.find(candidate).map(|candidate| candidate.executable.devices())
    }

    /// Passes the outputs of one untimed run to `take` as whole arrays, each with its number. Copies on several devices
    /// must be equal.
    pub(crate) fn outputs(
        &self,
        candidate: usize,
        take: impl FnMut(usize, RunOutput) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.whole(candidate, self.run_after(candidate, None, None)?.0, take)
    }

    /// The outputs of a run as whole arrays.
    fn whole(
        &self,
        candidate: usize,
        outputs: Vec<Buffer>,
        mut take: impl FnMut(usize, RunOutput) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let LoadedCandidate { executable, outputs: shardings, .. } = self.find(candidate)?;
        let count = executable.outputs();
        if outputs.len() != count.saturating_mul(executable.devices()) {
            let message = format!("{} outputs on {} devices, {count} on each", outputs.len(), executable.devices());
            return Err(Failure::new(FailureKind::Execute, message));
        }
        let Some(shardings) = shardings else {
            let arrays = outputs.into_iter().map(RunOutput::on_device).enumerate();
            return arrays.take(count).try_for_each(|(index, array)| take(index, array.map_err(execute_failure)?));
        };
        for (index, sharding) in (0..count).zip(shardings) {
            let mut spec = None;
            let mut parts = Vec::new();
            for buffer in outputs.iter().skip(index).step_by(count) {
                let part = buffer.spec().map_err(execute_failure)?;
                parts.push(buffer.to_host(&part).map_err(execute_failure)?);
                spec.get_or_insert(part);
            }
            let Some(spec) = spec else { continue };
            let (spec, bytes) = sharding.join(&spec, parts).map_err(|reason| {
                Failure::new(FailureKind::WrongOutput, format!("output {index} is not a whole array: {reason}"))
            })?;
            take(index, RunOutput::here(spec, bytes))?;
        }
        Ok(())
    }

    /// Keeps the outputs of one run if they take more than `above` bytes together and their description fits into a
    /// line; otherwise keeps nothing.
    pub(crate) fn keep_outputs(&mut self, candidate: usize, above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
        self.kept = Vec::new();
        let found = self.find(candidate)?;
        let is_small = found.output_bytes.get().is_some_and(|bytes| bytes <= above);
        if is_small || found.executable.outputs() > MAX_KEPT_OUTPUTS {
            return Ok(None);
        }
        let outputs = self.run_after(candidate, None, None)?.0;
        let bytes = self.note_bytes(candidate, &outputs)?;
        if bytes <= above {
            return Ok(None);
        }
        let may_stay = self.may_stay(bytes);
        let mut kept = Vec::new();
        self.whole(candidate, outputs, |_, array| {
            kept.push(BaselineOutput::new(array, may_stay, self.block_bytes).map_err(execute_failure)?);
            Ok(())
        })?;
        self.kept = kept;
        Ok(Some(self.kept.iter().map(BaselineOutput::to_message).collect()))
    }

    /// Whether so many bytes may stay on the device for the whole job. They take no space from a candidate if the
    /// device's memory is the host's, or if four times as much is free.
    fn may_stay(&self, bytes: u64) -> bool {
        let is_cpu = self.client.platform_name().is_ok_and(|platform| platform.eq_ignore_ascii_case("cpu"));
        let has_room = || self.client.memory(self.device).is_ok_and(|memory| bytes <= memory.free_bytes() / KEPT_PART);
        is_cpu || has_room()
    }

    /// Compares the outputs of one run with the kept ones.
    pub(crate) fn compare_outputs(
        &self,
        candidate: usize,
        tolerances: &[Tolerance],
    ) -> Result<Vec<ComparedOutput>, Failure> {
        if self.kept.is_empty() || tolerances.len() != self.kept.len() {
            let (kept, given) = (self.kept.len(), tolerances.len());
            let message =
                format!("{kept} outputs are kept, {given} tolerances are given: `keep-outputs` must come first");
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let mut compared = Vec::new();
        self.outputs(candidate, |index, array| {
            let found = match self.kept.get(index).zip(tolerances.get(index)) {
                Some((kept, &tolerance)) => kept.compare(array, tolerance).map_err(execute_failure)?,
                None => ComparedOutput::spec_only(array.spec().clone()),
            };
            compared.push(found);
            Ok(())
        })?;
        Ok(compared)
    }

    /// One run, nanoseconds.
    pub(crate) fn timed_run(&self, candidate: usize) -> Result<u64, Failure> {
        self.run_after(candidate, self.flush.as_ref(), None).map(|(_, elapsed)| nanoseconds(elapsed))
    }

    /// Runs a candidate that has not run yet. The first run loads code onto a GPU. If XLA captures the kernels of a
    /// custom call for a command buffer, it launches them one by one, and a profile would name them differently than in
    /// later runs.
    pub(crate) fn first_run(&self, candidate: usize) -> Result<(), Failure> {
        if self.find(candidate)?.has_run.get() {
            return Ok(());
        }
        self.run_after(candidate, None, None).map(drop)
    }

    /// One run under a profile, with the copies of [`made_before`](Self::made_before). Other inputs come from the host,
    /// because the program that copies them on the device would appear in the profile as a launched one.
    pub(crate) fn profiled_run(&self, candidate: usize, made: Option<DonatedArguments>) -> Result<(), Failure> {
        let fresh = match made {
            Some(fresh) => fresh,
            None => self.brought_from_host(self.find(candidate)?).map_err(execute_failure)?,
        };
        self.run_after(candidate, self.flush.as_ref(), Some(fresh)).map(drop)
    }

    /// Copies the donated inputs of a round's runs in advance, if the device can and as far as their size is within the
    /// limit.
    pub(crate) fn made_before(&self, launches: &[LaunchedRuns]) -> Result<VecDeque<Option<DonatedArguments>>, Failure> {
        let (mut made, mut bytes) = (VecDeque::new(), 0_u64);
        for launch in launches {
            let candidate = self.find(launch.candidate)?;
            for _ in 0..launch.runs {
                let restorer = candidate.restorer.as_ref().filter(|restorer| !restorer.is_broken());
                let all = restorer.map_or(0, |restorer| bytes.saturating_add(restorer.bytes()));
                let restorer = restorer.filter(|_| all <= MAX_DONATED_BYTES);
                let copies = restorer.and_then(|restorer| restorer.copies().ok());
                bytes = if copies.is_some() { all } else { bytes };
                made.push_back(copies);
            }
        }
        Ok(made)
    }

    /// Restores donated inputs and flushes the caches before the run, outside the timed region.
    fn run_after(
        &self,
        candidate: usize,
        flush: Option<&CacheFlush>,
        fresh: Option<DonatedArguments>,
    ) -> Result<(Vec<Buffer>, Duration), Failure> {
        let candidate = self.find(candidate)?;
        let executable = &candidate.executable;
        let fresh = fresh.map_or_else(|| self.donate(candidate), Ok).map_err(execute_failure)?;
        let call = call(candidate, &fresh).map_err(execute_failure)?;
        if let Some(flush) = flush {
            flush.run(executable.devices()).map_err(|error| device_failure(&error))?;
        }
        let (outputs, elapsed) = executable.run(&call, self.watched()).map_err(execute_failure)?;
        self.fastest.set(self.fastest.get().min(elapsed));
        candidate.has_run.set(true);
        Ok((outputs, elapsed))
    }

    /// For how long completion is polled. Waking a thread takes as long as a short program, and the latency varies. It
    /// is the same for all candidates of a job, because a polled one would otherwise look faster. Longer runs are not
    /// polled, so that the programs have the core.
    fn watched(&self) -> Duration {
        if self.fastest.get() < SHORT_RUN { WATCHED } else { Duration::ZERO }
    }

    /// Whether `batch` runs of a candidate can be timed together; the inner error says why they are timed one by one.
    pub(crate) fn check_batch(&self, candidate: usize, batch: u32) -> Result<Result<(), String>, Failure> {
        if self.flush.is_some() {
            let message = "a batch would warm the caches, which must be cold: request single runs";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let bytes = donated_bytes(self.find(candidate)?).saturating_mul(u64::from(batch));
        if bytes <= MAX_DONATED_BYTES {
            return Ok(Ok(()));
        }
        Ok(Err(format!(
            "runs were timed one by one: the donated inputs of {batch} take {bytes} bytes, {MAX_DONATED_BYTES} are \
             allowed"
        )))
    }

    /// The mean of `batch` runs that are timed together, in nanoseconds; all donated inputs are restored in advance.
    pub(crate) fn timed_batch(&self, candidate: usize, batch: u32) -> Result<u64, Failure> {
        let output_bytes = self.output_bytes(candidate)?;
        let candidate = self.find(candidate)?;
        let sets = if donated_bytes(candidate) == 0 { 1 } else { batch };
        let fresh =
            (0..sets).map(|_| self.donate(candidate)).collect::<Result<Vec<_>, _>>().map_err(execute_failure)?;
        let calls = fresh.iter().map(|fresh| call(candidate, fresh)).collect::<Result<Vec<_>, _>>();
        let calls = calls.map_err(execute_failure)?;
        let keeps_outputs = output_bytes.saturating_mul(u64::from(batch)) <= MAX_KEPT_BYTES;
        let elapsed =
            candidate.executable.run_batch(&calls, batch, keeps_outputs, self.watched()).map_err(execute_failure)?;
        let count = u128::from(batch.max(1));
        Ok(u64::try_from((elapsed.as_nanos() + count / 2) / count).unwrap_or(u64::MAX))
    }

    /// Bytes of a run's outputs, which only a run reveals.
    fn output_bytes(&self, candidate: usize) -> Result<u64, Failure> {
        match self.find(candidate)?.output_bytes.get() {
            Some(bytes) => Ok(bytes),
            None => self.note_bytes(candidate, &self.run_after(candidate, None, None)?.0),
        }
    }

    fn note_bytes(&self, candidate: usize, outputs: &[Buffer]) -> Result<u64, Failure> {
        let mut bytes: u64 = 0;
        for output in outputs {
            let spec = output.spec().map_err(execute_failure)?;
            bytes = bytes.saturating_add(spec.host_bytes().unwrap_or(u64::MAX));
        }
        self.find(candidate)?.output_bytes.set(Some(bytes));
        Ok(bytes)
    }

    /// The donated arguments of one run: copied on the device, or else from the host.
    fn donate(&self, candidate: &LoadedCandidate) -> Result<DonatedArguments, PjrtError> {
        let restorer = candidate.restorer.as_ref().filter(|restorer| !restorer.is_broken());
        match restorer.map(|restorer| restorer.copies()) {
            Some(Ok(copies)) => Ok(copies),
            // memory may have run out: inputs from the host need no second copy on the device
            Some(Err(_)) | None => self.brought_from_host(candidate),
        }
    }

    fn brought_from_host(&self, candidate: &LoadedCandidate) -> Result<DonatedArguments, PjrtError> {
        donated(&candidate.arguments).map(|donated| donated.brought(&self.client, self.device)).collect()
    }
}

/// The arguments of a run, with the copies made for it.
fn call<'a>(candidate: &'a LoadedCandidate, fresh: &'a [Vec<Buffer>]) -> Result<DeviceArguments<'a>, PjrtError> {
    let mut donated = fresh.iter();
    let arguments = candidate.arguments.iter().filter_map(|argument| match &**argument {
        ProgramArgument::Kept(parts) => Some((parts.as_slice(), false)),
        ProgramArgument::Donated(_) => donated.next().map(|parts| (parts.as_slice(), true)),
    });
    DeviceArguments::new(candidate.executable.devices(), &arguments.collect::<Vec<_>>())
}

fn donated_bytes(candidate: &LoadedCandidate) -> u64 {
    donated(&candidate.arguments).map(DonatedInput::bytes).fold(0, u64::saturating_add)
}

pub(crate) fn execute_failure(error: PjrtError) -> Failure {
    Failure::new(FailureKind::Execute, one_line(&error.message))
}
