//! Any bytes as a snapshot: no panic, and what is read was sealed. The checksums of what the bytes call header, devices and
//! fences are set right first, so that the fuzzer gets past them.

#![no_main]

use autotune_lowered::cache::{ConfigStore, Snapshot, SnapshotStore};
use autotune_lowered::mapped_file::Mapping;
use libfuzzer_sys::fuzz_target;

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

fn seal(bytes: &mut [u8]) {
    let length = bytes.len();
    bytes[..8].copy_from_slice(b"\x89ATLSNP\n");
    // any version that there is, and none
    bytes[8] %= 5;
    bytes[9..16].fill(0);
    bytes[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    bytes[88] = u8::from(bytes[8] == 3 && bytes[88] & 1 == 1);
    bytes[89..96].fill(0);
    for (at, unit) in [(32, 1), (48, 8)] {
        let (offset, count) = (number(bytes, at), u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()));
        let end = offset.saturating_add(count as usize * unit);
        if let Some(part) = bytes.get(offset..end) {
            let crc = crc32fast::hash(part);
            bytes[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let crc = crc32fast::hash(&bytes[..128]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.snapshot");
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 128 {
        seal(&mut bytes);
    }
    std::fs::write(&path, &bytes).unwrap();
    let Ok(snapshot) = Snapshot::open(&path, Mapping::WhereLocal) else { return };
    let whole = snapshot.verify().is_ok();
    let store = SnapshotStore::new(snapshot);
    let read = store.entries();
    if whole {
        assert_eq!(store.snapshot().records().count() as u64, store.snapshot().len());
    }
    for (key, entry) in read.iter().flatten() {
        let found = store.get(key);
        assert!(!whole || found.unwrap().as_ref() == Some(entry));
    }
    let _ = store.of_call("flash_attention@v2", "fecadd86b926e7e8");
});
