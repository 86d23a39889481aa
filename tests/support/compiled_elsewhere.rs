//! A store of executables as `compile --target` writes it, made from those that a run on a device kept: no CPU plugin
//! compiles without a device.

#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use autotune_lowered::digest::{Digest, FieldHasher};
use autotune_lowered::signature::{Signatures, Signer, Statement};
use serde_json::Value;

const MAGIC: &[u8] = b"ATLEXE1\n";

/// Copies a run's executables into a store, as if they had been compiled for a target; `change` may alter each header
/// further.
pub(crate) fn as_compiled_elsewhere(
    cache: &Path,
    store: &Path,
    signer: &Signer,
    change: impl Fn(usize, &mut Value),
) -> usize {
    let (from, to) = (cache.join("executables-v1"), store.join("executables-v1"));
    fs::create_dir_all(&to).unwrap();
    let files = fs::read_dir(from).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "exe")).collect();
    files.sort();
    for (number, file) in files.iter().enumerate() {
        let changed = with_header(&fs::read(file).unwrap(), |header| {
            header["key"]["target"] = "a CPU".into();
            header["key"]["cpu_features"] = "".into();
            change(number, header);
        });
        let path = to.join(file.file_name().unwrap());
        fs::write(&path, &changed).unwrap();
        let signed = FieldHasher::new("pjrt-executable-file-v1").field(&changed[12..44]).finish();
        let signature = signer.sign(Statement::of_file(signed)).unwrap();
        Signatures::from(signature).write_beside(&path).unwrap();
    }
    files.len()
}

/// A kept file with another header, and with as much of its payload as that says.
pub(crate) fn with_header(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    assert_eq!(&bytes[..8], MAGIC);
    let mut header: Value = serde_json::from_slice(&bytes[44..44 + length]).unwrap();
    change(&mut header);
    let payload = &bytes[44 + length..][..header["payload_bytes"].as_u64().unwrap() as usize];
    header["payload_digest"] = Digest::of(payload).to_string().into();
    let header = serde_json::to_vec(&header).unwrap();
    let digest = Digest::of(&header);
    [MAGIC, &(header.len() as u32).to_le_bytes(), digest.as_bytes(), &header, payload].concat()
}
