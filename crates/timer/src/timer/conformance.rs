//! `worker check CMD`: whether a program follows the worker protocol, step by step.
//!
//! ```
//! use autotune_lowered_timer::timer::{WorkerCommand, WorkerLimits, conformance::check};
//!
//! let folder = tempfile::tempdir()?;
//! let worker = WorkerCommand::shell("/no/autotune-lowered", "python3 worker.py");
//! // without the program that supervises workers, none is started: that is no violation of the worker's
//! let failure = check(&worker, &WorkerLimits::default(), folder.path()).unwrap_err();
//! assert!(failure.message.starts_with("cannot start `/no/autotune-lowered`"), "{failure}");
//! assert!(folder.path().join("add.mlir").exists());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::answers::{AnswerFolder, OutputArray, private_folder};
use super::client::WorkerClient;
use super::job::InputArray;
use super::profiled::ProfiledRound;
use super::protocol::{
    BeginParams, ComparedOutput, ComparedOutputs, Hello, KeptOutputs, LaunchedRuns, LoadAnswer, LoadParams,
    MAX_LINE_BYTES, MeasureAnswer, Method, OutputRef, OutputsAnswer, PROTOCOL_VERSION, ProgramRef, Response,
    RoundAnswer, capability,
};
use super::worker_command::{WorkerCommand, WorkerLimits};
use crate::array::Tolerance;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{CacheState, Metric, Source};
use crate::printable::printable;
use crate::registry::ProgramFormat;

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// It conforms to the protocol.
    Passed,
    /// It does not; the text says what was observed.
    Failed(String),
    /// Not tried; the text says why.
    Skipped(String),
}

/// One requirement of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConformanceStep {
    /// The requirement.
    pub name: &'static str,
    /// What the worker did.
    pub outcome: StepOutcome,
}

/// Every step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConformanceReport {
    /// The steps.
    pub steps: Vec<ConformanceStep>,
}

impl ConformanceReport {
    /// Whether no step failed.
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| !matches!(step.outcome, StepOutcome::Failed(_)))
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match &step.outcome {
                StepOutcome::Passed => writeln!(f, "pass  {}", step.name)?,
                StepOutcome::Failed(why) => writeln!(f, "FAIL  {}: {}", step.name, printable(why))?,
                StepOutcome::Skipped(why) => writeln!(f, "skip  {}: {}", step.name, printable(why))?,
            }
        }
        Ok(())
    }
}

/// `y = a + b` of two `f32[4]`: the program that a worker is tried with.
const PROGRAM: &str = "module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
";

/// How long a worker may continue after its stdin was closed: ending a Python process takes seconds on a busy machine.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Tests a worker against all requirements of the protocol. `folder` is for the files of the test.
///
/// # Errors
///
/// If the worker cannot be started; its violations are in the report.
pub fn check(command: &WorkerCommand, limits: &WorkerLimits, folder: &Path) -> Result<ConformanceReport, Failure> {
    let files = TrialFiles::write(folder).map_err(|error| {
        Failure::new(FailureKind::Device, format!("{}: cannot be written: {error}", folder.display()))
    })?;
    let mut trial = ConformanceTrial { steps: Vec::new() };
    let mut client = WorkerClient::spawn(command, limits)?;
    let hello = client.hello(limits);
    let answered = hello.as_ref().map(drop).map_err(ToString::to_string);
    trial.step("`hello` is answered with version, name, source and devices", answered);
    let hello = match hello {
        Ok(hello) => hello,
        Err(why) => {
            trial.skip("everything else", &why.to_string());
            return Ok(ConformanceReport { steps: trial.steps });
        }
    };
    trial.robustness(&mut client, limits);
    trial.job(&mut client, limits, &files, &hello);
    trial.endings(client, command, limits)?;
    Ok(ConformanceReport { steps: trial.steps })
}

struct TrialFiles {
    a: PathBuf,
    b: PathBuf,
    program: PathBuf,
    folder: PathBuf,
    own_files: TempDir,
}

impl TrialFiles {
    fn write(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let files = Self {
            a: folder.join("a.bin"),
            b: folder.join("b.bin"),
            program: folder.join("add.mlir"),
            folder: folder.to_owned(),
            own_files: private_folder(folder)?,
        };
        let bytes = |values: [f32; 4]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        fs::write(&files.a, bytes([1.0, 2.0, 3.0, 4.0]))?;
        fs::write(&files.b, bytes([10.0, 20.0, 30.0, 40.0]))?;
        fs::write(&files.program, PROGRAM)?;
        Ok(files)
    }

    fn answer_folder(&self) -> Result<AnswerFolder, Failure> {
        AnswerFolder::make(&self.folder).map_err(|error| {
            let message = format!("cannot make a folder in `{}`: {error}", self.folder.display());
            Failure::new(FailureKind::Device, message)
        })
    }
}

struct ConformanceTrial {
    steps: Vec<ConformanceStep>,
}

impl ConformanceTrial {
    fn step<E: fmt::Display>(&mut self, name: &'static str, result: Result<(), E>) -> bool {
        let outcome = match result {
            Ok(()) => StepOutcome::Passed,
            Err(error) => StepOutcome::Failed(error.to_string()),
        };
        let passed = outcome == StepOutcome::Passed;
        self.steps.push(ConformanceStep { name, outcome });
        passed
    }

    fn skip(&mut self, name: &'static str, why: &str) {
        self.steps.push(ConformanceStep { name, outcome: StepOutcome::Skipped(why.to_owned()) });
    }

    /// Malformed lines are answered with an error, and the worker continues.
    fn robustness(&mut self, client: &mut WorkerClient, limits: &WorkerLimits) {
        let cases: [(&'static str, Vec<u8>, Option<u64>); 5] = [
            ("a line that is not JSON is answered with an error", b"{\"id\": 1,,\n".to_vec(), None),
            ("a line that is not UTF-8 is answered with an error", b"\"\xff\xfe\"\n".to_vec(), None),
            (
                "an unknown method is answered with an error that has its id",
                b"{\"id\":900001,\"method\":\"no-such-method\",\"params\":{}}\n".to_vec(),
                Some(900_001),
            ),
            (
                "`measure` of a candidate that was not loaded is answered with an error",
                b"{\"id\":900002,\"method\":\"measure\",\"params\":{\"candidate\":7,\"runs\":1}}\n".to_vec(),
                Some(900_002),
            ),
            (
                "a line longer than the limit is answered with an error and skipped",
                [vec![b'x'; MAX_LINE_BYTES + 4096], b"\n".to_vec()].concat(),
                None,
            ),
        ];
        for (name, bytes, id) in cases {
            let answer =
                client.exchange(&bytes, "a wrong line", limits.load.into()).map_err(|failure| failure.to_string());
            self.step(name, answer.and_then(|line| expect_error(&line, id)));
        }
    }

    fn job(&mut self, client: &mut WorkerClient, limits: &WorkerLimits, files: &TrialFiles, hello: &Hello) {
        if let Some(resolution) = hello.clock_resolution_ns {
            self.step(
                "the resolution that `hello` reports belongs to a clock",
                expect_resolution(&hello.source, resolution),
            );
        }
        if !self.is_loaded(client, limits, files, hello.can(capability::BUILD_PROGRAMS)) {
            return;
        }
        self.measurements(client, limits, files, hello);
        self.outputs(client, limits, files, hello);
        let ended = client.request::<Value>(Method::End {}, limits.load).map(drop);
        self.step("`end` ends the job", ended);
        let profiles = hello.can(capability::PROFILE);
        let again = refused(client, |client| measure(client, limits, files, profiles, 1));
        self.step("after `end` the candidate is gone", again);
        if hello.can(capability::COLD_CACHES) {
            self.cold_job(client, limits, files, hello);
        }
    }

    /// Begins a job and loads its candidate; `false` if there is nothing to measure.
    fn is_loaded(
        &mut self,
        client: &mut WorkerClient,
        limits: &WorkerLimits,
        files: &TrialFiles,
        can_build: bool,
    ) -> bool {
        let begun = begin(client, limits, files, CacheState::Warm);
        if !self.step("`begin` takes inputs, a donated one too", begun) {
            return false;
        }
        let loaded = load(client, limits, files, can_build);
        if can_build && loaded.as_ref().is_err_and(|failure| !failure.needs_restart()) {
            self.skip("a job is done", "the worker builds its own programs and knows none of this operation");
            return false;
        }
        self.step("`load` makes a candidate ready", loaded.map(drop))
    }

    fn measurements(&mut self, client: &mut WorkerClient, limits: &WorkerLimits, files: &TrialFiles, hello: &Hello) {
        let profiles = hello.can(capability::PROFILE);
        let step = if profiles {
            "`measure-round` gives a profile of every run"
        } else {
            "`measure` gives as many samples as runs"
        };
        let measured = measure(client, limits, files, profiles, 5);
        self.step(step, expect_samples(measured, 5, "5 runs"));
        if hello.can(capability::BATCHES) {
            let batches = measure_batches(client, limits, 6).map(|measured| measured.samples_ns);
            let batches = expect_samples(batches, 2, "6 runs in batches of 3");
            self.step("`measure` gives one sample for each `batch`", batches);
            let cut_short = refused(client, |client| measure_batches(client, limits, 7));
            self.step("a `batch` that is cut short is refused", cut_short);
        }
    }

    fn outputs(&mut self, client: &mut WorkerClient, limits: &WorkerLimits, files: &TrialFiles, hello: &Hello) {
        let written = outputs(client, limits, files);
        self.step(
            "`outputs` writes dense arrays of the sizes that it reports",
            written.and_then(|outputs| expect_outputs(&outputs, hello.can(capability::BUILD_PROGRAMS))),
        );
        if hello.can(capability::COMPARE_OUTPUTS) {
            let nothing = refused(client, |client| compare_outputs(client, limits, 1));
            self.step("`compare-outputs` is refused before `keep-outputs`", nothing);
            let compared = keep_outputs(client, limits).and_then(|count| compare_outputs(client, limits, count));
            let same = compared.map_err(|failure| failure.to_string()).and_then(expect_no_difference);
            self.step("`compare-outputs` finds no difference of a program from itself", same);
        }
    }

    /// The same job with cold caches.
    fn cold_job(&mut self, client: &mut WorkerClient, limits: &WorkerLimits, files: &TrialFiles, hello: &Hello) {
        let (can_build, profiles) = (hello.can(capability::BUILD_PROGRAMS), hello.can(capability::PROFILE));
        let samples = begin(client, limits, files, CacheState::Cold)
            .and_then(|()| load(client, limits, files, can_build))
            .and_then(|_| measure(client, limits, files, profiles, 2));
        let step = self.step("a job with cold caches is measured", expect_samples(samples, 2, "2 runs"));
        if step && hello.can(capability::BATCHES) {
            let batch = refused(client, |client| measure_batches(client, limits, 6));
            self.step("with cold caches a `batch` is refused", batch);
        }
        let _ = client.request::<Value>(Method::End {}, limits.load);
    }

    fn endings(
        &mut self,
        mut client: WorkerClient,
        command: &WorkerCommand,
        limits: &WorkerLimits,
    ) -> Result<(), Failure> {
        let hello = client.request::<Hello>(Method::Hello { protocol: PROTOCOL_VERSION }, limits.start).map(drop);
        self.step("stdout carries only answers, and `hello` may be repeated", hello);
        let shut = client.request::<Value>(Method::Shutdown {}, limits.load).map(drop);
        let shut = shut.map_err(|failure| failure.to_string());
        let limit = END_LIMIT.min(limits.load);
        self.step("`shutdown` is answered and ends the worker", shut.and_then(|()| ended(client.wait(limit), limit)));
        drop(client);
        // otherwise the supervisor would kill the worker before its own time is up
        let limits = &WorkerLimits { grace: limits.grace.max(limit * 2), ..limits.clone() };
        let mut client = WorkerClient::spawn(command, limits)?;
        let greeted = client.hello(limits).map_err(|failure| failure.to_string());
        let closed = greeted.and_then(|_| ended(client.close_and_wait(limit), limit));
        self.step("closing its stdin ends the worker", closed);
        Ok(())
    }
}

fn begin(
    client: &mut WorkerClient,
    limits: &WorkerLimits,
    files: &TrialFiles,
    cache_state: CacheState,
) -> Result<(), Failure> {
    let input = |name: &str, path: &Path, donated: bool| {
        let spec = "f32[4]".parse().map_err(|error| Failure::new(FailureKind::Protocol, format!("{error}")));
        spec.map(|spec| InputArray { name: name.to_owned(), spec, path: path.to_owned(), donated })
    };
    let params = BeginParams {
        call: Call::new("conformance@v1", "0000000000000000"),
        direction: Direction::Forward,
        inputs: vec![input("a", &files.a, false)?, input("b", &files.b, true)?],
        recipe: None,
        cache_state,
        scratch: files.own_files.path().to_owned(),
    };
    client.request::<Value>(Method::Begin(params), limits.load).map(drop)
}

fn load(
    client: &mut WorkerClient,
    limits: &WorkerLimits,
    files: &TrialFiles,
    can_build: bool,
) -> Result<LoadAnswer, Failure> {
    let program =
        ProgramRef { format: ProgramFormat::StablehloText, path: files.program.clone(), compile_options: None };
    let program = (!can_build).then_some(program);
    let params = LoadParams {
        candidate: 7,
        config: Config::new(serde_json::Map::new()),
        program,
        executable: None,
        overrides: Default::default(),
    };
    client.request(Method::Load(params), limits.compile)
}

/// An error of kind `protocol`, after which the worker continues.
fn refused<T>(
    client: &mut WorkerClient,
    mut ask: impl FnMut(&mut WorkerClient) -> Result<T, Failure>,
) -> Result<(), String> {
    match ask(client) {
        Err(failure) if failure.kind == FailureKind::Protocol && !client.is_gone() => Ok(()),
        Err(failure) => Err(format!("an error of kind `protocol` is required: {failure}")),
        Ok(_) => Err("it was measured".to_owned()),
    }
}

/// Runs of the trial's candidate in batches of three.
fn measure_batches(client: &mut WorkerClient, limits: &WorkerLimits, runs: u32) -> Result<MeasureAnswer, Failure> {
    client.request(Method::Measure { candidate: 7, runs, batch: 3 }, limits.measure)
}

fn expect_samples(samples: Result<Vec<u64>, Failure>, expected: usize, of: &str) -> Result<(), String> {
    match samples.map_err(|failure| failure.to_string())?.len() {
        count if count == expected => Ok(()),
        other => Err(format!("{other} samples for {of}")),
    }
}

fn expect_resolution(source: &Source, resolution_ns: u64) -> Result<(), String> {
    if *source != Source::HostWall {
        return Err(format!("no clock is read around a run whose time comes from `{source}`"));
    }
    match resolution_ns {
        1..1_000_000_000 => Ok(()),
        other => Err(format!("{other} ns")),
    }
}

/// Samples of the trial's candidate, by whichever method the worker has.
fn measure(
    client: &mut WorkerClient,
    limits: &WorkerLimits,
    files: &TrialFiles,
    profiles: bool,
    runs: u32,
) -> Result<Vec<u64>, Failure> {
    if profiles {
        let launches = vec![LaunchedRuns { candidate: 7, runs }];
        let folder = files.answer_folder()?;
        let call = Method::MeasureRound { launches, folder: folder.path().to_owned() };
        let profiled: RoundAnswer = client.request(call, limits.measure)?;
        let round = ProfiledRound::read(&folder, &profiled, &[(7, runs)])?;
        return Ok(round.durations(&Metric::Span).pop().unwrap_or_default());
    }
    let measured: MeasureAnswer = client.request(Method::Measure { candidate: 7, runs, batch: 1 }, limits.measure)?;
    Ok(measured.samples_ns)
}

fn ended(code: Option<i32>, limit: Duration) -> Result<(), String> {
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(format!("it ended with exit code {code}")),
        None => Err(format!("it still ran after {limit:?}")),
    }
}

fn expect_error(line: &[u8], id: Option<u64>) -> Result<(), String> {
    let response: Response = serde_json::from_slice(line).map_err(|error| format!("not an answer: {error}"))?;
    if response.result.is_some() || response.error.is_none() {
        return Err("not an error".to_owned());
    }
    if response.id != id {
        return Err(format!("its id is {:?} instead of {id:?}", response.id));
    }
    Ok(())
}

/// The result of the trial's candidate.
fn outputs(client: &mut WorkerClient, limits: &WorkerLimits, files: &TrialFiles) -> Result<Vec<OutputArray>, String> {
    let folder = Arc::new(files.answer_folder().map_err(|failure| failure.to_string())?);
    let call = Method::Outputs { candidate: 7, folder: folder.path().to_owned() };
    let outputs: OutputsAnswer = client.request(call, limits.measure).map_err(|failure| failure.to_string())?;
    let answered = |output: OutputRef| {
        let shown = output.path.display().to_string();
        OutputArray::answered(output.spec, output.path, &folder).map_err(|error| format!("{shown}: {error}"))
    };
    outputs.outputs.into_iter().map(answered).collect()
}

/// Makes the worker keep outputs of any size; returns their number.
fn keep_outputs(client: &mut WorkerClient, limits: &WorkerLimits) -> Result<usize, Failure> {
    let kept: KeptOutputs = client.request(Method::KeepOutputs { candidate: 7, above: 0 }, limits.measure)?;
    let nothing = || Failure::new(FailureKind::Protocol, "nothing is kept of outputs that have bytes");
    kept.outputs.map(|outputs| outputs.len()).ok_or_else(nothing)
}

fn compare_outputs(client: &mut WorkerClient, limits: &WorkerLimits, count: usize) -> Result<ComparedOutputs, Failure> {
    let call = Method::CompareOutputs { candidate: 7, tolerances: vec![Tolerance::EXACT; count] };
    client.request(call, limits.measure)
}

fn expect_no_difference(compared: ComparedOutputs) -> Result<(), String> {
    let differs = |output: &ComparedOutput| output.mismatches > 0 || output.other_class > 0 || output.first.is_some();
    match compared.outputs.iter().find(|output| differs(output)) {
        Some(output) => Err(format!("{} elements of `{}` differ", output.mismatches, output.spec)),
        None => Ok(()),
    }
}

fn expect_outputs(outputs: &[OutputArray], can_build: bool) -> Result<(), String> {
    if can_build {
        return Ok(());
    }
    let [output] = outputs else {
        return Err(format!("{} outputs of a program that has one", outputs.len()));
    };
    let bytes = output.read().map_err(|error| format!("{}: {error}", output.path.display()))?;
    let expected: Vec<u8> = [11.0_f32, 22.0, 33.0, 44.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    if output.spec.to_string() == "f32[4]" && bytes == expected {
        Ok(())
    } else {
        Err(format!("{} {bytes:02x?} is not [1, 2, 3, 4] + [10, 20, 30, 40]", output.spec))
    }
}
