//! A job on a device: its inputs, its candidates, and the runs of these.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::cold::Flush;
use super::executable::{Call, Executable, read_bounded};
use super::plugin::{Buffer, Client, PjrtError, one_line};
use crate::array::ArraySpec;
use crate::failure::{Failure, FailureKind};
use crate::timer::protocol::{BeginParams, Input};

/// A run that is shorter is awaited awake, for so long.
const SHORT_RUN: Duration = Duration::from_micros(100);
const WATCHED: Duration = Duration::from_millis(1);

/// The most bytes that outputs of a batch may take together to be kept to its end, outside the timed region: more would push
/// the program's own data out of the caches.
const MAX_KEPT_BYTES: u64 = 256 << 10;
/// The most bytes that the donated inputs of a batch may take, which all must be there before it.
const MAX_DONATED_BYTES: u64 = 256 << 20;

/// The job at hand.
pub(super) struct Job {
    client: Rc<Client>,
    device: usize,
    inputs: Vec<LoadedInput>,
    candidates: BTreeMap<usize, Candidate>,
    /// Where caches are to be cold.
    flush: Option<Flush>,
    /// The fastest run of any candidate so far.
    fastest: Cell<Duration>,
}

/// A candidate that is loaded.
pub(super) struct Candidate {
    executable: Executable,
    /// Bytes of the outputs of one run, once there was one.
    output_bytes: Cell<Option<u64>>,
}

struct LoadedInput {
    spec: ArraySpec,
    array: InputArray,
}

enum InputArray {
    /// On the device for the whole job.
    Kept(Buffer),
    /// On the host, given anew before every run.
    Donated(Vec<u8>),
}

impl Job {
    /// Loads the inputs.
    pub(super) fn begin(client: &Rc<Client>, device: usize, params: &BeginParams) -> Result<Self, Failure> {
        let inputs = params.inputs.iter().map(|input| load_input(client, device, input)).collect::<Result<_, _>>()?;
        // the protocol lets no state through besides warm and cold
        let flush = match params.cache_state.is_warm() {
            true => None,
            false => Some(Flush::of(client, device).map_err(|error| device_failure(&error))?),
        };
        Ok(Self {
            client: Rc::clone(client),
            device,
            inputs,
            candidates: BTreeMap::new(),
            flush,
            fastest: Cell::new(Duration::MAX),
        })
    }

    /// Adds a candidate, or puts it in the place of one before it.
    pub(super) fn insert(&mut self, candidate: usize, executable: Executable) {
        self.candidates.insert(candidate, Candidate { executable, output_bytes: Cell::new(None) });
    }

    /// A candidate that was loaded.
    pub(super) fn find(&self, candidate: usize) -> Result<&Candidate, Failure> {
        self.candidates.get(&candidate).ok_or_else(|| {
            Failure::new(FailureKind::Protocol, format!("candidate {candidate} was not loaded: `load` must come first"))
        })
    }

    /// The outputs of one run that nobody times.
    pub(super) fn run(&self, candidate: usize) -> Result<Vec<Buffer>, Failure> {
        self.run_after(candidate, None).map(|(outputs, _)| outputs)
    }

    /// One run, nanoseconds.
    pub(super) fn timed_run(&self, candidate: usize) -> Result<u64, Failure> {
        self.run_after(candidate, self.flush.as_ref()).map(|(_, elapsed)| nanoseconds(elapsed))
    }

    /// The donated inputs are made and the caches are flushed before, and the clock does not see it.
    fn run_after(&self, candidate: usize, flush: Option<&Flush>) -> Result<(Vec<Buffer>, Duration), Failure> {
        let executable = &self.find(candidate)?.executable;
        let fresh = self.donate().map_err(execute_failure)?;
        let call = self.call(&fresh);
        if let Some(flush) = flush {
            flush.run().map_err(|error| device_failure(&error))?;
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

    /// Whether so many runs can be timed together; the inner error says why they are to be timed one by one.
    pub(super) fn check_batch(&self, batch: u32) -> Result<Result<(), String>, Failure> {
        if self.flush.is_some() {
            let message = "a batch would warm the caches, which are to be cold: ask for single runs";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let bytes = self.donated_bytes().saturating_mul(u64::from(batch));
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
        let sets = if self.donated_bytes() == 0 { 1 } else { batch };
        let fresh = (0..sets).map(|_| self.donate()).collect::<Result<Vec<_>, _>>().map_err(execute_failure)?;
        let calls: Vec<Call<'_>> = fresh.iter().map(|fresh| self.call(fresh)).collect();
        let keeps_outputs = output_bytes.saturating_mul(u64::from(batch)) <= MAX_KEPT_BYTES;
        let executable = &self.find(candidate)?.executable;
        let elapsed = executable.run_batch(&calls, batch, keeps_outputs, self.watched()).map_err(execute_failure)?;
        let count = u128::from(batch.max(1));
        Ok(u64::try_from((elapsed.as_nanos() + count / 2) / count).unwrap_or(u64::MAX))
    }

    /// Bytes of a run's outputs, which only a run tells.
    fn output_bytes(&self, candidate: usize) -> Result<u64, Failure> {
        let place = &self.find(candidate)?.output_bytes;
        if let Some(bytes) = place.get() {
            return Ok(bytes);
        }
        let mut bytes: u64 = 0;
        for output in self.run(candidate)? {
            let spec = output.spec().map_err(execute_failure)?;
            bytes = bytes.saturating_add(spec.host_bytes().unwrap_or(u64::MAX));
        }
        place.set(Some(bytes));
        Ok(bytes)
    }

    /// Buffers that a run may destroy.
    fn donate(&self) -> Result<Vec<Buffer>, PjrtError> {
        let mut fresh = Vec::new();
        for input in &self.inputs {
            if let InputArray::Donated(bytes) = &input.array {
                fresh.push(Buffer::from_host(&self.client, self.device, &input.spec, bytes)?);
            }
        }
        Ok(fresh)
    }

    /// The arguments of a run, with what was made for it alone.
    fn call<'a>(&'a self, fresh: &'a [Buffer]) -> Call<'a> {
        let mut donated = fresh.iter();
        Call::new(self.inputs.iter().filter_map(|input| match &input.array {
            InputArray::Kept(buffer) => Some((buffer, false)),
            InputArray::Donated(_) => donated.next().map(|buffer| (buffer, true)),
        }))
    }

    fn donated_bytes(&self) -> u64 {
        let lengths = self.inputs.iter().map(|input| match &input.array {
            InputArray::Kept(_) => 0,
            // an empty one is made anew like any other
            InputArray::Donated(bytes) => bytes.len().max(1) as u64,
        });
        lengths.fold(0, u64::saturating_add)
    }
}

fn load_input(client: &Rc<Client>, device: usize, input: &Input) -> Result<LoadedInput, Failure> {
    let wrong =
        |message: String| Failure::new(FailureKind::Signature, format!("input `{}`: {message}", one_line(&input.name)));
    let expected = input.spec.host_bytes().ok_or_else(|| wrong(format!("{} is beyond any memory", input.spec)))?;
    let bytes = read_bounded(&input.path, expected).map_err(|error| wrong(error.message))?;
    let array = if input.donated {
        if u64::try_from(bytes.len()).ok() != Some(expected) {
            return Err(wrong(format!("{} bytes are not an array {}", bytes.len(), input.spec)));
        }
        InputArray::Donated(bytes)
    } else {
        let buffer = Buffer::from_host(client, device, &input.spec, &bytes);
        InputArray::Kept(buffer.map_err(|error| wrong(one_line(&error.message)))?)
    };
    Ok(LoadedInput { spec: input.spec.clone(), array })
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn execute_failure(error: PjrtError) -> Failure {
    Failure::new(FailureKind::Execute, one_line(&error.message))
}

pub(super) fn device_failure(error: &PjrtError) -> Failure {
    Failure::new(FailureKind::Device, one_line(&error.message))
}
