//! The small files that come with somebody else's code, by the first byte: what is taken is on a list.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use autotune_lowered::digest::Digest;
use autotune_lowered::hlo::{ScanOptions, scan_path};
use autotune_lowered::measure::CompiledWith;
use autotune_lowered::prove::StepVariants;
use autotune_lowered::remote::{Address, Remote, Trust};
use autotune_lowered::settings::{FILE_NAME, IfFound, SettingsFile};
use autotune_lowered::signature::{PublicKeys, Signatures};
use libfuzzer_sys::fuzz_target;
use regex::bytes::Regex;

const MODULE: &[u8] = include_bytes!("../../tests/data/timer/add.mlir");
const NO_DIGEST: &[u8] = &[b'0'; 64];

/// The manifest of variants with the digest that it must have.
fn with_digest(manifest: &[u8]) -> Vec<u8> {
    static DIGEST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""digest": ?"([0-9a-f]{64})""#).expect("a pattern"));
    let mut manifest = manifest.to_vec();
    let Some(place) = DIGEST.captures(&manifest).and_then(|found| found.get(1)).map(|digest| digest.range()) else {
        return manifest;
    };
    manifest[place.clone()].copy_from_slice(NO_DIGEST);
    let digest = Digest::of(&manifest).to_string();
    manifest[place].copy_from_slice(digest.as_bytes());
    manifest
}

fn one_line(error: impl std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains('\u{1b}'), "{text:?}");
}

fn read(kind: u8, bytes: &[u8], folder: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("a file in a folder of our own");
    match kind {
        0 => match CompiledWith::read(bytes, &[]) {
            // reading what was read leaves nothing out
            Ok(with) => assert!(with.note().is_none_or(|note| !note.contains('\n') && !note.contains('\u{1b}'))),
            Err(error) => one_line(error),
        },
        1 => {
            write("module.mlir", MODULE);
            write("module.mlir.labels.json", bytes);
            if let Err(error) = scan_path(folder.join("module.mlir"), &ScanOptions::default()) {
                one_line(error);
            }
        }
        2 => {
            write("prove.json", &with_digest(bytes));
            if let Err(error) = StepVariants::open(folder) {
                one_line(error);
            }
        }
        3 => {
            write(FILE_NAME, bytes);
            match SettingsFile::found(&folder.join(FILE_NAME), &|_| Some(0.01)) {
                Ok(file) => {
                    let values = file.iter().flat_map(SettingsFile::values);
                    assert!(values.into_iter().all(|value| value.setting.if_found != IfFound::Refused));
                }
                Err(error) => one_line(error),
            }
        }
        4 => {
            write("manifest-v1.json", bytes);
            let address = Address::parse(&format!("file://{}", folder.display())).expect("a folder's address");
            let pulled = Remote::open(address).and_then(|remote| remote.pull(&folder.join("copy"), Trust::default()));
            one_line(pulled.expect_err("there is no snapshot"));
        }
        _ => {
            write("keys", bytes);
            match Signatures::from_bytes(bytes, "X.sig") {
                Ok(_) => {}
                Err(error) => one_line(error),
            }
            if let Err(error) = PublicKeys::read(&folder.join("keys")) {
                one_line(error);
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    read(kind % 6, bytes, folder.path());
});
