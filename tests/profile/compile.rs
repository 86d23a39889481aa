//! Compilation: a capture of XLA's profiler compared with an oracle in Python, and the accounting on cases worked by
//! hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::program::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::compile::{
    CompileOptions, CompileRange, CompileReport, compile_ranges, compile_report,
};
use autotune_lowered::profile::XSpace;
use serde_json::Value;

const SAMPLE: &str = "tests/data/compile/compile2.xplane.pb.gz";

/// `(name, thread, start, end, parent)` in nanoseconds.
fn report(rows: &[(&str, u64, i64, i64, Option<usize>)], options: CompileOptions) -> CompileReport {
    let range = |&(name, thread, start, end, parent): &(&str, u64, i64, i64, Option<usize>)| CompileRange {
        name: name.into(),
        module: None,
        thread,
        start_ps: start * 1000,
        end_ps: end * 1000,
        parent,
    };
    compile_report(&rows.iter().map(range).collect::<Vec<_>>(), options)
}

fn phases(report: &CompileReport) -> Vec<(&str, f64)> {
    report.phases.iter().map(|phase| (phase.phase.as_str(), phase.exclusive_ns)).collect()
}

#[test]
fn the_sample_equals_the_oracle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let oracle: Value =
        serde_json::from_str(&std::fs::read_to_string(root.join("tests/data/compile/compile2.phases.json")).unwrap())
            .unwrap();
    let space = XSpace::open(&root.join(SAMPLE)).unwrap();
    let ranges = compile_ranges(&Capture::xspace(SAMPLE, "", space)).unwrap();
    let report = compile_report(&ranges, CompileOptions::default().by_pass(true));
    assert_eq!(report.total_ns, oracle["total_ns"].as_f64().unwrap());
    assert_eq!(report.parallel_ns, oracle["parallel_ns"].as_f64().unwrap());
    let expected = oracle["phases"].as_object().unwrap();
    assert_eq!(report.phases.len(), expected.len());
    for (name, ns) in phases(&report) {
        let name = if name.starts_with("first compilation itself") { "first" } else { name };
        let expected = expected[name].as_f64().unwrap();
        assert!((ns - expected).abs() <= 1e-9 * expected.max(1.0), "{name}: {ns}, not {expected}");
    }
    let modules: Vec<Option<&str>> = report.compilations.iter().map(|one| one.module.as_deref()).collect();
    assert_eq!(modules, [Some("jit_f"), Some("jit_g")]);
    // folded or not, the phases add up to the whole
    let folded = compile_report(&ranges, CompileOptions::default());
    for report in [&report, &folded] {
        let sum: f64 = report.phases.iter().map(|phase| phase.exclusive_ns).sum();
        assert!((sum - report.total_ns).abs() < 1.0, "{sum} {}", report.total_ns);
    }
    assert!(folded.phases.len() < 20, "{:?}", phases(&folded));
}

#[test]
fn the_first_compilation_itself_is_told_apart() {
    let rows = [
        ("XlaCompile:#module=a,program_id=1#", 1, 0, 100, None),
        ("XlaPass:#name=dce#", 1, 10, 40, Some(0)),
        ("XlaCompile:#module=b,program_id=2#", 1, 200, 260, None),
        ("XlaPassPipeline:#name=x#", 1, 210, 250, Some(2)),
        ("XlaPass:#name=cse#", 1, 220, 230, Some(3)),
        // without a parent or a compilation: not counted
        ("XlaPass:#name=late#", 1, 300, 400, None),
    ];
    let folded = report(&rows, CompileOptions::default());
    let first = "first compilation itself (library loading)";
    assert_eq!(phases(&folded), [("XlaPass", 70.0), (first, 70.0), ("XlaCompile", 20.0)]);
    assert_eq!((folded.library_loading_ns, folded.total_ns, folded.elapsed_ns), (70.0, 160.0, 160.0));
    let by_pass = report(&rows, CompileOptions::default().by_pass(true));
    let passes = [("XlaPass dce", 30.0), ("XlaPassPipeline x", 30.0), ("XlaPass cse", 10.0)];
    assert!(passes.iter().all(|pass| phases(&by_pass).contains(pass)), "{:?}", phases(&by_pass));
}

#[test]
fn what_the_autotuner_runs_is_one_block() {
    let rows = [
        ("XlaCompile:#module=a#", 1, 0, 1000, None),
        ("XlaAutotunerCompilation", 1, 100, 500, Some(0)),
        ("XlaEmitLlvmIr:#module=x#", 1, 110, 160, Some(1)),
        ("XlaEmitLlvmIr:#module=x#", 2, 200, 300, None),
        ("XlaEmitGpuAsm:#module=x#", 3, 250, 400, None),
        ("XlaAutotunerMeasurement:#hlo_op=dot.3#", 1, 600, 900, Some(0)),
        ("XlaModule:#hlo_module=dot.3#", 1, 650, 700, Some(5)),
    ];
    let whole = report(&rows, CompileOptions::default());
    let first = ("first compilation itself (library loading)", 300.0);
    let measured = ("XlaAutotunerMeasurement", 300.0);
    assert_eq!(phases(&whole), [("XlaAutotunerCompilation", 400.0), measured, first]);
    let detail = report(&rows, CompileOptions::default().autotuner_detail(true));
    // the workers ran from 200 to 400, shared as 100 : 150; the launcher has 400 - 50 - 200
    let expected = [
        first,
        ("XlaAutotunerMeasurement", 300.0),
        ("XlaAutotunerCompilation", 150.0),
        ("XlaEmitLlvmIr", 130.0),
        ("XlaEmitGpuAsm", 120.0),
    ];
    for (phase, ns) in expected {
        assert!(phases(&detail).contains(&(phase, ns)), "{phase} {ns}: {:?}", phases(&detail));
    }
    assert_eq!((detail.parallel_ns, detail.worker_ns, detail.compilations[0].workers), (200.0, 250.0, 2));
}

#[test]
fn workers_between_the_launchers_own_ranges_are_told_apart() {
    let rows = [
        ("PjRtCpuClient::Compile", 1, 0, 100, None),
        ("A", 2, 10, 20, None),
        ("own", 1, 30, 50, Some(0)),
        // not inside another range, and ends after the launcher's own range began again
        ("B", 2, 60, 90, None),
        ("C", 3, 70, 80, None),
    ];
    let found = report(&rows, CompileOptions::default());
    // 10 + 30 in parallel, B and C sharing 30 as 30 : 10; the compilation itself has 100 - 20 - 40
    let first = ("first compilation itself (library loading)", 40.0);
    assert_eq!(phases(&found), [first, ("B", 22.5), ("own", 20.0), ("A", 10.0), ("C", 7.5)]);
}

#[test]
fn what_the_file_says_of_parents_is_not_believed_blindly() {
    // a cycle, a parent on another thread, a parent that does not enclose
    let rows = [
        ("XlaCompile:#module=a#", 1, 0, 100, Some(1)),
        ("XlaCompile:#module=b#", 1, 0, 100, Some(0)),
        ("x", 2, 10, 20, Some(0)),
        ("y", 1, 90, 120, Some(0)),
        ("z", 1, 50, 60, Some(99)),
    ];
    let found = report(&rows, CompileOptions::default());
    assert_eq!((found.compilations.len(), found.total_ns), (1, 100.0));
    let overlapping = [
        ("XlaCompile:#module=a#", 1, 0, 100, None),
        ("XlaCompile:#module=b#", 2, 50, 150, None),
        ("w", 3, 60, 90, None),
    ];
    let found = report(&overlapping, CompileOptions::default());
    assert_eq!((found.total_ns, found.elapsed_ns, found.notes.len()), (200.0, 150.0, 1));
    assert_eq!((found.compilations[0].workers, found.compilations[1].workers), (0, 1));
    assert_eq!(report(&[], CompileOptions::default()), CompileReport::default());
}

#[test]
fn the_command_prints_phases_and_compilations() {
    let folder = tempfile::tempdir().unwrap();
    let table = run(folder.path(), &["profile", "compile", SAMPLE]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    for text in ["total of 2 compilations", "first compilation itself (library loading)", "worker threads compiled for"]
    {
        assert!(table.stdout.contains(text), "{text}\n{}", table.stdout);
    }
    let none = run(folder.path(), &["profile", "compile", "tests/data/xplane/trivial.xplane.pb"]);
    assert_eq!((none.code, none.stdout.as_str()), (3, "no compilation was found\n"));
}
