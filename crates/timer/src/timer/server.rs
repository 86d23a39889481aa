//! The worker's side of the protocol: a loop that reads requests and answers them on a private copy of stdout.
//!
//! ```
//! use std::path::Path;
//!
//! use autotune_lowered_lookup::{failure::Failure, measured_by::Source};
//! use autotune_lowered_timer::timer::protocol::*;
//! use autotune_lowered_timer::timer::server::{Worker, serve};
//!
//! struct Idle;
//! impl Worker for Idle {
//!     fn hello(&mut self) -> Result<Hello, Failure> { Ok(Hello::new("idle 1", Source::HostWall, Vec::new())) }
//!     fn begin(&mut self, _: BeginParams) -> Result<(), Failure> { Ok(()) }
//!     fn compile(&mut self, _: CompileParams) -> Result<CompileAnswer, Failure> { Ok(CompileAnswer::new(0)) }
//!     fn load(&mut self, _: LoadParams) -> Result<LoadAnswer, Failure> { Ok(LoadAnswer::default()) }
//!     fn measure(&mut self, _: usize, _: u32) -> Result<MeasureAnswer, Failure> { Ok(MeasureAnswer::new(vec![1, 1])) }
//!     fn outputs(&mut self, _: usize, _: &Path) -> Result<OutputsAnswer, Failure> {
//!         Ok(OutputsAnswer::new(Vec::new()))
//!     }
//!     fn end(&mut self) {}
//! }
//!
//! let mut answers = Vec::new();
//! let request = b"{\"id\":1,\"method\":\"measure\",\"params\":{\"candidate\":0,\"runs\":2}}\n";
//! serve(&request[..], &mut answers, &mut Idle)?;
//! assert_eq!(answers, b"{\"id\":1,\"result\":{\"samples_ns\":[1,1]}}\n");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::OwnedFd;

use serde::Serialize;
use serde_json::Value;

use super::protocol::{
    BeginParams, ComparedOutputs, CompileAnswer, CompileParams, Hello, KeptOutputs, LaunchedRuns, LineRead, LoadAnswer,
    LoadParams, MAX_LINE_BYTES, MeasureAnswer, Method, OutputsAnswer, Request, Response, RoundAnswer, read_line,
};
use crate::array::Tolerance;
use crate::failure::{Failure, FailureKind};

/// The interface of a worker; [`serve`] runs the protocol for it.
///
/// A call fails with the [`Failure`] that the worker answers; its kind says what failed.
pub trait Worker {
    /// Answers `hello`.
    ///
    /// # Errors
    /// If the device cannot be opened.
    fn hello(&mut self) -> Result<Hello, Failure>;
    /// Answers `begin`.
    ///
    /// # Errors
    /// If an input cannot be read, or the job needs something that the worker cannot do.
    fn begin(&mut self, params: BeginParams) -> Result<(), Failure>;
    /// Answers `compile`.
    ///
    /// # Errors
    /// If the program cannot be read or compiled, or the executable cannot be written.
    fn compile(&mut self, params: CompileParams) -> Result<CompileAnswer, Failure>;
    /// Answers `load`.
    ///
    /// # Errors
    /// If there is no program and none can be built, or it does not compile or load.
    fn load(&mut self, params: LoadParams) -> Result<LoadAnswer, Failure>;
    /// Answers `measure`.
    ///
    /// # Errors
    /// If the candidate is not loaded, or its program fails.
    fn measure(&mut self, candidate: usize, runs: u32) -> Result<MeasureAnswer, Failure>;
    /// Answers a `measure` whose runs are timed `batch` at a time; `runs` is a multiple of it. A worker without the
    /// capability `batches` need not implement it.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if the worker times no batches.
    fn measure_batches(&mut self, _candidate: usize, _runs: u32, _batch: u32) -> Result<MeasureAnswer, Failure> {
        Err(Failure::new(FailureKind::Protocol, "`batch` is not a parameter of this worker"))
    }
    /// Answers `measure-round`; a worker without the capability `profile` need not implement it.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if the worker takes no profiles or cannot write one.
    fn measure_round(&mut self, _launches: &[LaunchedRuns], _folder: &std::path::Path) -> Result<RoundAnswer, Failure> {
        Err(Failure::new(FailureKind::Protocol, "`measure-round` is not a method of this worker"))
    }
    /// Answers `outputs`.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if an output cannot be written.
    fn outputs(&mut self, candidate: usize, folder: &std::path::Path) -> Result<OutputsAnswer, Failure>;
    /// Answers `keep-outputs`; a worker without the capability `compare-outputs` need not implement it.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs).
    fn keep_outputs(&mut self, _candidate: usize, _above: u64) -> Result<KeptOutputs, Failure> {
        Err(Failure::new(FailureKind::Protocol, "`keep-outputs` is not a method of this worker"))
    }
    /// Answers `compare-outputs`; likewise.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs), and if nothing is kept.
    fn compare_outputs(&mut self, _candidate: usize, _tolerances: &[Tolerance]) -> Result<ComparedOutputs, Failure> {
        Err(Failure::new(FailureKind::Protocol, "`compare-outputs` is not a method of this worker"))
    }
    /// Answers `end`.
    fn end(&mut self);
}

/// Takes stdout for the protocol: everything else printed to fd 1 from now on goes to stderr.
///
/// # Errors
///
/// If stdout is closed, or this process has no file descriptor left.
pub fn take_stdout() -> io::Result<File> {
    let private: OwnedFd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(File::from(private))
}

/// Answers requests from `input` until it ends or requests a `shutdown`.
///
/// # Errors
///
/// If the input or output fails; a failure of the worker is an answer.
pub fn serve(input: impl io::Read, mut output: impl Write, worker: &mut dyn Worker) -> io::Result<()> {
    let mut reader = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        let request = match read_line(&mut reader, &mut line)? {
            LineRead::End => return Ok(()),
            LineRead::TooLong => Err((None, format!("a line of more than {MAX_LINE_BYTES} bytes"))),
            LineRead::Line => parse(&line),
        };
        let (id, answer, last) = match request {
            Ok(request) => {
                let last = matches!(request.call, Method::Shutdown {});
                (Some(request.id), answer(worker, request.call), last)
            }
            Err((id, message)) => (id, Err(Failure::new(FailureKind::Protocol, message)), false),
        };
        respond(&mut output, id, answer)?;
        if last {
            return Ok(());
        }
    }
}

fn parse(line: &[u8]) -> Result<Request, (Option<u64>, String)> {
    let value: Value = serde_json::from_slice(line).map_err(|error| (None, format!("not a JSON line: {error}")))?;
    let id = value.get("id").and_then(Value::as_u64);
    serde_json::from_value(value).map_err(|error| (id, format!("not a request of this protocol: {error}")))
}

fn answer(worker: &mut dyn Worker, call: Method) -> Result<Value, Failure> {
    match call {
        Method::Hello { .. } => to_value(worker.hello()?),
        Method::Begin(params) => worker.begin(params).map(|()| empty()),
        Method::Compile(params) => to_value(worker.compile(params)?),
        Method::Load(params) => to_value(worker.load(params)?),
        Method::Measure { candidate, runs, batch: 1 } => to_value(worker.measure(candidate, runs)?),
        Method::Measure { candidate, runs, batch } if batch > 0 && runs % batch == 0 => {
            to_value(worker.measure_batches(candidate, runs, batch)?)
        }
        Method::Measure { runs, batch, .. } => {
            Err(Failure::new(FailureKind::Protocol, format!("{runs} runs are not whole batches of {batch}")))
        }
        Method::CompileAhead(_) => {
            Err(Failure::new(FailureKind::Protocol, "`compile-ahead` is not a method of this worker"))
        }
        Method::MeasureRound { launches, folder } => to_value(worker.measure_round(&launches, &folder)?),
        Method::Outputs { candidate, folder } => to_value(worker.outputs(candidate, &folder)?),
        Method::KeepOutputs { candidate, above } => to_value(worker.keep_outputs(candidate, above)?),
        Method::CompareOutputs { candidate, tolerances } => to_value(worker.compare_outputs(candidate, &tolerances)?),
        Method::End {} => {
            worker.end();
            Ok(empty())
        }
        Method::Shutdown {} => Ok(empty()),
    }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn to_value(result: impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(result)
        .map_err(|error| Failure::new(FailureKind::Protocol, format!("an answer cannot be written: {error}")))
}

fn respond(output: &mut impl Write, id: Option<u64>, answer: Result<Value, Failure>) -> io::Result<()> {
    let mut response = Response { id, result: None, error: None };
    match answer {
        Ok(result) => response.result = Some(result),
        Err(failure) => response.error = Some(failure.into()),
    }
    let mut line = serde_json::to_vec(&response)?;
    if line.len() >= MAX_LINE_BYTES {
        let failure = Failure::new(FailureKind::Protocol, format!("an answer of {} bytes is too long", line.len()));
        line = serde_json::to_vec(&Response { id, result: None, error: Some(failure.into()) })?;
    }
    line.push(b'\n');
    // one write per line, so that a reader never waits for half a line
    output.write_all(&line)?;
    output.flush()
}
