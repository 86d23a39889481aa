//! The `pjrt` timer on a plugin with a profiler. SIMULATED: no GPU is available, so a small plugin of our own
//! (`tests/data/pjrt/profiled_plugin.c`) wraps a real CPU plugin and fabricates the profiles.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::round;
use crate::support::executable::write_executable;
use crate::support::pjrt::build;
use crate::support::prerequisite::plugin;
use crate::support::program::*;
use autotune_lowered::call::Call;
use autotune_lowered::cli::exit;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::measured_by::{Metric, Source};
use autotune_lowered::profile::{Line, captures};
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer};
use autotune_lowered::timer::{InputArray, Job, JobCandidate, ProgramFile, RoundRequest, Timer, TimerExt};
use serde_json::{Value, json};

/// The simulated plugin, and a program that sets its mode and then runs this program.
pub(crate) struct Simulated {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) base: PathBuf,
}

impl Simulated {
    /// `None`, with the reason printed, if there is no CPU plugin.
    pub(crate) fn new() -> Option<Self> {
        let base = plugin()?;
        let folder = tempfile::tempdir().unwrap();
        build("profiled_plugin.c", &folder.path().join("simulated.so"));
        Some(Self { folder, base })
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.folder.path().join("simulated.so")
    }

    /// The main job on the plugin in a mode, for one call of the example.
    fn tune(&self, mode: &str, more: &[&str], variables: &[(&str, &str)]) -> Run {
        let cache = self.folder.path().join(format!("cache-{mode}-{}", more.first().unwrap_or(&"")));
        let (module, library) = (small_module(), self.library());
        let mut command = command(&cache);
        let library = if more.contains(&"--plugin") { &[][..] } else { &["--plugin", library.to_str().unwrap()] };
        command.args(library).args([&module, "--only", SMALL_CALL, "--rounds", "6", "--format", "json"]).args(more);
        command.env("SIMULATED_PROFILER_BASE", &self.base).env("SIMULATED_PROFILER_MODE", mode);
        // so long that a few runs fill a round
        command.env("SIMULATED_PROFILER_STEP", "1000000");
        let output = command.env_remove("NSYS_PROFILING_SESSION_ID").envs(variables.iter().copied()).output().unwrap();
        Run::of(output, &["tune", "--format", "json"])
    }

    /// Options of a timer in a mode: workers are started through a script that sets it.
    fn options(&self, mode: &str) -> PjrtOptions {
        let exe = self.folder.path().join(format!("as-{mode}"));
        let real = env!("CARGO_BIN_EXE_autotune-lowered");
        let base = self.base.display();
        let script = format!(
            "#!/bin/sh\nexport SIMULATED_PROFILER_BASE='{base}' SIMULATED_PROFILER_MODE={mode}\n\
             unset SIMULATED_PROFILER_STEP\ntest -e '{0}' && SIMULATED_PROFILER_MODE=no-plane\nexec '{real}' \"$@\"\n",
            self.turned().display()
        );
        write_executable(&exe, &script);
        PjrtOptions::new(exe, self.library(), self.folder.path().join("executables"))
    }

    /// While this file exists, a starting worker finds no device plane.
    fn turned(&self) -> PathBuf {
        self.folder.path().join("turned")
    }

    pub(crate) fn job(&self) -> Job {
        self.job_of(4)
    }

    /// Two programs with the same inputs of this many elements, the first input donated: from one megabyte on, it is
    /// copied on the device.
    fn job_of(&self, count: usize) -> Job {
        let input = |name: &str| {
            let path = self.folder.path().join(format!("{name}-{count}"));
            fs::write(&path, vec![0; 4 * count]).unwrap();
            InputArray::new(name, format!("f32[{count}]").parse().unwrap(), path).donated(name == "a")
        };
        let candidates = ["add", "multiply"].map(|operation| {
            let path = self.folder.path().join(format!("{operation}-{count}.mlir"));
            let add =
                fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/add.mlir")).unwrap();
            let own = add.replace("stablehlo.add", &format!("stablehlo.{operation}"));
            fs::write(&path, own.replace("<4x", &format!("<{count}x"))).unwrap();
            let digest = Digest::of(&fs::read(&path).unwrap());
            let format = ProgramFormat::StablehloText;
            let program = Program::new(format, digest, digest);
            let config = serde_json::from_value(json!({"operation": operation})).unwrap();
            JobCandidate::new(config).program(Some(ProgramFile::new(path, program)))
        });
        Job::new(Call::new("test@v1", "0123456789abcdef"), self.folder.path())
            .inputs(vec![input("a"), input("b")])
            .candidates(candidates.to_vec())
    }

    fn begun(&self, mode: &str) -> PjrtTimer {
        let mut timer = PjrtTimer::start(&self.options(mode)).unwrap();
        timer.begin(&self.job_of(if mode == "good" { 1 << 18 } else { 4 })).unwrap();
        timer.prepare(0).unwrap();
        timer.prepare(1).unwrap();
        timer
    }
}

fn notes(result: &Value) -> Vec<&str> {
    result["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect()
}

#[test]
fn simulated_durations_are_those_of_the_profile_in_launch_order() {
    let Some(simulated) = Simulated::new() else { return };
    for mode in ["good", "long-api", "exact", "two-calls", "twice"] {
        let mut timer = simulated.begun(mode);
        assert_eq!(
            (timer.info().source.clone(), timer.info().metric.clone()),
            (Source::DeviceProfile, Metric::Span),
            "a CPU by its platform"
        );
        assert!(timer.info().can.measure_rounds && timer.info().notes.is_empty(), "{:?}", timer.info().notes);
        // the n-th launch of a session takes n µs
        let durations = timer.measure(&round(&[(1, 2), (0, 3), (1, 1)])).unwrap().durations_ns;
        assert_eq!(durations, [vec![1000, 2000], vec![3000, 4000, 5000], vec![6000]]);
        assert_eq!(timer.run(0, 2).unwrap(), [1000, 2000], "each round is a session of its own");
        let asked = RoundRequest { with_profile: true, ..round(&[(0, 1), (1, 1)]) };
        let round = timer.measure(&asked).unwrap().profile.unwrap();
        let programs: Vec<i64> = (0..2).map(|launch| round.runs(launch).next().unwrap().program_id.unwrap()).collect();
        assert_ne!(programs[0], programs[1]);
        assert_eq!(timer.output_files(0).unwrap().len(), 1);
        timer.end();
        timer.begin(&simulated.job()).unwrap();
        assert_eq!(timer.prepare(1).unwrap().reused, mode != "good", "the executable was kept");
        timer.restart(&[]).unwrap();
        assert_eq!(timer.run(1, 1).unwrap(), [1000]);
    }
}

#[test]
fn the_main_job_decides_on_simulated_device_time() {
    let Some(simulated) = Simulated::new() else { return };
    let run = simulated.tune("good", &[], &[]);
    // the made-up gain depends on how many programs a process runs: a sixty-fourth in those that confirm
    assert!(run.code <= 1 && run.stderr.contains("provisional"), "{}", run.stderr);
    let result = run.json();
    assert_eq!((&result["source"], &result["metric"]), (&json!("device-profile"), &json!("span")));
    assert!(!run.stderr.contains("timed by the host clock"), "{}", run.stderr);
    for operation in result["operations"].as_array().unwrap() {
        assert_eq!(operation["rounds_measured"], 6, "{operation}");
        let medians: Vec<f64> =
            operation["candidates"].as_array().unwrap().iter().filter_map(|it| it["median_ns"].as_f64()).collect();
        assert!(medians.len() > 1, "{operation}");
        // a millisecond less for each program that ran before, plus the position in the session: no real clock gives
        // that
        assert!(medians.iter().all(|median| median % 1e6 <= 500_000.0 && median % 250.0 == 0.0), "{medians:?}");
        // the baseline ran first, thus is the slowest
        let first = operation["candidates"][0]["median_ns"].as_f64();
        assert_eq!(first, medians.iter().copied().reduce(f64::max), "{operation}");
        assert!(operation["confirmation"]["ratio"].as_f64().unwrap() < 1.0, "{operation}");
    }
    // the deciding metric can be chosen, but not mixed: another job's samples do not apply here
    let busy = simulated.tune("good", &["--metric", "busy"], &[]).json();
    assert_eq!((&busy["source"], &busy["metric"]), (&json!("device-profile"), &json!("busy")));
}

/// Such profiles count from 1970 themselves; if they are not from this year, they get no phases.
#[test]
fn a_kept_profile_holds_the_phases_before_it() {
    let Some(simulated) = Simulated::new() else { return };
    for mode in ["now", "good"] {
        let logs = simulated.folder.path().join(format!("logs-{mode}"));
        let folder = logs.display().to_string();
        let run = simulated.tune(mode, &["--keep-profiles", &folder, "--profile-every", "1"], &[]);
        let [capture] = &captures(&logs).unwrap()[..] else { panic!("{}", run.stderr) };
        let plane = capture.space.planes().find(|plane| plane.name() == "/host:autotune-lowered");
        assert_eq!(plane.is_some(), mode == "now", "{}", run.stderr);
        assert_eq!(run.stderr.contains("hold no phases of the run"), mode == "good", "{}", run.stderr);
        let Some(plane) = plane else { continue };
        let line = |name: &str| plane.lines().find(|line| line.name() == name).unwrap();
        let (tuner, own) = (line("tuner"), line("this profile's executions"));
        // the plugin's first launch is a millisecond after its line's time
        let device = capture.space.planes().find(|plane| plane.name() == "/device:GPU:0").unwrap();
        // the time from which a line's events count
        let zero = |line: &Line<'_>| {
            let first = line.events().next().unwrap().unwrap();
            line.start_ps(&first).unwrap() - first.offset_ps
        };
        assert_eq!(zero(&own), zero(&device.lines().next().unwrap()));
        assert_eq!(own.events().next().unwrap().unwrap().offset_ps, 1_000_000_000);
        assert!(zero(&tuner) < zero(&own) && tuner.event_count() > 6, "inputs come first");
    }
}

#[test]
fn the_host_clock_can_be_asked_for() {
    let Some(simulated) = Simulated::new() else { return };
    // a crash of the profiler would show if it were used
    let run = simulated.tune("crash", &["--metric", "elapsed"], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = run.json();
    assert_eq!((&result["source"], &result["metric"]), (&json!("host-wall"), &json!("elapsed")));
    assert!(notes(&result).iter().all(|note| !note.contains("host clock")), "{result}");
}

#[test]
fn without_a_working_profiler_the_reason_is_said() {
    let Some(simulated) = Simulated::new() else { return };
    let message = |mode: &str| {
        let timer = PjrtTimer::start(&simulated.options(mode)).unwrap();
        assert_eq!(
            (timer.info().source.clone(), timer.info().metric.clone()),
            (Source::HostWall, Metric::Elapsed),
            "{mode}"
        );
        let [note] = timer.info().notes.as_slice() else { panic!("{mode}: {:?}", timer.info().notes) };
        assert!(!note.contains('\n'), "{note}");
        note.strip_prefix("timed by the host clock: ").unwrap().to_owned()
    };
    for (mode, expected) in [
        ("drop", "the profile holds 6 executions, 7 were launched"),
        (
            "lossy",
            "the profile is incomplete: a run of candidate 0 has 1 of 2 operations (the profiler dropped events: \
             dropped_events of plane `/device:GPU:0` is 5",
        ),
        ("no-plane", "no plane holds device work; planes: `/host:SIMULATED`"),
        ("subscriber", "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; another CUPTI subscriber"),
        ("huge", "claims a profile of 4611686018427387904 bytes"),
        ("small-extension", "profiler extension has 24 bytes, fewer than the 32 needed"),
        ("small-api", "function table of 72 bytes, fewer than the 80 needed"),
        ("no-programs", "the plugin's profiler was tried, and its profile does not distinguish programs"),
        ("shared-id", "not in the order of the launches"),
        ("crash", "the plugin's profiler broke the worker: the worker died of SIGABRT during `hello`"),
    ] {
        let message = message(mode);
        assert!(message.contains(expected), "{mode}: {message}");
    }
    // both outputs tell the user
    let run = simulated.tune("subscriber", &[], &[("NSYS_PROFILING_SESSION_ID", "1")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = run.json();
    assert_eq!((&result["source"], &result["metric"]), (&json!("host-wall"), &json!("elapsed")));
    let of_result: Vec<&str> = notes(&result).into_iter().filter(|note| note.starts_with("timed by")).collect();
    assert_eq!(of_result.len(), 1, "{result}");
    assert!(of_result[0].contains("; Nsight Systems holds CUPTI"), "{}", of_result[0]);
    assert!(run.stderr.lines().any(|line| line == of_result[0]), "{}", run.stderr);
    // requested device time that is unavailable is an error, and no other clock replaces it
    let run = simulated.tune("no-plane", &["--metric", "busy"], &[]);
    assert_eq!(run.code, i32::from(exit::DEVICE_TROUBLE), "{}", run.stderr);
    assert!(run.fault().contains("there is no `busy` to decide by: timed by the host clock"), "{}", run.stderr);
}

/// On an H200, every recording but a process's first reports one.
#[test]
fn lost_events_that_no_run_lacks_change_nothing() {
    let Some(simulated) = Simulated::new() else { return };
    let durations = |mode: &str| {
        let mut timer = simulated.begun(mode);
        assert_eq!(timer.info().source, Source::DeviceProfile, "{mode}");
        timer.measure(&round(&[(0, 2), (1, 2)])).unwrap().durations_ns
    };
    assert_eq!(durations("counted"), durations("good"));
}

#[test]
fn a_launch_that_is_lost_later_is_refused_and_no_other_clock_takes_over() {
    let Some(simulated) = Simulated::new() else { return };
    let mut timer = simulated.begun("drop-later");
    assert_eq!(timer.info().source, Source::DeviceProfile);
    let failure: Failure = timer.measure(&round(&[(0, 2), (1, 2)])).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(failure.message.contains("3 executions, 4 were launched"), "{failure}");
    // from now on, workers find no device time
    fs::write(simulated.turned(), "").unwrap();
    let failure = timer.restart(&[]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Device);
    assert!(failure.message.contains("times by host-wall, the one before it by device-profile"), "{failure}");
    let run = simulated.tune("drop-later", &[], &[]);
    assert_ne!(run.code, 0, "{}", run.stdout);
    let result = run.json();
    assert_eq!(result["source"], "device-profile");
    let decided = |operation: &Value| operation["status"] == "tuned" || operation["status"] == "baseline-kept";
    assert!(!result["operations"].as_array().unwrap().iter().any(decided), "{result}");
}

#[test]
fn the_worker_on_a_simulated_profiler_conforms() {
    let Some(simulated) = Simulated::new() else { return };
    let exe = simulated.options("good").exe;
    let worker = format!("{} worker pjrt --plugin {}", exe.display(), simulated.library().display());
    let run = run(simulated.folder.path(), &["worker", "check", &worker]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("pass  `measure-round` gives a profile of every run"), "{}", run.stdout);
}

#[test]
fn a_plugin_without_a_profiler_says_so_quietly() {
    let Some(simulated) = Simulated::new() else { return };
    let run = simulated.tune("good", &["--plugin", simulated.base.to_str().unwrap()], &[]);
    let note = "timed by the host clock: the plugin has no profiler extension";
    assert!(notes(&run.json()).contains(&note), "{}", run.stdout);
    assert!(run.stderr.lines().any(|line| line == note), "{}", run.stderr);
}
