//! `replay:DIR` and `--keep-profiles`: earlier captures give the same samples and the same decisions again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::prerequisite::{python_with, python3};
use crate::support::program;
use crate::support::program::{Run, SMALL_CALL, module, run, small_module};
use crate::support::scripted::{config, device, distinct_program, planned, registry};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::failure::FailureKind;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::{CacheState, Metric, Source};
use autotune_lowered::timer::replay::ProfileIndex;
use autotune_lowered::timer::{Job, JobCandidate, ProfileReplay, Timer, TimerExt};
use autotune_lowered::tune::{Session, Status, TuneOptions};
use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A TensorBoard log folder with the capture of six functions run five times each, and an index of a few lines.
fn by_hand(folder: &Path) -> Value {
    let run = folder.join("log/plugins/profile/2025_01_02_03_04_05");
    fs::create_dir_all(&run).unwrap();
    fs::copy(data("xplane/autotune6x5.xplane.pb.gz"), run.join("host.xplane.pb.gz")).unwrap();
    let functions: BTreeMap<String, Value> = (0..6).map(|n| (n.to_string(), json!({"block": n}))).collect();
    let index = json!({
        "schema": 1,
        "device": device(),
        "invocations": [
            {"op_id": "op@v1", "call_key": "0123456789abcdef", "functions": functions, "profiles": ["log"]}
        ]
    });
    write(folder, &index);
    index
}

fn write(folder: &Path, index: &Value) {
    fs::write(folder.join("profiles.json"), index.to_string()).unwrap();
}

fn job(folder: &Path, blocks: &[u64]) -> Job {
    let candidates = blocks.iter().map(|&block| JobCandidate::new(config(block)));
    Job::new(Call::new("op@v1", "0123456789abcdef"), folder).candidates(candidates.collect())
}

/// An independent program's result for the capture: durations of each function in the order of their starts.
fn oracle(member: &str) -> Vec<Vec<u64>> {
    let oracle: Value = serde_json::from_slice(&fs::read(data("xplane/autotune6x5.oracle.json")).unwrap()).unwrap();
    let mut found = vec![Vec::new(); 6];
    for module in oracle["modules"].as_array().unwrap() {
        let number: usize = module["hlo_module"].as_str().unwrap()["jit_autotune_fn_".len()..].parse().unwrap();
        found[number].push((module["start_ps"].as_i64().unwrap(), module[member].as_u64().unwrap()));
    }
    let in_order = |mut list: Vec<(i64, u64)>| {
        list.sort_unstable();
        list.into_iter().map(|(_, ps)| (ps + 500) / 1000).collect()
    };
    found.into_iter().map(in_order).collect()
}

#[test]
fn a_log_folder_gives_the_oracles_durations() {
    let folder = tempfile::tempdir().unwrap();
    by_hand(folder.path());
    for (metric, member) in [(None, "span_ps"), (Some(Metric::Busy), "busy_union_ps")] {
        let expected = oracle(member);
        let mut timer = ProfileReplay::open(folder.path(), metric.clone()).unwrap();
        assert_eq!(
            (timer.info().source.clone(), timer.info().metric.clone()),
            (Source::Replay, metric.clone().unwrap_or(Metric::Span))
        );
        assert_eq!(
            (timer.info().name.as_str(), &timer.info().device),
            (&*format!("replay:{}", folder.path().display()), &device())
        );
        // the job's numbers differ from the functions' numbers
        timer.begin(&job(folder.path(), &[4, 0, 9, 2])).unwrap();
        for (candidate, function) in [(1, 0), (0, 4), (3, 2)] {
            timer.prepare(candidate).unwrap();
            let (first, rest) = (timer.run(candidate, 2).unwrap(), timer.run(candidate, 3).unwrap());
            assert_eq!([first, rest].concat(), expected[function], "{metric:?} {function}");
            assert_eq!(timer.run(candidate, 1).unwrap(), expected[function][..1], "from the start again");
            assert!(timer.output_files(candidate).unwrap().is_empty(), "profiles hold none");
        }
        let unknown = timer.prepare(2).unwrap_err();
        assert_eq!(unknown.kind, FailureKind::NoProgram);
        assert!(unknown.message.contains(r#"has the config {"block":9}"#), "{unknown}");
        assert_eq!(timer.run(2, 1).unwrap_err().kind, FailureKind::NoProgram, "it was not prepared");
    }
}

#[test]
fn profiles_of_cold_runs_are_not_given_for_warm_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = by_hand(folder.path());
    let begin = |cache_state| {
        let mut timer = ProfileReplay::open(folder.path(), None).unwrap();
        timer.begin(&job(folder.path(), &[0]).cache_state(cache_state)).map_err(|failure| failure.message)
    };
    assert_eq!(begin(CacheState::Warm), Ok(()));
    let message = begin(CacheState::Cold).unwrap_err();
    assert!(message.ends_with("names no profiles of op@v1:0123456789abcdef forward with cold caches"), "{message}");
    index["invocations"][0]["cache_state"] = json!("cold");
    write(folder.path(), &index);
    assert_eq!(begin(CacheState::Cold), Ok(()));
    assert!(begin(CacheState::Warm).unwrap_err().ends_with("of op@v1:0123456789abcdef forward"));
}

/// Ejkernel's own profiler calls function 0 the fastest; by the span it is the slowest of the six.
#[test]
fn the_span_decides_and_not_what_the_seed_would_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = by_hand(folder.path());
    // the seed's winner is the last config, and the baseline is another function
    let functions: BTreeMap<String, Value> = (0..6).map(|n| (n.to_string(), json!({"block": 5 - n}))).collect();
    index["invocations"][0]["functions"] = json!(functions);
    write(folder.path(), &index);
    let oracle_file: Value =
        serde_json::from_slice(&fs::read(data("xplane/autotune6x5.oracle.json")).unwrap()).unwrap();
    let seconds = oracle_file["seed_on_proto_default"]["result"].as_object().unwrap();
    let of_seed = seconds.iter().min_by(|one, other| one.1.as_f64().unwrap().total_cmp(&other.1.as_f64().unwrap()));
    assert!(of_seed.unwrap().0.starts_with("jit_autotune_fn_0("), "{of_seed:?}");
    let medians: Vec<f64> = oracle("span_ps")
        .into_iter()
        .map(|mut spans| {
            spans.sort_unstable();
            spans[2] as f64
        })
        .collect();
    assert!(medians[1..].iter().all(|median| *median < medians[0]), "{medians:?}");

    let (registry, invocation) = registry(&folder.path().join("registry"), 6, &distinct_program);
    let mut timer = ProfileReplay::open(folder.path(), None).unwrap();
    // ten rounds take each of the five executions twice
    let options = TuneOptions::default().rounds(Some(10));
    let ledger = Ledger::in_memory(vec![]);
    let mut session = Session::new(&registry, &ledger, &mut timer).options(options);
    let result = session.run(&planned([&invocation])).unwrap();
    assert_eq!((&result.measured_by.source, &result.measured_by.metric), (&Source::Replay, &Metric::Span));
    let operation = &result.operations[0];
    // the fastest run of a round counts: at most the median, and one of the oracle's spans
    for ((candidate, spans), median) in operation.candidates.iter().rev().zip(oracle("span_ps")).zip(&medians) {
        let found = candidate.times().unwrap().median_ns;
        let least = spans.into_iter().min().unwrap() as f64;
        assert!((least..=*median).contains(&found), "{least} {found} {median}");
    }
    // five executions that scatter by half show of none that it is the fastest
    assert_eq!((operation.status, &operation.best), (Status::Undecided, &None), "{}", operation.reason);
    assert!(
        operation.reason.starts_with("nothing is faster by more than the noise floor of 31."),
        "{}",
        operation.reason
    );
}

/// The parts of an operation's result that belong to its decision.
fn decided(run: &Run) -> Vec<Value> {
    let of_candidate = |candidate: &Value| {
        let parts = ["config", "rounds", "median_ns", "ratio", "interval", "tied_with_best"];
        json!([parts.map(|part| candidate[part].clone()), candidate["failure"].is_null()])
    };
    // profiles do not contain a program's memory and work
    let time = |one: &Value| json!([one["config"], one["median_ns"]]);
    let of_operation = |operation: &Value| {
        // the speed-up is that of fresh processes, whose profiles are not kept
        let parts = ["call_key", "status", "reason", "tie_set"];
        let candidates: Vec<Value> = operation["candidates"].as_array().unwrap().iter().map(of_candidate).collect();
        let times = ["best", "baseline"].map(|part| time(&operation[part]));
        json!([parts.map(|part| operation[part].clone()), times, operation["rounds_measured"], candidates])
    };
    run.json()["operations"].as_array().unwrap().iter().map(of_operation).collect()
}

/// Tunes with a timer that keeps its profiles, and again from the kept profiles.
fn kept_and_replayed(folder: &Path, timer: &str, module: &str, options: &[&str]) -> (Run, Run) {
    let kept = folder.join("kept").display().to_string();
    let tune = |cache: &str, timer: &str, more: &[&str]| {
        let arguments = [&[module, "--timer", timer, "--format", "json"], options, more].concat();
        let run = run(&folder.join(cache), &arguments);
        assert!(run.code == 0 && !run.stderr.contains("used again"), "{timer}: {}\n{}", run.stdout, run.stderr);
        run
    };
    let measured = tune("cache", timer, &["--keep-profiles", &kept]);
    let replayed = tune("another", &format!("replay:{kept}"), &[]);
    assert_eq!(measured.json()["source"], "device-profile");
    assert_eq!((&replayed.json()["source"], &replayed.json()["metric"]), (&"replay".into(), &"span".into()));
    assert_eq!(decided(&replayed), decided(&measured));
    (measured, replayed)
}

fn worker(state: &Path, mode: &str) -> String {
    format!("command:exec {} {} {} {mode}", python3(), data("timer/profiling_worker.py").display(), state.display())
}

#[test]
fn what_was_kept_decides_the_same() {
    for mode in ["", "order"] {
        let folder = tempfile::tempdir().unwrap();
        let (measured, _) =
            kept_and_replayed(folder.path(), &worker(folder.path(), mode), &module(), &["--rounds", "8"]);
        let operations = measured.json()["operations"].clone();
        assert!(
            operations.as_array().unwrap().iter().all(|operation| operation["rounds_measured"].as_u64() >= Some(6)),
            "{operations}"
        );
        let index: Value =
            serde_json::from_slice(&fs::read(folder.path().join("kept/profiles.json")).unwrap()).unwrap();
        // the baseline's first runs have one profile, and those of all others share one
        let profiles = index["invocations"][0]["profiles"].as_array().unwrap();
        let launches: Vec<usize> = profiles.iter().map(|one| one["launches"].as_array().unwrap().len()).collect();
        let whole = launches.iter().copied().max().unwrap();
        assert!(
            launches[0] == 1 && launches[1] > 1 && launches[1..].iter().all(|&of| of > 1),
            "{launches:?} of {whole}"
        );
        let name = index["invocations"][0].get("module_name");
        assert_eq!(name, (mode == "order").then_some(&Value::Null), "the usual name is not written");
        // another metric uses other numbers from the same rounds
        let timer = format!("replay:{}", folder.path().join("kept").display());
        let module = module();
        let arguments =
            [&*module, "--timer", &timer, "--rounds", "8", "--metric", "busy", "--no-persist", "--format", "json"];
        let busy = run(folder.path(), &arguments).json();
        for (by_span, by_busy) in operations.as_array().unwrap().iter().zip(busy["operations"].as_array().unwrap()) {
            let median = |operation: &Value| operation["baseline"]["median_ns"].as_f64().unwrap();
            let ratio = median(by_busy) / median(by_span);
            assert!((ratio - 2.0 / 3.0).abs() < 1e-3, "{ratio}");
        }
    }
}

/// A compile error, a crash in outputs, an error in the warm-up, wrong outputs, a crash in a round: a replay reaches
/// the same decision despite all of them.
#[test]
fn failures_come_again_where_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let (measured, replayed) =
        kept_and_replayed(folder.path(), &worker(folder.path(), "failing"), &module(), &["--rounds", "8"]);
    for mark in ["warm-up", "round", "outputs"] {
        assert!(folder.path().join(mark).exists(), "{mark}: nothing failed");
    }
    let failure = |run: &Run, candidate: usize| run.json()["operations"][0]["candidates"][candidate]["failure"].clone();
    assert_eq!(failure(&replayed, 1), failure(&measured, 1), "the compiler's own words");
    assert_eq!(failure(&measured, 1)["message"], "no such layout");
    // outputs are not kept: a candidate dropped for them has no execution
    assert_eq!(
        (&failure(&measured, 3)["kind"], &failure(&replayed, 3)["kind"]),
        (&"wrong-output".into(), &"no-program".into())
    );
    assert!(failure(&replayed, 3)["message"].as_str().unwrap().contains("no execution of `jit_autotune_fn_3`"));
}

/// An index with all members is written as it was read, and docs/profiles.md documents each member.
#[test]
fn every_member_of_the_index_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read(root.join("fuzz/corpus/replay/profile_index.json")).unwrap();
    let index: ProfileIndex = serde_json::from_slice(&text).unwrap();
    let mut written = serde_json::to_value(&index).unwrap();
    assert_eq!(serde_json::from_value::<ProfileIndex>(written.clone()).unwrap(), index);
    let document = fs::read_to_string(root.join("docs/profiles.md")).unwrap();
    written["builds_programs"] = true.into();
    let invocation = &written["invocations"][0];
    let profiles = invocation["profiles"].as_array().unwrap();
    let objects = [&written, invocation, &profiles[1], &profiles[2], &invocation["failures"]["1"][0]];
    let names: Vec<&String> = objects.iter().flat_map(|object| object.as_object().unwrap().keys()).collect();
    assert_eq!(names.len(), 4 + 7 + 2 + 2 + 5, "{names:?}");
    for name in names.into_iter().filter(|name| !["schema", "invocations"].contains(&name.as_str())) {
        assert!(document.contains(&format!("`{name}`")), "docs/profiles.md does not say what `{name}` is");
    }
}

#[test]
fn jax_decides_the_same_from_its_kept_profiles() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = ["--only", SMALL_CALL, "--rounds", "6"];
    kept_and_replayed(folder.path(), &format!("jax:{}", python.display()), &small_module(), &options);
}

/// With `--profile-every` TensorBoard can read the folder: the newest profiles, each complete, and no index to replay.
#[test]
fn some_profiles_are_kept_to_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let tune = |name: &str, more: &[&str]| {
        let logs = folder.path().join(name);
        fs::create_dir(&logs).unwrap();
        // each run starts a new worker, so that all runs are the same
        let worker = worker(&logs, "");
        let (module, kept) = (module(), logs.display().to_string());
        let arguments =
            [&[&*module, "--timer", &worker, "--rounds", "6", "--no-persist", "--keep-profiles", &kept], more].concat();
        let run = run(folder.path(), &arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let mut runs: Vec<PathBuf> =
            fs::read_dir(logs.join("plugins/profile")).unwrap().map(|item| item.unwrap().path()).collect();
        runs.sort();
        runs
    };
    let all = tune("all", &["--profile-every", "1", "--profiles-kept", "100000"]);
    let numbers = |runs: &[PathBuf]| -> Vec<u64> {
        let name =
            |run: &PathBuf| run.file_name().unwrap().to_str().unwrap().split('-').nth(2).unwrap().parse().unwrap();
        runs.iter().map(name).collect()
    };
    // number of measured candidates over the run: each profile adds those of one round, including the first one
    let counts = numbers(&all);
    assert!(counts.len() > 20 && counts.is_sorted(), "{counts:?}");
    let twentieth = numbers(&tune("twentieth", &["--profile-every", "20", "--profiles-kept", "100000"]));
    // a profile that covers `before` to `count` contains a twentieth one if it lies between them
    let befores = std::iter::once(0).chain(counts.iter().copied());
    let holds_a_twentieth = |(before, count): &(u64, u64)| (*before..*count).any(|candidate| candidate % 20 == 0);
    let expected: Vec<u64> =
        befores.zip(counts.iter().copied()).filter(holds_a_twentieth).map(|(_, count)| count).collect();
    assert_eq!(twentieth, expected);
    assert!(twentieth.len() > 3 && twentieth.len() < all.len() / 2, "{} of {}", twentieth.len(), all.len());
    // the newest five, and each can be read
    let five = tune("five", &["--profile-every", "20"]);
    assert_eq!(numbers(&five), twentieth[twentieth.len() - 5..]);
    for run_folder in five {
        let timings = run(folder.path(), &["profile", "timings", run_folder.to_str().unwrap()]);
        assert_eq!(timings.code, 0, "{}", timings.stderr);
    }
    assert!(!folder.path().join("five/profiles.json").exists());
    let alone = run(folder.path(), &[&module(), "--timer", "jax", "--profile-every", "20"]);
    assert!(alone.code == 2 && alone.stderr.contains("--keep-profiles"), "{}", alone.stderr);
}

#[test]
fn a_folder_is_one_devices_and_keeps_a_call_once() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let worker = worker(folder.path(), "");
    let tune = |timer: &str, more: &[&str]| {
        let cache = folder.path().join("cache");
        let keep = kept.display().to_string();
        let module = module();
        let arguments = [&[&*module, "--timer", timer, "--rounds", "6", "--keep-profiles", &keep], more].concat();
        run(&cache, &arguments)
    };
    let replay = folder.path().join("replay.json");
    program::write_replay(&program::example().join("registry"), &replay);
    let samples = format!("replay:{}", replay.display());
    let metric = run(folder.path(), &[&module(), "--timer", &samples, "--metric", "busy"]);
    assert!(metric.code == 2 && metric.fault().contains("`--metric` needs profiles"), "{}", metric.stderr);
    let none = tune(&samples, &[]);
    assert_eq!(none.code, 0, "it measures all the same: {}", none.stderr);
    assert!(
        none.stderr.contains("no profile is kept in `") && none.stderr.contains("` takes none here"),
        "{}",
        none.stderr
    );
    assert!(!kept.exists());
    fs::remove_dir_all(folder.path().join("cache")).unwrap();
    assert_eq!(tune(&worker, &["--dry-run"]).code, 0);
    assert!(!kept.exists(), "a plan keeps nothing");
    assert_eq!(tune(&worker, &[]).code, 0);
    let before = fs::read(kept.join("profiles.json")).unwrap();
    assert_eq!(tune(&worker, &[]).code, 0, "nothing new is measured, nothing is kept twice");
    let again = tune(&worker, &["--force"]);
    assert_ne!(again.code, 0);
    assert!(again.stdout.contains("already; keep these elsewhere"), "{}", again.stdout);
    assert_eq!(fs::read(kept.join("profiles.json")).unwrap(), before);

    let mut index: Value = serde_json::from_slice(&before).unwrap();
    for (member, value, expected) in [
        ("identity", json!({"platform": "cpu", "device_kind": "other"}), "holds profiles of another device, cpu:other"),
        ("environment", json!({"platform_version": "0"}), "holds profiles of other software (platform version"),
    ] {
        let was = index["device"][member].clone();
        index["device"][member] = value;
        write(&kept, &index);
        let other = tune(&worker, &["--force"]);
        assert_eq!(other.code, 4);
        assert!(other.fault().contains(expected) && other.fault().contains("kept: "), "{}", other.stderr);
        index["device"][member] = was;
    }
    fs::remove_file(kept.join("profiles.json")).unwrap();
    let foreign = tune(&worker, &["--force"]);
    assert!(foreign.code == 4 && foreign.fault().contains("there is no `profiles.json`"), "{}", foreign.stderr);
}

#[test]
fn a_bad_index_is_one_line_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let good = by_hand(folder.path());
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x.xplane.pb"), "").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("out")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("endless")).unwrap();
    let timer = format!("replay:{}", folder.path().display());
    let fault = |expected: &[&str]| {
        let run = run(&folder.path().join("cache"), &[&module(), "--timer", &timer]);
        assert_eq!(run.code, 4, "{expected:?}: {}", run.stderr);
        for expected in expected {
            assert!(run.fault().contains(expected), "{expected}: {}", run.fault());
        }
    };
    let at = |member: &'static str| move |index: &mut Value, value: Value| index["invocations"][0][member] = value;
    let (profiles, functions, name) = (at("profiles"), at("functions"), at("module_name"));
    type Change<'a> = &'a dyn Fn(&mut Value);
    let changes: &[(Change<'_>, &str)] = &[
        (&|index| index["schema"] = json!(2), "schema 2, 1 is needed"),
        (&|index| index["metric"] = json!("span"), "unknown field `metric`"),
        (&|index| functions(index, json!({"x": {}})), "`functions`: `x` is not a function's number"),
        (&|index| functions(index, json!({"01": {}})), "`functions`: `01` is not a function's number"),
        (&|index| functions(index, json!({"0": {"b": 1}, "1": {"b": 1}})), "0 and 1 have the same config {\"b\":1}"),
        (&|index| functions(index, json!({"0": 7})), "invalid type: integer `7`"),
        (&|index| profiles(index, json!(["log", "../up"])), "invocations[0].profiles[1]: `../up` is not a path inside"),
        (&|index| profiles(index, json!(["/etc/passwd"])), "profiles[0]: `/etc/passwd` is not a path inside"),
        (&|index| profiles(index, json!([""])), "profiles[0]: `` is not a path inside"),
        (&|index| profiles(index, json!(["gone.xplane.pb"])), "`gone.xplane.pb` cannot be read: No such file"),
        (&|index| profiles(index, json!(["out/x.xplane.pb"])), "`out/x.xplane.pb` leads out of the folder"),
        (&|index| profiles(index, json!(["endless"])), "`endless` leads out of the folder, to `/dev/zero`"),
        (&|index| profiles(index, json!([7])), "expected the name of a profile, or an object with `launches`"),
        (
            &|index| profiles(index, json!([{"profile": "log", "launches": [[9, 1]]}])),
            "profiles[0]: launches function 9, which has no config",
        ),
        (&|index| profiles(index, json!([{"launches": []}])), "profiles[0]: needs either `profile` or `failure`"),
        (
            &|index| profiles(index, json!(["log", {"profile": "log", "launches": [[0, 5]]}])),
            "invocations[0].profiles: some have `launches` and some have none",
        ),
        (&|index| name(index, json!("jit_f")), "invocations[0].module_name: holds no `{candidate}`"),
        (&|index| name(index, Value::Null), "without `module_name` each needs its `launches`"),
        (
            &|index| {
                let first = index["invocations"][0].clone();
                index["invocations"].as_array_mut().unwrap().push(first);
            },
            "invocations[1]: op@v1:0123456789abcdef forward occurs twice",
        ),
    ];
    for (change, expected) in changes {
        let mut index = good.clone();
        change(&mut index);
        write(folder.path(), &index);
        fault(&[expected, "profiles.json: "]);
    }
    for (text, expected) in [("", "EOF"), ("{\n \"schema\": 1,\n x", "line 3 column 2"), ("[]", "invalid length 0")] {
        fs::write(folder.path().join("profiles.json"), text).unwrap();
        fault(&[expected, "profiles.json: not a list of profiles"]);
    }
    let twice = good.to_string().replace(r#""1":{"block":1}"#, r#""0":{"block":1}"#);
    fs::write(folder.path().join("profiles.json"), twice).unwrap();
    fault(&["`functions`: 0 occurs twice"]);
    fs::remove_file(folder.path().join("profiles.json")).unwrap();
    fault(&["there is no `profiles.json`", "write one (docs/profiles.md)", "`--keep-profiles`"]);
    assert!(ProfileReplay::open(&folder.path().join("none"), None).is_err());
    write(folder.path(), &good);
    assert!(ProfileReplay::open(folder.path(), Some(Metric::Elapsed)).unwrap_err().message.contains("host clock"));
}

#[test]
fn bad_profiles_cost_their_invocation() {
    let folder = tempfile::tempdir().unwrap();
    let good = by_hand(folder.path());
    let capture = fs::read(data("xplane/autotune6x5.xplane.pb.gz")).unwrap();
    fs::write(folder.path().join("cut.xplane.pb.gz"), &capture[..capture.len() / 2]).unwrap();
    fs::write(folder.path().join("none.xplane.pb"), "").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::create_dir(folder.path().join("linked")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap().join("somebody-s.pb");
    fs::write(&outside, "no profile").unwrap();
    std::os::unix::fs::symlink(&outside, folder.path().join("linked/host.xplane.pb")).unwrap();
    let leads_out = format!("leads out of the folder, to `{}`", outside.display());
    let begin = |profiles: Value, name: Value| {
        let mut index = good.clone();
        index["invocations"][0]["profiles"] = profiles;
        index["invocations"][0]["module_name"] = name;
        write(folder.path(), &index);
        let mut timer = ProfileReplay::open(folder.path(), None).unwrap();
        timer.begin(&job(folder.path(), &[0, 1])).map(|()| timer).map_err(|failure| failure.message)
    };
    let usual = json!("jit_autotune_fn_{candidate}");
    for (profiles, expected) in [
        (json!(["log", "cut.xplane.pb.gz"]), "profile `cut.xplane.pb.gz`: its gzip stream is damaged"),
        (json!(["none.xplane.pb"]), "profile `none.xplane.pb`: is empty"),
        (json!(["profiles.json"]), "profile `profiles.json`: is JSON, not an XSpace"),
        (json!(["empty"]), "profile `empty`: holds no capture"),
        (json!(["linked"]), leads_out.as_str()),
        (
            json!([{"profile": "log", "launches": [[0, 4]]}]),
            "profile `log`: the profile holds 5 executions of `jit_autotune_fn_0`",
        ),
    ] {
        let message = begin(profiles, usual.clone()).unwrap_err();
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let by_order = begin(json!([{"profile": "log", "launches": [[0, 29]]}]), Value::Null).unwrap_err();
    assert!(by_order.contains("30 executions, 29 were launched"), "{by_order}");
    // other names: every function is missing, and the message lists the existing ones
    let mut timer = begin(json!(["log"]), json!("jit_mine_{candidate}")).unwrap();
    let missing = timer.prepare(1).unwrap_err();
    assert_eq!(missing.kind, FailureKind::NoProgram);
    let said = "no execution of `jit_mine_1`; there are executions of `jit_autotune_fn_0`, ";
    assert!(missing.message.contains(said) && missing.message.ends_with("`jit_autotune_fn_5`"), "{missing}");
    let mut timer = begin(json!([]), usual.clone()).unwrap();
    assert!(timer.prepare(0).unwrap_err().message.ends_with("executions of none of any module"));
    // another call than the index names
    write(folder.path(), &good);
    let mut timer = ProfileReplay::open(folder.path(), None).unwrap();
    let other = job(folder.path(), &[0]).direction(Direction::ForwardVjp);
    let failure = timer.begin(&other).unwrap_err();
    assert!(
        failure.message.contains("profiles.json names no profiles of op@v1:0123456789abcdef forward-vjp"),
        "{failure}"
    );
    assert!(timer.prepare(0).is_err() && timer.run(0, 1).is_err(), "no job was started");
}
