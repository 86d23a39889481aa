//! Device time on synthetic captures: the layouts of TPU and GPU, for which there is no complete capture (the names of
//! planes, lines and stats come from a public file with damaged times, and from XLA's sources), and cases that real
//! captures do not contain. The expected times are computed by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::xspace::*;
use autotune_lowered::measured_by::Metric;
use autotune_lowered::profile::{DeviceTime, Execution, Finding, Layout, XSpace, executions};

fn time(planes: &[PlaneBuilder]) -> DeviceTime {
    executions(&XSpace::from_bytes(space(planes).0).unwrap())
}

/// Name, events, sum and self time of each operation.
fn operations<'a>(time: &'a DeviceTime, execution: &Execution) -> Vec<(&'a str, u64, u64, u64)> {
    let all = execution.operations.iter();
    all.map(|one| (time.name(one.name), one.count, one.total_ps, one.self_ps)).collect()
}

#[test]
fn synthetic_tpu_modules_and_operations_are_joined_by_time() {
    let mut planes = Vec::new();
    for core in 0..2 {
        let mut plane = PlaneBuilder::new(&format!("/device:TPU:{core}"));
        let late = core * 1000;
        let modules: Vec<Message> = [(0, 1), (5000, 2)]
            .iter()
            .map(|&(start, run)| {
                let stats = [("run_id", Is::Int(run)), ("program_id", Is::Uint(77))];
                plane.event(("jit_step(77)", ""), start + late, 1000, &stats)
            })
            .collect();
        // 100..900 is a while with a body of two; 950..980 comes after it
        let operations: Vec<Message> = [
            ("%while.1 = (s32[]) while(...)", "", 100, 800),
            ("%fusion.2 = f32[8]{0} fusion(...)", "fusion.2", 150, 300),
            ("%fusion.2 = f32[8]{0} fusion(...)", "fusion.2", 500, 300),
            ("%copy.3 = f32[8]{0} copy(...)", "", 950, 30),
        ]
        .iter()
        .flat_map(|&(name, display, start, length)| {
            [(name, display, start, length), (name, display, start + 5000, length)]
        })
        .map(|(name, display, start, length)| plane.event((name, display), start + late, length, &[]))
        .collect();
        // one before every module, one between
        let outside: Vec<Message> =
            [3000].iter().map(|&start| plane.event(("%infeed", ""), start + late, 10, &[])).collect();
        let asynchronous = plane.event(("copy-start", ""), late, 4000, &[]);
        // the modules line counts from a later time than the operations
        plane.line("XLA Modules", 1_000, &modules);
        plane.line("XLA Ops", 1_000, &[operations, outside].concat());
        plane.line("Async XLA Ops", 1_000, &[asynchronous]);
        planes.push(plane);
    }
    let time = time(&planes);
    assert_eq!(time.executions.len(), 4);
    for (place, execution) in time.executions.iter().enumerate() {
        assert_eq!((execution.device, execution.order), (Some(place as i64 / 2), place % 2));
        assert_eq!((execution.layout, execution.layout.metric()), (Layout::ModuleLines, Metric::Busy));
        assert_eq!((time.name(execution.module), execution.program_id), ("jit_step", Some(77)));
        assert_eq!(execution.run_id, Some(place as i64 % 2 + 1));
        assert_eq!((execution.span_ps, execution.busy_ps), (1000, 830));
        let expected = [("while.1", 1, 800, 200), ("fusion.2", 2, 600, 600), ("copy.3", 1, 30, 30)];
        assert_eq!(operations(&time, execution), expected);
    }
    let outside = time.findings.iter().filter(|finding| matches!(finding, Finding::OutsideModules { events: 1, .. }));
    assert_eq!(outside.count(), 2, "{:?}", time.findings);
    // the operations were not written in order of time
    assert!(
        time.findings
            .iter()
            .any(|finding| matches!(finding, Finding::ClockBackwards { line, .. } if line == "XLA Ops"))
    );
}

#[test]
fn synthetic_gpu_streams_overlap_and_runs_are_told_by_the_first_operation() {
    let mut plane = PlaneBuilder::new("/device:GPU:3");
    let (mut compute, mut copies) = (Vec::new(), Vec::new());
    for launch in 0..3 {
        let stats =
            |operation| [("hlo_op", Is::Ref(operation)), ("hlo_module", Is::Ref("jit_f")), ("program_id", Is::Int(9))];
        let start = launch * 1000;
        compute.push(plane.event(("gemm_kernel", ""), start, 100, &stats("dot.1")));
        compute.push(plane.event(("loop_kernel", ""), start + 150, 50, &stats("fusion.2")));
        copies.push(plane.event(("MemcpyD2D", ""), start + 80, 100, &stats("copy.3")));
    }
    // a kernel of no module
    copies.push(plane.event(("memset", ""), 5000, 100, &[]));
    plane.line("Stream #13(Compute)", 2_000, &compute);
    plane.line("Stream #15(MemcpyD2D)", 2_000, &copies);
    let time = time(&[plane, PlaneBuilder::new("/host:CPU")]);
    assert_eq!(time.executions.len(), 3);
    for (launch, execution) in time.executions.iter().enumerate() {
        assert_eq!((execution.device, execution.program_id, execution.run_id), (Some(3), Some(9), None));
        assert_eq!((execution.layout, execution.order), (Layout::DeviceStreams, launch));
        assert_eq!((execution.start_ps, execution.span_ps, execution.busy_ps), (launch as i64 * 1000, 200, 200));
        let expected = [("dot.1", 1, 100, 100), ("fusion.2", 1, 50, 50), ("copy.3", 1, 100, 100)];
        assert_eq!(operations(&time, execution), expected);
    }
    let told = Finding::SplitByFirstOperation { module: "jit_f".to_owned(), executions: 3 };
    assert_eq!(time.findings, [told]);
}

/// XLA names every kernel of a command buffer after the buffer, and two of its kernels may be one function.
fn command_buffers(kernels: &[&str], launches: i64) -> PlaneBuilder {
    let mut plane = PlaneBuilder::new("/device:GPU:0");
    let mut compute = Vec::new();
    for launch in 0..launches {
        for (node, kernel) in (0..).zip(kernels) {
            let stats = [
                ("correlation_id", Is::Uint(40 + launch as u64)),
                ("cuda_graph_id", Is::Uint(6)),
                ("cuda_graph_node_id", Is::Uint(6 << 32 | node as u64)),
                ("hlo_op", Is::Ref("command_buffer_1")),
                ("hlo_module", Is::Ref("jit_f")),
                ("program_id", Is::Int(9)),
            ];
            compute.push(plane.event((kernel, ""), launch * 1000 + node * 100, 50, &stats));
        }
    }
    plane.line("Stream #13(Compute)", 2_000, &compute);
    plane
}

#[test]
fn synthetic_command_buffers_keep_their_kernels_and_are_told_by_their_launches() {
    let time = time(&[command_buffers(&["gemm_kernel", "loop_kernel", "gemm_kernel"], 3)]);
    assert_eq!(time.executions.len(), 3);
    for (launch, execution) in time.executions.iter().enumerate() {
        assert_eq!((execution.start_ps, execution.span_ps, execution.busy_ps), (launch as i64 * 1000, 250, 150));
        assert_eq!(operations(&time, execution), [("gemm_kernel", 2, 100, 100), ("loop_kernel", 1, 50, 50)]);
    }
}

/// A line is read in chunks of 256 KiB; most chunks end within a launch.
#[test]
fn a_launch_of_a_synthetic_command_buffer_goes_on_in_the_next_chunk() {
    let bytes = space(&[command_buffers(&["kernel"; 7], 3000)]).0;
    assert!(bytes.len() > 4 * (256 << 10));
    // all events are held, none, or those of the first chunk
    for held in [1 << 20, 0, 5000] {
        let mut space = XSpace::from_bytes(bytes.clone()).unwrap();
        space.hold_events(held);
        let time = executions(&space);
        assert_eq!(time.executions.len(), 3000, "{held} events held");
        assert!(time.executions.iter().all(|one| (one.events, one.span_ps) == (7, 650)));
    }
}

#[test]
fn lines_that_begin_at_different_times_are_aligned_and_control_flow_keeps_no_time_of_its_body() {
    let mut plane = PlaneBuilder::new("/host:CPU");
    let stats = |operation| {
        [
            ("hlo_op", Is::Text(operation)),
            ("hlo_module", Is::Compressed(b"\x78\x9c\xcb\xca\x2c\x89\x4f\x03\x00\x06\x3b\x02\x0d")),
            ("program_id", Is::Int(4)),
            ("run_id", Is::Int(-1)),
            ("device_ordinal", Is::Int(0)),
        ]
    };
    // a while on one thread, its body on another, whose line begins a nanosecond later
    let one = plane.event(("while.1", ""), 0, 10_000, &stats("while.1"));
    let body = plane.event(("fusion.2", ""), 1000, 3000, &stats("fusion.2"));
    let end = plane.event(("end: fusion.2", ""), 4000, 0, &stats("fusion.2"));
    plane.line("tf_XLAEigen/1", 5, &[one]);
    plane.line("tf_XLAEigen/2", 6, &[body, end]);
    let time = time(&[plane]);
    let [execution] = &time.executions[..] else { panic!("{:?}", time.executions) };
    // zlib.compress(b"jit_f")
    assert_eq!(time.name(execution.module), "jit_f");
    assert_eq!(
        (execution.events, execution.span_ps, execution.busy_ps, execution.run_id),
        (2, 10_000, 10_000, Some(-1))
    );
    assert_eq!(operations(&time, execution), [("while.1", 1, 10_000, 7000), ("fusion.2", 1, 3000, 3000)]);
}

#[test]
fn findings_name_what_could_mislead() {
    let empty = time(&[PlaneBuilder::new("/host:CPU")]);
    assert!(matches!(&empty.findings[..], [Finding::NoDevicePlane { planes }] if planes == "`/host:CPU`"));

    let mut plane = PlaneBuilder::new("/device:TPU:0");
    let modules =
        [(0, 100), (200, -5), (400, 100)].map(|(start, length)| plane.event(("jit_f(1)", ""), start, length, &[]));
    plane.line("XLA Modules", 0, &modules);
    let mut bare = PlaneBuilder::new("/device:TPU:1");
    let kernel = bare.event(("kernel", ""), 0, 5, &[]);
    let unknown =
        Message::default().number(1, 99).number(2, 1).number(3, 1).message(4, &Message::default().number(1, 98));
    bare.line("a line", i64::MAX, &[kernel, unknown, Message(vec![0x22, 0x7f])]);
    let mut bytes = space(&[plane, bare]).0;
    bytes.extend(Message::default().bytes(3, "Dropped 12 events").bytes(2, "failed to stop").0);
    let time = executions(&XSpace::from_bytes(bytes).unwrap());
    let codes: Vec<String> = time
        .findings
        .iter()
        .map(|finding| serde_json::to_value(finding).unwrap()["code"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "profiler-message",
        "dropped-events",
        "no-operations",
        "negative-durations",
        "no-executions",
        "malformed-events",
        "unknown-metadata",
    ];
    assert_eq!(codes, expected, "{:?}", time.findings);
    assert_eq!(time.executions.iter().map(|one| one.busy_ps).collect::<Vec<_>>(), [100, 100]);
}
