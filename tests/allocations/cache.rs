//! A hit allocates nothing, and neither does a miss of an unknown operation.

use std::sync::Arc;

use crate::allocations;
use autotune_lowered::cache::{
    CacheKey, ConfigStore, Entry, JsonForm, Lookup, Mapping, MemoryStore, SNAPSHOT_FILE, ShippedConfigs, Snapshot,
    Tier, TieredCache, write_snapshot,
};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};

const CALL: &str = "fecadd86b926e7e8";

fn device() -> DeviceFingerprint {
    let hardware = [("compute_capability", "9.0"), ("sm_count", "132")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let identity =
        DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware: hardware.into() };
    // the software in every entry's provenance
    let environment = Environment::default()
        .platform_version("cuda 12090".into())
        .driver(Some("570.86".into()))
        .xla_flags(vec!["--xla_a".into()]);
    DeviceFingerprint { identity, environment }
}

fn key(op_id: &str, direction: Direction) -> CacheKey {
    CacheKey { call: Call::new(op_id, CALL), direction, device: device().identity }
}

fn entry() -> Arc<Entry> {
    let text = format!(
        r#"{{"config":{{"block_q":128,"num_warps":4}},"provenance":{{"job":"{}","timer":"pjrt","source":"device-profile",
        "metric":"busy","environment":{{"platform_version":"cuda 12090","driver":"570.86","xla_flags":["--xla_a"]}},
        "baseline":{{"block_q":64}},"baseline_ns":2000.5,"best_ns":1000.25,"ratio":0.5,"interval":{{"low":0.4,"high":0.6,
        "confidence":0.95}},"rounds":20,"measured":19,"failed":0,"tie_set":[],"tool":"a test","decided_at":7}}}}"#,
        "0f".repeat(32)
    );
    Arc::new(serde_json::from_str(&text).unwrap())
}

#[test]
fn a_hit_allocates_nothing() {
    assert_eq!(allocations(|| vec![0_u8; 100]).0, 1, "the allocator counts");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SNAPSHOT_FILE);
    let published: Vec<_> = ["forward@v1", "both@v1"].iter().map(|op| (key(op, Direction::Forward), entry())).collect();
    write_snapshot(&path, &published).unwrap();
    let device = device();

    // where they lie
    let snapshot = Snapshot::open(&path, Mapping::WhereLocal).unwrap();
    let place = snapshot.device(&device.identity).unwrap();
    let (count, found) = allocations(|| snapshot.get(place, "both@v1", CALL, Direction::Forward).unwrap());
    assert_eq!((count, found.unwrap().config), (0, r#"{"block_q":128,"num_warps":4}"#));
    let (count, found) = allocations(|| snapshot.get(place, "both@v2", CALL, Direction::Forward).unwrap());
    assert_eq!((count, found), (0, None));

    // each tier alone
    let own = key("both@v1", Direction::Forward);
    let memory = MemoryStore::default();
    memory.put(&own, &entry()).unwrap();
    let mut shipped = ShippedConfigs::default();
    let line = serde_json::json!({"device": device.identity, "op_id": "both@v1", "call_key": CALL,
        "config": {"block_q": 128, "num_warps": 4}});
    shipped.add(JsonForm::Lines, &line.to_string()).unwrap();
    for store in [&memory as &dyn ConfigStore, &shipped] {
        let (count, found) = allocations(|| store.get(own.parts()).unwrap());
        assert_eq!((count, found.is_some()), (0, true), "{}", store.tier());
    }

    // the tiers together
    let cache = TieredCache::published(folder.path(), Mapping::WhereLocal, vec![Box::new(shipped)]).unwrap();
    let hit = |op_id: &str, tier: Tier, direction: Option<Direction>| {
        let (count, found) = allocations(|| cache.lookup(&device, op_id, CALL, direction, MatchMode::Exact).unwrap());
        let Lookup::Hit(hit) = found else { panic!("{op_id}") };
        assert_eq!((hit.tier, hit.flags.len(), hit.key().op_id), (tier, 0, op_id));
        count
    };
    for direction in [None, Some(Direction::Forward)] {
        // a call's first hit parses the snapshot's entry, and memory keeps it
        let op_id = if direction.is_none() { "forward@v1" } else { "both@v1" };
        assert!(hit(op_id, Tier::Snapshot, direction) > 0);
        for _ in 0..3 {
            assert_eq!(hit(op_id, Tier::Memory, direction), 0);
        }
    }
    let overlay = cache.overlay([(own.clone(), entry())]);
    for direction in [None, Some(Direction::Forward)] {
        assert_eq!(hit("both@v1", Tier::Overlay, direction), 0);
    }
    drop(overlay);
    assert_eq!(hit("both@v1", Tier::Memory, None), 0);

    // a miss determines its reason on request
    let ask = || cache.lookup(&device, "other@v1", CALL, None, MatchMode::Exact).unwrap();
    let (count, found) = allocations(ask);
    let Lookup::Miss(miss) = found else { panic!("{found:?}") };
    assert_eq!(count, 0);
    let (count, reason) = allocations(|| miss.reason().unwrap());
    assert!(count > 0 && reason.to_string() == "nothing is cached for `other@v1`", "{reason}");
}
