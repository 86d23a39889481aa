//! Merging caches: the laws, the order by which one entry of a call wins, and the files of a merge.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::folder::in_memory;
use autotune_lowered::cache::{CacheKey, Cached, Entry, EntryChange, Mapping, Snapshot, diff, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::exchange::{export_json, import_json};
use autotune_lowered::merge::{MAX_DECISIONS, merge};
use proptest::prelude::*;
use serde_json::{Value, json};

type Entries = Vec<(CacheKey, Arc<Entry>)>;

fn key(call: &str, device: u8) -> CacheKey {
    let hardware = BTreeMap::from([("sm_count".to_owned(), device.to_string())]);
    let device = DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware };
    CacheKey { call: Call::new("op@v1", call), direction: Direction::Forward, device }
}

/// The properties that distinguish decisions. All others are equal.
#[derive(Debug, Clone)]
struct Decision {
    config: u8,
    driver: &'static str,
    source: &'static str,
    baseline: u8,
    metric: &'static str,
    low: f64,
    high: f64,
    rounds: u32,
    at: u64,
}

/// A decision from which the others of a test differ in one respect.
const PLAIN: Decision = Decision {
    config: 1,
    driver: "570",
    source: "device-profile",
    baseline: 0,
    metric: "busy",
    low: 0.80,
    high: 0.90,
    rounds: 10,
    at: 1000,
};

impl Decision {
    fn provenance(&self) -> Value {
        json!({
            "job": "00".repeat(32), "timer": "pjrt", "source": self.source, "metric": self.metric,
            "environment": {"platform_version": "cuda 12090", "driver": self.driver},
            "baseline": {"block": self.baseline}, "baseline_ns": 100.5, "best_ns": 85.25, "ratio": 0.85,
            "interval": {"low": self.low, "high": self.high, "confidence": 0.95}, "rounds": self.rounds,
            "measured": 3, "failed": 0, "tie_set": [{"block": self.config}], "tool": "a test", "decided_at": self.at,
        })
    }

    fn entry(&self) -> Arc<Entry> {
        entry(json!({"config": {"block": self.config}, "provenance": self.provenance()}))
    }
}

fn entry(value: Value) -> Arc<Entry> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn by_hand(block: u8) -> Arc<Entry> {
    entry(json!({"config": {"block": block}}))
}

/// One cache for each entry, all of one call.
fn caches(entries: &[Arc<Entry>]) -> Vec<Cached> {
    entries.iter().map(|entry| Cached::Entries(vec![(key("k", 1), Arc::clone(entry))])).collect()
}

/// The merged entry of one call, which must not depend on the order.
fn merged(entries: &[Arc<Entry>]) -> Arc<Entry> {
    let mut caches = caches(entries);
    let one = merge(&caches).unwrap().to_entries().unwrap();
    caches.reverse();
    assert_eq!(merge(&caches).unwrap().to_entries().unwrap(), one);
    let [(_, entry)] = &one[..] else { panic!("{one:?}") };
    Arc::clone(entry)
}

fn block(entry: &Entry) -> u64 {
    entry.config.get("block").and_then(Value::as_u64).unwrap()
}

fn superseded(entry: &Entry) -> Vec<u64> {
    entry.superseded.iter().map(|one| one.config.get("block").and_then(Value::as_u64).unwrap()).collect()
}

#[test]
fn each_rule_of_the_order_decides_where_those_before_it_do_not() {
    let cases = [
        // one has other software and is better in everything else; but the other decision is the latest
        (
            "environment",
            Decision { driver: "580", at: 1001, source: "host-wall", rounds: 6, low: 0.5, high: 0.99, ..PLAIN },
            Decision { source: "device-profile", rounds: 99, low: 0.10, high: 0.11, ..PLAIN },
        ),
        (
            "clock, of a profile",
            PLAIN,
            Decision { source: "host-wall", at: 2000, rounds: 99, low: 0.10, high: 0.11, ..PLAIN },
        ),
        (
            "clock, of the host",
            Decision { source: "host-wall", ..PLAIN },
            Decision { source: "sundial", at: 2000, rounds: 99, low: 0.10, high: 0.11, ..PLAIN },
        ),
        (
            "question: to another baseline a ratio says nothing",
            Decision { baseline: 7, at: 1001, rounds: 6, low: 0.5, high: 0.99, ..PLAIN },
            Decision { rounds: 99, low: 0.10, high: 0.11, ..PLAIN },
        ),
        (
            "question: nor does another metric",
            Decision { metric: "span", at: 1001, rounds: 6, low: 0.5, high: 0.99, ..PLAIN },
            Decision { rounds: 99, low: 0.10, high: 0.11, ..PLAIN },
        ),
        (
            "proven gain, not the hoped-for one",
            Decision { low: 0.84, high: 0.85, ..PLAIN },
            Decision { low: 0.10, high: 0.86, at: 2000, rounds: 99, ..PLAIN },
        ),
        ("rounds", Decision { rounds: 11, ..PLAIN }, Decision { low: 0.89, at: 2000, ..PLAIN }),
        ("interval", Decision { low: 0.85, ..PLAIN }, Decision { at: 2000, ..PLAIN }),
        ("later", Decision { at: 1001, ..PLAIN }, PLAIN),
    ];
    for (rule, winner, loser) in cases {
        let (winner, loser) = (Decision { config: 1, ..winner }, Decision { config: 2, ..loser });
        let entry = merged(&[winner.entry(), loser.entry()]);
        assert_eq!((block(&entry), superseded(&entry)), (1, vec![2]), "{rule}");
        assert_eq!(entry.provenance, winner.entry().provenance, "{rule}");
        assert_eq!(Some(&entry.superseded[0].provenance), loser.entry().provenance.as_ref(), "{rule}");
    }
    // equal except for the config: the text that sorts first wins
    let tie = merged(&[Decision { config: 2, ..PLAIN }.entry(), Decision { config: 1, ..PLAIN }.entry()]);
    assert_eq!((block(&tie), superseded(&tie)), (1, vec![2]));
}

#[test]
fn what_says_nothing_of_itself_gives_way_and_is_not_kept() {
    let tuned = merged(&[by_hand(1), Decision { config: 2, at: 0, source: "replay", ..PLAIN }.entry()]);
    assert_eq!((block(&tuned), tuned.superseded.len()), (2, 0));
    // whatever the software: it may never have run
    let later =
        Decision { config: 3, driver: "580", source: "replay", at: 2000, rounds: 99, low: 0.1, high: 0.11, ..PLAIN };
    let measured = Decision { config: 4, source: "sundial", at: 1, ..PLAIN };
    let of_both = merged(&[later.entry(), measured.entry()]);
    assert_eq!((block(&of_both), of_both.superseded.len()), (4, 0));
    assert_eq!(merged(&[by_hand(2), by_hand(1)]), by_hand(1));
    let record = json!({"place": 0, "key": "k", "value": "v"});
    let imported = entry(json!({"config": {"block": 9}, "peer": {"format": "tokamax", "records": [record]}}));
    assert_eq!(merged(&[by_hand(1), Arc::clone(&imported)]), imported);
}

#[test]
fn software_that_is_gone_never_stays_in_force() {
    // 570 had the better result; 580 is rolled out, then rolled back
    let old = Decision { config: 1, low: 0.5, high: 0.51, rounds: 500, at: 100, ..PLAIN };
    let new = Decision { config: 2, driver: "580", at: 200, ..PLAIN };
    let rolled_out = merged(&[old.entry(), new.entry()]);
    assert_eq!(block(&rolled_out), 2);
    let again = Decision { config: 3, at: 300, ..PLAIN };
    let rolled_back = merged(&[rolled_out, again.entry()]);
    // the latest software is 570 again, and its best proven decision is the first
    assert_eq!((block(&rolled_back), superseded(&rolled_back)), (1, vec![3, 2]));
    // it is dropped eventually, however good it was
    let mut entry = rolled_back;
    for at in 400..404 {
        entry = merged(&[entry, Decision { config: 4, at, ..PLAIN }.entry()]);
    }
    assert_eq!((block(&entry), superseded(&entry)), (4, vec![4, 4, 4]));
    assert_eq!(entry.provenance.as_ref().unwrap().decided_at, 403, "the latest of equal ones");
}

#[test]
fn an_environment_is_what_a_look_up_compares() {
    // the plugin's name and the note about XLA's autotuning follow from the rest
    let mut better = Decision { config: 1, low: 0.5, high: 0.6, ..PLAIN }.provenance();
    better["environment"]["plugin"] = json!("other_name.so");
    let better = entry(json!({"config": {"block": 1}, "provenance": better}));
    let later = Decision { config: 2, at: 5000, ..PLAIN }.entry();
    assert_eq!(block(&merged(&[Arc::clone(&better), later])), 1);
    let mut flags = Decision { config: 3, at: 5000, ..PLAIN }.provenance();
    flags["environment"]["xla_flags"] = json!(["--xla_a"]);
    assert_eq!(block(&merged(&[better, entry(json!({"config": {"block": 3}, "provenance": flags}))])), 3);
}

#[test]
fn the_number_of_decisions_is_bounded_by_the_latest() {
    let decisions: Vec<_> = (0..20).map(|n| Decision { config: n, at: 1000 + u64::from(n), ..PLAIN }.entry()).collect();
    let entry = merged(&decisions);
    assert_eq!(entry.superseded.len() + 1, MAX_DECISIONS);
    assert_eq!((block(&entry), superseded(&entry)), (19, vec![18, 17, 16]));
}

fn decision() -> impl Strategy<Value = Decision> {
    let texts = (
        prop::sample::select(vec!["570", "580"]),
        prop::sample::select(vec!["device-profile", "host-wall", "replay"]),
        prop::sample::select(vec!["busy", "span"]),
    );
    (texts, 0..3_u8, 0..2_u8, 0..6_u64, 6..9_u32, 0..3_u8).prop_map(
        |((driver, source, metric), config, baseline, at, rounds, high)| Decision {
            config,
            driver,
            source,
            baseline,
            metric,
            low: 0.5,
            high: 0.7 + 0.1 * f64::from(high),
            rounds,
            at,
        },
    )
}

/// Any entry that a file may contain: no provenance, another tool's record, decisions in any order and more than are
/// kept.
fn any_entry() -> impl Strategy<Value = Arc<Entry>> {
    let others = prop::collection::vec(decision(), 0..6);
    (prop::option::weighted(0.8, decision()), prop::option::weighted(0.2, 0..2_u8), others).prop_map(
        |(own, peer, others)| {
            let mut value = match own {
                Some(own) => json!({"config": {"block": own.config}, "provenance": own.provenance()}),
                None => json!({"config": {"block": 0}}),
            };
            if let Some(peer) = peer {
                value["peer"] = json!({"format": "tokamax", "records": [{"place": peer, "key": "k", "value": "v"}]});
            }
            let superseded = |one: &Decision| json!({"config": {"block": one.config}, "provenance": one.provenance()});
            if !others.is_empty() {
                value["superseded"] = others.iter().map(superseded).collect();
            }
            Arc::new(serde_json::from_value(value).unwrap())
        },
    )
}

fn any_cache() -> impl Strategy<Value = Entries> {
    let call = (prop::sample::select(vec!["a", "b", "c"]), 0..2_u8).prop_map(|(call, device)| key(call, device));
    prop::collection::btree_map(call, any_entry(), 0..5).prop_map(|map| map.into_iter().collect())
}

/// The caches' entries together.
fn together(caches: &[&Entries]) -> Entries {
    let caches: Vec<Cached> = caches.iter().map(|entries| Cached::Entries(Entries::clone(entries))).collect();
    merge(&caches).unwrap().to_entries().unwrap()
}

/// The kinds of files with entries.
const KINDS: [&str; 3] = ["snapshot", "json", "jsonl"];

/// Writes the same entries to a file of each kind.
fn write_files(folder: &Path, name: &str, entries: &Entries) {
    let path = |extension: &str| folder.join(format!("{name}.{extension}"));
    write_snapshot(&path("snapshot"), entries).unwrap();
    export_json(&path("json"), entries).unwrap();
    export_json(&path("jsonl"), entries).unwrap();
}

fn read_file(folder: &Path, name: &str, kind: &str) -> Cached {
    let path = folder.join(format!("{name}.{kind}"));
    match kind {
        "snapshot" => Cached::of_snapshot(Snapshot::open(&path, Mapping::WhereLocal).unwrap()),
        _ => Cached::Entries(import_json(&path).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn order_grouping_and_repetition_do_not_matter(a in any_cache(), b in any_cache(), c in any_cache()) {
        let all = together(&[&a, &b, &c]);
        prop_assert_eq!(&together(&[&c, &a, &b]), &all);
        prop_assert_eq!(&together(&[&b, &a, &c]), &all);
        prop_assert_eq!(&together(&[&together(&[&a, &b]), &c]), &all);
        prop_assert_eq!(&together(&[&a, &together(&[&b, &c])]), &all);
        prop_assert_eq!(&together(&[&a, &b, &a, &c, &c]), &all);
        prop_assert_eq!(&together(&[&all, &all]), &all);
        prop_assert_eq!(&together(&[&all, &b]), &all);
        prop_assert_eq!(&together(&[&a]), &a);
    }
}

proptest! {
    // each case writes and syncs some files
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_kind_of_a_file_does_not_matter(a in any_cache(), b in any_cache()) {
        let folder = in_memory();
        let (folder, out) = (folder.path(), folder.path().join("out.snapshot"));
        write_files(folder, "a", &a);
        write_files(folder, "b", &b);
        let expected = together(&[&a, &b]);
        let mut bytes = Vec::new();
        for of_a in KINDS {
            for of_b in KINDS {
                let mut pair = [read_file(folder, "a", of_a), read_file(folder, "b", of_b)];
                for _ in 0..2 {
                    pair.reverse();
                    let merged = merge(&pair).unwrap();
                    prop_assert_eq!(&merged.to_entries().unwrap(), &expected);
                    merged.write_snapshot(&out).unwrap();
                    bytes.push(fs::read(&out).unwrap());
                }
            }
        }
        prop_assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]));
        let snapshot = Snapshot::open(&out, Mapping::WhereLocal).unwrap();
        snapshot.verify().unwrap();
        prop_assert_eq!(Cached::of_snapshot(snapshot).to_entries().unwrap(), expected);
    }
}

/// A parameter may have the name of the member that holds superseded decisions.
#[test]
fn a_parameter_of_that_name_is_no_superseded_decision() {
    let mut named = PLAIN.provenance();
    named["baseline"] = json!({"superseded": []});
    let decisions = |named: &Value| -> Vec<Arc<Entry>> {
        let at = |at: u64| {
            let mut provenance = named.clone();
            provenance["decided_at"] = json!(at);
            entry(json!({"config": {"block": at, "superseded": []}, "provenance": provenance}))
        };
        (1..=6).map(at).collect()
    };
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    for provenance in [named, PLAIN.provenance()] {
        let entry = merged(&decisions(&provenance));
        assert_eq!((block(&entry), superseded(&entry)), (6, vec![5, 4, 3]));
        // the same with files
        let caches: Vec<Cached> = decisions(&provenance)
            .into_iter()
            .map(|entry| {
                let _ = fs::remove_file(&path);
                write_snapshot(&path, &[(key("k", 1), entry)]).unwrap();
                Cached::of_snapshot(Snapshot::open(&path, Mapping::Never).unwrap())
            })
            .collect();
        assert_eq!(merge(&caches).unwrap().to_entries().unwrap(), [(key("k", 1), entry)]);
    }
}

/// An exported cache keeps its form: reading and writing it again gives the same bytes.
#[test]
fn entries_as_json_keep_their_form() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cache");
    let folder = in_memory();
    let out = folder.path().join("out.snapshot");
    for (name, superseding) in [("plain.jsonl", 0), ("superseding.jsonl", 2)] {
        let said = import_json(&data.join(name)).unwrap();
        assert_eq!(said.iter().filter(|(_, entry)| !entry.superseded.is_empty()).count(), superseding);
        merge(&[Cached::Entries(said.clone())]).unwrap().write_snapshot(&out).unwrap();
        let new = Snapshot::open(&out, Mapping::WhereLocal).unwrap();
        new.verify().unwrap();
        assert_eq!(Cached::of_snapshot(new).to_entries().unwrap(), said);
        let again = folder.path().join("again.jsonl");
        export_json(&again, &said).unwrap();
        if superseding > 0 {
            assert_eq!(fs::read_to_string(&again).unwrap(), fs::read_to_string(data.join(name)).unwrap());
        }
    }
}

#[test]
fn a_damaged_record_is_named_and_not_merged() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    write_snapshot(&path, &[(key("k", 1), PLAIN.entry())]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"\"block\"").unwrap();
    bytes[at + 1] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let caches = [
        Cached::Entries(vec![(key("k", 1), PLAIN.entry())]),
        Cached::of_snapshot(Snapshot::open(&path, Mapping::WhereLocal).unwrap()),
    ];
    let message = merge(&caches).unwrap_err().to_string();
    assert!(message.contains("a.snapshot") && message.contains("record at byte"), "{message}");
    assert!(diff(&caches[0], &caches[1]).is_err());
}

#[test]
fn a_diff_says_what_changed() {
    let before: Entries = vec![
        (key("config", 1), PLAIN.entry()),
        (key("evidence", 1), PLAIN.entry()),
        (key("removed", 1), PLAIN.entry()),
        (key("same", 1), PLAIN.entry()),
    ];
    let after: Entries = vec![
        (key("added", 1), PLAIN.entry()),
        (key("config", 1), Decision { config: 2, ..PLAIN }.entry()),
        (key("evidence", 1), Decision { rounds: 11, ..PLAIN }.entry()),
        (key("same", 1), PLAIN.entry()),
        (key("same", 2), PLAIN.entry()),
    ];
    let found = diff(&Cached::Entries(before.clone()), &Cached::Entries(after.clone())).unwrap();
    let told: Vec<_> = found.differences.iter().map(|one| (one.key.call.call_key.as_str(), one.change())).collect();
    assert_eq!(
        told,
        [
            ("added", EntryChange::Added),
            ("config", EntryChange::Config),
            ("evidence", EntryChange::Evidence),
            ("removed", EntryChange::Removed),
            ("same", EntryChange::Added),
        ]
    );
    assert_eq!(found.same, 1);
    let none = diff(&Cached::Entries(after.clone()), &Cached::Entries(after)).unwrap();
    assert_eq!((none.differences.len(), none.same), (0, 5));
}
