//! Any bytes as a snapshot: no panic, and only sealed data is read. First the lengths, digests and checksums in what
//! the bytes have as header, table, names and fences are corrected, so that the fuzzer gets past them.

#![no_main]

use autotune_lowered::cache::{ConfigStore, Mapping, Snapshot, SnapshotStore};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_64;

fn checksum(bytes: &[u8]) -> [u8; 4] {
    (XxHash3_64::oneshot(bytes) as u32).to_le_bytes()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn seal(bytes: &mut Vec<u8>) {
    bytes[..8].copy_from_slice(b"\x89ATLSNP\n");
    // mostly the current version
    bytes[8] = if bytes[8] == 0xff { 2 } else { 1 };
    bytes[9..16].fill(0);
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    let length = bytes.len();
    bytes[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    let count = (number(bytes, 24) % 8).min(length as u64 / 64 - 1) as usize;
    bytes[24..32].copy_from_slice(&(count as u64).to_le_bytes());
    bytes[32..64].fill(0);
    let mut offset = 64 + 64 * count;
    for section in 0..count {
        let at = 64 + 64 * section;
        // most kinds are known
        let (kind, flags) = (u32::from(bytes[at] % 8), u32::from(bytes[at + 4] & 1));
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
        let wanted = (number(bytes, at + 16) / 64).saturating_mul(64).min((length - offset) as u64) as usize;
        let own = if section + 1 == count { length - offset } else { wanted };
        bytes[at + 8..at + 16].copy_from_slice(&(offset as u64).to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&(own as u64).to_le_bytes());
        if matches!(bytes[at], 1 | 6) && own > 4 {
            let sum = checksum(&bytes[offset + 4..offset + own]);
            bytes[offset..offset + 4].copy_from_slice(&sum);
        }
        let digest = Sha256::digest(&bytes[offset..offset + own]);
        bytes[at + 32..at + 64].copy_from_slice(&digest);
        offset += own;
    }
    let header = 64 + 64 * count;
    let digest = Sha256::digest(&bytes[..header]);
    bytes[32..64].copy_from_slice(&digest);
    let sum = checksum(&bytes[..header]);
    bytes[12..16].copy_from_slice(&sum);
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.snapshot");
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 64 {
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
        let found = store.get(key.parts());
        assert!(!whole || found.unwrap().as_ref() == Some(entry));
    }
    let _ = store.of_call("flash_attention@v2", "fecadd86b926e7e8");
});
