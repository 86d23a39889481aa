//! Communication and other work on devices, as their profilers name it: the files of `tests/data/xplane/devices`, and
//! cases like them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::xspace::*;
use autotune_lowered::analysis::collectives::{Clocks, CollectiveMetrics, collective_metrics, collectives};
use autotune_lowered::analysis::{Capture, HloFiles, StacksBy, Summary, SummaryOptions, stacks, summarize};
use autotune_lowered::profile::{Finding, Profiler, Semantics, XSpace, executions};

fn captured(name: &str) -> Vec<Capture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane/devices");
    let path = folder.join(format!("{name}.xplane.pb"));
    vec![Capture::xspace(&path, name, XSpace::open(&path).unwrap())]
}

fn synthetic(planes: &[PlaneBuilder]) -> Vec<Capture> {
    vec![Capture::xspace("synthetic", "host", XSpace::from_bytes(space(planes).0).unwrap())]
}

fn measured(captures: &[Capture]) -> (CollectiveMetrics, Vec<String>) {
    let files = HloFiles::default();
    let found = collectives(captures, &files, false);
    (collective_metrics(&found, Clocks::Recorded), found.notes.clone())
}

/// Name, kind, instances and microseconds of each collective, the longest first.
fn shown(metrics: &CollectiveMetrics) -> Vec<(&str, &str, u64, f64)> {
    let rows = metrics.operations.iter();
    rows.map(|row| (row.name.as_str(), row.kind.name(), row.figures.instances, row.figures.total_ns / 1e3)).collect()
}

fn summary_of(captures: &[Capture]) -> Summary {
    summarize(captures, &HloFiles::default(), SummaryOptions::default())
}

fn has(notes: &[String], text: &str) -> bool {
    notes.iter().any(|note| note.contains(text))
}

const US: i64 = 1_000_000;

/// A plane with a program that runs three times, 2000 µs apart, of 1000 µs each, with operations of this text, category,
/// start and length in µs.
fn core(name: &str, lines: [&str; 2], operations: &[(&str, &str, i64, i64)]) -> PlaneBuilder {
    let mut plane = PlaneBuilder::new(name);
    let (mut modules, mut events) = (Vec::new(), Vec::new());
    for run in 0..3 {
        let start = run * 2000;
        modules.push(plane.event(("jit_f(5)", ""), start * US, 1000 * US, &[("run_id", Is::Int(run))]));
        for (text, category, from, length) in operations {
            let name = text.trim_start_matches('%').split(" = ").next().unwrap();
            let stats = [("hlo_category", Is::Text(category))];
            let stats = if category.is_empty() { &[] } else { &stats[..] };
            events.push(plane.event((text, name), (start + from) * US, length * US, stats));
        }
    }
    plane.line(lines[0], 0, &modules);
    plane.line(lines[1], 0, &events);
    plane
}

fn tpu(operations: &[(&str, &str, i64, i64)]) -> PlaneBuilder {
    core("/device:TPU:0", ["XLA Modules", "XLA Ops"], operations)
}

#[test]
fn communication_of_experts_is_found() {
    let expected = [("ragged-all-to-all.5", "ragged-all-to-all", 3, 2400.0), ("all-gather.2", "all-gather", 3, 600.0)];
    assert_eq!(shown(&measured(&captured("moe")).0), expected);
}

#[test]
fn asynchronous_forms_are_found_by_what_their_events_say() {
    let plane = tpu(&[
        ("%recv.3 = (f32[8]{0}, u32[], token[]) recv(...)", "", 0, 10),
        ("%send.4 = (f32[8]{0}, u32[], token[]) send(...)", "", 10, 10),
        ("%psum.1 = ((f32[8]{0}), f32[8]{0}) async-start(...)", "all-to-all", 20, 10),
        ("%fusion.1 = f32[8]{0} fusion(...), kind=kLoop", "loop fusion", 30, 100),
        ("%send-done.4 = token[] send-done(...)", "", 130, 20),
        ("%recv-done.3 = (f32[8]{0}, token[]) recv-done(...)", "", 150, 60),
        ("%psum.9 = f32[8]{0} async-done(...)", "", 210, 20),
        ("%collective-broadcast.6 = f32[8]{0} collective-broadcast(...)", "", 300, 30),
        ("%collective-permute-start.7 = (f32[8]{0}) collective-permute-start(...)", "", 400, 1),
        ("%collective-permute-done.7 = f32[8]{0} collective-permute-done(...)", "", 440, 10),
        ("%all-reduce-scatter.8 = f32[8]{0} fusion(...), kind=kCustom", "", 500, 40),
        ("%broadcast.2 = f32[8]{0} broadcast(...)", "", 600, 10),
    ]);
    let (metrics, notes) = measured(&synthetic(&[plane]));
    let expected = [
        ("psum.1", "all-to-all", 2, 420.0),
        ("recv.3", "recv", 2, 420.0),
        ("send.4", "send", 2, 280.0),
        ("collective-permute-start.7", "collective-permute", 2, 100.0),
        ("all-reduce-scatter.8", "reduce-scatter", 2, 80.0),
        ("collective-broadcast.6", "collective-broadcast", 2, 60.0),
    ];
    let mut found = shown(&metrics);
    found.sort_by(|one, other| other.3.total_cmp(&one.3).then(one.0.cmp(other.0)));
    assert_eq!(found, expected);
    assert!(has(&notes, "bandwidth is a lower bound"), "{notes:?}");
}

#[test]
fn facts_of_events_stand_in_for_missing_hlo() {
    let summary = summary_of(&captured("nohlo"));
    let shares = |parts: &[autotune_lowered::analysis::Part]| -> Vec<(String, u64)> {
        let parts = parts.iter().filter(|part| part.operations > 0);
        parts.map(|part| (part.name.clone(), (part.share * 100.0).round() as u64)).collect()
    };
    assert_eq!(shares(&summary.opcodes), [("convolution".to_owned(), 70), ("add".to_owned(), 30)]);
    assert_eq!(shares(&summary.sources), [("/src/model.py:41".to_owned(), 70), ("/src/model.py:42".to_owned(), 30)]);
    assert_eq!(shares(&summary.op_names)[1], ("jit(f)/add".to_owned(), 30));
    let [label] = &summary.labels[..] else { panic!("{:?}", summary.labels) };
    assert_eq!(label.label.to_string(), "gate_mix@v3:00aa11bb22cc33dd");
    assert!((label.share - 0.7).abs() < 1e-9);
    // 1000 operations in each of three runs of 700 µs
    assert_eq!(label.work.as_ref().map(|work| (work.flops, work.time_ns)), Some((3000.0, 2_100_000.0)));
    assert!(has(&summary.notes, "what their events state"), "{:?}", summary.notes);
    let stacks = stacks(&captured("nohlo"), &HloFiles::default(), StacksBy::Source, false);
    assert!(stacks.time_ns.keys().any(|stack| stack.contains(&"/src/model.py:41".to_owned())), "{:?}", stacks.time_ns);
}

/// An event without text: its category, or its name, gives the opcode.
#[test]
fn categories_give_opcodes() {
    let plane = tpu(&[("fusion.1", "convolution fusion", 0, 10), ("add.2", "non-fusion elementwise", 10, 5)]);
    let summary = summary_of(&synthetic(&[plane]));
    let opcodes: Vec<&str> = summary.operations.iter().map(|operation| operation.opcode.as_str()).collect();
    assert_eq!(opcodes, ["fusion", "add"]);
}

#[test]
fn kernels_of_nccl_are_collectives_where_no_operation_is_named() {
    let (metrics, _) = measured(&captured("nccl"));
    let name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    assert_eq!(shown(&metrics), [(name, "all-gather", 3, 2400.0)]);
    assert!((metrics.operations[0].figures.fastest_ns - 400_000.0).abs() < 1e-6);
    let summary = summary_of(&captured("nccl"));
    let communication: Vec<&str> =
        summary.operations.iter().filter(|one| one.communication).map(|one| one.operation.as_str()).collect();
    assert_eq!(communication, [name]);
    assert!(has(&summary.notes, "--xla_gpu_enable_command_buffer="), "{:?}", summary.notes);
}

/// A GPU whose events name no module at all.
#[test]
fn kernels_in_no_program_are_rows() {
    let mut plane = PlaneBuilder::new("/device:GPU:2");
    let kernels = [
        ("gemm_kernel", 0, 600),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 600, 200),
        ("void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", 800, 100),
        ("MemcpyD2D", 900, 50),
        ("__amd_rocclr_fillBufferAligned.kd", 950, 50),
    ];
    let events: Vec<Message> =
        kernels.iter().map(|(name, start, length)| plane.event((name, ""), start * US, length * US, &[])).collect();
    plane.line("Stream #7(Compute)", 0, &events);
    // a view of other events is no work
    let steps = plane.event(("1", ""), 0, 1000 * US, &[]);
    plane.line("Steps", 0, &[steps]);
    let captures = synthetic(&[plane]);
    let summary = summary_of(&captures);
    let rows: Vec<(&str, bool, u64)> = summary
        .kernels
        .iter()
        .map(|one| (one.name.split('(').next().unwrap(), one.communication, (one.share * 100.0).round() as u64))
        .collect();
    let expected = [
        ("gemm_kernel", false, 60),
        ("ncclDevKernel_SendRecv", true, 20),
        ("void rcclGenericKernel<1, false>", true, 10),
    ];
    assert_eq!(rows, expected);
    let transfers: Vec<(&str, f64)> =
        summary.transfers.iter().map(|one| (one.name.as_str(), one.time_ns / 1e3)).collect();
    assert_eq!(transfers, [("MemcpyD2D", 50.0), ("__amd_rocclr_fillBufferAligned.kd", 50.0)]);
    assert!(has(&summary.notes, "--xla_gpu_enable_command_buffer="), "{:?}", summary.notes);
    let (metrics, notes) = measured(&captures);
    let kinds: Vec<(&str, u64, f64)> =
        shown(&metrics).into_iter().map(|(_, kind, count, us)| (kind, count, us)).collect();
    assert_eq!(kinds, [("send-recv", 1, 200.0), ("unknown", 1, 100.0)]);
    assert!(has(&notes, "in no program"), "{notes:?}");
}

#[test]
fn a_sparse_core_counts_in_the_executions_of_its_device() {
    let captures = captured("sc");
    let (metrics, _) = measured(&captures);
    assert_eq!(shown(&metrics), [("all-reduce.7", "all-reduce", 3, 2400.0)]);
    // the device's fusion runs from 0 to 900 µs, and the all-reduce from 100 to 900
    assert_eq!(metrics.operations[0].figures.hidden, 1.0);
    let summary = summary_of(&captures);
    assert_eq!((summary.devices.len(), summary.devices[0].executions, summary.modules.len()), (1, 3, 1));
    let joined = |finding: &Finding| matches!(finding, Finding::JoinedPlane { plane, events: 4, .. } if plane == "/device:TPU:0 SparseCore 0");
    assert!(summary.findings.iter().any(joined), "{:?}", summary.findings);
    let space = captures[0].timeline();
    let time = executions(space);
    let profiler = Profiler::new(Semantics::PerExecution);
    let names: Vec<String> =
        space.planes().flat_map(|plane| profiler.timings(plane, &time).samples.into_keys()).collect();
    assert_eq!(names, ["jit_step(9-None)"]);
}

/// Two cores beside the device, and one whose device is not in the capture.
#[test]
fn several_sparse_cores_and_one_alone() {
    let lines = ["Sparse Core Modules", "Sparse Core Ops"];
    let operations = [("%all-reduce.7 = f32[8]{0} all-reduce(...)", "", 100, 200)];
    let cores = [0, 1].map(|number| core(&format!("/device:TPU:0 SparseCore {number}"), lines, &operations));
    let [first, second] = cores;
    let device = tpu(&[("%fusion.1 = f32[8]{0} fusion(...)", "", 0, 400)]);
    let alone = core("/device:TPU:1 SparseCore 0", lines, &operations);
    let space = XSpace::from_bytes(space(&[first, device, second, alone]).0).unwrap();
    for held in [1 << 20, 0] {
        let mut space = XSpace::from_bytes(space.as_bytes().to_vec()).unwrap();
        space.hold_events(held);
        let time = executions(&space);
        let ran: Vec<(Option<i64>, u64, u64)> =
            time.executions.iter().map(|one| (one.device, one.events, one.busy_ps)).collect();
        let us = |count: u64| count * US as u64;
        let expected = [[(Some(0), 3, us(400)); 3], [(Some(1), 1, us(200)); 3]].concat();
        assert_eq!(ran, expected, "{held} events held");
        let joined = time.findings.iter().filter(|finding| matches!(finding, Finding::JoinedPlane { events: 3, .. }));
        assert_eq!(joined.count(), 2, "{:?}", time.findings);
    }
}

/// With `--xla_enable_custom_call_region_trace`, what a kernel's scopes name runs inside its call.
#[test]
fn regions_of_a_custom_call_count_with_their_call() {
    let plane = tpu(&[
        ("%flash.1 = f32[8]{0} custom-call(...)", "custom-call", 0, 500),
        ("ep_copy_in", "", 0, 100),
        ("ep_run_kernel", "", 100, 400),
        ("softmax", "", 200, 100),
        ("%fusion.2 = f32[8]{0} fusion(...)", "loop fusion", 500, 300),
        ("not_in_a_call", "", 850, 50),
    ]);
    let summary = summary_of(&synthetic(&[plane]));
    let opcodes: Vec<(&str, u64, f64)> =
        summary.opcodes.iter().map(|part| (part.name.as_str(), part.operations, part.time_ns / 1e3)).collect();
    let expected =
        [("custom-call", 4, 1000.0), ("fusion", 1, 600.0), ("[idle inside modules]", 0, 300.0), ("unknown", 1, 100.0)];
    assert_eq!(opcodes, expected);
    assert!(summary.op_names.iter().any(|part| part.name == "softmax"), "{:?}", summary.op_names);
    assert!(has(&summary.notes, "3 regions of custom calls"), "{:?}", summary.notes);
}

/// ROCm's graphs have no ids of nodes; XLA's name of the buffer may be written out.
#[test]
fn kernels_of_a_command_buffer_have_their_own_names_and_scopes_of_events_count() {
    let buffer = "command_buffer_3";
    for hlo_op in [Is::Ref(buffer), Is::Text(buffer)] {
        let mut plane = PlaneBuilder::new("/device:GPU:0");
        let of = |hlo_op| [("hlo_op", hlo_op), ("hlo_module", Is::Ref("jit_f")), ("program_id", Is::Int(9))];
        let name = ("name", Is::Ref("jit(f)/ejkernel_ops#gate_mix@v3:00aa11bb22cc33dd/dot_general"));
        let mut events = Vec::new();
        for run in 0..3 {
            let start = run * 1000 * US;
            let stats = [&of(Is::Ref("dot.1"))[..], &[name]].concat();
            events.push(plane.event(("gemm", ""), start, 100 * US, &stats));
            let kernel = ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>).kd", "");
            events.push(plane.event(kernel, start + 100 * US, 50 * US, &of(hlo_op)));
        }
        plane.line("Stream #7(Kernel)", 0, &events);
        let captures = synthetic(&[plane]);
        assert_eq!(shown(&measured(&captures).0).iter().map(|row| row.1).collect::<Vec<_>>(), ["unknown"]);
        let summary = summary_of(&captures);
        assert_eq!(summary.labels.iter().map(|one| one.operations).collect::<Vec<_>>(), [1]);
        assert!(summary.operations.iter().any(|one| one.communication), "{:?}", summary.operations);
    }
}

#[test]
fn launches_on_the_host_are_not_executions() {
    let stats = [
        ("correlation_id", Is::Uint(6)),
        ("hlo_op", Is::Ref("dot.1")),
        ("hlo_module", Is::Ref("jit_f")),
        ("program_id", Is::Int(9)),
    ];
    let mut host = PlaneBuilder::new("/host:CPU");
    let launch = host.event(("cuLaunchKernel", ""), 0, 10 * US, &stats);
    host.line("Host Threads/1", 0, &[launch]);
    let mut device = PlaneBuilder::new("/device:GPU:0");
    let kernel = device.event(("gemm", ""), 20 * US, 10 * US, &stats);
    device.line("Stream #7(Compute)", 0, &[kernel]);
    let time = executions(&XSpace::from_bytes(space(&[host, device]).0).unwrap());
    assert_eq!(time.executions.iter().map(|one| one.device).collect::<Vec<_>>(), [Some(0)]);
}
