//! Misbehaving workers affect one candidate and leave nothing behind; conforming workers are reported as such.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::executable::write_executable;
use crate::support::prerequisite::python3;
use crate::support::program;
use autotune_lowered::call::Call;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::measured_by::{CacheState, Source};
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::conformance::{StepOutcome, check};
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer};
use autotune_lowered::timer::{
    CommandTimer, InputArray, Job, JobCandidate, ProgramFile, Timer, TimerExt, WorkerCommand, WorkerLimits,
};

const EXE: &str = env!("CARGO_BIN_EXE_autotune-lowered");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name)
}

fn misbehaving(mode: &str) -> String {
    format!("{} {} {mode}", python3(), data("misbehaving_worker.py").display())
}

/// Far longer than anything here takes on a busy machine: reached only if something waits that must not.
const LONG: Duration = Duration::from_secs(60);

fn limits() -> WorkerLimits {
    WorkerLimits::default().start(LONG).measure(LONG).grace(Duration::from_millis(200))
}

/// For calls that are never answered. Those before and after them are answered without any work.
fn hasty() -> WorkerLimits {
    limits().measure(Duration::from_millis(800))
}

fn job(folder: &Path, configs: &[&str]) -> Job {
    let candidates = configs.iter().map(|config| JobCandidate::new(serde_json::from_str(config).unwrap())).collect();
    Job::new(Call::new("add@v1", "k"), folder).candidates(candidates)
}

fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // a zombie has ended, but its parent has not reaped it yet
    status.rfind(')').is_some_and(|end| !status[end..].starts_with(") Z"))
}

fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// One bad `measure` of candidate 1: returns the failure, and checks that candidate 0 goes on and no process remains.
fn costs_one_candidate(mode: &str, limits: WorkerLimits) -> (FailureKind, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving(mode), limits, None).unwrap();
    timer.begin(&job(folder.path(), &["{\"i\":0}", "{\"i\":1}"])).unwrap();
    timer.prepare(0).unwrap();
    timer.prepare(1).unwrap();
    assert_eq!(timer.run(0, 3).unwrap(), [100, 100, 100]);
    let failure = timer.run(1, 1).unwrap_err();
    assert!(!failure.message.contains('\n') && !failure.message.contains('\u{1b}'), "{failure}");
    assert!(failure.needs_restart(), "{failure}");
    timer.restart(&[1]).unwrap();
    assert_eq!(timer.info().epoch, 2);
    assert_eq!(timer.run(0, 2).unwrap(), [100, 100], "{mode}");
    (failure.kind, failure.message)
}

#[test]
fn a_crash_is_named_by_its_signal_and_its_last_words() {
    let (kind, message) = costs_one_candidate("abort", limits());
    assert_eq!(kind, FailureKind::Crash);
    assert_eq!(
        message,
        "the worker died of SIGABRT during `measure`; its stderr: F0000 thunk.cc:7] Check failed: shape.ok() \\u{1b}[31mbad\\u{1b}[0m"
    );
    let (kind, message) = costs_one_candidate("segv", limits());
    assert_eq!((kind, message.as_str()), (FailureKind::Crash, "the worker died of SIGSEGV during `measure`"));
    let (kind, message) = costs_one_candidate("exit", limits());
    assert_eq!((kind, message.as_str()), (FailureKind::Crash, "the worker ended with exit code 3 during `measure`"));
}

#[test]
fn what_a_worker_warned_of_earlier_is_no_reason() {
    let (kind, message) = costs_one_candidate("warned-hang", hasty());
    let expected = "no answer to `measure` within 800ms, the time limit of a call";
    assert_eq!((kind, message.as_str()), (FailureKind::Timeout, expected));
    let (kind, message) = costs_one_candidate("warned-segv", limits());
    assert_eq!((kind, message.as_str()), (FailureKind::Crash, "the worker died of SIGSEGV during `measure`"));
    let (_, message) = costs_one_candidate("warned-abort", limits());
    assert!(message.contains("its stderr: F0000 thunk.cc:7] Check failed"), "{message}");
}

#[test]
fn a_hang_ends_at_the_limit() {
    for mode in ["hang", "spin", "flood"] {
        let start = Instant::now();
        let (kind, message) = costs_one_candidate(mode, hasty());
        assert_eq!(kind, FailureKind::Timeout, "{mode}");
        assert!(message.starts_with("no answer to `measure` within 800ms, the time limit of a call"), "{message}");
        // two workers were started meanwhile; the hang itself takes a thousand seconds, or is endless
        assert!(start.elapsed() < LONG, "{mode}: {:?}", start.elapsed());
    }
}

#[test]
fn a_slow_candidate_is_cut_off_long_before_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let long = limits().measure(Duration::from_secs(300));
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("hang"), long, None).unwrap();
    timer.begin(&job(folder.path(), &["{\"i\":0}", "{\"i\":1}"])).unwrap();
    timer.prepare(0).unwrap();
    timer.prepare(1).unwrap();
    timer.cut_off(Some(Duration::from_millis(50)));
    let start = Instant::now();
    let failure = timer.run(1, 4).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    let expected =
        "no answer to `measure` within 2.2s, the cut-off of slow candidates: runs of at most 50ms, 4 asked for";
    assert_eq!(failure.message, expected);
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    timer.restart(&[1]).unwrap();
    assert_eq!(timer.run(0, 2).unwrap(), [100, 100]);
    // it ends with the job
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("hang"), hasty(), None).unwrap();
    timer.begin(&job(folder.path(), &["{}", "{}"])).unwrap();
    timer.cut_off(Some(Duration::from_nanos(1)));
    timer.begin(&job(folder.path(), &["{}", "{}"])).unwrap();
    timer.prepare(1).unwrap();
    let message = timer.run(1, 1).unwrap_err().message;
    assert!(message.starts_with("no answer to `measure` within 800ms, the time limit of a call"), "{message}");
}

#[test]
fn batches_are_timed_by_workers_that_can_and_are_means_of_runs_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let mut all = String::new();
    // (mode, runs, batch) of each request, and the resulting number of samples
    for (mode, expected) in [("none", vec![100, 100, 100]), ("batches", vec![104, 104, 104])] {
        let command = misbehaving(&format!("{mode} {}", asked.display()));
        let mut timer = CommandTimer::start(Path::new(EXE), &command, limits(), None).unwrap();
        timer.begin(&job(folder.path(), &["{}"])).unwrap();
        timer.prepare(0).unwrap();
        assert_eq!(timer.run_batches(0, 3, 4).unwrap(), expected, "{mode}");
        assert_eq!(timer.run(0, 2).unwrap().len(), 2);
        drop(timer);
        all += &fs::read_to_string(&asked).unwrap_or_default();
    }
    assert_eq!(all, "12 4\n2 None\n", "the worker that cannot was asked for plain runs");
    // one that claims to support batches, but gives a sample for each run
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("batches-ignored"), limits(), None).unwrap();
    timer.begin(&job(folder.path(), &["{}"])).unwrap();
    timer.prepare(0).unwrap();
    let failure = timer.run_batches(0, 3, 4).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert_eq!(failure.message, "12 samples for 12 runs in batches of 4 of candidate 0");
}

#[test]
fn a_worker_that_knows_nothing_of_caches_measures_no_cold_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("none"), limits(), None).unwrap();
    let warm = job(folder.path(), &["{}"]);
    let failure = timer.begin(&warm.clone().cache_state(CacheState::Cold)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Device);
    assert_eq!(
        failure.message,
        "the worker `misbehaving` cannot measure with cold caches, `--timer pjrt` and `--timer jax` can; or omit \
         `--cache-state`"
    );
    timer.begin(&warm).unwrap();
    timer.prepare(0).unwrap();
    assert_eq!(timer.info().clock_resolution_ns, None, "it told nothing of its clock");
    assert_eq!(timer.run(0, 1).unwrap(), [100]);
}

#[test]
fn memory_without_end_is_ended_in_the_worker_and_in_its_children() {
    for mode in ["memory", "child-memory"] {
        let limits = limits().memory_bytes(Some(256 << 20));
        let (kind, message) = costs_one_candidate(mode, limits);
        assert_eq!(kind, FailureKind::Memory, "{mode}: {message}");
        assert!(message.ends_with("268435456 allowed"), "{message}");
    }
}

/// A machine that was counted when it was small: what it has now counts.
#[test]
fn a_limit_that_may_grow_is_that_of_the_machine_as_it_is() {
    // a worker takes some megabytes
    let small = limits().memory_bytes(Some(1 << 20));
    let ended = CommandTimer::start(Path::new(EXE), &misbehaving("none"), small.clone(), None).map(drop).unwrap_err();
    assert!(ended.message.contains("exceeded its memory limit"), "{ended}");
    let folder = tempfile::tempdir().unwrap();
    let grown = small.memory_may_grow(true);
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("none"), grown, None).unwrap();
    timer.begin(&job(folder.path(), &["{}"])).unwrap();
    timer.prepare(0).unwrap();
    assert_eq!(timer.run(0, 1).unwrap(), [100]);
}

#[test]
fn nonsense_is_shown_as_it_was_seen() {
    for (mode, expected) in [
        ("noise", "`step 1 of 10 done`"),
        ("binary", "is not one of the protocol"),
        ("huge", "longer than 1048576 bytes"),
        ("other-id", "has the id Some(7) instead of 6"),
        ("both", "needs either a result or an error"),
        ("negative", "malformed"),
        ("few-samples", "0 samples for 1 runs of candidate 1"),
        ("unknown-kind", "x"),
    ] {
        let (kind, message) = costs_one_candidate(mode, limits());
        assert_eq!(kind, FailureKind::Protocol, "{mode}: {message}");
        assert!(message.contains(expected), "{mode}: {message}");
    }
    let (kind, message) = costs_one_candidate("close-stdout", limits());
    assert_eq!(kind, FailureKind::Crash);
    assert_eq!(message, "the worker closed its stdout during `measure`");
    let (kind, message) = costs_one_candidate("device-error", limits());
    assert_eq!((kind, message.as_str()), (FailureKind::Execute, "CUDA_ERROR_ILLEGAL_ADDRESS: launch failed"));
}

#[test]
fn a_candidate_that_breaks_every_new_worker_is_left_out_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut timer = CommandTimer::start(Path::new(EXE), &misbehaving("load-abort"), limits(), None).unwrap();
    timer.begin(&job(folder.path(), &["{}", "{}"])).unwrap();
    timer.prepare(0).unwrap();
    let failure = timer.prepare(1).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Crash, "{failure}");
    timer.restart(&[]).unwrap();
    assert_eq!(timer.run(0, 1).unwrap(), [100]);
    // missing outputs
    let failure = timer.output_files(0).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(failure.message.contains("/no/such/file"), "{failure}");
}

#[test]
fn a_worker_that_never_starts_is_a_matter_of_the_device() {
    let start = |command: &str, limits: WorkerLimits| {
        CommandTimer::start(Path::new(EXE), command, limits, None).map(|_| ()).unwrap_err()
    };
    let quick = limits().start(Duration::from_millis(500));
    for (command, limits, expected) in [
        (misbehaving("hello-exit"), limits(), "exit code 9 during `hello`; its stderr: no such device"),
        (
            misbehaving("hello-hang"),
            quick,
            "no answer to `hello` within 500ms, the time limit for starting a worker; `--timeout` gives it more",
        ),
        (misbehaving("hello-noise"), limits(), "`Welcome!`"),
        (misbehaving("hello-old"), limits(), "speaks protocol 0, 1 is needed"),
        (misbehaving("hello-no-device"), limits(), "which it does not describe"),
        ("exec /no/such/worker".to_owned(), limits(), "/no/such/worker"),
    ] {
        let failure = start(&command, limits);
        assert_eq!(failure.kind, FailureKind::Device, "{failure}");
        assert!(failure.message.contains(expected), "{failure}");
    }
    let failure = CommandTimer::start(Path::new("/no/such/exe"), "true", limits(), None).map(|_| ()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Device);
}

#[test]
fn nothing_is_left_of_a_worker_that_hung() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let command = misbehaving(&format!("orphans {}", pids.display()));
    // when it loads the program it starts two processes and writes down their ids, and then it hangs
    let mut timer = CommandTimer::start(Path::new(EXE), &command, hasty(), None).unwrap();
    timer.begin(&job(folder.path(), &["{}", "{}"])).unwrap();
    timer.prepare(0).unwrap();
    timer.prepare(1).unwrap();
    assert_eq!(timer.run(1, 1).unwrap_err().kind, FailureKind::Timeout);
    let pids = fs::read_to_string(&pids).unwrap();
    assert_eq!(pids.split_whitespace().count(), 4, "the worker, its supervisor and two children");
    for pid in pids.split_whitespace() {
        assert!(!is_alive(pid), "{pid} of {pids} still runs");
    }
}

#[test]
fn nothing_is_left_when_the_tuner_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let command = misbehaving(&format!("hello-orphans {}", pids.display()));
    // the conformance test replaces the tuner: it waits for `hello`
    let mut tuner = Command::new(EXE)
        .args(["worker", "check", &command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(LONG, || pids.exists()), "the worker hangs");
    let all = fs::read_to_string(&pids).unwrap();
    assert!(all.split_whitespace().all(is_alive), "{all}");
    // without a shell in between, which would receive the supervisor's last signal
    let supervisor = all.split_whitespace().nth(1).unwrap();
    let words = fs::read_to_string(format!("/proc/{supervisor}/cmdline")).unwrap();
    assert!(words.contains("\0worker\0exec\0"), "{words:?}");
    tuner.kill().unwrap();
    tuner.wait().unwrap();
    let gone = wait_until(LONG, || !all.split_whitespace().any(is_alive));
    assert!(gone, "{all}: {:?}", all.split_whitespace().filter(|pid| is_alive(pid)).collect::<Vec<_>>());
}

#[test]
fn a_worker_dies_with_its_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("echo $$ $PPID > {0}.new; mv {0}.new {0}; exec sleep 1000", pids.display());
    let mut supervisor =
        Command::new(EXE).args(["worker", "exec", "--", "sh", "-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(LONG, || pids.exists()));
    let all = fs::read_to_string(&pids).unwrap();
    let worker = all.split_whitespace().next().unwrap();
    assert_eq!(all.split_whitespace().nth(1), Some(supervisor.id().to_string().as_str()));
    assert!(is_alive(worker));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    assert!(wait_until(LONG, || !is_alive(worker)));
}

#[test]
fn exec_passes_the_exit_on() {
    let code = |arguments: &[&str]| {
        let mut command = Command::new(EXE);
        command.args(["worker", "exec"]).args(arguments).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // stdin stays open until the child has ended by itself
        let stdin = child.stdin.take();
        let code = child.wait().unwrap().code();
        drop(stdin);
        code
    };
    assert_eq!(code(&["--", "sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["--", "sh", "-c", "kill -ABRT $$"]), Some(128 + 6));
    assert_eq!(code(&["--cpu-seconds", "1", "--", "sh", "-c", "while :; do :; done"]), Some(128 + 9));
    assert_eq!(code(&["--", "/no/such/program"]), Some(127));
    assert_eq!(code(&["--"]), Some(2), "a command line without a command");
}

#[test]
fn the_example_of_the_document_is_the_example_that_is_tested() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/worker-protocol.md")).unwrap();
    let example = fs::read_to_string(data("example_worker.py")).unwrap();
    assert!(document.contains(&format!("```python\n{example}```\n")));
}

#[test]
fn the_example_worker_conforms_and_times() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("exec {} {}", python3(), data("example_worker.py").display());
    let report = check(&WorkerCommand::shell(EXE, &command), &WorkerLimits::default(), folder.path()).unwrap();
    assert!(report.passed() && report.steps.len() == 15, "{report}");
    assert!(report.steps.iter().all(|step| step.outcome == StepOutcome::Passed), "{report}");

    let mut timer = CommandTimer::start(Path::new(EXE), &command, WorkerLimits::default(), None).unwrap();
    assert_eq!(timer.info().name, format!("command:{command}"));
    assert_eq!((&timer.info().source, timer.info().device.identity.platform.as_str()), (&Source::HostWall, "python"));
    let input = |name: &str, values: [f32; 3]| {
        let path = folder.path().join(name);
        fs::write(&path, values.map(f32::to_le_bytes).concat()).unwrap();
        InputArray::new(name, "f32[3]".parse().unwrap(), path)
    };
    let mut job = job(folder.path(), &["{\"build\":\"loop\"}", "{\"build\":\"map\"}", "{\"build\":\"none\"}"]);
    job.inputs = vec![input("x", [1.0, 2.0, 3.0]), input("y", [0.5, -2.0, 1e9])];
    timer.begin(&job).unwrap();
    for candidate in 0..2 {
        timer.prepare(candidate).unwrap();
        assert_eq!(timer.run(candidate, 4).unwrap().len(), 4);
        let outputs = timer.output_files(candidate).unwrap();
        // 1e9 + 3 rounds to 1e9 in f32, whose spacing there is 64
        assert_eq!(fs::read(&outputs[0].path).unwrap(), [1.5_f32, 0.0, 1e9].map(f32::to_le_bytes).concat());
    }
    assert!(timer.prepare(2).unwrap_err().message.contains("none"));
    timer.end();
}

#[test]
fn the_conformance_test_can_fail() {
    let folder = tempfile::tempdir().unwrap();
    let quick = limits().load(Duration::from_secs(1));
    let run = |command: &str| check(&WorkerCommand::shell(EXE, command), &quick, folder.path()).unwrap();
    // works, but fails on a line that is not JSON
    let report = run(&misbehaving("none"));
    assert!(!report.passed());
    assert_eq!(report.steps[0].outcome, StepOutcome::Passed);
    assert!(matches!(&report.steps[1].outcome, StepOutcome::Failed(why) if why.contains("exit code 1")), "{report}");
    let report = run("echo hello");
    assert!(matches!(&report.steps[0].outcome, StepOutcome::Failed(_)), "{report}");
    // keeps running after its stdin was closed
    let lingering = format!("{} {}; sleep 1000", python3(), data("example_worker.py").display());
    let report = run(&lingering);
    let failed: Vec<&str> = report
        .steps
        .iter()
        .filter(|step| matches!(&step.outcome, StepOutcome::Failed(why) if why.contains("still ran")))
        .map(|step| step.name)
        .collect();
    assert_eq!(failed, ["`shutdown` is answered and ends the worker", "closing its stdin ends the worker"]);
}

/// The fault of a path in a hostile worker's answer, and a part of the tuner's message.
const TRICKS: [(&str, &str); 14] = [
    ("outside", "it is outside of `"),
    ("relative", "it is outside of `"),
    ("dots", "it is outside of `"),
    ("device", "it is outside of `"),
    ("folder-itself", "it is outside of `"),
    ("missing", "No such file or directory"),
    ("swapped", "is another folder than it was"),
    ("link-folder", "Not a directory"),
    ("link", "it is a symbolic link"),
    ("link-zero", "it is a symbolic link"),
    ("fifo", "it is not a regular file"),
    ("folder", "it is a folder"),
    ("large", "at most"),
    ("growing", ""),
];

fn hostile(kind: &str, trick: &str, victim: &Path) -> String {
    format!("{} {} {kind} {trick} {}", python3(), data("hostile_worker.py").display(), victim.display())
}

/// A folder that no worker may touch: a file, a folder with a file, and a link.
fn victim(folder: &Path) -> PathBuf {
    let victim = folder.join("victim");
    fs::create_dir_all(victim.join("deep")).unwrap();
    fs::write(victim.join("secret.bin"), [7; 16]).unwrap();
    fs::write(victim.join("deep/file"), "sound").unwrap();
    std::os::unix::fs::symlink("secret.bin", victim.join("link")).unwrap();
    victim
}

/// Everything in a folder that reveals a change: names, inodes, modes, times, contents.
fn snapshot(folder: &Path) -> Vec<String> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match metadata.file_type() {
            kind if kind.is_dir() => {
                open.extend(fs::read_dir(&path).unwrap().map(|item| item.unwrap().path()));
                String::new()
            }
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            _ => format!("{:?}", fs::read(&path).unwrap()),
        };
        let (inode, mode, links) = (metadata.ino(), metadata.mode(), metadata.nlink());
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        found.push(format!("{} {inode} {mode:o} {links} {changed:?} {content}", path.display()));
    }
    found.sort();
    found
}

/// Plays each trick, and checks that the victim is unchanged and the job leaves nothing behind.
fn each_trick(kind: &str, play: impl Fn(&Path, &str) -> Option<String>) {
    for (trick, expected) in TRICKS {
        let folder = tempfile::tempdir().unwrap();
        let victim = victim(folder.path());
        let before = snapshot(&victim);
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let failure = play(&scratch, &hostile(kind, trick, &victim));
        assert_eq!(snapshot(&victim), before, "{kind} {trick}");
        match failure {
            Some(message) => {
                // a compile worker answers without a path: nothing is at the requested one
                let is_elsewhere =
                    kind == "executable" && (expected.starts_with("it is outside") || trick == "link-folder");
                let expected = if is_elsewhere { "No such file or directory" } else { expected };
                assert!(message.contains(expected) && !message.contains('\n'), "{kind} {trick}: {message}");
            }
            // as many bytes as at first
            None => assert_eq!((kind, trick), ("executable", "growing")),
        }
        let left: Vec<_> = fs::read_dir(&scratch).unwrap().map(|item| item.unwrap().path()).collect();
        let ours = left.iter().filter(|path| !fs::symlink_metadata(path).unwrap().is_symlink());
        assert_eq!(ours.count(), 0, "{kind} {trick}: {left:?}");
        drop(fs::remove_dir_all(&scratch));
        assert_eq!(snapshot(&victim), before, "{kind} {trick}: when the scratch folder went");
    }
}

#[test]
fn an_answered_output_is_opened_in_its_folder_alone() {
    each_trick("outputs", |scratch, command| {
        let mut timer = CommandTimer::start(Path::new(EXE), command, limits(), None).unwrap();
        timer.begin(&job(scratch, &["{\"i\":0}", "{\"i\":1}"])).unwrap();
        timer.prepare(0).unwrap();
        timer.prepare(1).unwrap();
        let failure = timer.output_files(1).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol, "{failure}");
        assert!(failure.message.starts_with("the worker's output `"), "{failure}");
        // another candidate continues
        timer.restart(&[1]).unwrap();
        assert_eq!(timer.output_files(0).unwrap()[0].read().unwrap(), [0; 16]);
        assert_eq!(timer.run(0, 1).unwrap(), [100]);
        timer.end();
        Some(failure.message)
    });
}

#[test]
fn an_answered_profile_is_opened_in_its_folder_alone() {
    each_trick("profile", |scratch, command| {
        let mut timer = CommandTimer::start(Path::new(EXE), command, limits(), None).unwrap();
        timer.begin(&job(scratch, &["{\"i\":0}", "{\"i\":1}"])).unwrap();
        timer.prepare(0).unwrap();
        timer.prepare(1).unwrap();
        let failure = timer.measure(&crate::round(&[(1, 1)])).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol, "{failure}");
        assert!(failure.message.starts_with("the worker's profile `"), "{failure}");
        timer.restart(&[1]).unwrap();
        // its profile is read, and contains nothing
        let failure_of_other = timer.measure(&crate::round(&[(0, 1)])).unwrap_err();
        assert!(failure_of_other.message.contains("holds 0 executions"), "{failure_of_other}");
        timer.end();
        Some(failure.message)
    });
}

#[test]
fn what_a_compile_worker_left_is_opened_in_its_folder_alone() {
    each_trick("executable", |scratch, command| {
        // it replaces `worker pjrt`, with any plugin
        let exe = scratch.parent().unwrap().join("exe");
        let script = format!("#!/bin/sh\nif [ $2 = exec ]; then exec {EXE} \"$@\"; fi\nexec {command}\n");
        write_executable(&exe, &script);
        let options = PjrtOptions::new(exe, data("add.mlir"), scratch.parent().unwrap().join("executables"))
            .compile_jobs(Some(1))
            .limits(limits());
        let mut timer = PjrtTimer::start(&options).unwrap();
        let mut job = job(scratch, &["{\"i\":0}", "{\"i\":1}"]);
        for (index, candidate) in job.candidates.iter_mut().enumerate() {
            let digest = Digest::of(&[index as u8]);
            let program = Program::new(ProgramFormat::StablehloText, digest, digest);
            candidate.program = Some(ProgramFile::new(data("add.mlir"), program));
        }
        timer.begin(&job).unwrap();
        // if the answer has no path, the file at the requested path counts
        let failure = timer.prepare(1).err();
        if let Some(failure) = &failure {
            assert_eq!(failure.kind, FailureKind::Compile, "{failure}");
        }
        timer.prepare(0).unwrap();
        assert_eq!(timer.run(0, 1).unwrap(), [100]);
        timer.end();
        failure.map(|failure| failure.message)
    });
}

#[test]
fn a_hostile_answer_costs_its_candidate_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let victim = victim(folder.path());
    let before = snapshot(&victim);
    for (trick, expected) in TRICKS.into_iter().filter(|(trick, _)| ["outside", "fifo", "swapped"].contains(trick)) {
        let cache = folder.path().join(trick);
        let module = program::small_module();
        let timer = format!("command:{}", hostile("outputs", trick, &victim));
        let words = ["--timer", &timer, "--format", "json", "--only", program::SMALL_CALL];
        let run = program::run(&cache, &[&[module.as_str()][..], &words].concat());
        assert_eq!(snapshot(&victim), before, "{trick}");
        assert_eq!(run.code, 0, "{}", run.stderr);
        let result = run.json();
        let candidates = result["operations"][0]["candidates"].as_array().unwrap();
        for (index, candidate) in candidates.iter().enumerate() {
            let failure = &candidate["failure"];
            let message = failure["message"].as_str().unwrap_or_default();
            assert_eq!(failure["kind"] == "protocol", index == 1, "{trick}: {candidate}");
            assert!(index != 1 || message.contains(expected), "{trick}: {message}");
            assert_eq!(candidate["status"], if index == 1 { "failed" } else { "measured" }, "{trick}: {candidate}");
        }
    }
}

/// After its worker has started, `measure` writes only new files: it does not write through the worker's link.
#[test]
fn inputs_are_not_written_through_a_worker_s_link() {
    let folder = tempfile::tempdir().unwrap();
    let victim = victim(folder.path());
    let before = snapshot(&victim);
    let timer = format!("command:{}", hostile("profile", "measured", &victim));
    let run = program::run(folder.path(), &["measure", "tests/data/timer/add.mlir", "--timer", &timer]);
    assert_eq!(snapshot(&victim), before);
    assert!(run.code != 0 && run.fault().contains("argument-0.bin"), "{}", run.stderr);
}

/// A worker gets long to end by itself after the request; a program that never said hello does not.
#[test]
fn a_worker_that_is_none_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = folder.path().join("supervisor");
    let worker = format!("tr '\\0' ' ' < /proc/$PPID/cmdline > {}; yes", supervisor.display());
    let report = check(&WorkerCommand::shell(EXE, &worker), &WorkerLimits::default(), folder.path()).unwrap();
    assert!(matches!(&report.steps[0].outcome, StepOutcome::Failed(why) if why.contains("`y`")), "{report}");
    assert!(matches!(&report.steps[1].outcome, StepOutcome::Skipped(_)) && report.steps.len() == 2, "{report}");
    let words = fs::read_to_string(&supervisor).unwrap();
    assert!(words.contains(" --grace-ms 500 "), "{words}");
}
