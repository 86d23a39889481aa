//! The tiers together: order, promotion, overlays, which entry applies, and the reason of a miss.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::folder::in_memory;
use crate::support::scripted::{config, device};
use autotune_lowered::cache::{
    CacheKey, ConfigStore, Entry, FlagKind, Hit, JsonForm, Lookup, Mapping, MemoryStore, MissReason, ShippedConfigs,
    Snapshot, SnapshotStore, Tier, TieredCache, write_snapshot,
};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, MatchMode};
use autotune_lowered::sled_store::SledStore;
use autotune_lowered::tune::AutotuningResult;

fn key(device: &DeviceFingerprint, direction: Direction) -> CacheKey {
    CacheKey { call: Call::new("op@v1", "k"), direction, device: device.identity.clone() }
}

fn entry(block: u64) -> Arc<Entry> {
    Arc::new(Entry::new(config(block)))
}

fn look(cache: &TieredCache, mode: MatchMode) -> Result<Hit<'static>, MissReason> {
    cache.lookup(&device(), "op@v1", "k", None, mode).unwrap().found().unwrap()
}

fn hit(cache: &TieredCache, mode: MatchMode) -> Hit<'static> {
    look(cache, mode).unwrap_or_else(|reason| panic!("{reason}"))
}

#[test]
fn a_hit_below_is_promoted_and_an_overlay_hides_it_until_it_is_dropped() {
    let folder = in_memory();
    let (sled, _) = SledStore::open(folder.path(), false).unwrap();
    sled.put(&key(&device(), Direction::Forward), &entry(1)).unwrap();
    let cache = TieredCache::new(vec![Box::new(sled)]);
    assert_eq!(hit(&cache, MatchMode::Exact).tier, Tier::Sled);
    assert_eq!(hit(&cache, MatchMode::Exact).tier, Tier::Memory);

    let result: AutotuningResult = {
        let json = serde_json::json!({"schema": 1, "tool": "t", "device": device(), "timer": "t", "source": "replay",
                                      "operations": [], "interrupted": false});
        let mut result: AutotuningResult = serde_json::from_value(json).unwrap();
        result.entries.push((key(&device(), Direction::Forward), entry(2)));
        result
    };
    let outer = cache.overlay(result.entries.iter().cloned());
    assert_eq!((hit(&cache, MatchMode::Exact).tier, hit(&cache, MatchMode::Exact).entry), (Tier::Overlay, entry(2)));
    let inner = cache.overlay([(key(&device(), Direction::Forward), entry(3))]);
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(3));
    // guards may be dropped in any order
    drop(outer);
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(3));
    drop(inner);
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(1));
}

#[test]
fn what_was_tuned_without_a_cache_folder_hides_what_is_shipped() {
    let mut shipped = ShippedConfigs::default();
    let line = serde_json::json!({"device": device().identity, "op_id": "op@v1", "call_key": "k", "config": config(1)});
    shipped.add(JsonForm::Lines, &line.to_string()).unwrap();
    let cache = TieredCache::new(vec![Box::new(shipped)]);
    let key = key(&device(), Direction::Forward);
    assert_eq!(cache.entries().unwrap(), [(key.clone(), entry(1), Tier::Shipped)]);
    cache.put(&key, &entry(2)).unwrap();
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(2));
    assert_eq!(cache.entries().unwrap(), [(key, entry(2), Tier::Memory)]);
}

/// `n`'s entry as if decided by a clock.
fn decided_by(n: u64, source: &str) -> Arc<Entry> {
    let provenance = serde_json::json!({
        "job": "00".repeat(32), "timer": "t", "source": source, "environment": {}, "baseline": {}, "baseline_ns": 2.0,
        "best_ns": 1.0, "ratio": 0.5, "interval": {"low": 0.4, "high": 0.6, "confidence": 0.99}, "rounds": 16,
        "measured": 2, "failed": 0, "tool": "t", "decided_at": 7});
    Arc::new(serde_json::from_value(serde_json::json!({"config": config(n), "provenance": provenance})).unwrap())
}

#[test]
fn what_replayed_samples_decided_is_found_by_those_who_ask_for_it() {
    let (folder, below) = (in_memory(), in_memory());
    let own = key(&device(), Direction::Forward);
    let (sled, _) = SledStore::open(folder.path(), false).unwrap();
    let (lower, _) = SledStore::open(below.path(), false).unwrap();
    sled.put(&own, &decided_by(1, "replay")).unwrap();
    let mut cache = TieredCache::new(vec![Box::new(sled), Box::new(lower)]);
    for mode in [MatchMode::Exact, MatchMode::Any] {
        assert!(matches!(look(&cache, mode), Err(MissReason::Replayed { .. })), "{mode:?}");
    }
    // it hides nothing that was measured, by whichever way the look-up goes
    let (lower, _) = SledStore::open(folder.path().join("lower").as_path(), false).unwrap();
    lower.put(&own, &decided_by(2, "host-wall")).unwrap();
    let (sled, _) = SledStore::open(folder.path().join("upper").as_path(), false).unwrap();
    sled.put(&own, &decided_by(1, "replay")).unwrap();
    let both = TieredCache::new(vec![Box::new(sled), Box::new(lower)]);
    let mut other = device();
    other.identity.device_kind = "other".into();
    let found = both.find(&other, "op@v1", "k", None, MatchMode::Any).unwrap().unwrap();
    assert_eq!(found.entry, decided_by(2, "host-wall"));
    assert_eq!(hit(&both, MatchMode::Exact).entry, decided_by(2, "host-wall"));
    assert_eq!(hit(&both, MatchMode::Exact).entry, decided_by(2, "host-wall"), "from memory");
    let overlay = both.overlay([(own.clone(), decided_by(3, "replay"))]);
    assert_eq!(hit(&both, MatchMode::Exact).entry, decided_by(3, "replay"), "an overlay is the user's own");
    drop(overlay);

    cache.set_finds_replayed(true);
    assert_eq!(hit(&cache, MatchMode::Exact).entry, decided_by(1, "replay"));
}

#[test]
fn another_cpus_entry_is_a_miss_unless_the_user_asks_for_it() {
    let mut other = device();
    other.identity.hardware.insert("cpu_model".into(), "another".into());
    let store = MemoryStore::default();
    store.put(&key(&other, Direction::Forward), &entry(1)).unwrap();
    let cache = TieredCache::new(vec![Box::new(store)]);
    let Err(miss) = look(&cache, MatchMode::Exact) else { panic!("another CPU's entry was taken") };
    assert!(matches!(miss, MissReason::Device { .. }), "{miss:?}");
    let reason = miss.to_string();
    assert!(reason.contains("another") && reason.contains("--match kind"), "{reason}");
    let found = hit(&cache, MatchMode::Kind);
    assert_eq!(found.flags[0].kind, FlagKind::OtherDevice);
    // this device's own entry wins, from any tier
    cache.put(&key(&device(), Direction::Forward), &entry(2)).unwrap();
    assert_eq!((hit(&cache, MatchMode::Any).entry, hit(&cache, MatchMode::Any).flags.len()), (entry(2), 0));
}

#[test]
fn forward_with_vjp_goes_before_forward_unless_one_is_asked_for() {
    let cache = TieredCache::new(vec![]);
    cache.put(&key(&device(), Direction::Forward), &entry(1)).unwrap();
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(1));
    let device = device();
    let only = cache.lookup(&device, "op@v1", "k", Some(Direction::ForwardVjp), MatchMode::Exact).unwrap();
    let Lookup::Miss(miss) = only else { panic!("{only:?}") };
    assert!(matches!(miss.reason().unwrap(), MissReason::Direction { tuned: Direction::Forward, .. }));
    assert_eq!(miss.to_string(), "`op@v1:k` is cached, but not for this device: tuned forward only");
    cache.put(&key(&device, Direction::ForwardVjp), &entry(2)).unwrap();
    assert_eq!(hit(&cache, MatchMode::Exact).entry, entry(2));
}

#[test]
fn each_miss_has_its_reason() {
    let cache = TieredCache::new(vec![]);
    let miss = |op: &str, call: &str| {
        let found = cache.lookup(&device(), op, call, None, MatchMode::Exact).unwrap().found().unwrap();
        found.expect_err("nothing applies")
    };
    let reason = |op: &str, call: &str| miss(op, call).to_string();
    assert!(reason("op@v1", "k").contains("nothing is cached for `op@v1`"));
    cache.put(&key(&device(), Direction::Forward), &entry(1)).unwrap();
    assert!(reason("op@v1", "z").contains("another call key"), "{}", reason("op@v1", "z"));
    assert!(reason("op@v2", "k").contains("other versions only: op@v1"));
    assert_eq!(miss("op@v1", "z"), miss("op@v1", "z"));
    assert!(matches!(miss("op@v1", "z"), MissReason::Call { others: 1, .. }));
    assert!(matches!(miss("op@v2", "k"), MissReason::Version { cached, .. } if cached == ["op@v1"]));
    assert!(matches!(miss("another@v1", "k"), MissReason::Operation { op_id } if op_id == "another@v1"));
}

/// The look-up's result in each kind of store, alone, with these keys of one call, each with its position as the
/// config.
fn found_in_every_store(device: &DeviceFingerprint, keys: &[&str], asked: &str, mode: MatchMode) -> (u64, Vec<String>) {
    let entries: Vec<_> = keys
        .iter()
        .zip(0..)
        .map(|(call_key, block)| {
            (CacheKey { call: Call::new("op@v1", *call_key), ..key(device, Direction::Forward) }, entry(block))
        })
        .collect();
    let folder = in_memory();
    let (sled, _) = SledStore::open(folder.path(), false).unwrap();
    sled.put_all(&entries).unwrap();
    let memory = MemoryStore::default();
    memory.put_all(&entries).unwrap();
    let mut shipped = ShippedConfigs::default();
    for (key, entry) in &entries {
        let (call, device) = (&key.call, &key.device);
        let line = serde_json::json!({"device": device, "op_id": call.op_id, "call_key": call.call_key,
            "config": entry.config});
        shipped.add(JsonForm::Lines, &line.to_string()).unwrap();
    }
    let snapshot = folder.path().join("all.snapshot");
    write_snapshot(&snapshot, &entries).unwrap();
    let snapshot = Snapshot::open(&snapshot, Mapping::Never).unwrap();
    snapshot.verify().unwrap();
    let stores: [Box<dyn ConfigStore>; 4] =
        [Box::new(sled), Box::new(memory), Box::new(shipped), Box::new(SnapshotStore::new(snapshot))];
    let found = stores.map(|store| {
        let cache = TieredCache::new(vec![store]);
        match cache.lookup(&self::device(), "op@v1", asked, None, mode).unwrap().found().unwrap() {
            Ok(hit) => {
                let flags = hit.flags.iter().map(|flag| format!("{:?}: {}", flag.kind, flag.detail));
                (hit.entry.config.as_map()["block"].as_u64().unwrap(), flags.collect())
            }
            Err(reason) => panic!("{reason}"),
        }
    });
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    let [one, ..] = found;
    one
}

#[test]
fn a_call_that_is_mapped_otherwise_is_taken_with_a_flag() {
    let (four, eight, many) = ("k~4-00000001", "k~8-00000002", "k~8x4-00000003");
    let look = |keys: &[&str], asked| found_in_every_store(&device(), keys, asked, MatchMode::Exact);
    // its own entry, whatever others exist
    for (place, asked) in ["k", four, eight, many].into_iter().enumerate() {
        assert_eq!(look(&["k", four, eight, many], asked), (place as u64, vec![]));
    }
    // the unmapped one has priority over all others, then the one mapped most often
    let flag = |text: &str| vec![format!("OtherBatch: {text}")];
    assert_eq!(look(&[eight, "k"], four), (1, flag("measured unmapped, asked for under `vmap` of 4")));
    assert_eq!(look(&[four, many, eight], "k"), (1, flag("measured under `vmap` of 8x4, asked for unmapped")));
    assert_eq!(look(&[eight], four), (0, flag("measured under `vmap` of 8, asked for under `vmap` of 4")));
    // keys that only start with the same text are other calls
    let cache = TieredCache::new(vec![]);
    for other in ["kk", "k~4", "k0~4-00000001"] {
        cache
            .put(&CacheKey { call: Call::new("op@v1", other), ..key(&device(), Direction::Forward) }, &entry(1))
            .unwrap();
    }
    assert!(self::look(&cache, MatchMode::Exact).is_err());
}

#[test]
fn this_devices_other_batch_goes_before_another_devices_own() {
    let mut other = device();
    other.identity.hardware.insert("cpu_model".into(), "another".into());
    let (flags, kinds) = (
        found_in_every_store(&other, &["k"], "k~4-00000001", MatchMode::Kind).1,
        ["OtherDevice", "OtherBatch", "StaleEnvironment"],
    );
    assert!(flags.len() == 2 && flags.iter().zip(kinds).all(|(flag, kind)| flag.starts_with(kind)), "{flags:?}");
    let cache = TieredCache::new(vec![]);
    let mapped = CacheKey { call: Call::new("op@v1", "k~4-00000001"), ..key(&device(), Direction::Forward) };
    cache.put(&mapped, &entry(1)).unwrap();
    cache.put(&key(&other, Direction::Forward), &entry(2)).unwrap();
    assert_eq!(hit(&cache, MatchMode::Kind).entry, entry(1));
}
