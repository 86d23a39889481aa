//! Keys and detached signatures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::folder::in_memory;
use autotune_lowered::digest::Digest;
use autotune_lowered::signature::{
    MAX_SIGNATURE_BYTES, MAX_SIGNATURES, PrivateKey, PublicKeys, Signature, SignatureError, Signatures, Statement,
};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/signature").join(name);
    fs::read_to_string(path).unwrap()
}

/// Writes a private key with the required mode: only its owner may read it.
fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn signed_digest() -> Digest {
    Digest::of(b"abc")
}

/// The time of the fixture's signature.
const TIME: u64 = 1_790_000_000;

/// The statement in the fixture.
fn statement() -> Statement {
    Statement::new(signed_digest(), 7, TIME)
}

/// The pair of keys of RFC 8032, section 7.1, test 1; another program made the signature (see the fixture's README).
#[test]
fn what_another_program_signs_is_believed_and_made_the_same() {
    let folder = in_memory();
    let (private_path, public_path) = (folder.path().join("key"), folder.path().join("key.pub"));
    private(&private_path, &fixture("key"));
    fs::write(&public_path, fixture("key.pub")).unwrap();
    let keys = PublicKeys::read(&public_path).unwrap();
    let text = fixture("abc.sig");
    let signatures = Signatures::from_bytes(text.as_bytes(), "abc").unwrap();
    let key = signatures.check_statement(&statement(), &keys, "abc").unwrap();
    assert_eq!(key, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_eq!(signatures.check(signed_digest(), &keys, "abc").unwrap(), key);
    assert_eq!(signatures.latest(Some(&keys)), Some(statement()));
    let ours = PrivateKey::read(&private_path).unwrap();
    assert_eq!(ours.to_public(), key);
    assert_eq!(Signatures::from(Signature::sign(statement(), &ours)).to_text(), text);
    let longest = Statement::new(signed_digest(), u64::MAX, u64::MAX);
    let longest = Signatures::from(Signature::sign(longest, &ours)).to_text();
    assert_eq!((longest.len() * MAX_SIGNATURES) as u64, MAX_SIGNATURE_BYTES);
}

#[test]
fn a_wrong_key_file_digest_or_byte_is_refused() {
    let folder = in_memory();
    let path = |name: &str| folder.path().join(name);
    let (ours, ours_public) = PrivateKey::generate(&path("ours")).unwrap();
    let (_, theirs_public) = PrivateKey::generate(&path("theirs")).unwrap();
    let (ours_public, theirs_public) =
        (PublicKeys::read(&ours_public).unwrap(), PublicKeys::read(&theirs_public).unwrap());
    let signatures = Signatures::from(Signature::sign(statement(), &ours));
    assert!(signatures.check_statement(&statement(), &ours_public, "x").is_ok());
    let unknown = signatures.check(signed_digest(), &theirs_public, "x").unwrap_err();
    assert!(matches!(unknown, SignatureError::UnknownKey { .. }) && unknown.to_string().contains("theirs.pub"));
    let other = signatures.check(Digest::of(b"abd"), &ours_public, "x").unwrap_err();
    assert!(matches!(other, SignatureError::OtherFile { .. }), "{other}");
    // the same snapshot, presented as another generation or with another time
    for told in [Statement::new(signed_digest(), 8, TIME), Statement::new(signed_digest(), 7, TIME + 1)] {
        let other = signatures.check_statement(&told, &ours_public, "x").unwrap_err();
        assert!(matches!(other, SignatureError::OtherGeneration { signed: 7, .. }), "{other}");
        // under a line with these values
        let Statement { generation, time, .. } = told;
        let renamed = signatures.to_text().replace(" 7 1790000000 ", &format!(" {generation} {time} "));
        assert_ne!(renamed, signatures.to_text());
        let renamed = Signatures::from_bytes(renamed.as_bytes(), "x").unwrap();
        let forged = renamed.check_statement(&told, &ours_public, "x").unwrap_err();
        assert!(matches!(forged, SignatureError::Forged { .. }), "{forged}");
        assert_eq!(renamed.latest(Some(&ours_public)), None);
    }

    let text = signatures.to_text();
    // a digest other than the signed one, under a name with that digest
    let renamed = text.replace(&signed_digest().to_string(), &Digest::of(b"abd").to_string());
    let forged = Signatures::from_bytes(renamed.as_bytes(), "x").unwrap().check(Digest::of(b"abd"), &ours_public, "x");
    assert!(matches!(forged, Err(SignatureError::Forged { .. })), "{forged:?}");
    // every character matters
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        let checked =
            Signatures::from_bytes(&bytes, "x").and_then(|read| read.check(signed_digest(), &ours_public, "x"));
        assert!(checked.is_err(), "byte {at}");
    }
    for wrong in [
        format!("{text}\n"),
        format!("{text} "),
        text.trim_end().to_owned(),
        text.to_uppercase(),
        text.replace("-v1", "-v2"),
        text.replace(" 7 ", " 07 "),
        text.replace(" 7 ", " +7 "),
        text.replace(" 7 ", " 18446744073709551616 "),
        format!("\n{text}"),
        text.repeat(MAX_SIGNATURES + 1),
        text.replacen(' ', "  ", 1),
        String::new(),
    ] {
        let error = Signatures::from_bytes(wrong.as_bytes(), "x").unwrap_err();
        assert!(matches!(error, SignatureError::NotASignature { .. }), "{wrong:?}");
    }
}

#[test]
fn keys_are_kept_to_their_owner_and_never_replaced() {
    let folder = in_memory();
    let path = folder.path().join("key");
    let (key, public) = PrivateKey::generate(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    let before = fs::read(&path).unwrap();
    assert!(PrivateKey::generate(&path).unwrap_err().to_string().contains("exists"));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!format!("{key:?}").contains(&String::from_utf8(before).unwrap()[33..96]));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let exposed = PrivateKey::read(&path).unwrap_err();
    assert!(
        matches!(exposed, SignatureError::Exposed { mode: 0o640, .. }) && exposed.to_string().contains("chmod 600")
    );
    // one instead of the other
    assert!(matches!(PublicKeys::read(&path), Err(SignatureError::NotAKey { .. })));
    fs::set_permissions(&public, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(PrivateKey::read(&public), Err(SignatureError::NotAKey { .. })));
}

#[test]
fn a_key_can_be_replaced_by_another_one() {
    let folder = in_memory();
    let path = |name: &str| folder.path().join(name);
    let pairs = ["old", "new"].map(|name| PrivateKey::generate(&path(name)).unwrap());
    let both: String = pairs.iter().map(|(_, public)| fs::read_to_string(public).unwrap() + "\n").collect();
    fs::write(path("both"), format!("# of the build machines\n{both}")).unwrap();
    let keys = PublicKeys::read(&path("both")).unwrap();
    for (key, _) in &pairs {
        let signatures = Signatures::from(Signature::sign(statement(), key));
        assert_eq!(signatures.check(signed_digest(), &keys, "x").unwrap(), key.to_public());
    }
    for wrong in ["", "# nobody\n", &both.replace("public", "private"), &format!("{both}x\n")] {
        fs::write(path("wrong"), wrong).unwrap();
        assert!(matches!(PublicKeys::read(&path("wrong")), Err(SignatureError::NotAKey { .. })), "{wrong:?}");
    }
    // RFC 8032's neutral element: a key that accepts any signature
    fs::write(path("weak"), format!("autotune-lowered-public-key-v1 01{}\n", "00".repeat(31))).unwrap();
    assert!(PublicKeys::read(&path("weak")).is_err());
    fs::write(path("large"), "#".repeat(70_000)).unwrap();
    assert!(PublicKeys::read(&path("large")).unwrap_err().to_string().contains("65536"));
}

#[test]
fn signatures_stand_beside_each_other_up_to_a_number() {
    let folder = in_memory();
    let pairs: Vec<_> = (0..MAX_SIGNATURES + 2)
        .map(|number| {
            let (key, public) = PrivateKey::generate(&folder.path().join(number.to_string())).unwrap();
            (key, PublicKeys::read(&public).unwrap())
        })
        .collect();
    let mut signatures = Signatures::default();
    for (key, _) in &pairs[..MAX_SIGNATURES] {
        assert!(signatures.add(Signature::sign(statement(), key), "x").unwrap());
        // adding one twice has no effect
        assert!(!signatures.add(Signature::sign(statement(), key), "x").unwrap());
    }
    let read = Signatures::from_bytes(signatures.to_text().as_bytes(), "x").unwrap();
    assert_eq!(read, signatures);
    for (key, public) in &pairs[..MAX_SIGNATURES] {
        assert_eq!(read.check_statement(&statement(), public, "x").unwrap(), key.to_public());
    }
    // one too many of this generation is refused; one of a later generation replaces one of an earlier
    let [(more, _), (last, last_public)] = &pairs[MAX_SIGNATURES..] else { panic!() };
    let full = signatures.add(Signature::sign(statement(), more), "x").unwrap_err();
    assert!(matches!(full, SignatureError::Full { most: MAX_SIGNATURES, .. }), "{full}");
    let later = Statement::new(signed_digest(), 8, TIME);
    assert!(signatures.add(Signature::sign(later, last), "x").unwrap());
    assert_eq!(signatures.latest(None), Some(later));
    assert_eq!(signatures.latest(Some(&pairs[3].1)), Some(statement()));
    assert!(signatures.check_statement(&later, last_public, "x").is_ok());
    assert_eq!(signatures.of_statement(&later).to_text().lines().count(), 1);
    assert_eq!(signatures.to_text().lines().count(), MAX_SIGNATURES);
    // signatures of another snapshot are refused here
    let other = Statement::new(Digest::of(b"abd"), 7, TIME);
    signatures.add(Signature::sign(other, more), "x").unwrap();
    assert_eq!(signatures.to_text().lines().count(), 1);
}
