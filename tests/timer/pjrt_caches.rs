//! Clock, batches and caches of the PJRT timer on real plugins: those of `AUTOTUNE_LOWERED_TEST_PLUGIN` (paths joined
//! with `:`), else the first that is found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::pjrt::options;
use crate::support::prerequisite::plugins;
use autotune_lowered::array::Tolerance;
use autotune_lowered::call::Call;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::measured_by::CacheState;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::pjrt::PjrtTimer;
use autotune_lowered::timer::protocol::{BeginParams, LoadAnswer, LoadParams, MeasureAnswer, Method, OutputsAnswer};
use autotune_lowered::timer::{
    InputArray, Job, JobCandidate, OutputsAs, ProgramFile, TakenOutputs, Timer, TimerExt, WorkerClient, WorkerCommand,
    WorkerLimits,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn start(folder: &Path, plugin: &Path) -> PjrtTimer {
    PjrtTimer::start(&options(plugin, folder)).unwrap()
}

/// `x + 1` of this many `f32`; the program may destroy a donated `x`.
fn job(folder: &Path, count: usize, donated: bool, cache_state: CacheState) -> Job {
    let (kind, alias) = (format!("tensor<{count}xf32>"), if donated { " {tf.aliasing_output = 0 : i32}" } else { "" });
    let text = format!(
        "module @m {{\n  func.func public @main(%x: {kind}{alias}) -> {kind} {{\n    %c = stablehlo.constant dense<1.0> : \
         {kind}\n    %0 = stablehlo.add %x, %c : {kind}\n    return %0 : {kind}\n  }}\n}}\n"
    );
    let input = folder.join("x.bin");
    fs::write(&input, 1.0_f32.to_le_bytes().repeat(count)).unwrap();
    let x = InputArray::new("x", format!("f32[{count}]").parse().unwrap(), input).donated(donated);
    job_of(folder, &text, x, cache_state)
}

fn column_sums(folder: &Path, cache_state: CacheState) -> Job {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/column_sums.mlir")).unwrap();
    let path = folder.join("columns.bin");
    fs::write(&path, 1.0_f32.to_le_bytes().repeat(1 << 20)).unwrap();
    let x = InputArray::new("x", "f32[1024,1024]".parse().unwrap(), path);
    job_of(folder, &text, x, cache_state)
}

fn job_of(folder: &Path, text: &str, input: InputArray, cache_state: CacheState) -> Job {
    let digest = Digest::of(text.as_bytes());
    let path = folder.join(format!("{}.mlir", digest.to_short()));
    fs::write(&path, text).unwrap();
    let program = Program::new(ProgramFormat::StablehloText, digest, digest);
    let candidate =
        JobCandidate::new(serde_json::from_str("{}").unwrap()).program(Some(ProgramFile::new(path, program)));
    Job::new(Call::new("test@v1", "0123456789abcdef"), folder)
        .inputs(vec![input])
        .candidates(vec![candidate])
        .cache_state(cache_state)
}

/// A separate worker, with a begun job and its candidate loaded: the test sees the messages themselves.
fn begun(folder: &Path, plugin: &Path, job: &Job) -> WorkerClient {
    loaded(folder, plugin, job).0
}

/// The same, with the worker's answer about the candidate.
fn loaded(folder: &Path, plugin: &Path, job: &Job) -> (WorkerClient, LoadAnswer) {
    let exe = env!("CARGO_BIN_EXE_autotune-lowered");
    let command = WorkerCommand::shell(exe, &format!("{exe} worker pjrt --plugin '{}'", plugin.display()));
    let mut client = WorkerClient::spawn(&command, &WorkerLimits::default()).unwrap();
    client.hello(&WorkerLimits::default()).unwrap();
    client.request::<Value>(Method::Begin(BeginParams::new(job, folder)), LIMIT).unwrap();
    let load = LoadParams::new(0, &job.candidates[0]);
    let loaded = client.request(Method::Load(load), LIMIT).unwrap();
    (client, loaded)
}

fn measure(client: &mut WorkerClient, runs: u32, batch: u32) -> Result<MeasureAnswer, Failure> {
    client.request(Method::Measure { candidate: 0, runs, batch }, LIMIT)
}

#[test]
fn the_clock_is_told() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let timer = start(folder.path(), &plugin);
        let resolution = timer.info().clock_resolution_ns.unwrap();
        assert!((1..1_000_000).contains(&resolution), "{resolution} ns");
    }
}

#[test]
fn a_batch_gives_its_mean() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = start(folder.path(), &plugin);
        for donated in [false, true] {
            timer.begin(&job(folder.path(), 1 << 20, donated, CacheState::Warm)).unwrap();
            timer.prepare(0).unwrap();
            timer.run(0, 5).unwrap();
            let single = timer.run(0, 40).unwrap().into_iter().min().unwrap();
            let start = Instant::now();
            let batches = timer.run_batches(0, 5, 40).unwrap();
            let elapsed = start.elapsed();
            assert_eq!(batches.len(), 5);
            // each batch took forty times a mean, and all of them were within the call: a sum would not fit, however
            // busy the machine
            let spent = Duration::from_nanos(batches.iter().sum::<u64>() * 40);
            assert!(spent <= elapsed, "{spent:?} in {elapsed:?}, donated: {donated}");
            // consecutive runs save the wait for each one, but not nineteen parts of twenty; divided twice, it would be
            // a fortieth
            let mean = batches.into_iter().max().unwrap();
            assert!(mean > single / 20, "{mean} ns, {single} ns, donated: {donated}");
            let output = &timer.output_files(0).unwrap()[0];
            assert_eq!(fs::read(&output.path).unwrap(), 2.0_f32.to_le_bytes().repeat(1 << 20), "donated: {donated}");
            let failure = timer.run_batches(0, 101, 100).unwrap_err();
            assert!(failure.message.contains("101 batches of 100 runs"), "{failure}");
            assert_eq!(timer.run_batches(0, 1, 1).unwrap().len(), 1, "nothing was asked of the worker");
        }
    }
}

#[test]
fn donated_inputs_beyond_the_memory_allowed_are_timed_one_by_one_and_that_is_said() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let job = job(folder.path(), 1 << 20, true, CacheState::Warm);
        let mut client = begun(folder.path(), &plugin, &job);
        // 4 MiB each
        let few = measure(&mut client, 64, 64).unwrap();
        assert_eq!((few.samples_ns.len(), few.single_runs), (1, None));
        let many = measure(&mut client, 130, 65).unwrap();
        assert_eq!(many.samples_ns.len(), 2);
        let reason = many.single_runs.unwrap();
        assert_eq!(
            reason,
            "runs were timed one by one: the donated inputs of 65 take 272629760 bytes, 268435456 are allowed"
        );
        for (runs, batch) in [(10, 3), (10, 0), (20_000, 2)] {
            assert_eq!(measure(&mut client, runs, batch).unwrap_err().kind, FailureKind::Protocol, "{runs} {batch}");
        }
        assert!(!client.is_gone());
    }
}

/// The inputs' file is deleted once the candidate is loaded: the runs' donated inputs can only come from the device.
#[test]
fn donated_inputs_are_copied_on_the_device() {
    const COUNT: usize = 1 << 20;
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let job = job(folder.path(), COUNT, true, CacheState::Warm);
        let (mut client, told) = loaded(folder.path(), &plugin, &job);
        assert_eq!((told.restored_bytes, told.from_host), (4 * COUNT as u64, None));
        fs::remove_file(&job.inputs[0].path).unwrap();
        for round in 0..3 {
            assert_eq!(measure(&mut client, 10, 1).unwrap().samples_ns.len(), 10);
            assert_eq!(measure(&mut client, 8, 4).unwrap().samples_ns.len(), 2);
            let outputs = Method::Outputs { candidate: 0, folder: folder.path().to_owned() };
            let outputs: OutputsAnswer = client.request(outputs, LIMIT).unwrap();
            assert!(fs::read(&outputs.outputs[0].path).unwrap() == 2.0_f32.to_le_bytes().repeat(COUNT), "{round}");
        }
        // for few bytes, a separate copy program is not worthwhile
        let (_, told) = loaded(folder.path(), &plugin, &self::job(folder.path(), 4, true, CacheState::Warm));
        assert_eq!((told.restored_bytes, told.from_host), (0, None));
    }
}

/// `x + 1` and programs that add something else: compared in the worker, also in a restarted one.
#[test]
fn outputs_are_compared_in_the_worker() {
    const COUNT: u64 = 1 << 12;
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut job = job(folder.path(), COUNT as usize, false, CacheState::Warm);
        let text = fs::read_to_string(&job.candidates[0].program.as_ref().unwrap().path).unwrap();
        for other in ["1.001", "2.0", "0x7FC00000"] {
            let input = job.inputs[0].clone();
            let other =
                job_of(folder.path(), &text.replace("dense<1.0>", &format!("dense<{other}>")), input, CacheState::Warm);
            job.candidates.extend(other.candidates);
        }
        let mut timer = start(folder.path(), &plugin);
        timer.begin(&job).unwrap();
        for candidate in 0..4 {
            timer.prepare(candidate).unwrap();
        }
        assert!(timer.info().can.compare_outputs);
        let small = timer.outputs(0, OutputsAs::KeptAbove(4 * COUNT)).unwrap();
        assert_eq!(small.into_files().unwrap().len(), 1, "as small as that they are files");
        let exact = [Tolerance::EXACT];
        let early = timer.outputs(1, OutputsAs::Compared(&exact)).unwrap_err();
        assert!(early.message.contains("`keep-outputs` must come first"));
        let TakenOutputs::Kept(kept) = timer.outputs(0, OutputsAs::KeptAbove(4 * COUNT - 1)).unwrap() else {
            panic!("they are larger")
        };
        let bytes = 2.0_f32.to_le_bytes().repeat(COUNT as usize);
        assert_eq!((kept.len(), kept[0].digest), (1, Digest::of(&bytes)));
        assert_eq!(kept[0].finiteness.unwrap().finite, COUNT);
        let usual = [Tolerance::for_dtype(kept[0].spec.dtype)];
        for restarted in [false, true] {
            let mut compare = |candidate: usize, tolerances: &[Tolerance]| {
                let found = timer.outputs(candidate, OutputsAs::Compared(tolerances)).unwrap();
                let found = found.into_compared().unwrap().remove(0);
                let first = found.first.map(|first| (first.element, first.own, first.kept));
                (found.mismatches, first, found.other_class)
            };
            let first = |own: &str| Some((0, own.to_owned(), "2".to_owned()));
            assert_eq!(compare(0, &exact), (0, None, 0), "restarted: {restarted}");
            assert_eq!(compare(1, &usual), (0, None, 0));
            let own = f64::from(1.0_f32 + 1.001).to_string();
            assert_eq!(compare(1, &exact), (COUNT, first(&own), 0));
            assert_eq!(compare(2, &usual), (COUNT, first("3"), 0));
            assert_eq!(compare(3, &usual), (COUNT, first("NaN"), COUNT));
            timer.restart(&[]).unwrap();
        }
    }
}

#[test]
fn a_batch_with_cold_caches_is_refused_and_never_asked_for() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let job = job(folder.path(), 16, false, CacheState::Cold);
        let mut client = begun(folder.path(), &plugin, &job);
        let failure = measure(&mut client, 4, 2).unwrap_err();
        assert_eq!(failure.message, "a batch would warm the caches, which must be cold: request single runs");
        assert_eq!(measure(&mut client, 4, 1).unwrap().samples_ns.len(), 4);
        let mut timer = start(folder.path(), &plugin);
        timer.begin(&job).unwrap();
        timer.prepare(0).unwrap();
        assert_eq!(timer.run_batches(0, 2, 2).unwrap().len(), 2);
    }
}

/// Between runs, more data than all caches hold is streamed: on any machine that takes at least a tenth of a
/// millisecond (60 MiB at 600 GB/s), and the clock excludes it.
#[test]
fn cold_caches_are_flushed_between_runs_and_the_clock_does_not_see_it() {
    // each streams a gigabyte where the third-level cache has half of it
    const RUNS: u32 = 10;
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = start(folder.path(), &plugin);
        timer.begin(&column_sums(folder.path(), CacheState::Cold)).unwrap();
        timer.prepare(0).unwrap();
        timer.run(0, 5).unwrap();
        let start = Instant::now();
        let samples = timer.run(0, RUNS).unwrap();
        let (elapsed, timed) = (start.elapsed(), Duration::from_nanos(samples.iter().sum()));
        let beside = elapsed.checked_sub(timed).expect("runs come one after the other");
        assert!(beside > RUNS * Duration::from_micros(100), "{timed:?} of {elapsed:?} were timed");
    }
}
