//! Real captures of AMD's and NVIDIA's GPUs compared with `jax.profiler.ProfileData`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use autotune_lowered::analysis::{Capture, HloFiles, StacksBy, SummaryOptions, UserNames, stacks, summarize};
use autotune_lowered::hlo::KernelTemplates;
use autotune_lowered::profile::{Execution, XSpace, executions};
use serde_json::Value;

const CAPTURES: [&str; 21] = [
    "mi300/attention",
    "mi300/conv_jax08",
    "mi300/conv_legacy",
    "gpu/h100_sxm_attention_round",
    "gpu/h100_sxm_few_replay",
    "gpu/h100_sxm_layers_buffers",
    "gpu/h100_sxm_layers_default",
    "gpu/h100_sxm_layers_eager",
    "gpu/h100_sxm_layers_loaded",
    "gpu/h100_sxm_product_round",
    "gpu/h100_sxm_step_eager",
    "gpu/h100_sxm_step_replay",
    "gpu/h200_few_replay",
    "gpu/h200_layers_buffers",
    "gpu/h200_layers_default",
    "gpu/h200_layers_eager",
    "gpu/h200_layers_loaded",
    "gpu/h200_product_round",
    "gpu/h200_step_eager",
    "gpu/h200_step_replay",
    "gpu/h200_unlabelled",
];

fn captured(name: &str) -> (XSpace, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane");
    let oracle = std::fs::read_to_string(folder.join(format!("{name}.oracle.json"))).unwrap();
    let space = XSpace::open(&folder.join(format!("{name}.xplane.pb.gz"))).unwrap();
    (space, serde_json::from_str(&oracle).unwrap())
}

/// Count and picoseconds by plane and name.
type Counts = BTreeMap<(String, String), (u64, u64)>;

fn expected(oracle: &Value, of: &str) -> Counts {
    let mut counts = Counts::new();
    for (plane, lists) in oracle.as_object().unwrap() {
        for (name, one) in lists[of].as_object().unwrap() {
            let ps = (one["total_ns"].as_f64().unwrap() * 1e3).round() as u64;
            counts.insert((plane.clone(), name.clone()), (one["count"].as_u64().unwrap(), ps));
        }
    }
    counts
}

/// The float nanoseconds of `ProfileData` are rounded to picoseconds event by event.
fn assert_close(found: &Counts, expected: &Counts, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (name, (count, ps)) in found {
        let (expected_count, expected_ps) = expected[name];
        assert_eq!(*count, expected_count, "{what}: {name:?}");
        assert!(ps.abs_diff(expected_ps) <= 1000 * count, "{what}: {name:?}: {ps} is not {expected_ps}");
    }
}

#[test]
fn operations_and_what_names_no_module_are_the_oracles() {
    for name in CAPTURES {
        let (space, oracle) = captured(name);
        let time = executions(&space);
        let plane = |number: usize| space.planes().nth(number).unwrap().name().into_owned();
        let (mut operations, mut outside) = (Counts::new(), Counts::new());
        for execution in &time.executions {
            for one in &execution.operations {
                let operation = format!("{}/{}", time.name(execution.module), time.name(one.name));
                let of = operations.entry((plane(execution.plane), operation)).or_default();
                *of = (of.0 + one.count, of.1 + one.total_ps);
            }
        }
        for kernel in &time.outside {
            outside.insert(
                (plane(kernel.plane), time.name(kernel.name).to_owned()),
                (kernel.time.count, kernel.time.total_ps),
            );
        }
        assert_close(&operations, &expected(&oracle, "operations"), name);
        assert_close(&outside, &expected(&oracle, "events_without_module"), name);
    }
}

/// Every event of `input_transpose_fusion` is one call of the convolution; the host's launches are not executions.
#[test]
fn executions_are_told_apart_on_each_device() {
    for name in ["mi300/conv_jax08", "mi300/conv_legacy"] {
        let (space, oracle) = captured(name);
        let time = executions(&space);
        let mut by_plane: BTreeMap<String, Vec<&Execution>> = BTreeMap::new();
        for execution in &time.executions {
            by_plane
                .entry(space.planes().nth(execution.plane).unwrap().name().into_owned())
                .or_default()
                .push(execution);
        }
        for (plane, executions) in by_plane {
            let of_plane = &oracle[&plane]["operations"];
            let calls = of_plane["jit_forward_3d_conv/input_transpose_fusion"]["count"].as_u64().unwrap();
            assert_eq!(executions.len() as u64, calls, "{name} {plane}");
            let events: u64 = of_plane.as_object().unwrap().values().map(|one| one["count"].as_u64().unwrap()).sum();
            assert_eq!(executions.iter().map(|one| one.events).sum::<u64>(), events, "{name} {plane}");
        }
    }
}

/// The program was launched three times, and four of its eight matrix products fill four bytes before their kernel: as
/// a part of the same instruction when kernels are launched one by one.
#[test]
fn launches_of_nvidias_are_told_apart_with_and_without_command_buffers() {
    let ways = ["eager", "default", "buffers", "loaded"];
    for name in ["h100_sxm", "h200"].iter().flat_map(|gpu| ways.map(|way| format!("gpu/{gpu}_layers_{way}"))) {
        let (space, oracle) = captured(&name);
        let found = executions(&space).executions;
        assert_eq!(found.len(), 3, "{name}");
        assert!(found.iter().all(|one| one.events == 28 && one.span_ps < 1_000_000_000), "{name}: {found:?}");
        let operations = oracle["/device:GPU:0"]["operations"].as_object().unwrap();
        let events: u64 = operations.values().map(|one| one["count"].as_u64().unwrap()).sum();
        assert_eq!(events, 3 * 28, "{name}");
    }
}

/// Launched one by one, kernels have the names of their instructions; in a command buffer they have their own, and equal
/// fusions have one.
#[test]
fn kernels_of_a_command_buffer_are_known_by_the_fusion_that_they_are_named_after() {
    let summary = |name: &str| {
        let captures = [Capture::xspace(name, "host", captured(name).0)];
        summarize(&captures, &HloFiles::default(), SummaryOptions::default())
    };
    let (eager, default) = (summary("gpu/h200_layers_eager"), summary("gpu/h200_layers_default"));
    let found = |kernel: &str| default.operations.iter().find(|one| one.operation == kernel).unwrap();
    for (kernel, fusion, runs) in [
        ("loop_multiply_fusion_3", "loop_multiply_fusion.3", 4),
        ("loop_add_fusion_2", "loop_add_fusion.2", 3),
        ("loop_add_fusion_3", "loop_add_fusion.3", 1),
        ("input_reduce_fusion_3", "input_reduce_fusion.3", 4),
    ] {
        let (one, instruction) = (found(kernel), eager.operations.iter().find(|one| one.operation == fusion).unwrap());
        assert_eq!((one.opcode.as_str(), one.count), ("fusion", 2 * runs), "{kernel}");
        let (work, of_one) = (one.work.as_ref().unwrap(), instruction.work.as_ref().unwrap());
        assert_eq!((work.bytes, instruction.count), (runs as f64 * of_one.bytes, 2), "{kernel}");
        // of several instructions it is unknown whose run it was
        let expected = if runs == 1 { instruction.source.as_deref() } else { None };
        assert_eq!((one.source.as_deref(), one.op_name.is_empty()), (expected, runs > 1), "{kernel}");
    }
    assert_eq!(found("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT").opcode, "unknown");
    let captures = [Capture::xspace("default", "host", captured("gpu/h200_layers_default").0)];
    let drawn = stacks(&captures, &HloFiles::default(), StacksBy::OpName, false).time_ns;
    let kernel = ["[active]", "[unknown]", "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT"].map(str::to_owned).to_vec();
    assert_eq!(drawn[&kernel], found("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT").time_ns);
    assert!(default.notes.iter().any(|note| note.starts_with("5 kernels of `jit_layers(")), "{:?}", default.notes);
}

/// Kernels that ship with JAX, called without a label on an H200; the decoding one is Triton's `mha`, too.
#[test]
fn kernels_without_labels_are_recognised_in_a_real_capture() {
    let captures = [Capture::xspace("unlabelled", "host", captured("gpu/h200_unlabelled").0)];
    let summary = summarize(&captures, &HloFiles::default(), SummaryOptions::default());
    let found: BTreeMap<&str, (u64, bool)> = summary
        .known_kernels
        .iter()
        .map(|one| (one.kernel.operation.as_str(), (one.operations, one.share > 0.05)))
        .collect();
    let expected = [
        ("attention", (1, true)),
        ("hopper_matmul", (1, true)),
        ("layer_norm", (1, false)),
        ("mha", (2, true)),
        ("rms_norm", (1, false)),
    ];
    assert_eq!(found, BTreeMap::from(expected));

    // a user's own templates come first
    let own = r#"{"schema": 1, "kernels": [{"operation": "mine", "projects": {"us": "us/"},
        "targets": ["__gpu$xla.gpu.triton"], "name": ".*rms.*", "source": "us/norms.py"}]}"#;
    let kernels = KernelTemplates::of_text(own).unwrap();
    let options = SummaryOptions::default().names(UserNames::new(None, Some(&kernels)));
    let summary = summarize(&captures, &HloFiles::default(), options);
    let found: BTreeSet<&str> = summary.known_kernels.iter().map(|one| one.kernel.operation.as_str()).collect();
    assert_eq!(found, BTreeSet::from(["attention", "hopper_matmul", "layer_norm", "mha", "mine"]));
}

/// ROCm's profiler does not name the device: its vendor, capability, cores, memory and clock do.
#[test]
fn the_device_is_known_by_its_figures_and_copies_are_transfers() {
    for (name, copies, count, kernels) in [
        ("mi300/attention", "__amd_rocclr_copyBuffer.kd", 18, vec![]),
        ("mi300/conv_jax08", "__amd_rocclr_copyBuffer.kd", 35, vec!["Im3d2Col.kd", "input_transpose_fusion_1.kd"]),
        ("mi300/conv_legacy", "CopyDeviceToDevice", 53, vec![]),
    ] {
        let captures = [Capture::xspace(name, "host", captured(name).0)];
        let summary = summarize(&captures, &HloFiles::default(), SummaryOptions::default());
        assert_eq!(summary.peaks.as_ref().map(|peaks| peaks.name.as_str()), Some("rocm:mi300x"), "{name}");
        assert!(summary.modules.iter().any(|module| module.work.as_ref().is_some_and(|work| work.roofline.is_some())));
        let found = summary.transfers.iter().find(|work| work.name == copies).unwrap();
        assert_eq!(found.count, count, "{name}");
        assert!(summary.devices.iter().all(|device| device.plane.starts_with("/device:GPU:")), "{name}");
        let in_no_program: Vec<&str> = summary.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(in_no_program, kernels, "{name}");
        let share: f64 = summary.kernels.iter().map(|kernel| kernel.share).sum();
        assert!(share < 0.01, "{name}: {share}");
    }
}
