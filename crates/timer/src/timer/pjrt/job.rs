//! A job on a device: its inputs, its candidates, and their runs.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use super::cache_flush::Flush;
use super::executable::{Call, Executable, read_bounded};
use super::kept::{Array, BaselineOutput};
use super::no_device::harmless;
use super::plugin::{Buffer, Client, PjrtError, one_line};
use super::program_shardings::ProgramShardings;
use super::restore::{DonatedArguments, Restorer};
use super::sharding::Sharding;
use crate::array::{ArraySpec, Tolerance};
use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::timer::protocol::{BeginParams, ComparedOutput, Input, KeptOutput, Launch, MAX_KEPT_OUTPUTS};

/// Completion of runs shorter than `SHORT_RUN` is polled, for up to `WATCHED`.
const SHORT_RUN: Duration = Duration::from_micros(100);
const WATCHED: Duration = Duration::from_millis(1);

/// Maximum bytes of a batch's outputs that are kept until its end and freed outside the timed region. More would evict the
/// program's own data from the caches.
const MAX_KEPT_BYTES: u64 = 256 << 10;
/// Maximum bytes of a batch's donated inputs, because all copies must exist before it starts.
const MAX_DONATED_BYTES: u64 = 256 << 20;
/// Kept outputs take at most a device's free memory divided by this, because the programs that run meanwhile need space for
/// their own outputs and temporaries.
const KEPT_PART: u64 = 4;

/// The donated inputs of a program: their numbers and shardings.
type DonatedInputs = Vec<(usize, Sharding)>;

/// The current job.
pub(super) struct Job {
    client: Rc<Client>,
    /// The first device that every program runs on.
    device: usize,
    inputs: Vec<Input>,
    /// Inputs as programs take them, by number and sharding.
    arguments: BTreeMap<(usize, Sharding), Rc<Argument>>,
    /// What restores donated inputs, by number and sharding, or why nothing does.
    restorers: BTreeMap<DonatedInputs, Result<Rc<Restorer>, String>>,
    candidates: BTreeMap<usize, Candidate>,
    /// How caches are flushed, if they are to be cold.
    flush: Option<Flush>,
    /// Outputs that other outputs are compared with.
    kept: Vec<BaselineOutput>,
    /// Maximum bytes of an output that are on the host for a comparison.
    block_bytes: u64,
    /// The fastest run of any candidate so far.
    fastest: Cell<Duration>,
}

/// A loaded candidate.
pub(super) struct Candidate {
    executable: Executable,
    arguments: Vec<Rc<Argument>>,
    /// Copies its donated inputs on the device, if this pays off and they fit twice.
    restorer: Option<Rc<Restorer>>,
    /// Shardings of its outputs, if it runs on several devices.
    outputs: Option<Vec<Sharding>>,
    /// Bytes of the outputs of one run, known after the first run.
    output_bytes: Cell<Option<u64>>,
    has_run: Cell<bool>,
}

/// An input as a program takes it: one part on each of its devices.
enum Argument {
    /// On the devices for the whole job.
    Kept(Vec<Buffer>),
    /// Restored before every run.
    Donated(Donated),
}

/// An input that a run destroys.
struct Donated {
    input: Input,
    sharding: Sharding,
    part: ArraySpec,
    devices: usize,
    /// Its parts on the host, as long as runs are restored from there.
    parts: RefCell<Option<Rc<Vec<Vec<u8>>>>>,
}

/// How the donated inputs of a program are restored before its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Restored {
    /// There are none, or they are small.
    Nothing,
    /// This many bytes are copied on the device.
    OnDevice(u64),
    /// This many bytes come from the host, because the device cannot copy them.
    FromHost { bytes: u64, reason: String },
}

impl Donated {
    /// Its parts on the host, read again if they were freed.
    fn parts(&self) -> Result<Rc<Vec<Vec<u8>>>, PjrtError> {
        if let Some(parts) = self.parts.borrow().as_ref() {
            return Ok(Rc::clone(parts));
        }
        let parts = read_parts(&self.input, &self.sharding, self.devices);
        let parts = Rc::new(parts.map_err(|failure| PjrtError::local(failure.message))?);
        *self.parts.borrow_mut() = Some(Rc::clone(&parts));
        Ok(parts)
    }

    /// Bytes of all parts; an empty part is restored like any other.
    fn bytes(&self) -> u64 {
        self.part.host_bytes().unwrap_or(u64::MAX).max(1).saturating_mul(self.devices as u64)
    }
}

impl Job {
    /// Checks the inputs. They are loaded with the first candidate, which determines their devices and shardings.
    pub(super) fn begin(
        client: &Rc<Client>,
        device: usize,
        params: &BeginParams,
        block_bytes: u64,
    ) -> Result<Self, Failure> {
        params.inputs.iter().try_for_each(check_input)?;
        // the protocol accepts only warm and cold
        let flush = match params.cache_state.is_warm() {
            true => None,
            false => Some(Flush::of(client, device).map_err(|error| device_failure(&error))?),
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

    /// Adds or replaces a candidate and returns how its donated inputs are restored. One that runs on several devices comes
    /// with its shardings.
    pub(super) fn insert(
        &mut self,
        candidate: usize,
        executable: Executable,
        program_shardings: Option<ProgramShardings>,
    ) -> Result<Restored, Failure> {
        let shardings: Vec<Sharding> = match &program_shardings {
            Some(of_program) => {
                check_signature(&of_program.signature().parameters, &self.inputs)?;
                of_program.parameters.iter().map(|(_, sharding)| sharding.clone()).collect()
            }
            None => vec![Sharding::whole(1); self.inputs.len()],
        };
        let mut arguments = Vec::with_capacity(shardings.len());
        for (index, sharding) in shardings.iter().enumerate() {
            arguments.push(self.argument(index, sharding.clone(), executable.devices())?);
        }
        let (restorer, restored) = self.restorer(&arguments, shardings, executable.devices());
        let outputs = program_shardings.map(|of_program| of_program.outputs);
        let (output_bytes, has_run) = (Cell::new(None), Cell::new(false));
        let loaded = Candidate { executable, arguments, restorer, outputs, output_bytes, has_run };
        self.candidates.insert(candidate, loaded);
        Ok(restored)
    }

    /// The restorer of a program's donated inputs, and how they are restored.
    fn restorer(
        &mut self,
        arguments: &[Rc<Argument>],
        shardings: Vec<Sharding>,
        devices: usize,
    ) -> (Option<Rc<Restorer>>, Restored) {
        let donated: Vec<&Donated> = donated(arguments).collect();
        let bytes = donated.iter().map(|donated| donated.bytes()).fold(0, u64::saturating_add);
        if !Restorer::is_worth(bytes) {
            return (None, Restored::Nothing);
        }
        let is_donated = |index: &usize| self.inputs.get(*index).is_some_and(|input| input.donated);
        let key: DonatedInputs = shardings.into_iter().enumerate().filter(|(index, _)| is_donated(index)).collect();
        let (client, first) = (&self.client, self.device);
        let restorer = self.restorers.entry(key).or_insert_with(|| {
            let made = restorer_of(client, first, devices, &donated).map_err(|error| one_line(&error.message));
            made.map(Rc::new)
        });
        match restorer {
            Ok(restorer) => (Some(Rc::clone(restorer)), Restored::OnDevice(restorer.bytes())),
            Err(reason) => (None, Restored::FromHost { bytes, reason: reason.clone() }),
        }
    }

    /// An input with this sharding on this many devices, loaded on first use.
    fn argument(&mut self, index: usize, sharding: Sharding, devices: usize) -> Result<Rc<Argument>, Failure> {
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
    pub(super) fn find(&self, candidate: usize) -> Result<&Candidate, Failure> {
        self.candidates.get(&candidate).ok_or_else(|| {
            Failure::new(FailureKind::Protocol, format!("candidate {candidate} was not loaded: `load` must come first"))
        })
    }

    /// Number of devices that a candidate runs on.
    pub(super) fn devices(&self, candidate: usize) -> Result<usize, Failure> {
        self.find(candidate).map(|candidate| candidate.executable.devices())
    }

    /// Passes the outputs of one untimed run to `take` as whole arrays, each with its number. Copies on several devices must be
    /// equal.
    pub(super) fn outputs(
        &self,
        candidate: usize,
        take: impl FnMut(usize, Array) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.whole(candidate, self.run_after(candidate, None, None)?.0, take)
    }

    /// The outputs of a run as whole arrays.
    fn whole(
        &self,
        candidate: usize,
        outputs: Vec<Buffer>,
        mut take: impl FnMut(usize, Array) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Candidate { executable, outputs: shardings, .. } = self.find(candidate)?;
        let count = executable.outputs();
        if outputs.len() != count.saturating_mul(executable.devices()) {
            let message = format!("{} outputs on {} devices, {count} on each", outputs.len(), executable.devices());
            return Err(Failure::new(FailureKind::Execute, message));
        }
        let Some(shardings) = shardings else {
            let arrays = outputs.into_iter().map(Array::on_device).enumerate();
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
            take(index, Array::here(spec, bytes))?;
        }
        Ok(())
    }

    /// Keeps the outputs of one run if they take more than `above` bytes together and their description fits into a line;
    /// otherwise keeps nothing.
    pub(super) fn keep_outputs(&mut self, candidate: usize, above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
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

    /// Whether so many bytes may stay on the device for the whole job. They take no space from a candidate if the device's
    /// memory is the host's, or if four times as much is free.
    fn may_stay(&self, bytes: u64) -> bool {
        let is_cpu = self.client.platform_name().is_ok_and(|platform| platform.eq_ignore_ascii_case("cpu"));
        let has_room = || self.client.memory(self.device).is_ok_and(|memory| bytes <= memory.free_bytes() / KEPT_PART);
        is_cpu || has_room()
    }

    /// Compares the outputs of one run with the kept ones.
    pub(super) fn compare_outputs(
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
    pub(super) fn timed_run(&self, candidate: usize) -> Result<u64, Failure> {
        self.run_after(candidate, self.flush.as_ref(), None).map(|(_, elapsed)| nanoseconds(elapsed))
    }

    /// Runs a candidate that has not run yet. The first run loads code onto a GPU. If XLA captures the kernels of a custom call
    /// for a command buffer, it launches them one by one, and a profile would name them differently than in later runs.
    pub(super) fn first_run(&self, candidate: usize) -> Result<(), Failure> {
        if self.find(candidate)?.has_run.get() {
            return Ok(());
        }
        self.run_after(candidate, None, None).map(drop)
    }

    /// One run under a profile, with the copies of [`made_before`](Self::made_before). Other inputs come from the host, because
    /// the program that copies them on the device would appear in the profile as a launched one.
    pub(super) fn profiled_run(&self, candidate: usize, made: Option<DonatedArguments>) -> Result<(), Failure> {
        let fresh = match made {
            Some(fresh) => fresh,
            None => self.brought_from_host(self.find(candidate)?).map_err(execute_failure)?,
        };
        self.run_after(candidate, self.flush.as_ref(), Some(fresh)).map(drop)
    }

    /// Copies the donated inputs of a round's runs in advance, if the device can and as far as their size is within the limit.
    pub(super) fn made_before(&self, launches: &[Launch]) -> Result<VecDeque<Option<DonatedArguments>>, Failure> {
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
        flush: Option<&Flush>,
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

    /// For how long completion is polled. Waking a thread takes as long as a short program, and the latency varies. It is the
    /// same for all candidates of a job, because a polled one would otherwise look faster. Longer runs are not polled, so that
    /// the programs have the core.
    fn watched(&self) -> Duration {
        if self.fastest.get() < SHORT_RUN { WATCHED } else { Duration::ZERO }
    }

    /// Whether `batch` runs of a candidate can be timed together; the inner error says why they are timed one by one.
    pub(super) fn check_batch(&self, candidate: usize, batch: u32) -> Result<Result<(), String>, Failure> {
        if self.flush.is_some() {
            let message = "a batch would warm the caches, which must be cold: request single runs";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let bytes = donated_bytes(self.find(candidate)?).saturating_mul(u64::from(batch));
        if bytes <= MAX_DONATED_BYTES {
            return Ok(Ok(()));
        }
        Ok(Err(format!(
            "runs were timed one by one: the donated inputs of {batch} take {bytes} bytes, {MAX_DONATED_BYTES} are allowed"
        )))
    }

    /// The mean of `batch` runs that are timed together, in nanoseconds; all donated inputs are restored in advance.
    pub(super) fn timed_batch(&self, candidate: usize, batch: u32) -> Result<u64, Failure> {
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
    fn donate(&self, candidate: &Candidate) -> Result<DonatedArguments, PjrtError> {
        let restorer = candidate.restorer.as_ref().filter(|restorer| !restorer.is_broken());
        match restorer.map(|restorer| restorer.copies()) {
            Some(Ok(copies)) => Ok(copies),
            // memory may have run out: inputs from the host need no second copy on the device
            Some(Err(_)) | None => self.brought_from_host(candidate),
        }
    }

    fn brought_from_host(&self, candidate: &Candidate) -> Result<DonatedArguments, PjrtError> {
        let made = |donated: &Donated| on_devices(&self.client, self.device, &donated.part, &donated.parts()?);
        donated(&candidate.arguments).map(made).collect()
    }
}

/// The donated arguments, in order.
fn donated(arguments: &[Rc<Argument>]) -> impl Iterator<Item = &Donated> {
    arguments.iter().filter_map(|argument| match &**argument {
        Argument::Kept(_) => None,
        Argument::Donated(donated) => Some(donated),
    })
}

/// Keeps donated inputs on the devices and frees them on the host.
fn restorer_of(client: &Rc<Client>, first: usize, devices: usize, donated: &[&Donated]) -> Result<Restorer, PjrtError> {
    let parts = donated.iter().map(|donated| donated.parts()).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<_> = donated.iter().zip(&parts).map(|(donated, parts)| (&donated.part, &parts[..])).collect();
    let restorer = Restorer::new(client, first, devices, &arguments)?;
    donated.iter().for_each(|donated| *donated.parts.borrow_mut() = None);
    Ok(restorer)
}

/// The arguments of a run, with the copies made for it.
fn call<'a>(candidate: &'a Candidate, fresh: &'a [Vec<Buffer>]) -> Result<Call<'a>, PjrtError> {
    let mut donated = fresh.iter();
    let arguments = candidate.arguments.iter().filter_map(|argument| match &**argument {
        Argument::Kept(parts) => Some((parts.as_slice(), false)),
        Argument::Donated(_) => donated.next().map(|parts| (parts.as_slice(), true)),
    });
    Call::new(candidate.executable.devices(), &arguments.collect::<Vec<_>>())
}

fn donated_bytes(candidate: &Candidate) -> u64 {
    donated(&candidate.arguments).map(Donated::bytes).fold(0, u64::saturating_add)
}

fn wrong_input(input: &Input, message: &str) -> Failure {
    Failure::new(FailureKind::Signature, format!("input `{}`: {message}", one_line(&input.name)))
}

/// Checks that an input's file is readable and as long as its array.
fn check_input(input: &Input) -> Result<(), Failure> {
    let Input { spec, path, .. } = input;
    let expected = spec.host_bytes();
    let expected = expected.ok_or_else(|| wrong_input(input, &format!("{spec} is larger than any memory")))?;
    let length = outside_file::open(path, expected).and_then(|file| file.metadata()).map(|metadata| metadata.len());
    match length {
        Ok(length) if length == expected => Ok(()),
        Ok(length) => Err(wrong_input(input, &format!("{length} bytes are not an array {spec}"))),
        Err(error) => Err(wrong_input(input, &format!("{}: cannot be read: {error}", path.display()))),
    }
}

/// Compares a program's parameters with the inputs, because a part of a wrong array would go unnoticed.
fn check_signature(parameters: &[ArraySpec], inputs: &[Input]) -> Result<(), Failure> {
    if parameters.len() != inputs.len() {
        let message = format!("the program takes {} arguments, {} are given", parameters.len(), inputs.len());
        return Err(Failure::new(FailureKind::Signature, message));
    }
    let mut pairs = parameters.iter().zip(inputs);
    match pairs.find(|(parameter, input)| **parameter != input.spec) {
        Some((parameter, input)) => {
            Err(wrong_input(input, &format!("is {}, the program takes {parameter}", input.spec)))
        }
        None => Ok(()),
    }
}

/// Reads an input and loads its parts: onto the devices, or to the host if it is donated.
fn load(client: &Rc<Client>, devices: Range<usize>, input: &Input, sharding: &Sharding) -> Result<Argument, Failure> {
    let wrong = |message: String| wrong_input(input, &message);
    let part = sharding.part_of(&input.spec).map_err(wrong)?;
    if input.donated {
        let parts = read_parts(input, sharding, devices.len())?;
        let (input, sharding, devices) = (input.clone(), sharding.clone(), devices.len());
        let parts = RefCell::new(Some(Rc::new(parts)));
        return Ok(Argument::Donated(Donated { input, sharding, part, devices, parts }));
    }
    let bytes = read(input)?;
    let parts = (0..devices.len()).map(|device| sharding.slice(&input.spec, &bytes, device));
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let kept = on_devices(client, devices.start, &part, &parts);
    kept.map(Argument::Kept).map_err(|error| wrong(one_line(&error.message)))
}

/// The bytes of an input.
fn read(input: &Input) -> Result<Vec<u8>, Failure> {
    let Input { spec, path, .. } = input;
    let wrong = |message: String| wrong_input(input, &message);
    let bytes = read_bounded(path, spec.host_bytes().unwrap_or(u64::MAX)).map_err(|error| wrong(error.message))?;
    match spec.host_bytes() == u64::try_from(bytes.len()).ok() {
        true => Ok(bytes),
        false => Err(wrong(format!("{} bytes are not an array {spec}", bytes.len()))),
    }
}

/// The parts of an input on `devices` devices, owned.
fn read_parts(input: &Input, sharding: &Sharding, devices: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let bytes = read(input)?;
    if devices == 1 && sharding.is_whole() {
        return Ok(vec![bytes]);
    }
    let parts = (0..devices).map(|device| sharding.slice(&input.spec, &bytes, device).map(Cow::into_owned));
    parts.collect::<Result<_, _>>().map_err(|message| wrong_input(input, &message))
}

/// Transfers parts to consecutive devices from the first on.
fn on_devices(
    client: &Rc<Client>,
    first: usize,
    part: &ArraySpec,
    parts: &[impl AsRef<[u8]>],
) -> Result<Vec<Buffer>, PjrtError> {
    let devices = first..first.saturating_add(parts.len());
    devices.zip(parts).map(|(device, bytes)| Buffer::from_host(client, device, part, bytes.as_ref())).collect()
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn execute_failure(error: PjrtError) -> Failure {
    Failure::new(FailureKind::Execute, one_line(&error.message))
}

pub(super) fn device_failure(error: &PjrtError) -> Failure {
    Failure::new(FailureKind::Device, one_line(&harmless(&error.message)))
}
