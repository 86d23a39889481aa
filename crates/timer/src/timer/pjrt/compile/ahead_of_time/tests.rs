use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::signature::{PrivateKey, Signer, signature_path};
use crate::timer::pjrt::compile::CompileNote;

fn key(program: &[u8]) -> ExecutableKey {
    ExecutableKey {
        program: Digest::of(program),
        format: "mlir".into(),
        compile_options: vec![1, 2],
        plugin: Digest::of(b"plugin"),
        device: "cuda:NVIDIA H100".into(),
        device_index: 0,
        cpu_features: "avx2".into(),
        xla_flags: Vec::new(),
        target: None,
        toolchain: None,
        overrides: BTreeMap::new(),
        base_options: None,
        copy: 0,
    }
}

/// The key of a program that was compiled for the device without it.
fn compiled_for(program: &[u8]) -> ExecutableKey {
    let toolchain = Some("ptxas 12".into());
    ExecutableKey { cpu_features: String::new(), target: Some("config".into()), toolchain, ..key(program) }
}

fn keep(store: &ExecutableStore, folder: &Path, key: &ExecutableKey) -> std::path::PathBuf {
    let payload = folder.join("payload");
    fs::write(&payload, b"machine code").unwrap();
    store.keep(key, File::open(&payload).unwrap(), None, CompileNote::default()).unwrap().executable.path
}

fn open(folder: &Path, trusted: Vec<PublicKeys>) -> (CompiledStore, Vec<String>) {
    CompiledStore::open(&CompiledOptions::new([folder], trusted), &key(b"")).unwrap()
}

fn is_executable(found: Option<CompiledBefore>) -> bool {
    matches!(found, Some(CompiledBefore::Executable(_)))
}

#[test]
fn only_what_a_trusted_key_signed_is_loaded_and_refusals_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&folder.path().join("key")).unwrap();
    let (other, _) = PrivateKey::generate(&folder.path().join("other")).unwrap();
    let (trusted, others) = (signing.to_public_keys(), other.to_public_keys());
    let store = ExecutableStore::open(folder.path()).unwrap();
    let signed = store.clone().signed_by(Some(Arc::new(Signer::Key(signing))));
    let path = keep(&signed, folder.path(), &compiled_for(b"one"));
    let note = CompileNote { refused: Some("too much shared memory".into()), ..CompileNote::default() };
    signed.refuse(&compiled_for(b"two"), note).unwrap();
    keep(&store, folder.path(), &compiled_for(b"unsigned"));

    let (compiled, notes) = open(folder.path(), vec![others.clone(), trusted.clone()]);
    assert!(is_executable(compiled.find(&key(b"one"))));
    assert!(matches!(
        compiled.find(&key(b"two")),
        Some(CompiledBefore::Refused(reason)) if reason == "too much shared memory"
    ));
    for unknown in [key(b"unsigned"), key(b"three"), ExecutableKey { format: "hlo".into(), ..key(b"one") }] {
        assert!(compiled.find(&unknown).is_none());
    }
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 3 programs of ") && notes[0].contains("(not signed)"));

    let (compiled, notes) = open(folder.path(), vec![others]);
    assert!(compiled.find(&key(b"one")).is_none() && compiled.find(&key(b"two")).is_none());
    assert!(notes[0].starts_with("3 of 3") && notes[0].contains("which is not trusted here"), "{notes:?}");
    assert!(open(folder.path(), Vec::new()).0.find(&key(b"one")).is_none());

    // another file with this one's signature, and a signature without a file
    let second = keep(&signed, folder.path(), &compiled_for(b"four"));
    fs::copy(signature_path(&second), signature_path(&path)).unwrap();
    fs::write(signature_path(&second), b"autotune-lowered-signature-v1 \n").unwrap();
    let (compiled, notes) = open(folder.path(), vec![trusted]);
    assert!(compiled.find(&key(b"one")).is_none() && compiled.find(&key(b"four")).is_none());
    assert!(notes[0].contains("its signature is not valid"), "{notes:?}");
}

#[test]
fn a_refusal_that_was_edited_takes_no_config_out() {
    let folder = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&folder.path().join("key")).unwrap();
    let trusted = vec![signing.to_public_keys()];
    let plain = ExecutableStore::open(folder.path()).unwrap();
    let signed = plain.clone().signed_by(Some(Arc::new(Signer::Key(signing))));
    let note = |reason: &str| CompileNote { refused: Some(reason.to_owned()), ..CompileNote::default() };
    signed.refuse(&compiled_for(b"one"), note("too much shared memory")).unwrap();
    // beside the signature of the first reason
    plain.refuse(&compiled_for(b"one"), note("forged")).unwrap();
    plain.refuse(&compiled_for(b"two"), note("forged")).unwrap();
    let (compiled, notes) = open(folder.path(), trusted);
    assert!(compiled.find(&key(b"one")).is_none() && compiled.find(&key(b"two")).is_none());
    assert!(notes.len() == 1 && notes[0].starts_with("2 of 2 programs of "), "{notes:?}");
    assert!(notes[0].contains("(its signature is not valid, not signed)"), "{notes:?}");
}

#[test]
fn what_is_no_file_in_a_store_is_said_and_the_rest_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&folder.path().join("key")).unwrap();
    let trusted = vec![signing.to_public_keys()];
    let store = ExecutableStore::open(folder.path()).unwrap().signed_by(Some(Arc::new(Signer::Key(signing))));
    keep(&store, folder.path(), &compiled_for(b"one"));
    for (other, put) in [(&b"two"[..], true), (b"three", false)] {
        let path = keep(&store, folder.path(), &compiled_for(other));
        fs::remove_file(&path).unwrap();
        match put {
            true => fs::create_dir(&path).unwrap(),
            false => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
        }
    }
    let (compiled, notes) = open(folder.path(), trusted);
    assert!(is_executable(compiled.find(&key(b"one"))));
    assert!(compiled.find(&key(b"two")).is_none() && compiled.find(&key(b"three")).is_none());
    assert!(notes.len() == 1 && notes[0].contains(".exe` is not used") && notes[0].contains("1 other"), "{notes:?}");
}

#[test]
fn a_file_that_changes_after_it_was_believed_is_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&folder.path().join("key")).unwrap();
    let trusted = vec![signing.to_public_keys()];
    let plain = ExecutableStore::open(folder.path()).unwrap();
    let signed = plain.clone().signed_by(Some(Arc::new(Signer::Key(signing))));
    let path = keep(&signed, folder.path(), &compiled_for(b"one"));
    let (compiled, _) = open(folder.path(), trusted);
    let sound = fs::read(&path).unwrap();
    for at in [0, 20, sound.len() / 2, sound.len() - 1] {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        assert!(compiled.find(&key(b"one")).is_none(), "flipped at {at}");
    }
    fs::write(&path, &sound).unwrap();
    assert!(is_executable(compiled.find(&key(b"one"))));
    // intact and of the same key, but not what was signed
    let payload = folder.path().join("payload");
    fs::write(&payload, b"other machine code").unwrap();
    plain.keep(&compiled_for(b"one"), File::open(&payload).unwrap(), None, CompileNote::default()).unwrap();
    assert!(compiled.find(&key(b"one")).is_none());
}

#[test]
fn what_was_compiled_for_others_is_reported_and_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&folder.path().join("key")).unwrap();
    let trusted = vec![signing.to_public_keys()];
    assert!(CompiledStore::open(&CompiledOptions::new([folder.path()], Vec::new()), &key(b"")).is_err());
    let store = ExecutableStore::open(folder.path()).unwrap().signed_by(Some(Arc::new(Signer::Key(signing))));
    let (_, notes) = open(folder.path(), trusted.clone());
    assert!(notes[0].contains("has nothing: everything is compiled here"), "{notes:?}");
    for (other, message) in [
        (ExecutableKey { device: "cuda:NVIDIA A100".into(), ..compiled_for(b"one") }, "programs for cuda:NVIDIA A100"),
        (ExecutableKey { plugin: Digest::of(b"other"), ..compiled_for(b"one") }, "by another plugin"),
        (ExecutableKey { xla_flags: vec!["--xla_a=1".into()], ..compiled_for(b"one") }, "with other XLA_FLAGS"),
        (key(b"one"), "programs that were compiled on a device"),
    ] {
        let path = keep(&store, folder.path(), &other);
        let (compiled, notes) = open(folder.path(), trusted.clone());
        assert!(compiled.find(&key(b"one")).is_none(), "{other:?}");
        assert!(notes[0].contains(message), "{notes:?}");
        fs::remove_file(path).unwrap();
    }
    // programs with other options, and several stores together
    let other = ExecutableKey { overrides: BTreeMap::from([("a".into(), "1".into())]), ..compiled_for(b"one") };
    let path = keep(&store, folder.path(), &other);
    let (_, notes) = open(folder.path(), trusted.clone());
    assert!(notes[0].contains("with compiler options"), "{notes:?}");
    fs::remove_file(path).unwrap();
    let second = tempfile::tempdir().unwrap();
    let (signing, _) = PrivateKey::generate(&second.path().join("key")).unwrap();
    let both = [trusted.clone(), vec![signing.to_public_keys()]].concat();
    let of_second = ExecutableStore::open(second.path()).unwrap().signed_by(Some(Arc::new(Signer::Key(signing))));
    keep(&of_second, second.path(), &compiled_for(b"two"));
    let stores = CompiledOptions::new([folder.path(), second.path()], both);
    let (compiled, notes) = CompiledStore::open(&stores, &key(b"")).unwrap();
    assert!(is_executable(compiled.find(&key(b"two"))) && notes.is_empty(), "{notes:?}");
    // a race uses the programs of one assembler; if both compiled a program, none is missing
    let other = |program| ExecutableKey { toolchain: Some("ptxas 13".into()), ..compiled_for(program) };
    for program in [&b"one"[..], b"two", b"three"] {
        keep(&store, folder.path(), &other(program));
    }
    keep(&store, folder.path(), &compiled_for(b"one"));
    let (_, notes) = open(folder.path(), trusted.clone());
    assert!(notes.is_empty(), "{notes:?}");
    keep(&store, folder.path(), &compiled_for(b"four"));
    let (compiled, notes) = open(folder.path(), trusted.clone());
    assert!(notes.len() == 1 && notes[0].starts_with("1 of 4 programs of "), "{notes:?}");
    assert!(compiled.find(&key(b"four")).is_none() && is_executable(compiled.find(&key(b"three"))));
    for entry in fs::read_dir(folder.path().join("executables-v1")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    // the location of CUDA's folder does not affect the code
    let flags = vec!["--xla_gpu_cuda_data_dir=/opt/cuda".into()];
    keep(&store, folder.path(), &ExecutableKey { xla_flags: flags, ..compiled_for(b"one") });
    assert!(is_executable(open(folder.path(), trusted).0.find(&key(b"one"))));
}
