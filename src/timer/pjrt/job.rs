//! A job on a device: its inputs, its candidates, and the runs of these.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use super::cold::Flush;
use super::cut::Cut;
use super::executable::{Call, Executable, read_bounded};
use super::kept::{Array, Kept};
use super::no_device::harmless;
use super::plugin::{Buffer, Client, PjrtError, one_line};
use super::restore::{Fresh, Restorer};
use super::sharding::Sharding;
use crate::array::{ArraySpec, Tolerance};
use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::timer::protocol::{BeginParams, ComparedOutput, Input, KeptOutput, Launch, MAX_KEPT_OUTPUTS};

/// A run that is shorter is awaited awake, for so long.
const SHORT_RUN: Duration = Duration::from_micros(100);
const WATCHED: Duration = Duration::from_millis(1);

/// The most bytes that outputs of a batch may take together to be kept to its end, outside the timed region: more would push
/// the program's own data out of the caches.
const MAX_KEPT_BYTES: u64 = 256 << 10;
/// The most bytes that the donated inputs of a batch may take, which all must be there before it.
const MAX_DONATED_BYTES: u64 = 256 << 20;
/// Of the memory of a device that is free, outputs that are kept there take one part at most: what is run beside them has outputs of
/// its own, and temporaries.
const KEPT_PART: u64 = 4;

/// The donated inputs of a program, by their number and how they are cut.
type DonatedInputs = Vec<(usize, Sharding)>;

/// The job at hand.
pub(super) struct Job {
    client: Rc<Client>,
    /// The first device of every program.
    device: usize,
    inputs: Vec<Input>,
    /// Inputs where programs take them, by their number and how they are cut.
    arguments: BTreeMap<(usize, Sharding), Rc<Argument>>,
    /// What copies the donated inputs, by these, or why nothing does.
    restorers: BTreeMap<DonatedInputs, Result<Rc<Restorer>, String>>,
    candidates: BTreeMap<usize, Candidate>,
    /// Where caches are to be cold.
    flush: Option<Flush>,
    /// Outputs that others are compared with.
    kept: Vec<Kept>,
    /// The most bytes of an output that are on the host to be compared.
    block_bytes: u64,
    /// The fastest run of any candidate so far.
    fastest: Cell<Duration>,
}

/// A candidate that is loaded.
pub(super) struct Candidate {
    executable: Executable,
    arguments: Vec<Rc<Argument>>,
    /// Copies its donated inputs on the device, where they are worth it and have room twice.
    restorer: Option<Rc<Restorer>>,
    /// How its outputs are cut, where it runs on several devices.
    outputs: Option<Vec<Sharding>>,
    /// Bytes of the outputs of one run, once there was one.
    output_bytes: Cell<Option<u64>>,
}

/// An input as a program takes it: a part on each of its devices.
enum Argument {
    /// On the devices for the whole job.
    Kept(Vec<Buffer>),
    /// Given again before every run.
    Donated(Donated),
}

/// An input that runs destroy.
struct Donated {
    input: Input,
    sharding: Sharding,
    part: ArraySpec,
    devices: usize,
    /// Its parts on the host, while runs are given them from there.
    parts: RefCell<Option<Rc<Vec<Vec<u8>>>>>,
}

/// How the donated inputs of a program come to its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Restored {
    /// There are none, or they take next to nothing.
    Nothing,
    /// So many bytes are copied on the device.
    OnDevice(u64),
    /// So many bytes come from the host, because the device makes no copies.
    FromHost { bytes: u64, reason: String },
}

impl Donated {
    /// Its parts on the host, read again where they were let go.
    fn parts(&self) -> Result<Rc<Vec<Vec<u8>>>, PjrtError> {
        if let Some(parts) = self.parts.borrow().as_ref() {
            return Ok(Rc::clone(parts));
        }
        let parts = read_parts(&self.input, &self.sharding, self.devices);
        let parts = Rc::new(parts.map_err(|failure| PjrtError::local(failure.message))?);
        *self.parts.borrow_mut() = Some(Rc::clone(&parts));
        Ok(parts)
    }

    /// Bytes of all parts; an empty one is made again like any other.
    fn bytes(&self) -> u64 {
        self.part.host_bytes().unwrap_or(u64::MAX).max(1).saturating_mul(self.devices as u64)
    }
}

impl Job {
    /// Looks at the inputs. They are loaded with the first candidate, which says where they are to be.
    pub(super) fn begin(
        client: &Rc<Client>,
        device: usize,
        params: &BeginParams,
        block_bytes: u64,
    ) -> Result<Self, Failure> {
        params.inputs.iter().try_for_each(check_input)?;
        // the protocol lets no state through besides warm and cold
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

    /// Adds a candidate, or puts it in the place of one before it, and tells how its donated inputs come to its runs. One that runs on
    /// several devices comes with how its arrays are cut.
    pub(super) fn insert(
        &mut self,
        candidate: usize,
        executable: Executable,
        cut: Option<Cut>,
    ) -> Result<Restored, Failure> {
        let shardings: Vec<Sharding> = match &cut {
            Some(cut) => {
                check_signature(&cut.signature().parameters, &self.inputs)?;
                cut.parameters.iter().map(|(_, sharding)| sharding.clone()).collect()
            }
            None => vec![Sharding::whole(1); self.inputs.len()],
        };
        let mut arguments = Vec::with_capacity(shardings.len());
        for (index, sharding) in shardings.iter().enumerate() {
            arguments.push(self.argument(index, sharding.clone(), executable.devices())?);
        }
        let (restorer, restored) = self.restorer(&arguments, shardings, executable.devices());
        let (outputs, output_bytes) = (cut.map(|cut| cut.outputs), Cell::new(None));
        self.candidates.insert(candidate, Candidate { executable, arguments, restorer, outputs, output_bytes });
        Ok(restored)
    }

    /// What copies the donated inputs of a program, and how they are restored.
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

    /// An input cut so over so many devices, loaded unless it is there already.
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

    /// A candidate that was loaded.
    pub(super) fn find(&self, candidate: usize) -> Result<&Candidate, Failure> {
        self.candidates.get(&candidate).ok_or_else(|| {
            Failure::new(FailureKind::Protocol, format!("candidate {candidate} was not loaded: `load` must come first"))
        })
    }

    /// On how many devices a candidate runs.
    pub(super) fn devices(&self, candidate: usize) -> Result<usize, Failure> {
        self.find(candidate).map(|candidate| candidate.executable.devices())
    }

    /// The outputs of one run that nobody times, as whole arrays, each given to `take` with its number. What several devices
    /// have copies of must be the same on all of them.
    pub(super) fn outputs(
        &self,
        candidate: usize,
        take: impl FnMut(usize, Array) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.whole(candidate, self.run_after(candidate, None, None)?.0, take)
    }

    /// What a run left, as whole arrays.
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

    /// Keeps the outputs of one run, where they take more than so many bytes together and can be told of in a line; nothing is
    /// kept else.
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
            kept.push(Kept::new(array, may_stay, self.block_bytes).map_err(execute_failure)?);
            Ok(())
        })?;
        self.kept = kept;
        Ok(Some(self.kept.iter().map(Kept::told).collect()))
    }

    /// Whether so many bytes may stay on the device for the whole job: that takes no room from a candidate where the device's
    /// memory is the host's, or four times as much is free.
    fn may_stay(&self, bytes: u64) -> bool {
        let is_cpu = self.client.platform_name().is_ok_and(|platform| platform.eq_ignore_ascii_case("cpu"));
        let has_room = || self.client.memory(self.device).is_ok_and(|memory| bytes <= memory.free_bytes() / KEPT_PART);
        is_cpu || has_room()
    }

    /// How the outputs of one run are beside those that are kept.
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
                None => ComparedOutput::untold(array.spec().clone()),
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

    /// One run under a profile, with what [`made_before`](Self::made_before) has of it. The rest comes from the host, since the program
    /// that copies it would stand in the profile as one that was launched.
    pub(super) fn profiled_run(&self, candidate: usize, made: Option<Fresh>) -> Result<(), Failure> {
        let fresh = match made {
            Some(fresh) => fresh,
            None => self.brought_from_host(self.find(candidate)?).map_err(execute_failure)?,
        };
        self.run_after(candidate, self.flush.as_ref(), Some(fresh)).map(drop)
    }

    /// The donated inputs of the runs of a round, as far as a device copies them and they may all be there before it.
    pub(super) fn made_before(&self, launches: &[Launch]) -> Result<VecDeque<Option<Fresh>>, Failure> {
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

    /// The donated inputs are made and the caches are flushed before, and the clock does not see it.
    fn run_after(
        &self,
        candidate: usize,
        flush: Option<&Flush>,
        fresh: Option<Fresh>,
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
        Ok((outputs, elapsed))
    }

    /// For how long a run is awaited awake. Being woken takes as long as a short program, and now this long, now that. It is
    /// the same for all candidates of a job: else the one that is watched would look faster. Where runs are longer the
    /// core is left to the programs.
    fn watched(&self) -> Duration {
        if self.fastest.get() < SHORT_RUN { WATCHED } else { Duration::ZERO }
    }

    /// Whether so many runs of a candidate can be timed together; the inner error says why they are to be timed one by one.
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

    /// The mean of so many runs that are timed together, nanoseconds; all donated inputs are made before.
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

    /// Bytes of a run's outputs, which only a run tells.
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

    /// What a run may destroy, by argument: copied on the device, else from the host.
    fn donate(&self, candidate: &Candidate) -> Result<Fresh, PjrtError> {
        let restorer = candidate.restorer.as_ref().filter(|restorer| !restorer.is_broken());
        match restorer.map(|restorer| restorer.copies()) {
            Some(Ok(copies)) => Ok(copies),
            // no room any more, perhaps: what is there once has it
            Some(Err(_)) | None => self.brought_from_host(candidate),
        }
    }

    fn brought_from_host(&self, candidate: &Candidate) -> Result<Fresh, PjrtError> {
        let made = |donated: &Donated| on_devices(&self.client, self.device, &donated.part, &donated.parts()?);
        donated(&candidate.arguments).map(made).collect()
    }
}

/// The arguments that runs destroy, in their order.
fn donated(arguments: &[Rc<Argument>]) -> impl Iterator<Item = &Donated> {
    arguments.iter().filter_map(|argument| match &**argument {
        Argument::Kept(_) => None,
        Argument::Donated(donated) => Some(donated),
    })
}

/// Keeps donated inputs on the devices; the host lets them go.
fn restorer_of(client: &Rc<Client>, first: usize, devices: usize, donated: &[&Donated]) -> Result<Restorer, PjrtError> {
    let parts = donated.iter().map(|donated| donated.parts()).collect::<Result<Vec<_>, _>>()?;
    let arguments: Vec<_> = donated.iter().zip(&parts).map(|(donated, parts)| (&donated.part, &parts[..])).collect();
    let restorer = Restorer::new(client, first, devices, &arguments)?;
    donated.iter().for_each(|donated| *donated.parts.borrow_mut() = None);
    Ok(restorer)
}

/// The arguments of a run, with what was made for it alone.
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

/// Whether an input's file can be read and is as long as its array.
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

/// Compares what a program takes with the inputs: of parts of a wrong array nobody could tell.
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

/// Reads an input and brings its parts where they are kept.
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
    let parts = (0..devices.len()).map(|device| sharding.cut(&input.spec, &bytes, device));
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

/// The parts of an input on so many devices, for as long as one likes.
fn read_parts(input: &Input, sharding: &Sharding, devices: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let bytes = read(input)?;
    if devices == 1 && sharding.is_whole() {
        return Ok(vec![bytes]);
    }
    let parts = (0..devices).map(|device| sharding.cut(&input.spec, &bytes, device).map(Cow::into_owned));
    parts.collect::<Result<_, _>>().map_err(|message| wrong_input(input, &message))
}

/// Brings parts to the devices that follow each other from the first on.
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
