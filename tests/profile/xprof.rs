//! Times, work and memory compared with xprof, on a step in the layout of a GPU's profiler: `tests/data/xprof/make.py`.
//! `docs/roofline.md` has a rule for each difference.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autotune_lowered::analysis::{Capture, Counting, HloFiles, Programs, SummaryOptions, summarize};
use autotune_lowered::hlo::{Costs, FlopUnit, ProgramMemory};
use autotune_lowered::profile::XSpace;

#[derive(serde::Deserialize)]
struct Oracle {
    memory_bytes: BTreeMap<String, Memory>,
    operations: Vec<Operation>,
}

/// Total memory, memory that lasts as long as the program runs, and the peak.
#[derive(serde::Deserialize)]
struct Memory {
    total: u64,
    lasting: u64,
    peak: u64,
}

#[derive(serde::Deserialize)]
struct Operation {
    program_id: i64,
    operation: String,
    occurrences: u64,
    time_us: f64,
    flops: f64,
    bytes: f64,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xprof")
}

fn oracle() -> Oracle {
    serde_json::from_slice(&std::fs::read(data().join("step.json")).unwrap()).unwrap()
}

fn step() -> XSpace {
    XSpace::open(&data().join("step.xplane.pb.gz")).unwrap()
}

/// The rule `slices behind a bitcast`: these read a third of `f32[256,384]` through a bitcast, and xprof counts only
/// that third.
const BEHIND_A_BITCAST: f64 = 4.0 * 256.0 * 384.0 * 2.0 / 3.0;

#[test]
fn times_bytes_and_flops_are_those_of_xprof() {
    let space = step();
    let files = HloFiles::default();
    let programs = Programs::new(&space, &files);
    let module = programs.find("jit_step", Some(30)).unwrap();
    let costs = Costs::of(module);
    let options = SummaryOptions::default().counting(Counting::default().with_warm_up(true));
    let summary = summarize(&[Capture::xspace("step", "", step())], &files, options);
    let operations = oracle().operations;
    assert_eq!((summary.operations.len(), operations.len()), (178, 178));
    // for each rule, how many operations it applied to
    let mut held = BTreeMap::new();
    let mut count = |rule: &'static str| *held.entry(rule).or_insert(0) += 1;
    for theirs in operations {
        let name = &theirs.operation;
        let is_same = |one: &&_| -> bool {
            let one: &autotune_lowered::analysis::OperationSummary = one;
            one.operation == *name && one.program_id == Some(theirs.program_id)
        };
        let ours = summary.operations.iter().find(is_same).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(ours.count, theirs.occurrences, "{name}");
        assert!((ours.time_ns - theirs.time_us * 1e3).abs() < 1e-3, "{name}: {} {}", ours.time_ns, theirs.time_us);

        let (work, runs) = (ours.work.as_ref().unwrap(), ours.count as f64);
        let more = work.bytes - theirs.bytes;
        count(if more == 0.0 { "bytes: equal" } else { "bytes: slices behind a bitcast" });
        assert!(more == 0.0 || more == BEHIND_A_BITCAST * runs, "{name}: {} {}", work.bytes, theirs.bytes);

        let cost = costs.instruction(module.place_of(name).unwrap()).unwrap();
        let of = |unit: FlopUnit| {
            cost.flops.iter().filter(|flops| flops.unit == unit).map(|flops| flops.count).sum::<f64>() * runs
        };
        let (matrix, vector, transcendentals) =
            (of(FlopUnit::Matrix), of(FlopUnit::Vector), cost.transcendentals * runs);
        assert_eq!(matrix + vector, work.flops, "{name}");
        if name.contains("concatenate") {
            // the rule `concatenations`: a branch that diverges within a warp
            count("flops: concatenations");
            assert_eq!((work.flops, theirs.flops), (0.0, 400.0 * runs * ours.bytes as f64 / 4.0), "{name}");
        } else if vector + transcendentals == 0.0 {
            count("flops: matrices and moves, equal");
            assert_eq!(matrix, theirs.flops, "{name}");
        } else if transcendentals == 0.0 && theirs.flops == matrix + 3.0 * vector {
            count("flops: elementwise, three cycles");
        } else {
            count("flops: elementwise, more cycles");
            let least = matrix + 3.0 * (vector + transcendentals);
            assert!(theirs.flops > least, "{name}: {matrix} {vector} {transcendentals} {}", theirs.flops);
        }
    }
    let expected = [
        ("bytes: equal", 170),
        ("bytes: slices behind a bitcast", 8),
        ("flops: concatenations", 3),
        ("flops: elementwise, more cycles", 11),
        ("flops: elementwise, three cycles", 88),
        ("flops: matrices and moves, equal", 76),
    ];
    assert_eq!(held, BTreeMap::from(expected));
}

#[test]
fn memory_is_that_of_xprof() {
    let space = step();
    let files = HloFiles::default();
    let programs = Programs::new(&space, &files);
    let expected = oracle().memory_bytes;
    assert_eq!(expected.len(), 16);
    for (program, theirs) in expected {
        let (name, id) = program.trim_end_matches(')').split_once('(').unwrap();
        let ours = ProgramMemory::of(programs.find(name, Some(id.parse().unwrap())).unwrap()).unwrap();
        // its peak also counts arguments, results and constants, which last
        let found = [ours.total_bytes, ours.heap_peak_bytes];
        assert_eq!(found, [theirs.total, theirs.peak - theirs.lasting], "{program}");
    }
}
