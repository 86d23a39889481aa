//! The numbers of nsys-jax's notebook: by hand on the synthetic captures, and from nsys-jax's own library on the real
//! one.

#![cfg(feature = "nsys")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::support::prerequisite::shared_data;
use crate::support::program::*;
use crate::support::xspace;
use autotune_lowered::analysis::{
    Capture, Counting, HloFiles, IDLE_INSIDE, OperationSummary, StacksBy, Summary, SummaryOptions, nsys_captures,
    profile_diff, stacks, summarize,
};
use autotune_lowered::nsys::NsysCapture;
use autotune_lowered::profile::{XSpace, executions};
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsys")
}

fn captures(path: &Path) -> Vec<Capture> {
    nsys_captures(NsysCapture::open(path).unwrap(), &HloFiles::default()).unwrap()
}

fn summary(captures: &[Capture], counting: impl Into<Counting>) -> Summary {
    summarize(captures, &HloFiles::default(), SummaryOptions::default().counting(counting.into()))
}

/// The real capture, and the results of nsys-jax and its notebook; `None` if it is missing.
fn real() -> Option<(Vec<Capture>, Value)> {
    let elsewhere = std::env::var_os("AUTOTUNE_LOWERED_TEST_NSYS").map(PathBuf::from);
    let path = elsewhere.filter(|path| path.is_file()).or_else(|| shared_data("nsys/pax_fsdp4_4proc_proc0.zip"))?;
    let oracle = fs::File::open(data().join("pax_fsdp4_4proc_proc0.notebook.json.xz")).unwrap();
    let mut text = Vec::new();
    lzma_rust2::XzReader::new(oracle, true).read_to_end(&mut text).unwrap();
    Some((captures(&path), serde_json::from_slice(&text).unwrap()))
}

/// What the notebook counts.
fn notebook() -> Counting {
    Counting::default().minor(0.01)
}

fn close(value: f64, expected: f64, what: &str) {
    assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{what}: {value}, expected {expected}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn the_synthetic_captures_have_the_summary_that_was_put_into_them() {
    for name in ["synthetic.zip", "synthetic_old"] {
        let captures = captures(&data().join(name));
        let found = summary(&captures, false);
        // device, executions, then the three totals, idle inside and between: executions at 11000 and 12000, 250 long
        let devices: Vec<_> = found
            .devices
            .iter()
            .map(|of| {
                let times = [of.operations_ns, of.modules_ns, of.wall_ns, of.idle_inside_ns, of.idle_between_ns];
                (of.plane.as_str(), of.device, of.executions, times)
            })
            .collect();
        let times = [500.0, 500.0, 1250.0, 0.0, 750.0];
        assert_eq!(devices, [("/device:GPU:0", Some(0), 2, times), ("/device:GPU:1", Some(1), 2, times)], "{name}");
        let [module] = &found.modules[..] else { panic!("{:?}", found.modules) };
        assert_eq!((module.module.as_str(), module.program_id, module.executions), ("jit_step", Some(7), 4));
        assert_eq!((module.operations.mean, module.operations.std, module.devices), (3.0, Some(0.0), 2));
        assert_eq!((module.active_ns.mean, module.span_ns.mean, module.total_ns), (250.0, 250.0, 1000.0));
        // runs of each: 100 on both devices; 50 and 110; the part of the all-reduce without computation, 100 and 50
        let of = |name: &str| found.operations.iter().find(|one| one.operation == name).unwrap();
        let runs = |name: &str| {
            let runs = of(name).run_ns.unwrap();
            (of(name).count, runs.mean, runs.std.unwrap())
        };
        assert_eq!(runs("fusion.1"), (4, 100.0, 0.0));
        assert_eq!(runs("fusion.2"), (4, 80.0, (4.0 * 900.0_f64 / 3.0).sqrt()));
        assert_eq!(runs("all-reduce-start.1"), (4, 75.0, (4.0 * 625.0_f64 / 3.0).sqrt()));
        // on device 1 the computations overlap by 10: their sum of 260 is scaled to the 250 that they cover
        close(of("fusion.2").time_ns, 100.0 + 220.0 * 250.0 / 260.0, "fusion.2");
        close(of("all-reduce-start.1").time_ns, 200.0 + 100.0 * 250.0 / 260.0, "all-reduce-start.1");
        assert_eq!((of("fusion.1").opcode.as_str(), of("all-reduce-start.1").communication), ("fusion", true));
        // each first execution, since the capture contains its compilation; the autotuner's; a thunk without a module
        let skipped = found.skipped;
        assert_eq!((skipped.warm_up.executions, skipped.warm_up.span_ns), (2, 500.0));
        assert_eq!((skipped.autotuner.executions, skipped.autotuner.span_ns), (1, 100.0));
        assert!(found.findings.iter().any(|one| one.to_string().contains("outside of any module")));
        let compiled: Vec<_> =
            found.compilations.iter().map(|one| (one.name.as_str(), one.count, one.time_ns)).collect();
        assert_eq!(compiled, [("XlaCompile:#module=jit_step#", 1, 1000.0)]);
        assert_eq!(summary(&captures, true).modules[0].executions, 6);
    }
}

#[test]
fn what_is_drawn_is_what_is_added_up() {
    let captures = captures(&data().join("synthetic.zip"));
    let imported = captures[0].executions();
    // the same, searched in the events, as in a capture of XLA's
    let drawn = XSpace::from_bytes(captures[0].timeline().as_bytes().to_vec()).unwrap();
    let found = executions(&drawn);
    let list = |time: &autotune_lowered::profile::DeviceTime| {
        let of = |one: &autotune_lowered::profile::Execution| {
            let times = (one.start_ps, one.end_ps, one.span_ps, one.busy_ps, one.events);
            (time.name(one.module).to_owned(), one.program_id, one.run_id, one.device, one.plane, one.order, times)
        };
        time.executions.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(list(&imported), list(&found));
    assert_eq!(imported.executions.len(), 7);
    // devices share the ids of their launches
    let run = |number: i64| imported.executions.iter().filter(|one| one.run_id == Some((7 << 32) + number)).count();
    assert_eq!([run(0), run(1), run(2), run(3)], [2, 2, 2, 0]);
}

#[test]
fn flame_graphs_have_the_idle_frames_of_the_notebook() {
    let captures = captures(&data().join("synthetic.zip"));
    let found = stacks(&captures, &HloFiles::default(), StacksBy::Source, false);
    let times: Vec<(String, f64)> =
        found.time_ns.iter().map(|(stack, time)| (stack.join(";"), (time * 1e6).round() / 1e6)).collect();
    let expected = [
        ("[active];[unknown]", 1000.0),
        ("[idle between module executions]", 1500.0),
        ("[idle during module execution]", 0.0),
    ];
    assert_eq!(times, expected.map(|(stack, time)| (stack.to_owned(), time)));
}

#[test]
fn a_capture_without_the_host_or_without_programs_is_still_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (data().join("synthetic_old"), folder.path());
    fs::create_dir(new.join("nvtx_gpu_proj_trace")).unwrap();
    fs::copy(old.join("nvtx_gpu_proj_trace/trace.parquet"), new.join("nvtx_gpu_proj_trace/trace.parquet")).unwrap();
    let said = |summary: &Summary, what: &str| {
        let said: Vec<String> =
            summary.findings.iter().map(ToString::to_string).chain(summary.notes.iter().cloned()).collect();
        assert!(said.iter().any(|line| line.contains(what)), "{what}: {said:?}");
    };
    let alone = summary(&captures(new), false);
    // nothing shows that the first execution is slow; the name identifies the all-reduce
    assert_eq!((alone.skipped.warm_up.executions, alone.modules[0].executions), (0, 6));
    let reduce = alone.operations.iter().find(|one| one.operation == "all-reduce-start.1").unwrap();
    assert_eq!((reduce.opcode.as_str(), reduce.run_ns.unwrap().mean), ("unknown", 75.0));
    said(&alone, "no trace of the host");
    said(&alone, "no `thread-metadata.parquet`");
    said(&alone, "no HLO of `jit_step(7)`");
    // a truncated host trace, and a dump that is none
    let host = fs::read(old.join("report_nvtx_pushpop_trace.csv.xz")).unwrap();
    fs::write(new.join("report_nvtx_pushpop_trace.csv.xz"), &host[..host.len() / 2]).unwrap();
    fs::create_dir(new.join("dump")).unwrap();
    let dump = "dump/module_0007.jit_step.sm_8.0_gpu_after_optimizations.hlo.pb.xz";
    fs::write(new.join(dump), b"\xfd7zXZ\0 no more").unwrap();
    let damaged = summary(&captures(new), false);
    assert_eq!((damaged.modules[0].executions, damaged.operations.len()), (6, 3));
    said(&damaged, "report_nvtx_pushpop_trace.csv.xz`: its xz stream is damaged");
    said(&damaged, "hlo.pb.xz`: its xz stream is damaged");
    // with a truncated device trace, the compilations remain
    fs::write(new.join("report_nvtx_pushpop_trace.csv.xz"), &host).unwrap();
    let device = new.join("nvtx_gpu_proj_trace/trace.parquet");
    let whole = fs::read(&device).unwrap();
    fs::write(&device, &whole[..whole.len() / 2]).unwrap();
    let host_alone = summary(&captures(new), false);
    assert_eq!((host_alone.modules.len(), host_alone.compilations.len()), (0, 1));
    said(&host_alone, "trace.parquet`: cannot be read as Parquet");
    let diff = run(new, &["profile", "diff", new.to_str().unwrap(), "tests/data/nsys/synthetic.zip"]);
    assert!(diff.stdout.contains("note: `") && diff.stdout.contains("cannot be read as Parquet"), "{}", diff.stdout);
    let trace = run(new, &["profile", "trace", new.to_str().unwrap(), "-o", new.join("t.json").to_str().unwrap()]);
    assert!(trace.code == 0 && trace.stderr.contains("cannot be read as Parquet"), "{}", trace.stderr);
    let report = run(new, &["profile", "compile", new.to_str().unwrap()]);
    assert!(report.code == 0 && report.stdout.contains("XlaEmitLlvmIr"), "{}{}", report.stdout, report.stderr);
}

#[test]
fn the_commands_take_captures() {
    let folder = tempfile::tempdir().unwrap();
    let zip = "tests/data/nsys/synthetic.zip";
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let table = run(folder.path(), &["profile", "summary", zip]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    for line in
        ["synthetic /device:GPU:1 device 1", "left out: 2 first executions", "43.3 %   80.0 ns     4  fusion  fusion.2"]
    {
        assert!(table.stdout.contains(line), "{line}: {}", table.stdout);
    }
    let (svg, page, trace) = (out("flame.svg"), out("page.html"), out("trace.json"));
    let drawn = run(folder.path(), &["profile", "flamegraph", zip, "-o", &svg]);
    assert!(drawn.code == 0 && fs::read_to_string(&svg).unwrap().contains("[idle between module executions]"));
    // the same capture twice: no significant difference
    let diff =
        run(folder.path(), &["profile", "diff", zip, "tests/data/nsys/synthetic_old", "--format", "json"]).json();
    assert_eq!(diff["operations"].as_array().unwrap().len(), 3);
    assert!(diff["operations"].as_array().unwrap().iter().all(|row| row["verdict"] == "not-told"), "{diff}");
    let view = run(folder.path(), &["profile", "view", zip, "-o", &page]);
    assert_eq!(view.code, 0, "{}", view.stderr);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("all-reduce-start.1") && html.contains("thread 103"));
    assert!(html.contains("profile trace tests/data/nsys/synthetic.zip") && !html.contains("tensorboard --logdir"));
    let traced = run(folder.path(), &["profile", "trace", zip, "-o", &trace]);
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    let events: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let slices: Vec<&Value> = events["traceEvents"].as_array().unwrap().iter().filter(|one| one["ph"] == "X").collect();
    // 7 modules with 3 thunks each, except the autotuner's with one, and 7 ranges of the host
    assert_eq!(slices.len(), 7 + 19 + 7);
    let reduce: f64 =
        slices.iter().filter(|one| one["name"] == "all-reduce-start.1").map(|one| number(&one["dur"])).sum();
    close(reduce, 0.9, "three of 200 ns and three of 100 ns, in microseconds");
    let mixed = run(folder.path(), &["profile", "summary", zip, "tests/data/xplane/trivial.xplane.pb"]);
    assert_eq!(mixed.code, 2, "{}", mixed.stderr);
}

#[test]
fn calls_are_tuned_by_their_share_of_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    copy_folder(&data().join("synthetic_old"), &folder.path().join("capture"));
    fs::remove_dir_all(folder.path().join("capture/dump")).unwrap();
    let calls = [
        ("fusion.1", "fusion", "jit(step)/ejkernel_ops#blocked_matmul.v1:97c0056ebd3eafab/dot"),
        ("fusion.2", "fusion", "jit(step)/ejkernel_ops#chunked_cross_entropy.v1:cfe0c0f3e870d324/exp"),
        ("all-reduce-start.1", "all-reduce-start", "jit(step)/psum"),
    ];
    fs::write(path("step.hlo.pb"), xspace::proto("jit_step", 7, &calls).0).unwrap();
    write_replay(&example().join("registry"), &folder.path().join("replay.json"));
    let timer = format!("replay:{}", path("replay.json"));
    let arguments = [&module(), "--timer", &timer, "--profile", &path("capture"), "--hlo", &path("step.hlo.pb")];
    let tuned =
        run(&folder.path().join("cache"), &[&arguments[..], &["--dry-run", "--format", "json"]].concat()).json();
    let of = |place: usize| {
        let operation = &tuned["operations"][place];
        (operation["op_id"].as_str().unwrap().to_owned(), number(&operation["share"]))
    };
    // of 1000 ns, as in the summary above
    let (first, second) = (of(0), of(1));
    assert_eq!((first.0.as_str(), second.0.as_str()), ("blocked_matmul@v1", "chunked_cross_entropy@v1"));
    close(first.1, 0.2 + 0.2 * 250.0 / 260.0, "fusion.1");
    close(second.1, 0.1 + 0.22 * 250.0 / 260.0, "fusion.2");
}

#[test]
fn launches_of_several_processes_are_one_sample() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["proc0.zip", "proc1.zip"] {
        fs::copy(data().join("synthetic.zip"), folder.path().join(name)).unwrap();
    }
    let both: Vec<NsysCapture> = ["proc0.zip", "proc1.zip"]
        .iter()
        .flat_map(|name| NsysCapture::open(&folder.path().join(name)).unwrap())
        .collect();
    let both = nsys_captures(both, &HloFiles::default()).unwrap();
    let found = summary(&both, false);
    assert_eq!((found.devices.len(), found.modules[0].devices, found.modules[0].executions), (4, 4, 8));
    let diff = profile_diff(&both, &both, false);
    // two launches, each the mean of four devices
    assert_eq!(diff.modules[0].before.map(|sample| (sample.launches, sample.mean_ns)), Some((2, 250.0)));
}

#[test]
fn the_real_capture_has_the_modules_and_totals_of_the_notebook() {
    let Some((captures, oracle)) = real() else { return };
    let found = summary(&captures, false);
    let modules = oracle["modules"].as_array().unwrap();
    assert_eq!(found.modules.len(), modules.len());
    for expected in modules {
        let name = expected["name"].as_str().unwrap();
        let of = found.modules.iter().find(|module| module.module == name).unwrap();
        assert_eq!(Some(of.executions), expected["instances"].as_u64(), "{name}");
        // its deviations are those of the population: √((n − 1) ÷ n) of ours
        let n = of.executions as f64;
        let population = |std: Option<f64>| std.unwrap_or(0.0) * ((n - 1.0) / n).sqrt();
        close(of.span_ns.mean, number(&expected["mean_ns"]), name);
        close(population(of.span_ns.std), number(&expected["std_ns"]), name);
        close(of.total_ns, number(&expected["total_ns"]), name);
        close(of.operations.mean, number(&expected["thunks_mean"]), name);
        close(population(of.operations.std), number(&expected["thunks_std"]), name);
    }
    let [device] = &found.devices[..] else { panic!("{:?}", found.devices) };
    let all = &oracle["totals_of_all_modules"];
    close(device.operations_ns, number(&all["thunks_ns"]), "1");
    close(device.modules_ns, number(&all["modules_ns"]), "2");
    // the parts that left-out executions cover are no idle time here
    close(device.wall_ns + number(&all["left_out_within_ns"]), number(&all["wall_ns"]), "3");
    assert_eq!(
        found.skipped.warm_up.executions + found.skipped.autotuner.executions,
        all["left_out"].as_u64().unwrap()
    );
    // the notebook's own totals are those of the modules beyond the last 1 %: one
    let top = &oracle["totals_of_top_modules"];
    assert_eq!(top["programs"], serde_json::json!([40]));
    let found = summary(&captures, notebook());
    let [device] = &found.devices[..] else { panic!("{:?}", found.devices) };
    assert_eq!((found.modules.len(), found.skipped.minor.executions), (1, 12));
    close(device.operations_ns, number(&top["thunks_ns"]), "1 of the top module");
    close(device.modules_ns, number(&top["modules_ns"]), "2 of the top module");
    close(device.wall_ns + number(&top["left_out_within_ns"]), number(&top["wall_ns"]), "3 of the top module");
    let opcodes = oracle["opcodes_of_top_modules_ns"].as_object().unwrap();
    assert_eq!(found.opcodes.len(), opcodes.len() + 1);
    for part in found.opcodes.iter().filter(|part| part.name != IDLE_INSIDE) {
        close(part.time_ns, number(&opcodes[&part.name]), &part.name);
    }
}

#[test]
fn the_real_capture_has_the_thunks_of_the_notebook() {
    let Some((captures, oracle)) = real() else { return };
    let found = summary(&captures, false);
    let by_name: BTreeMap<(i64, &str), &OperationSummary> =
        found.operations.iter().map(|one| ((one.program_id.unwrap(), one.operation.as_str()), one)).collect();
    let thunks = oracle["thunks"].as_array().unwrap();
    assert_eq!(by_name.len(), thunks.len());
    for (place, expected) in thunks.iter().enumerate() {
        let name = expected[1].as_str().unwrap();
        let of = by_name[&(expected[0].as_i64().unwrap(), name)];
        close(of.time_ns, number(&expected[2]), name);
        assert_eq!(of.opcode, expected[3].as_str().unwrap(), "{name}");
        // if the instruction has none, ours is the first of those that it fuses
        let op_name = expected[4].as_str().unwrap();
        assert!(op_name.is_empty() || of.op_name == op_name, "{name}: {} {op_name}", of.op_name);
        // the order of the list
        close(found.operations[place].time_ns, number(&expected[2]), name);
    }
    let opcodes = oracle["opcodes_ns"].as_object().unwrap();
    assert_eq!(found.opcodes.len(), opcodes.len() + 1);
    for part in found.opcodes.iter().filter(|part| part.name != IDLE_INSIDE) {
        close(part.time_ns, number(&opcodes[&part.name]), &part.name);
    }
    // the last plot: mean and deviation of each run of everything but communication
    let compute = oracle["compute"].as_array().unwrap();
    let ours = found.operations.iter().filter(|one| !one.communication);
    assert_eq!(ours.count(), compute.len());
    for expected in compute {
        let name = expected[1].as_str().unwrap();
        let of = by_name[&(expected[0].as_i64().unwrap(), name)];
        let runs = of.run_ns.unwrap();
        assert!(!of.communication && Some(of.count) == expected[4].as_u64(), "{name}");
        close(runs.mean, number(&expected[2]), name);
        assert_eq!(runs.std.is_some(), expected[3].is_number(), "{name}");
        if let Some(std) = expected[3].as_f64() {
            assert!((runs.std.unwrap() - std).abs() <= 1e-6 * runs.mean, "{name}: {runs:?} {std}");
        }
    }
}

#[test]
fn the_real_capture_has_the_flame_graphs_of_the_notebook() {
    let Some((captures, oracle)) = real() else { return };
    for (by, name) in [(StacksBy::Source, "source"), (StacksBy::OpName, "op_name")] {
        let mut found = stacks(&captures, &HloFiles::default(), by, notebook()).time_ns;
        let top = &oracle["totals_of_top_modules"];
        let inside = found.remove(&vec!["[idle during module execution]".to_owned()]).unwrap();
        close(inside, number(&top["modules_ns"]) - number(&top["thunks_ns"]), "idle inside");
        let between = found.remove(&vec!["[idle between module executions]".to_owned()]).unwrap();
        let expected = number(&top["wall_ns"]) - number(&top["modules_ns"]) - number(&top["left_out_within_ns"]);
        close(between, expected, "idle between");
        let expected = oracle[name].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        for row in expected {
            let stack: Vec<String> =
                row[0].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect();
            let time = found.get(&stack).unwrap_or_else(|| panic!("no stack {stack:?}"));
            close(*time, number(&row[1]), name);
        }
    }
}
