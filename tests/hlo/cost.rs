//! FLOPs, transcendentals and bytes compared with XLA's own analysis: `cost/oracle.json` has the counts of jaxlib's
//! `HloCostAnalysis` for whole modules and for each of their instructions alone. `docs/roofline.md` has a rule for each
//! difference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autotune_lowered::analysis::{HloFiles, Programs};
use autotune_lowered::array::DType;
use autotune_lowered::hlo::{Cost, Costs, FlopUnit, HloModule, TpuKernel, read_plain};
use autotune_lowered::profile::XSpace;

/// FLOPs, transcendentals, bytes; −1 is XLA's `unknown`.
type Counts = [f64; 3];

#[derive(serde::Deserialize)]
struct Oracle {
    modules: BTreeMap<String, OfModule>,
}

#[derive(serde::Deserialize)]
struct OfModule {
    whole: Counts,
    instructions: BTreeMap<String, Counts>,
}

/// Its custom calls declare their cost, which XLA's analysis for the CPU does not read.
const DECLARED: &str = "cost/declared.hlo.pb";

/// The rule `ragged-dot`: 64 rows of 16 are multiplied with 32 columns each, in every group. XLA counts only one row,
/// and for groups along the contracted dimension it counts all rows for each group.
const RAGGED: [(&str, f64); 2] =
    [("o.ragged_dot", 2.0 * 64.0 * 16.0 * 32.0), ("o.ragged_dot_contracting", 2.0 * 64.0 * 16.0 * 32.0)];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn oracle() -> Oracle {
    serde_json::from_slice(&std::fs::read(data().join("hlo/cost/oracle.json")).unwrap()).unwrap()
}

/// XLA counts −1 for each unknown instruction.
fn as_xla(cost: &Cost) -> Counts {
    [cost.total_flops() - cost.unknown, cost.transcendentals, cost.bytes - cost.unknown]
}

/// XLA sums 32-bit floats, which represent integers exactly only up to 2²⁴.
fn is_equal(ours: f64, theirs: f64) -> bool {
    if theirs.abs() < f64::from(1 << 24) { ours == theirs } else { (ours / theirs - 1.0).abs() < 1e-6 }
}

fn check(name: &str, module: &HloModule, expected: &OfModule) -> usize {
    let costs = Costs::of(module);
    let mut wrong = Vec::new();
    let mut compare = |what: &str, cost: &Cost, theirs: &Counts| {
        let ours = as_xla(cost);
        if !ours.iter().zip(theirs).all(|(&ours, &theirs)| is_equal(ours, theirs)) {
            wrong.push(format!("{what}: {ours:?}, XLA {theirs:?}"));
        }
    };
    let mut whole = expected.whole;
    for (instruction, theirs) in &expected.instructions {
        let place = module.place_of(instruction).unwrap();
        let mut theirs = *theirs;
        if let Some((_, flops)) = RAGGED.iter().find(|(name, _)| name == instruction) {
            whole[0] += flops - std::mem::replace(&mut theirs[0], *flops);
        }
        compare(instruction, costs.instruction(place).unwrap(), &theirs);
    }
    compare("the whole", costs.entry().unwrap(), &whole);
    assert!(wrong.is_empty(), "{name}\n{}", wrong.join("\n"));
    expected.instructions.len()
}

#[test]
fn counts_are_those_of_xla() {
    let mut compared = 0;
    let mut of_captures: BTreeMap<&str, Vec<(&str, &OfModule)>> = BTreeMap::new();
    let oracle = oracle();
    for (name, expected) in oracle.modules.iter().filter(|(name, _)| *name != DECLARED) {
        if let Some((capture, program)) = name.split_once(": ") {
            of_captures.entry(capture).or_default().push((program, expected));
            continue;
        }
        let bytes = std::fs::read(data().join("hlo").join(name)).unwrap();
        let bytes = read_plain(bytes, 1 << 28, name).unwrap();
        compared += check(name, &HloModule::read(&bytes, name).unwrap(), expected);
    }
    for (capture, programs) in of_captures {
        let space = XSpace::open(&data().join("xplane").join(format!("{capture}.xplane.pb.gz"))).unwrap();
        let files = HloFiles::default();
        let found = Programs::new(&space, &files);
        for (program, expected) in programs {
            let (name, id) = program.trim_end_matches(')').split_once('(').unwrap();
            let module = found.find(name, Some(id.parse().unwrap())).unwrap();
            compared += check(program, module, expected);
        }
    }
    assert!(compared > 3600, "{compared}");
}

/// Every opcode of the text has its line in the oracle: nothing is silently left out.
#[test]
fn every_opcode_is_compared() {
    let text = std::fs::read_to_string(data().join("hlo/cost/opcodes.hlo.txt")).unwrap();
    let of_text: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("%o.")?.split(' ').next()).collect();
    let oracle = oracle();
    let compared = &oracle.modules["cost/opcodes.hlo.pb"].instructions;
    let missing: Vec<&&str> = of_text.iter().filter(|name| !compared.contains_key(&format!("o.{name}"))).collect();
    // it is counted with the instruction that it ends, as part of the whole module
    assert_eq!(missing, [&"copy_done"]);
    assert!(of_text.len() > 130, "{}", of_text.len());
}

/// A library's matrix product from its dimensions, and a kernel's declared cost; XLA knows neither on a CPU.
#[test]
fn custom_calls_cost_what_they_declare() {
    let bytes = std::fs::read(data().join("hlo").join(DECLARED)).unwrap();
    let module = HloModule::read(&bytes, DECLARED).unwrap();
    let costs = Costs::of(&module);
    let cost = |name: &str| costs.instruction(module.place_of(name).unwrap()).unwrap();
    let oracle = oracle();
    let of_xla = |name: &str| oracle.modules[DECLARED].instructions[name][0];
    assert_eq!(["gemm", "mosaic", "silent"].map(of_xla), [-1.0; 3]);
    let (m, n, k) = (64.0, 128.0, 32.0);
    let gemm = cost("gemm");
    assert_eq!(gemm.total_flops(), 2.0 * m * n * k);
    // the second part of its result is the library's workspace
    assert_eq!(gemm.bytes, 2.0 * m * k + 2.0 * k * n + 4.0 * m * n);
    assert_eq!((gemm.flops[0].unit, gemm.flops[0].dtype), (FlopUnit::Matrix, Some(DType::Bf16)));
    let mosaic = cost("mosaic");
    assert_eq!((mosaic.total_flops(), mosaic.transcendentals, mosaic.bytes), (524_288.0, 64.0, 45_056.0));
    assert!(mosaic.is_known() && !cost("silent").is_known() && cost("silent").bytes == 0.0);
    assert_eq!(costs.entry().unwrap().unknown, 1.0);
}

/// Damaged or hostile modules give some cost or none, in time proportional to their bytes.
#[test]
fn damaged_modules_end() {
    for name in ["cost/opcodes.hlo.pb", DECLARED] {
        let whole = std::fs::read(data().join("hlo").join(name)).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 150) {
            for value in [0x00, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                if let Ok(module) = HloModule::read(&bytes, name) {
                    let costs = Costs::of(&module);
                    assert!(costs.instruction(module.instructions.len()).is_none());
                }
            }
        }
    }
}

/// Eight steps, each a product of 64 × 64 matrices and a sine of every element: by hand.
#[test]
fn a_loop_counts_as_often_as_it_runs() {
    let mut program = std::fs::read(data().join("hlo/cost/loop.hlo.pb")).unwrap();
    let of_matrices = |cost: &Cost| -> f64 {
        cost.flops.iter().filter(|flops| flops.unit == FlopUnit::Matrix).map(|flops| flops.count).sum()
    };
    let product = 2.0 * 64_f64.powi(3);
    let run = Cost::of_run(&program).unwrap();
    assert_eq!((of_matrices(&run), run.transcendentals, run.unknown), (8.0 * product, 8.0 * 4096.0, 0.0));
    // as in XLA's own analysis, a loop counts as one step
    let once = Costs::of(&HloModule::read(&program, "loop").unwrap()).entry().unwrap().clone();
    assert_eq!((of_matrices(&once), once.transcendentals), (product, 4096.0));
    // the cost of a loop with an unknown trip count is unknown
    let at = program.windows(16).position(|bytes| bytes == b"known_trip_count").unwrap();
    program[at] = b'K';
    assert!(!Cost::of_run(&program).unwrap().is_known());
    assert_eq!(Cost::of_run(b"nonsense"), None);
}

/// Synthetic: no TPU program is available, so its compiler's configuration replaces that of a CPU program.
#[test]
fn cycles_that_a_compiler_estimates_count_as_often_as_their_loop_runs() {
    let mut program = std::fs::read(data().join("hlo/cost/loop.hlo.pb")).unwrap();
    assert_eq!(Cost::of_run(&program).unwrap().estimated_cycles, 0.0);
    let own = br#"{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}"#;
    let at = program.windows(own.len()).position(|bytes| bytes == own).unwrap();
    for (value, cycles) in [("\"2146\"", 2146.0), ("2146", 2146.0), ("\"-3\"", 0.0), ("\"99999999999999999999\"", 0.0)]
    {
        let config = format!(r#"{{"window_config":{{"estimated_cycles":{value}}}"#);
        let config = format!("{config}{}}}", " ".repeat(own.len() - config.len() - 1));
        program[at..at + own.len()].copy_from_slice(config.as_bytes());
        assert_eq!(Cost::of_run(&program).unwrap().estimated_cycles, 8.0 * cycles, "{value}");
    }
}

/// The configuration contains a module of Mosaic's compiler, written by JAX.
#[test]
fn a_tpus_kernel_has_as_many_steps_as_its_grid() {
    let program = std::fs::read(data().join("targets/mosaic_matmul.hlo.pb")).unwrap();
    let kernels = |program: &[u8]| HloModule::read(program, "mosaic").unwrap().tpu_kernels();
    // `mosaic.py`: 512 / 128 rows, 1024 / 256 columns, 384 / 128 steps of the sum
    assert_eq!(kernels(&program), [TpuKernel::new("pallas_call.1", Some(4 * 4 * 3))]);
    // if it is damaged in any way, the steps are unknown and nothing panics
    let start = program.windows(4).position(|bytes| bytes == b"TUzv").unwrap();
    let length = program[start..].iter().position(|byte| *byte == b'"').unwrap();
    let mut known = 0;
    for at in (start..start + length).step_by(7) {
        let mut damaged = program.clone();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        known += usize::from(kernels(&damaged)[0].grid_steps.is_some());
    }
    assert!(known < length / 7);
    let cublas = std::fs::read(data().join("hlo/cost/loop.hlo.pb")).unwrap();
    assert!(kernels(&cublas).is_empty());
}
