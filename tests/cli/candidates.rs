//! Misbehaving candidates and workers, through the whole program: each affects only itself, with a stored reason that
//! is not determined again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::pjrt::NamedTimes;
use crate::support::prerequisite::{Mount, python3};
use crate::support::program::*;
use serde_json::{Value, json};

const HOSTILE: &str = "hostile@v1";
const STEADY: &str = "steady@v1";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli").join(name)
}

impl Place {
    /// Records an operation as a user does: `registry add` of a description. The first config is the baseline.
    fn record(&self, op_id: &str, donated: bool, candidates: &[(Value, PathBuf)]) {
        let key = if op_id == HOSTILE { "0123456789abcdef" } else { "fedcba9876543210" };
        let rows: Vec<Value> =
            candidates.iter().map(|(config, file)| json!({"config": config, "program_file": file})).collect();
        let description = json!({
            "target": {"platform": "cpu"}, "op_id": op_id, "call_key": key,
            "arguments": [{"name": "x", "spec": "f32[1024]", "fill": {"kind": "normal", "scale": 1.0}, "donated": donated}],
            "baseline": candidates[0].0, "candidates": rows,
        });
        let file = self.path(&format!("{op_id}.json"));
        fs::write(&file, description.to_string()).unwrap();
        let registry = self.path("registry");
        let added = self.run(&["registry", "add", registry.to_str().unwrap(), file.to_str().unwrap()]);
        assert_eq!(added.code, 0, "{}", added.stderr);
    }

    /// Records programs of the data folder under their names.
    fn record_programs(&self, op_id: &str, names: &[&str]) {
        let rows: Vec<_> = names.iter().map(|name| (json!({"block": name}), data(&format!("{name}.mlir")))).collect();
        self.record(op_id, false, &rows);
    }

    /// Records configs for the worker with played times; their programs only have to differ.
    fn record_played(&self, op_id: &str, configs: &[Value]) {
        let rows: Vec<_> = configs
            .iter()
            .enumerate()
            .map(|(index, config)| {
                let file = self.path(&format!("{op_id}-{index}.mlir"));
                fs::write(&file, format!("module @m {{ func.func @main() {{ return }} }} // {op_id} {index}")).unwrap();
                (config.clone(), file)
            })
            .collect();
        self.record(op_id, false, &rows);
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = command(&self.path("cache"));
        command.arg(data("module.mlir")).arg("--registry").arg(self.path("registry"));
        command.args(["--format", "json", "--rounds", "8"]).args(more);
        command
    }

    /// Tunes on a real plugin with SIMULATED times.
    fn tune(&self, plugin: &NamedTimes, more: &[&str]) -> Run {
        let mut command = self.command(more);
        plugin.measures(&mut command);
        let run = ended(&mut command);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run
    }

    /// Tunes with the worker that plays times.
    fn play(&self, mode: &str, more: &[&str]) -> Run {
        let run = ended(self.command(&["--timer", &self.timer(mode)]).args(more));
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run
    }

    fn timer(&self, mode: &str) -> String {
        let counter = self.path("processes");
        format!("command:{} '{}' {mode} '{}'", python3(), data("worker.py").display(), counter.display())
    }

    /// The arguments of [`play`](Self::play).
    fn words(&self, mode: &str) -> Vec<String> {
        let [module, registry] = [data("module.mlir"), self.path("registry")].map(|path| path.display().to_string());
        let words = [&module, "--registry", &registry, "--format", "json", "--rounds", "8", "--timer"];
        words.into_iter().map(str::to_owned).chain([self.timer(mode)]).collect()
    }

    /// The same in a process with this handling of SIGHUP.
    fn play_with_hang_ups(&self, handling: &str, more: &[&str]) -> Run {
        let script = "import os, signal, sys; signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1])); \
                      os.execv(sys.argv[2], sys.argv[2:])";
        let mut python = Command::new(python3());
        python
            .args(["-c", script, handling, env!("CARGO_BIN_EXE_autotune-lowered")])
            .args(self.words("none"))
            .args(more);
        python.env("AUTOTUNE_LOWERED_CACHE", self.path("cache")).env_remove("RUST_LOG").stdin(Stdio::null());
        let output = python.output().unwrap();
        Run::of(output, &[])
    }

    /// Workers started so far by [`play`](Self::play).
    fn processes(&self) -> usize {
        fs::read_to_string(self.path("processes")).map_or(0, |text| text.len())
    }
}

fn operation<'a>(result: &'a Value, op_id: &str) -> &'a Value {
    result["operations"].as_array().unwrap().iter().find(|operation| operation["op_id"] == op_id).unwrap()
}

/// The slices of a trace for Chrome.
fn slices(trace: &Path) -> Vec<Value> {
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").cloned().collect()
}

/// Kind and message of a candidate's failure.
fn failure<'a>(operation: &'a Value, config: &Value) -> (&'a str, &'a str) {
    let candidate = operation["candidates"].as_array().unwrap().iter().find(|row| row["config"] == *config);
    let failure = &candidate.unwrap_or_else(|| panic!("no {config} in {operation}"))["failure"];
    assert!(failure.is_object(), "{config} has not failed: {operation}");
    let message = failure["message"].as_str().unwrap();
    assert!(!message.contains('\n') && message.len() < 800, "one clear line: {message}");
    (failure["kind"].as_str().unwrap(), message)
}

/// A text that overflows the stack of MLIR's parser.
fn killer(place: &Place) -> PathBuf {
    let path = place.path("killer.mlir");
    let (open, close) = ("tuple<".repeat(50_000), ">".repeat(50_000));
    fs::write(&path, format!("module {{ func.func @main(%a: {open}i1{close}) {{ return }} }}")).unwrap();
    path
}

#[test]
fn bad_candidates_cost_themselves_alone_and_are_not_tried_again() {
    let Some(plugin) = NamedTimes::new() else { return };
    // all of them, whatever the earlier ones promise
    let tune = |place: &Place, more: &[&str]| place.tune(&plugin, &[&["--thorough"], more].concat());
    let place = Place::new();
    let names = [
        "steps",
        "few_steps",
        "nan",
        "other_outputs",
        "other_dtype",
        "other_shape",
        "two_arguments",
        "other_output_shape",
        "two_outputs",
        "garbage",
    ];
    let mut rows: Vec<_> = names.iter().map(|name| (json!({"block": name}), data(&format!("{name}.mlir")))).collect();
    rows.push((json!({"block": "killer"}), killer(&place)));
    place.record(HOSTILE, false, &rows);
    place.record_programs(STEADY, &["steps", "few_steps"]);

    let first = tune(&place, &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let result = first.json();
    let hostile = operation(&result, HOSTILE);
    assert_eq!((&hostile["status"], &hostile["best"]["config"]), (&json!("tuned"), &json!({"block": "few_steps"})));
    let steady = operation(&result, STEADY);
    assert_eq!(steady["status"], "tuned", "{steady}");
    let failures = |result: &Value| {
        let hostile = operation(result, HOSTILE);
        for (name, kind, words) in [
            ("nan", "wrong-output", &["1024 of 1024 elements, most at element 0: NaN, the baseline's is 2"][..]),
            ("other_outputs", "wrong-output", &["1024 of 1024 elements by up to 2"]),
            ("other_dtype", "signature", &["takes s32[1024], f32[1024] is recorded"]),
            ("other_shape", "signature", &["takes f32[32,32], f32[1024] is recorded"]),
            ("two_arguments", "signature", &["takes 2 arguments, 1 are recorded"]),
            ("other_output_shape", "wrong-output", &["`f32[32,32]`, the baseline's is `f32[1024]`"]),
            ("two_outputs", "wrong-output", &["2 outputs, the baseline has 1"]),
            ("garbage", "unreadable", &["error"]),
            ("killer", "compile", &["died of SIG"]),
        ] {
            let (found, message) = failure(hostile, &json!({"block": name}));
            assert_eq!(found, kind, "{name}: {message}");
            assert!(words.iter().all(|word| message.contains(word)), "{name}: {message}");
        }
    };
    failures(&result);

    let second = tune(&place, &[]);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert!(!second.stderr.contains("is rejected"), "tried again: {}", second.stderr);
    assert!(second.stderr.contains("nothing measured"), "{}", second.stderr);
    let result = second.json();
    assert_eq!(
        (&operation(&result, HOSTILE)["status"], &operation(&result, STEADY)["status"]),
        (&json!("cached"), &json!("cached"))
    );
    failures(&result);

    let third = tune(&place, &["--force"]);
    assert_eq!(third.stderr.matches("is rejected").count(), 9, "{}", third.stderr);
    failures(&third.json());
}

#[test]
fn a_candidate_without_end_in_time_or_memory_is_ended() {
    let Some(plugin) = NamedTimes::new() else { return };
    // each meets its own limit: what takes a gibibyte in five seconds on one machine takes ten on another
    let endless = ["no answer to `outputs` within 2s", "the time limit of a call"];
    for (name, file, limit, expected_kind, words) in [
        ("endless", data("endless.mlir"), ["--timeout", "2"], "timeout", &endless[..]),
        ("hungry", data("../timer/hungry.mlir"), ["--memory-limit", "1024"], "memory", &["1073741824 allowed"]),
    ] {
        let place = Place::new();
        let rows = ["steps", "few_steps"].map(|name| (json!({"block": name}), data(&format!("{name}.mlir"))));
        place.record(HOSTILE, false, &[&rows[..], &[(json!({"block": name}), file)]].concat());
        place.record_programs(STEADY, &["steps", "few_steps"]);
        let first = place.tune(&plugin, &limit);
        assert_eq!(first.code, 0, "{}", first.stderr);
        let result = first.json();
        for result in [&result, &place.tune(&plugin, &limit).json()] {
            let hostile = operation(result, HOSTILE);
            assert_eq!(hostile["best"]["config"], json!({"block": "few_steps"}), "{hostile}");
            let (kind, message) = failure(hostile, &json!({"block": name}));
            assert_eq!(kind, expected_kind, "{message}");
            // the plugin's chatter on stderr is no reason
            assert!(!message.contains("cpu_device_count"), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
        let steady = operation(&result, STEADY);
        assert_eq!(steady["status"], "tuned", "{steady}");
    }
}

#[test]
fn an_unknown_custom_call_stops_its_operation_and_says_what_to_do() {
    let Some(plugin) = NamedTimes::new() else { return };
    let place = Place::new();
    place.record_programs(HOSTILE, &["steps", "few_steps", "unknown_call"]);
    place.record_programs(STEADY, &["steps", "few_steps"]);
    for steady in ["tuned", "cached"] {
        let run = place.tune(&plugin, &[]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        let result = run.json();
        let hostile = operation(&result, HOSTILE);
        assert_eq!(hostile["status"], "failed");
        let reason = hostile["reason"].as_str().unwrap();
        assert!(reason.contains("`no_such_kernel`") && reason.contains("`--timer jax`"), "{reason}");
        assert_eq!(operation(&result, STEADY)["status"], steady);
    }
}

#[test]
fn a_baseline_that_fails_says_so_each_time_with_the_same_reason() {
    let Some(plugin) = NamedTimes::new() else { return };
    let place = Place::new();
    place.record_programs(HOSTILE, &["garbage", "steps", "few_steps"]);
    place.record_programs(STEADY, &["nan", "steps"]);
    let reasons: Vec<String> = (0..2)
        .map(|_| {
            let run = place.tune(&plugin, &[]);
            assert_eq!(run.code, 1, "{}", run.stderr);
            let result = run.json();
            assert_eq!(operation(&result, HOSTILE)["status"], "failed");
            operation(&result, HOSTILE)["reason"].as_str().unwrap().to_owned()
        })
        .collect();
    for reason in &reasons {
        assert!(reason.contains("the baseline failed") && reason.contains("error"), "{reasons:#?}");
    }
    assert!(reasons[1].contains("`--force` tries again"), "{reasons:#?}");
}

#[test]
fn donated_inputs_are_tuned_and_compared() {
    let Some(plugin) = NamedTimes::new() else { return };
    let place = Place::new();
    let rows =
        ["steps", "donated", "other_outputs"].map(|name| (json!({"block": name}), data(&format!("{name}.mlir"))));
    place.record(HOSTILE, true, &rows);
    place.record(STEADY, false, &rows);
    let run = place.tune(&plugin, &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = run.json();
    for op_id in [HOSTILE, STEADY] {
        let operation = operation(&result, op_id);
        assert_eq!(operation["best"]["config"], json!({"block": "donated"}), "{operation}");
        assert_eq!(failure(operation, &json!({"block": "other_outputs"})).0, "wrong-output");
    }
}

#[test]
fn a_worker_whose_programs_return_nothing_decides_nothing() {
    let place = Place::new();
    let rows = [("steps", 10_000_000), ("few_steps", 5_000_000)];
    let rows = rows.map(|(name, ns)| (json!({"ns": ns}), data(&format!("{name}.mlir"))));
    place.record(HOSTILE, false, &rows);
    for _ in 0..2 {
        let run = place.play("no-outputs", &[]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        let result = run.json();
        let hostile = operation(&result, HOSTILE);
        assert_eq!((&hostile["status"], &hostile["failure"]["kind"]), (&json!("failed"), &json!("no-outputs")));
        let reason = hostile["reason"].as_str().unwrap();
        let words = "the timer gives no outputs of the baseline, and its recorded program has results";
        assert!(reason.contains(words) && !reason.contains('\n'), "{reason}");
        assert_eq!(run.stderr.matches(words).count(), 1, "{}", run.stderr);
    }
    let listed = place.run(&["cache", "ls", "--format", "json"]);
    assert_eq!(listed.json()["entries"], json!([]), "{}", listed.stdout);
    // the same configs are decided as soon as there is something to compare
    let run = place.play("none", &[]);
    assert_eq!(operation(&run.json(), HOSTILE)["status"], "tuned", "{}", run.stderr);
}

#[test]
fn a_worker_that_misbehaves_in_one_candidate_keeps_the_rest() {
    let place = Place::new();
    let bad = |what: &str| json!({"ns": 1_000_000, "do": what});
    place.record_played(
        HOSTILE,
        &[
            json!({"ns": 4_000_000}),
            json!({"ns": 2_000_000}),
            bad("print"),
            bad("abort-at-4"),
            bad("nonsense"),
            bad("hang"),
            bad("no-device"),
        ],
    );
    place.record_played(STEADY, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    let first = place.play("none", &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let result = first.json();
    let started = place.processes();
    let second = place.play("none", &[]);
    assert_eq!(place.processes(), started + 1, "only to ask for the device: {}", second.stderr);
    for result in [&result, &second.json()] {
        let hostile = operation(result, HOSTILE);
        assert_eq!(hostile["best"]["config"], json!({"ns": 2_000_000}), "{hostile}");
        // four ms against two
        assert!((hostile["speed_up"].as_f64().unwrap() - 2.0).abs() < 0.01, "{hostile}");
        for (what, kind, word) in [
            ("print", "protocol", "`step 1 of 10 done`"),
            ("abort-at-4", "crash", "Check failed: the fourth call"),
            ("nonsense", "protocol", "the result of `measure` is malformed"),
            ("hang", "timeout", "no answer to `measure` within 3s"),
            ("no-device", "device", "fell off the bus"),
        ] {
            let (found, message) = failure(hostile, &bad(what));
            assert_eq!(found, kind, "{what}: {message}");
            assert!(message.contains(word), "{what}: {message}");
        }
    }
    let steady = operation(&result, STEADY);
    assert_eq!(steady["status"], "tuned", "{steady}");
    assert_eq!(operation(&second.json(), HOSTILE)["status"], "cached");
    // the time limit of a call, where it is shorter than what the cut-off of slow candidates allows
    let forced = place.play("none", &["--force", "--timeout", "1"]);
    assert_eq!(forced.stderr.matches("is rejected").count(), 5, "{}", forced.stderr);
}

#[test]
fn a_worker_that_dies_in_the_first_operation_serves_the_second() {
    let place = Place::new();
    let configs = [json!({"ns": 4_000_000}), json!({"ns": 2_000_000})];
    place.record_played(HOSTILE, &configs);
    place.record_played(STEADY, &configs);
    for steady in ["tuned", "cached"] {
        let run = place.play("begin", &[]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        let result = run.json();
        let hostile = operation(&result, HOSTILE);
        assert_eq!(hostile["status"], "failed");
        let reason = hostile["reason"].as_str().unwrap();
        assert!(reason.contains("exit code 4") && reason.contains("out of luck"), "{reason}");
        assert_eq!(operation(&result, STEADY)["status"], steady, "{}", run.stderr);
    }
    // no candidate was blamed: a working worker meets no obstacle
    let run = place.play("none", &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_baseline_whose_program_was_changed_is_not_blamed_for_ever() {
    let place = Place::new();
    place.record_played(HOSTILE, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    place.record_played(STEADY, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    let registry = autotune_lowered::registry::Registry::open(place.path("registry")).unwrap();
    let hostile = registry.invocations().iter().find(|invocation| invocation.call.op_id == HOSTILE).unwrap();
    let baseline = hostile.candidates.iter().find(|candidate| candidate.config == hostile.baseline).unwrap();
    let path = registry.program_path(baseline.program.as_ref().unwrap());
    let sound = fs::read(&path).unwrap();
    fs::write(&path, [&sound[..], b" "].concat()).unwrap();
    let run = place.play("none", &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let result = run.json();
    let reason = operation(&result, HOSTILE)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("the baseline cannot be run") && reason.contains(path.to_str().unwrap()), "{reason}");
    fs::write(&path, sound).unwrap();
    let mended = place.play("none", &[]);
    assert_eq!((mended.code, &operation(&mended.json(), HOSTILE)["status"]), (0, &json!("tuned")), "{}", mended.stderr);
}

#[test]
fn a_full_scratch_disk_is_nobodys_fault() {
    let Some(plugin) = NamedTimes::new() else { return };
    let Some(mount) = Mount::new("size=8k") else { return };
    let place = Place::new();
    place.record_programs(HOSTILE, &["steps", "few_steps"]);
    place.record_programs(STEADY, &["steps", "few_steps"]);
    let (module, registry) = (data("module.mlir"), place.path("registry"));
    let mut full = command(&place.path("cache"));
    full.arg(&module).arg("--registry").arg(&registry).args(["--format", "json"]);
    plugin.measures(&mut full);
    let output = full.env("TMPDIR", mount.path()).output().unwrap();
    // the worker is unusable, whichever operation asks for it
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    for op_id in [HOSTILE, STEADY] {
        let reason = operation(&result, op_id)["reason"].as_str().unwrap();
        assert!(reason.contains("No space left") && reason.contains(mount.path().to_str().unwrap()), "{reason}");
    }
    let run = place.tune(&plugin, &[]);
    assert_eq!(run.code, 0, "what the disk did stays with the programs: {}", run.stderr);
}

#[test]
fn a_cache_that_is_removed_during_a_run_is_not_called_kept() {
    let place = Place::new();
    place.record_played(HOSTILE, &[json!({"ns": 4_000_000, "do": "remove-cache"}), json!({"ns": 2_000_000})]);
    let trace = place.path("run.json");
    let run = place.play("none", &["--trace-run", trace.to_str().unwrap()]);
    assert_eq!(run.code, i32::from(autotune_lowered::cli::exit::CACHE_TROUBLE), "{}", run.stderr);
    assert!(run.fault().contains("was removed during the run"), "{}", run.fault());
    // the trace shows the run up to its failure
    let slices = slices(&trace);
    for name in ["plan", "hostile@v1:0123456789abcdef", "round 1"] {
        assert!(slices.iter().any(|slice| slice["name"] == name), "{name} in {slices:?}");
    }
}

#[test]
fn a_terminated_run_says_what_it_measured_and_goes_on_later() {
    ["SIGTERM", "SIGHUP", "SIGQUIT"].into_iter().for_each(ended_by);
}

fn ended_by(signal: &str) {
    let place = Place::new();
    place.record_played(HOSTILE, &[json!({"ns": 4_000_000, "do": signal}), json!({"ns": 2_000_000})]);
    place.record_played(STEADY, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    let trace = place.path("run.json");
    // the tests themselves may have been started by `nohup`
    let ended = place.play_with_hang_ups("SIG_DFL", &["--trace-run", trace.to_str().unwrap()]);
    assert_eq!(ended.code, i32::from(autotune_lowered::cli::exit::INTERRUPTED), "{signal}: {}", ended.stderr);
    let result = ended.json();
    let hostile = operation(&result, HOSTILE);
    assert_eq!(
        (&hostile["status"], &operation(&result, STEADY)["status"]),
        (&json!("interrupted"), &json!("interrupted"))
    );
    // three warm-up calls, and three more in each round: the fourteenth is in the fourth round, which may be cut there
    let measured = hostile["rounds_measured"].as_u64().unwrap();
    assert!((3..=4).contains(&measured), "{hostile}");
    assert!(ended.stderr.contains(&format!("{measured} rounds measured")), "{}", ended.stderr);
    // the trace shows the run up to its end: the rounds of the first operation, one of them cut, and none of the second
    let slices = slices(&trace);
    let rounds = slices.iter().filter(|slice| slice["name"].as_str().unwrap().starts_with("round ")).count() as u64;
    assert!((measured..=measured + 1).contains(&rounds), "{slices:?}");
    for name in ["hostile@v1:0123456789abcdef", "steady@v1:fedcba9876543210"] {
        let whole = slices.iter().find(|slice| slice["name"] == name).unwrap();
        assert_eq!(whole["args"]["status"], "interrupted", "{whole}");
    }
    let result = place.play("none", &[]).json();
    assert_eq!(operation(&result, HOSTILE)["rounds_kept"], measured, "{result}");
}

/// As started by `nohup`, it ignores the end of the terminal.
#[test]
fn a_run_that_was_told_to_ignore_hang_ups_goes_on() {
    let place = Place::new();
    place.record_played(HOSTILE, &[json!({"ns": 4_000_000, "do": "SIGHUP"}), json!({"ns": 2_000_000})]);
    place.record_played(STEADY, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    let ran = place.play_with_hang_ups("SIG_IGN", &[]);
    assert_eq!(ran.code, i32::from(autotune_lowered::cli::exit::ALL_TUNED), "{}", ran.stderr);
    assert_eq!(operation(&ran.json(), HOSTILE)["status"], "tuned", "{}", ran.stdout);
}

/// The folder for temporary files is unchanged after every run that ends by itself, and after the next run if one was
/// killed.
#[test]
fn what_a_killed_run_leaves_the_next_one_removes() {
    let place = Place::new();
    place.record_played(HOSTILE, &[json!({"ns": 4_000_000, "do": "hang"}), json!({"ns": 2_000_000})]);
    place.record_played(STEADY, &[json!({"ns": 4_000_000}), json!({"ns": 2_000_000})]);
    let temporary = place.path("tmp");
    fs::create_dir_all(temporary.join("autotune-lowered-run-notes")).unwrap();
    let names = || fs::read_dir(&temporary).unwrap().map(|item| item.unwrap().file_name()).collect::<Vec<_>>();
    let tune = |words: &[&str]| {
        let mut command = command(&place.path("cache"));
        command.args(place.words("none")).args(words).env("TMPDIR", &temporary);
        command
    };
    let mut hanging = tune(&["--only", HOSTILE]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // the inputs are written before any measurement
    let has_inputs = || {
        let folders = fs::read_dir(&temporary).unwrap().map(|item| item.unwrap().path());
        folders.into_iter().any(|folder| folder.join("input-0.bin").exists())
    };
    while !has_inputs() {
        assert_eq!(hanging.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    let others = tune(&["--only", STEADY, "--no-persist"]).output().unwrap();
    assert!(others.status.success(), "{}", String::from_utf8_lossy(&others.stderr));
    assert!(has_inputs(), "a run that is under way keeps its folder");
    hanging.kill().unwrap();
    hanging.wait().unwrap();
    assert!(has_inputs(), "nothing else would remove it");
    let next = tune(&["--only", STEADY, "--no-persist"]).output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert_eq!(names(), ["autotune-lowered-run-notes"], "the user's own folder stays");
}
