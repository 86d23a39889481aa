//! The summary of real captures compared with independent programs' results, and of synthetic ones with cases worked by
//! hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::{
    Counting, HloFiles, IDLE_INSIDE, StacksBy, Summary, SummaryOptions, UNKNOWN, UserNames, stacks, summarize,
};
use autotune_lowered::hlo::Evidence;
use autotune_lowered::hlo::UserLabels;
use autotune_lowered::peaks::Peaks;
use autotune_lowered::profile::XSpace;
use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane").join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(sample(name)).unwrap()).unwrap()
}

fn summary_of(captures: &[Capture], options: SummaryOptions<'_>) -> Summary {
    summarize(captures, &HloFiles::default(), options)
}

fn captured(name: &str) -> Vec<Capture> {
    let path = sample(&format!("{name}.xplane.pb.gz"));
    let space = XSpace::open(&path).unwrap();
    vec![Capture::xspace(path, name, space)]
}

fn synthetic(planes: &[PlaneBuilder]) -> Vec<Capture> {
    let space = XSpace::from_bytes(space(planes).0).unwrap();
    vec![Capture::xspace("synthetic", "host", space)]
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
}

/// An execution in the oracle: module, program, device, start, span and busy time.
type Ran = (String, i64, i64, i64, f64, f64);

fn of_oracle(name: &str) -> Vec<Ran> {
    let oracle = json(&format!("{name}.oracle.json"));
    let mut ran: Vec<Ran> = Vec::new();
    for module in oracle["modules"].as_array().unwrap() {
        let [program, device, start, span, busy] =
            ["program_id", "device_ordinal", "start_ps", "span_ps", "busy_union_ps"].map(|key| module[key].as_i64());
        let name = module["hlo_module"].as_str().unwrap().to_owned();
        ran.push((name, program.unwrap(), device.unwrap(), start.unwrap(), span.unwrap() as f64, busy.unwrap() as f64));
    }
    ran.sort_by_key(|one| one.3);
    ran
}

/// The same without each program's first execution on each device.
fn without_first(ran: &[Ran]) -> (Vec<Ran>, usize) {
    let mut seen = BTreeSet::new();
    let (first, rest): (Vec<&Ran>, Vec<&Ran>) = ran.iter().partition(|one| seen.insert((one.0.clone(), one.1, one.2)));
    (rest.into_iter().cloned().collect(), first.len())
}

#[test]
fn devices_and_modules_are_the_oracles() {
    for name in ["multi8_shardmap", "autotune6x5", "tf8_steps3"] {
        let all = of_oracle(name);
        let (counted, first) = without_first(&all);
        let summary = summary_of(&captured(name), SummaryOptions::default());
        assert_eq!(summary.skipped.warm_up.executions, first as u64, "{name}");
        assert_eq!(summary.skipped.autotuner.executions, 0);
        let devices: BTreeSet<i64> = counted.iter().map(|one| one.2).collect();
        assert_eq!(summary.devices.iter().map(|device| device.device.unwrap()).collect::<BTreeSet<_>>(), devices);
        for device in &summary.devices {
            let of_device: Vec<&Ran> = counted.iter().filter(|one| Some(one.2) == device.device).collect();
            assert_eq!(device.executions, of_device.len() as u64);
            let spans: f64 = of_device.iter().map(|one| one.4).sum();
            let busy: f64 = of_device.iter().map(|one| one.5).sum();
            let start = of_device.iter().map(|one| one.3).min().unwrap() as f64;
            let end = of_device.iter().map(|one| one.3 as f64 + one.4).fold(0.0, f64::max);
            // first executions in between count neither as work nor as idle time
            let between: f64 = all
                .iter()
                .filter(|one| Some(one.2) == device.device && !of_device.contains(one))
                .map(|one| (one.3 as f64 + one.4).clamp(start, end) - (one.3 as f64).clamp(start, end))
                .sum();
            close(device.operations_ns, busy / 1e3);
            close(device.modules_ns, spans / 1e3);
            close(device.wall_ns, (end - start - between) / 1e3);
            close(device.idle_inside_ns, (spans - busy) / 1e3);
            close(device.idle_between_ns, (end - start - between - spans) / 1e3);
            assert_eq!(device.overlap_ns, 0.0);
        }
        let total: f64 = counted.iter().map(|one| one.4).sum();
        for module in &summary.modules {
            let of_module: Vec<&Ran> =
                counted.iter().filter(|one| one.0 == module.module && Some(one.1) == module.program_id).collect();
            assert_eq!(module.executions, of_module.len() as u64);
            let mean = of_module.iter().map(|one| one.5).sum::<f64>() / of_module.len() as f64;
            let squares: f64 = of_module.iter().map(|one| (one.5 - mean) * (one.5 - mean)).sum();
            close(module.active_ns.mean, mean / 1e3);
            let std = (squares / (of_module.len() - 1) as f64).sqrt();
            assert!((module.active_ns.std.unwrap() - std / 1e3).abs() < 1e-6 * std / 1e3, "{name}");
            close(module.share, of_module.iter().map(|one| one.4).sum::<f64>() / total);
        }
        assert!(summary.modules.is_sorted_by(|one, next| one.total_ns >= next.total_ns));
        let executed: u64 = summary.modules.iter().map(|module| module.executions).sum();
        assert_eq!(executed, counted.len() as u64);
    }
}

/// Every part of the time counts once: shares of operations and idle time add up to one, and so do each list's shares.
#[test]
fn shares_add_up() {
    for name in ["multi8_shardmap", "autotune6x5", "tf8_steps3", "tf2_step"] {
        let summary = summary_of(&captured(name), SummaryOptions::default());
        let idle = summary.opcodes.iter().find(|part| part.name == IDLE_INSIDE).unwrap().share;
        let sum = |shares: Vec<f64>| shares.iter().sum::<f64>();
        close(sum(summary.operations.iter().map(|one| one.share).collect()) + idle, 1.0);
        close(sum(summary.opcodes.iter().map(|one| one.share).collect()), 1.0);
        close(sum(summary.sources.iter().map(|one| one.share).collect()) + idle, 1.0);
        close(sum(summary.op_names.iter().map(|one| one.share).collect()) + idle, 1.0);
    }
}

/// Opcode, `op_name` and source line are those that XLA itself prints.
#[test]
fn operations_are_what_xla_says() {
    for name in ["multi8_shardmap", "autotune6x5", "tf2_step"] {
        let peer = json(&format!("{name}.instructions.json"));
        let summary = summary_of(&captured(name), SummaryOptions::default());
        assert_eq!(summary.notes.is_empty(), name != "tf2_step", "{:?}", summary.notes);
        let mut compared = 0;
        for operation in &summary.operations {
            let module = format!("{}({})", operation.module, operation.program_id.unwrap());
            let expected = &peer["modules"][&module][&operation.operation];
            assert_eq!(operation.opcode, expected["opcode"].as_str().unwrap(), "{}", operation.operation);
            // an operation without a name takes one of those that it fuses
            let own = expected["op_name"].as_str().unwrap();
            let fused: Vec<&str> =
                expected["op_names"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
            match own {
                "" if fused.is_empty() => assert_eq!(operation.op_name, ""),
                "" => assert!(fused.contains(&&*operation.op_name)),
                own => assert_eq!(operation.op_name, own),
            }
            let stack = peer["stacks"][expected["stack"].as_u64().unwrap() as usize].as_array().unwrap();
            if let Some(innermost) = stack.last() {
                let source = operation.source.as_ref().unwrap();
                assert!(innermost.as_str().unwrap().ends_with(&format!(" ({source})")), "{innermost} {source}");
            }
            compared += 1;
        }
        assert!(compared >= 28, "{name}: {compared}");
        let communication: Vec<&str> =
            summary.operations.iter().filter(|one| one.communication).map(|one| &*one.opcode).collect();
        let expected: &[&str] = match name {
            "multi8_shardmap" => &["all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter"],
            _ => &[],
        };
        assert_eq!(communication.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), expected);
    }
}

/// A truncated label is recognised, and each operation with its name counts for it: the sum comes from XLA's own names.
#[test]
fn shares_are_rolled_up_to_cut_labels() {
    let peer = json("tf2_step.instructions.json");
    let summary = summary_of(&captured("tf2_step"), SummaryOptions::default());
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for operation in &summary.operations {
        let module = format!("{}({})", operation.module, operation.program_id.unwrap());
        let name = peer["modules"][&module][&operation.operation]["op_name"].as_str().unwrap().to_owned();
        if let Some((_, rest)) = name.rsplit_once("ejkernel_ops#") {
            let label: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            *expected.entry(label).or_default() += operation.time_ns;
        }
    }
    assert!(expected.len() >= 3, "{expected:?}");
    for (name, time_ns) in expected {
        let label = summary.labels.iter().find(|one| one.label.op_id == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((label.evidence, label.label.call_key.as_deref()), (Evidence::ByName, None));
        // operations without their own name may add to it, but only little
        assert!(label.time_ns >= time_ns * 0.999_999 && label.time_ns < time_ns * 1.1, "{name}: {label:?} {time_ns}");
    }
}

#[test]
fn warm_up_autotuner_and_overlapping_threads_by_hand() {
    // a first execution, XLA's autotuner, and two that count: 1000..1100 with two threads, 1300..1400
    let plane = host(&[
        &[
            ("dot", "jit_f", 3, 1, 0, 500),
            ("probe", "autotune", -1, 9, 700, 50),
            ("dot", "jit_f", 3, 2, 1000, 60),
            ("dot", "jit_f", 3, 3, 1300, 100),
        ],
        &[("add", "jit_f", 3, 2, 1030, 40), ("add", "jit_f", 3, 2, 1090, 10)],
    ]);
    let mut files = HloFiles::default();
    let label = "jit(f)/ejkernel_ops#matmul@v1:0123456789abcdef/dot";
    files.add("f.hlo.pb", proto("jit_f", 3, &[("dot", "dot", label), ("add", "add", "jit(f)/add")]).0);
    let captures = synthetic(&[plane]);
    let summary = summarize(&captures, &files, SummaryOptions::default());
    assert_eq!((summary.skipped.warm_up.executions, summary.skipped.warm_up.span_ns), (1, 500.0));
    assert_eq!((summary.skipped.autotuner.executions, summary.skipped.autotuner.span_ns), (1, 50.0));
    let device = &summary.devices[0];
    // busy: 1000..1070 and 1090..1100, then all of 1300..1400
    assert_eq!((device.operations_ns, device.modules_ns, device.wall_ns), (180.0, 200.0, 400.0));
    assert_eq!((device.idle_inside_ns, device.idle_between_ns, device.overlap_ns), (20.0, 200.0, 0.0));
    let module = &summary.modules[0];
    assert_eq!((module.executions, module.devices, module.operations.mean), (2, 1, 2.0));
    assert_eq!((module.active_ns.mean, module.span_ns.mean), (90.0, 100.0));
    // 80 and 100: the deviation with n − 1 is 10 √2
    close(module.active_ns.std.unwrap(), 10.0 * 2.0_f64.sqrt());
    let [dot, add] = ["dot", "add"].map(|name| summary.operations.iter().find(|one| one.operation == name).unwrap());
    // in the first, dot and add have 60 and 50 of self time in 80 busy: they share it
    close(dot.time_ns, 80.0 * 60.0 / 110.0 + 100.0);
    close(add.time_ns, 80.0 * 50.0 / 110.0);
    close(dot.share, dot.time_ns / 200.0);
    assert_eq!((dot.count, dot.executions, add.count, add.executions), (2, 2, 2, 1));
    assert_eq!((dot.self_time_ns.mean, add.self_time_ns.mean, add.self_time_ns.std), (80.0, 50.0, None));
    assert_eq!((dot.source.as_deref(), dot.bytes), (Some("model.py:10"), 24));
    let label = &summary.labels[0];
    assert_eq!((label.label.to_string(), label.evidence), ("matmul@v1:0123456789abcdef".to_owned(), Evidence::Exact));
    close(label.share, dot.share);
    assert!(summary.notes.is_empty(), "{:?}", summary.notes);

    let all = summarize(&captures, &files, SummaryOptions::default().counting(true.into()));
    assert_eq!((all.modules[0].executions, all.skipped.warm_up.executions), (3, 0));
    let user = UserLabels::new(r"jit\((?P<op>f)\)/add").unwrap();
    let labelled = summarize(&captures, &files, SummaryOptions::default().names(UserNames::new(Some(&user), None)));
    assert_eq!(labelled.labels[1].label.op_id, "f");
}

/// Three modules of 10, 20 and 970: the shortest ones that together make at most 3 % are left out.
#[test]
fn minor_modules_are_left_out_where_that_is_asked_for() {
    let events: Vec<_> = [("jit_a", 10), ("jit_b", 20), ("jit_c", 970)]
        .iter()
        .zip(0..)
        .flat_map(|(&(module, length), number)| {
            [("op", module, number, 1, number * 5000, length), ("op", module, number, 2, number * 5000 + 2000, length)]
        })
        .collect();
    let captures = synthetic(&[host(&[&events])]);
    let of = |minor: f64| {
        let counting = Counting::default().minor(minor);
        let files = HloFiles::default();
        let found = summarize(&captures, &files, SummaryOptions::default().counting(counting));
        let drawn = stacks(&captures, &files, StacksBy::Source, counting).time_ns;
        let device = &found.devices[0];
        let active = drawn[&["[active]", "[unknown]", "op"].map(str::to_owned).to_vec()];
        assert_eq!(
            (active, drawn[&vec!["[idle between module executions]".to_owned()]]),
            (device.operations_ns, device.idle_between_ns)
        );
        let skipped = (found.skipped.minor.executions, found.skipped.minor.span_ns);
        (found.modules.len(), found.operations.len(), device.modules_ns, device.wall_ns, skipped)
    };
    // second executions at 2000, 7000 and 12000; the first ones of `b` and `c` at 5000 and 10000 are no idle time
    assert_eq!(of(0.0), (3, 3, 1000.0, 10970.0 - 20.0 - 970.0, (0, 0.0)));
    assert_eq!(of(0.0299), (2, 2, 990.0, 5970.0 - 970.0, (1, 10.0)));
    assert_eq!(of(0.03), (1, 1, 970.0, 970.0, (2, 30.0)));
}

/// Fusions without a name get the label of most of their fused operations, and operations in a body get that of the
/// loop.
#[test]
fn labels_of_what_has_no_name() {
    let instruction = |name: &str, opcode: &str, op_name: &str, id: i64, called: &[i64]| {
        let metadata = Message::default().bytes(2, op_name);
        let message = Message::default().bytes(1, name).bytes(2, opcode).message(7, &metadata).number(35, id);
        called.iter().fold(message, |message, callee| message.number(38, *callee))
    };
    let computation = |name: &str, id: i64, instructions: &[Message]| {
        let computation = Message::default().bytes(1, name).number(5, id);
        instructions.iter().fold(computation, |computation, one| computation.message(2, one))
    };
    let a = "jit(f)/ejkernel_ops#a.v1:0123456789abcdef/x";
    let b = "jit(f)/transpose(jvp(ejkernel_ops#b";
    let outer_and_inner = "jit(f)/ejkernel_ops#a.v1:0123456789abcdef/jit(g)/ejkernel_ops#b";
    let fused =
        [instruction("p", "add", a, 1, &[]), instruction("q", "mul", b, 2, &[]), instruction("r", "mul", b, 3, &[])];
    let body = [instruction("copy.1", "copy", "", 4, &[]), instruction("plain", "copy", "jit(f)/c", 5, &[])];
    let main = [
        instruction("fusion.1", "fusion", "", 6, &[20]),
        instruction("while.1", "while", a, 7, &[30]),
        instruction("both", "dot", outer_and_inner, 8, &[]),
        instruction("lost", "copy", "", 9, &[]),
    ];
    let module = [computation("fused", 20, &fused), computation("body", 30, &body), computation("main", 40, &main)];
    let module = module.iter().fold(Message::default().bytes(1, "jit_f"), |module, one| module.message(3, one));
    let mut files = HloFiles::default();
    files.add("wrapped", Message::default().message(1, &module).0);
    let names = ["fusion.1", "while.1", "both", "lost", "copy.1", "plain"];
    let run =
        |run: i64| names.iter().zip(0..).map(move |(name, place)| (*name, "jit_f", 1, run, run * 100 + place * 10, 10));
    let events: Vec<_> = run(1).chain(run(2)).collect();
    let summary = summarize(&synthetic(&[host(&[&events])]), &files, SummaryOptions::default());
    let label = |name: &str| {
        let operation = summary.operations.iter().find(|one| one.operation == name).unwrap();
        operation.label.as_ref().map(|label| label.op_id.clone())
    };
    let found = names.map(label);
    assert_eq!(
        found.each_ref().map(Option::as_deref),
        [Some("b"), Some("a@v1"), Some("b"), None, Some("a@v1"), None],
        "{names:?}"
    );
}

#[test]
fn missing_and_damaged_protos_are_said_and_cost_no_number() {
    let events = [("dot.1", "jit_f", 3, 1, 0, 10), ("dot.1", "jit_f", 3, 2, 100, 10), ("new", "jit_f", 3, 2, 110, 5)];
    let captures = synthetic(&[host(&[&events])]);
    let bare = summary_of(&captures, SummaryOptions::default());
    assert_eq!(bare.operations[0].opcode, UNKNOWN);
    assert_eq!((bare.opcodes[0].name.as_str(), bare.opcodes[0].time_ns), (UNKNOWN, 15.0));
    assert_eq!(bare.notes, ["no HLO of `jit_f(3)`: its operations are unknown; give it with `--hlo FILE`"]);
    let whole = proto("jit_f", 3, &[("dot.1", "frobnicate", "")]).0;
    for end in 0..whole.len() {
        let mut files = HloFiles::default();
        files.add("cut.hlo.pb", whole[..end].to_vec());
        let mut cut = summarize(&captures, &files, SummaryOptions::default());
        // an existing instruction has work; only the profile gives its time
        cut.modules.iter_mut().for_each(|module| module.work = None);
        assert_eq!(cut.modules, bare.modules, "cut at {end}");
        assert!(!cut.notes.is_empty(), "cut at {end}");
    }
    let mut files = HloFiles::default();
    files.add("whole.hlo.pb", whole);
    let summary = summarize(&captures, &files, SummaryOptions::default());
    assert_eq!(summary.operations[0].opcode, "frobnicate");
    assert_eq!(summary.notes, ["1 operations of `jit_f(3)` are not instructions of its HLO"]);
}

/// Compilations and transfers by the names of their events: those inside another one are not counted twice.
#[test]
fn transfers_and_compilations_by_hand() {
    let mut plane = host(&[&[("dot", "jit_f", 3, 1, 0, 10), ("dot", "jit_f", 3, 2, 1000, 1000)]]);
    let events = [
        ("backend_compile_and_load", 100, 300),
        ("PjRtCpuClient::Compile", 150, 200),
        ("$compiler.py:292 backend_compile_and_load", 90, 400),
        ("backend_compile_and_load", 1200, 100),
        ("BufferFromHostBuffer", 1500, 10),
        ("MemcpyH2D", 1600, 5),
        ("end: MemcpyH2D", 1606, 5),
    ];
    let events: Vec<Message> =
        events.iter().map(|&(name, start, length)| plane.event((name, ""), start * 1000, length * 1000, &[])).collect();
    plane.line("python", 0, &events);
    let summary = summary_of(&synthetic(&[plane]), SummaryOptions::default());
    let found = |work: &[autotune_lowered::analysis::HostWork]| -> Vec<(String, u64, f64, u64)> {
        work.iter().map(|one| (one.name.clone(), one.count, one.time_ns, one.during_execution)).collect()
    };
    assert_eq!(found(&summary.compilations), [("backend_compile_and_load".to_owned(), 2, 400.0, 1)]);
    let transfers = [("BufferFromHostBuffer".to_owned(), 1, 10.0, 1), ("MemcpyH2D".to_owned(), 1, 5.0, 1)];
    assert_eq!(found(&summary.transfers), transfers);
}

/// Executions in another order than they ran, on another thread: the earliest is the first one.
#[test]
fn the_first_execution_is_the_earliest_wherever_it_stands() {
    let plane = host(&[
        &[("b", "jit_f", 3, 3, 2000, 30), ("b", "jit_f", 3, 2, 1000, 20)],
        &[("c", "jit_f", 3, 4, 3000, 40), ("a", "jit_f", 3, 1, 0, 1000)],
    ]);
    let summary = summary_of(&synthetic(&[plane]), SummaryOptions::default());
    assert_eq!(summary.skipped.warm_up.span_ns, 1000.0);
    let times: Vec<(&str, f64)> = summary.operations.iter().map(|one| (&*one.operation, one.time_ns)).collect();
    assert_eq!(times, [("b", 50.0), ("c", 40.0)]);
}

/// Two hosts with two synthetic TPU cores each: devices are listed separately, programs and operations together.
#[test]
fn devices_and_hosts_stand_apart() {
    let capture = |name: &str, slower: i64| {
        let planes: Vec<PlaneBuilder> = (0..2)
            .map(|core| {
                let mut plane = PlaneBuilder::new(&format!("/device:TPU:{core}"));
                let length = 100_000 * (1 + core + slower);
                let run = |place: i64| {
                    let stats = [("run_id", Is::Int(place)), ("program_id", Is::Uint(77))];
                    (place * 1_000_000, stats)
                };
                let mut modules = Vec::new();
                let mut operations = Vec::new();
                for (start, stats) in [run(1), run(2), run(3)] {
                    modules.push(plane.event(("jit_step(77)", ""), start, length, &stats));
                    operations.push(plane.event(("%fusion.1 = f32[] fusion()", ""), start, length / 2, &[]));
                }
                plane.line("XLA Modules", 0, &modules);
                plane.line("XLA Ops", 0, &operations);
                plane
            })
            .collect();
        Capture::xspace(name, name, XSpace::from_bytes(space(&planes).0).unwrap())
    };
    let summary = summary_of(&[capture("one", 0), capture("two", 2)], SummaryOptions::default());
    // the second and third execution of each core, 100, 200, 300 and 400 ns, half of them busy
    let devices: Vec<(&str, &str, u64, f64, f64, f64)> = summary
        .devices
        .iter()
        .map(|one| (&*one.host, &*one.plane, one.executions, one.operations_ns, one.modules_ns, one.wall_ns))
        .collect();
    let expected = [
        ("one", "/device:TPU:0", 2, 100.0, 200.0, 1100.0),
        ("one", "/device:TPU:1", 2, 200.0, 400.0, 1200.0),
        ("two", "/device:TPU:0", 2, 300.0, 600.0, 1300.0),
        ("two", "/device:TPU:1", 2, 400.0, 800.0, 1400.0),
    ];
    assert_eq!(devices, expected);
    let module = &summary.modules[0];
    assert_eq!((summary.modules.len(), module.devices, module.executions), (1, 4, 8));
    assert_eq!((module.span_ns.mean, module.active_ns.mean, module.total_ns), (250.0, 125.0, 2000.0));
    let operation = &summary.operations[0];
    assert_eq!((operation.operation.as_str(), operation.count, operation.time_ns), ("fusion.1", 8, 1000.0));
    close(operation.share, 0.5);
}

/// Overlapping executions on a device count once in the third total.
#[test]
fn executions_that_overlap_by_hand() {
    let plane = host(&[
        &[("x", "jit_f", 3, 1, 0, 10), ("x", "jit_f", 3, 2, 1000, 100), ("x", "jit_f", 3, 4, 1300, 100)],
        &[("x", "jit_f", 3, 3, 1050, 100)],
    ]);
    let summary = summary_of(&synthetic(&[plane]), SummaryOptions::default());
    let device = &summary.devices[0];
    assert_eq!((device.modules_ns, device.wall_ns, device.idle_between_ns), (300.0, 400.0, 150.0));
    assert_eq!(device.overlap_ns, 50.0);
    assert_eq!(device.wall_ns, device.modules_ns + device.idle_between_ns - device.overlap_ns);
}

/// The work of operations is XLA's own count for their instructions, multiplied by their runs; roofs follow from it.
#[test]
fn work_is_what_xla_counts_and_roofs_follow() {
    let oracle: Value = serde_json::from_slice(&std::fs::read(sample("../hlo/cost/oracle.json")).unwrap()).unwrap();
    let peaks = Peaks::named("cuda:h100_sxm").unwrap();
    let options = SummaryOptions::default().peaks(Some(&peaks));
    let summary = summary_of(&captured("tf2_step"), options);
    let (mut with_work, mut of_labels) = (0, BTreeMap::<String, [f64; 2]>::new());
    for operation in &summary.operations {
        let program = format!("tf2_step: {}({})", operation.module, operation.program_id.unwrap());
        let counts = &oracle["modules"][&program]["instructions"][&operation.operation];
        let is_control = ["while", "conditional", "call"].contains(&&*operation.opcode);
        let Some(work) = &operation.work else {
            assert!(is_control || counts[0] == -1.0, "{}: {counts}", operation.operation);
            continue;
        };
        let runs = operation.count as f64;
        let expected: Vec<f64> = (0..3).map(|at| counts[at].as_f64().unwrap() * runs).collect();
        for (found, expected) in [work.flops, work.transcendentals, work.bytes].into_iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-6 * expected, "{}: {work:?} {expected:?}", operation.operation);
        }
        let roof = work.roofline.unwrap();
        // memory at 3352.32 GB/s is the minimum; nothing here computes that much at an H100's slowest peak, 33.5
        // TFLOP/s
        assert!(roof.least_ns >= expected[2] / 3352.32 * 0.999_999, "{roof:?}");
        assert!(roof.least_ns <= (expected[2] / 3352.32).max(expected[0] / 33.5e3) * 1.000_001, "{roof:?}");
        close(roof.share, roof.least_ns / operation.time_ns);
        if let Some(label) = &operation.label {
            let of_label = of_labels.entry(label.to_string()).or_default();
            *of_label = [of_label[0] + expected[0], of_label[1] + operation.time_ns];
        }
        with_work += 1;
    }
    assert!(with_work > 150 && of_labels.len() >= 3, "{with_work} {of_labels:?}");
    for (name, [flops, time_ns]) in of_labels {
        let label = summary.labels.iter().find(|one| one.label.to_string() == name).unwrap();
        let work = label.work.as_ref().unwrap();
        assert!((work.flops - flops).abs() <= 1e-6 * flops, "{name}");
        close(work.time_ns, time_ns);
    }
    // without peaks there is work, but no roof: the capture is a CPU's
    let summary = summary_of(&captured("tf2_step"), SummaryOptions::default());
    assert!(summary.peaks.is_none() && summary.modules[0].work.as_ref().unwrap().roofline.is_none());
}

/// Without HLO the events' own names serve: by hand, a kernel on defaults and one that is not.
#[test]
fn kernels_that_name_themselves_have_their_share_in_the_summary_and_on_the_page() {
    let mut plane = PlaneBuilder::new("/device:TPU:0");
    let (mut modules, mut operations) = (Vec::new(), Vec::new());
    for place in 1..=2 {
        let start = place * 1_000_000;
        let stats = [("run_id", Is::Int(place)), ("program_id", Is::Uint(77))];
        modules.push(plane.event(("jit_step(77)", ""), start, 400_000, &stats));
        for (name, offset, length) in [
            ("quantized_matmul_kernel_128_128_128.3", 0, 164_000),
            ("RPAd-p_64-bq_8_8-bkv_512_256.1", 164_000, 36_000),
            ("fusion.1", 200_000, 200_000),
        ] {
            let text = format!("%{name} = f32[8]{{0}} custom-call(), custom_call_target=\"tpu_custom_call\"");
            let text = if name.starts_with("fusion") { "%fusion.1 = f32[] fusion()".to_owned() } else { text };
            operations.push(plane.event((&text, ""), start + offset, length, &[]));
        }
    }
    plane.line("XLA Modules", 0, &modules);
    plane.line("XLA Ops", 0, &operations);
    let bytes = space(&[plane]).0;
    let captures = vec![Capture::xspace("synthetic", "host", XSpace::from_bytes(bytes.clone()).unwrap())];
    let summary = summary_of(&captures, SummaryOptions::default());
    let found: Vec<(&str, f64, Option<bool>)> = summary
        .known_kernels
        .iter()
        .map(|one| (one.kernel.operation.as_str(), one.share, one.kernel.on_defaults))
        .collect();
    assert_eq!(found[0], ("quantized_matmul", 0.41, Some(true)));
    assert_eq!((found.len(), found[1].0, found[1].1), (2, "ragged_paged_attention_v3", 0.09));
    let note = "1 kernel runs on the defaults of its project, 41.0 % of the time: quantized_matmul";
    assert!(summary.notes.iter().any(|one| one == note), "{:?}", summary.notes);
    let place = crate::support::program::Place::new();
    let capture = place.path("kernels.xplane.pb");
    std::fs::write(&capture, bytes).unwrap();
    let page = place.text("page.html");
    let run = place.run(&["profile", "view", &capture.display().to_string(), "-o", &page]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let page = std::fs::read_to_string(page).unwrap();
    for words in ["Kernels without labels", "quantized_matmul", "(defaults)", "bkv=512 bkv_compute=256"] {
        assert!(page.contains(words), "{words}");
    }
}
