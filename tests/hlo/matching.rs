//! Labels against a registry: every kind of match and miss, with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use autotune_lowered::array::{ArraySpec, Fill};
use autotune_lowered::batch::{BatchAxis, variant_of};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::config::Config;
use autotune_lowered::device::{DeviceIdentity, MatchMode};
use autotune_lowered::hlo::{CallSite, FoundLabel, ModuleForm, Scan};
use autotune_lowered::hlo::{Evidence, Label};
use autotune_lowered::matching::{ByName, MatchBasis, MissReason, match_labels};
use autotune_lowered::registry::{Argument, Candidate, Invocation, RecordedTarget, Registry};

fn cpu(model: &str) -> DeviceIdentity {
    let hardware = BTreeMap::from([("cpu_model".to_owned(), model.to_owned())]);
    DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware }
}

fn argument(name: String, spec: &str) -> Argument {
    Argument::new(name, spec.parse().unwrap(), Fill::Normal { scale: 1.0 })
}

fn invocation(op_id: &str, key: &str, direction: Direction, target: RecordedTarget, specs: &[&str]) -> Invocation {
    let config: Config = serde_json::from_str(r#"{"block":1}"#).unwrap();
    let mut arguments: Vec<Argument> =
        specs.iter().enumerate().map(|(index, spec)| argument(format!("x{index}"), spec)).collect();
    if direction == Direction::ForwardVjp {
        arguments.push(argument("output_cotangent".into(), "f32[77]"));
    }
    Invocation::new(target, Call::new(op_id, key), config.clone())
        .direction(direction)
        .arguments(arguments)
        .candidates(vec![Candidate::new(config).not_lowered(Some("a test".into()))])
        .recorded_at(7)
        .recorder("a test".into())
}

fn registry(invocations: &[Invocation]) -> (tempfile::TempDir, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::create_or_open(folder.path()).unwrap();
    for invocation in invocations {
        registry.add(invocation).unwrap();
    }
    (folder, registry)
}

fn label(op_id: &str, key: Option<&str>, evidence: Evidence) -> FoundLabel {
    let mut label = FoundLabel::new(Label::new(op_id, key.map(str::to_owned)), "ejkernel-hash");
    label.evidence = evidence;
    label
}

fn at_site(mut label: FoundLabel, operands: &[&str]) -> FoundLabel {
    let operands: Vec<ArraySpec> = operands.iter().map(|spec| spec.parse().unwrap()).collect();
    label.add_call_site(CallSite::new("call", operands));
    label
}

fn scan(labels: Vec<FoundLabel>) -> Scan {
    Scan::new(ModuleForm::HloText, labels)
}

fn platform() -> RecordedTarget {
    RecordedTarget::Platform("cpu".into())
}

#[test]
fn each_evidence_finds_its_invocation_and_each_is_tuned_once() {
    let (_folder, registry) = registry(&[
        invocation("op@v1", "k1", Direction::Forward, platform(), &["f32[4]"]),
        invocation("op@v2", "k1", Direction::Forward, platform(), &["f32[4]"]),
        invocation("mine", "any text", Direction::Forward, platform(), &["f32[4]"]),
    ]);
    let labels = vec![
        label("op@v1", Some("k1"), Evidence::Exact),
        label("op", Some("k1"), Evidence::Recomputed),
        label("mine", Some("any text"), Evidence::Exact),
        label("op", None, Evidence::ByName),
    ];
    let found = match_labels(&scan(labels), &registry, &cpu("A"), MatchMode::Exact, ByName::Few);
    assert_eq!(found.missed, []);
    let shown: Vec<_> = found
        .matched
        .iter()
        .map(|m| {
            (
                m.invocation.call.op_id.as_str(),
                m.labels.iter().map(|l| (l.index, l.how.to_string())).collect::<Vec<_>>(),
            )
        })
        .collect();
    let by_name = || "by name, of 2 recorded".to_owned();
    // a recomputed label has lost its version: the newest recorded version is used
    assert_eq!(
        shown,
        [
            ("op@v1", vec![(0, "exact".to_owned()), (3, by_name())]),
            ("op@v2", vec![(1, "recomputed".to_owned()), (3, by_name())]),
            ("mine", vec![(2, "exact".to_owned())]),
        ]
    );
}

#[test]
fn each_miss_has_its_reason() {
    let here = cpu("A");
    let (_folder, registry) = registry(&[
        invocation("op@v1", "k1", Direction::Forward, RecordedTarget::Device(cpu("B")), &["f32[4]"]),
        invocation("op@v2", "k2", Direction::Forward, platform(), &["f32[4]"]),
        invocation("far@v1", "k3", Direction::Forward, RecordedTarget::Platform("cuda".into()), &["f32[4]"]),
    ]);
    let labels = vec![
        label("unknown@v1", Some("k1"), Evidence::Exact),
        label("op@v2", Some("k9"), Evidence::Exact),
        label("op@v3", Some("k2"), Evidence::Exact),
        label("op@v1", Some("k1"), Evidence::Exact),
        label("far", None, Evidence::ByName),
    ];
    let scan = scan(labels);
    let found = match_labels(&scan, &registry, &here, MatchMode::Exact, ByName::Few);
    assert_eq!(found.matched, []);
    let reasons: Vec<_> = found.missed.iter().map(|missed| (missed.index, missed.reason)).collect();
    let expected = [
        MissReason::NotRecorded,
        MissReason::OtherKey,
        MissReason::OtherVersion,
        MissReason::OtherDevice,
        MissReason::OtherDevice,
    ];
    assert_eq!(reasons, expected.into_iter().enumerate().collect::<Vec<_>>());
    for (missed, part) in found.missed.iter().zip(["`far@v1`", "`k2`", "`op@v2`", "cpu_model=B", "`cuda`"]) {
        assert!(missed.text.contains(part), "{} in {}", part, missed.text);
        assert!(!missed.text.contains('\n'));
    }

    // the same recordings, in a mode that accepts them, flagged
    let found = match_labels(&scan, &registry, &here, MatchMode::Kind, ByName::Few);
    let flags: Vec<_> = found.matched.iter().map(|matched| matched.flags.clone()).collect();
    assert_eq!(flags, [["other hardware: cpu:cpu (cpu_model=B)"]]);
    let found = match_labels(&scan, &registry, &here, MatchMode::Any, ByName::Few);
    assert_eq!(found.matched.len(), 2);
    assert_eq!(found.matched[1].flags, ["recorded for the platform `cuda`"]);
}

#[test]
fn shapes_at_call_sites_narrow_a_name_unless_the_module_is_partitioned() {
    let (_folder, registry) = registry(&[
        invocation("op@v1", "a", Direction::ForwardVjp, platform(), &["f32[4]", "f32[4]", "s32[2]"]),
        invocation("op@v1", "b", Direction::Forward, platform(), &["f32[8]", "s32[2]"]),
        invocation("op@v1", "c", Direction::Forward, platform(), &["f32[4]", "f32[8]", "f32[16]"]),
    ]);
    let keys = |scan: &Scan| -> Vec<String> {
        let found = match_labels(scan, &registry, &cpu("A"), MatchMode::Exact, ByName::Few);
        found.matched.iter().map(|matched| matched.invocation.call.call_key.clone()).collect()
    };
    let cut = || label("op", None, Evidence::ByName);
    // the operands of `c` are there, but not at one call site
    let mut module = scan(vec![at_site(at_site(cut(), &["s32[2]", "f32[4]", "f32[9]"]), &["f32[16]", "f32[8]"])]);
    assert_eq!(keys(&module), ["a"]);
    module.partitioned = Some(true);
    assert_eq!(keys(&module), ["a", "b", "c"]);
    module.partitioned = Some(false);
    assert_eq!(keys(&module), ["a"]);

    let inner = scan(vec![at_site(cut(), &["f32[1]"])]);
    let found = match_labels(&inner, &registry, &cpu("A"), MatchMode::Exact, ByName::Few);
    assert_eq!(found.matched.len(), 3, "call sites that fit nothing say nothing");
    assert_eq!(found.matched[0].labels[0].how, MatchBasis::ByName { of: 3, by_shapes: false });
    assert!(found.matched[0].flags.iter().any(|flag| flag.contains("no call site")));
}

#[test]
fn more_than_eight_by_name_stop_with_the_list() {
    let many: Vec<_> =
        (0..9).map(|n| invocation("op@v1", &format!("k{n}"), Direction::Forward, platform(), &["f32[4]"])).collect();
    let cut = scan(vec![label("op", None, Evidence::ByName)]);
    let (_folder, eight) = registry(&many[..8]);
    assert_eq!(match_labels(&cut, &eight, &cpu("A"), MatchMode::Exact, ByName::Few).matched.len(), 8);
    let (_folder, nine) = registry(&many);
    let found = match_labels(&cut, &nine, &cpu("A"), MatchMode::Exact, ByName::Few);
    assert_eq!((found.matched.len(), found.missed.len()), (0, 1));
    assert_eq!(found.missed[0].reason, MissReason::TooMany);
    assert!((0..9).all(|n| found.missed[0].text.contains(&format!("`op@v1:k{n}`"))), "{}", found.missed[0].text);
    assert!(found.missed[0].text.contains("--by-name all"));
    assert_eq!(match_labels(&cut, &nine, &cpu("A"), MatchMode::Exact, ByName::All).matched.len(), 9);
}

#[test]
fn direction_follows_the_label() {
    let both = [
        invocation("op@v1", "k", Direction::Forward, platform(), &["f32[4]"]),
        invocation("op@v1", "k", Direction::ForwardVjp, platform(), &["f32[4]"]),
    ];
    let forward = label("op@v1", Some("k"), Evidence::Exact);
    let mut backward = forward.clone();
    backward.backward = true;
    let matched = |recorded: &[Invocation], label: &FoundLabel| {
        let (_folder, registry) = registry(recorded);
        let module = scan(vec![label.clone()]);
        let found = match_labels(&module, &registry, &cpu("A"), MatchMode::Exact, ByName::Few);
        (found.matched[0].invocation.direction, found.matched[0].flags.join(" "))
    };
    assert_eq!(matched(&both, &forward), (Direction::Forward, String::new()));
    assert_eq!(matched(&both, &backward), (Direction::ForwardVjp, String::new()));
    let (direction, flags) = matched(&both[..1], &backward);
    assert!(direction == Direction::Forward && flags.contains("backward not exercised"), "{flags}");
    let (direction, flags) = matched(&both[1..], &forward);
    assert!(direction == Direction::ForwardVjp && flags.contains("measured with its backward pass"), "{flags}");
}

#[test]
fn the_devices_own_recording_comes_before_its_platforms() {
    let own = invocation("op@v1", "k", Direction::Forward, RecordedTarget::Device(cpu("A")), &["f32[4]"]);
    let mut general = invocation("op@v1", "k", Direction::Forward, platform(), &["f32[4]"]);
    general.recorded_at = 99;
    let (_folder, registry) = registry(&[own.clone(), general.clone()]);
    let module = scan(vec![label("op@v1", Some("k"), Evidence::Exact)]);
    let target = |model: &str| {
        let found = match_labels(&module, &registry, &cpu(model), MatchMode::Exact, ByName::Few);
        assert_eq!(found.matched.len(), 1);
        found.matched[0].invocation.target.clone()
    };
    assert_eq!(target("A"), own.target);
    assert_eq!(target("B"), general.target);
}

#[test]
fn a_label_stands_for_its_own_batch_or_where_it_names_none_for_all() {
    let mapped = |key: &str, size: u64| {
        let batch = vec![BatchAxis { axes: BTreeMap::from([("x0".to_owned(), 0)]), size }];
        let spec = format!("f32[{size},4]");
        let plain = invocation("op@v1", key, Direction::Forward, platform(), &[&spec]);
        let call = Call::new(&plain.call.op_id, format!("{key}~{}", variant_of(&batch).unwrap()));
        Invocation::new(plain.target, call, plain.baseline)
            .batch(batch)
            .arguments(plain.arguments)
            .candidates(plain.candidates)
    };
    let (four, eight, alone) = (mapped("k1", 4), mapped("k1", 8), mapped("k2", 4));
    let (_folder, registry) = registry(&[
        invocation("op@v1", "k1", Direction::Forward, platform(), &["f32[4]"]),
        four.clone(),
        eight.clone(),
        alone.clone(),
        invocation("op@v1", "k3", Direction::Forward, platform(), &["f32[4]"]),
    ]);
    let found = |label: FoundLabel| {
        let found = match_labels(&scan(vec![label]), &registry, &cpu("A"), MatchMode::Exact, ByName::Few);
        assert_eq!(found.missed, []);
        let shown = found.matched.iter().map(|m| (m.invocation.call.call_key.clone(), m.flags.join("; ")));
        shown.collect::<Vec<_>>()
    };
    let exact = |key: &str| label("op@v1", Some(key), Evidence::Exact);
    let under_vmap = |key: &str| {
        let mut label = exact(key);
        label.mapped = true;
        label
    };
    let unflagged = |key: &str| (key.to_owned(), String::new());
    // ejkernel's labels do not state the `vmap`: every recorded one is tuned
    let all = [unflagged("k1"), unflagged(&eight.call.call_key), unflagged(&four.call.call_key)];
    assert_eq!(found(exact("k1")), all);
    assert_eq!(found(under_vmap("k1")), all);
    // those of tunable functions state theirs
    assert_eq!(found(under_vmap(&four.call.call_key)), [unflagged(&four.call.call_key)]);
    // recordings for another batch only are flagged
    let other = |key: &str, text: &str| [(key.to_owned(), format!("other batch: recorded {text}"))];
    let nine = format!("{}~9-00000000", "k1");
    assert_eq!(found(under_vmap(&nine)), other("k1", "unmapped, the module runs it under `vmap` of 9"));
    assert_eq!(found(under_vmap("k2")), [unflagged(&alone.call.call_key)]);
    assert_eq!(
        found(exact("k2")),
        other(&alone.call.call_key, "under `vmap` of 4, the module has no `vmap` around it")
    );
    assert_eq!(found(under_vmap("k3")), other("k3", "unmapped, the module runs it under `vmap`; record it again"));
}
