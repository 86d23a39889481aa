//! Whether what a file of the store says is believed: executables are native code, and a refusal takes a config out of
//! every race.

use std::path::Path;

use crate::digest::Digest;
use crate::signature::{PublicKeys, SignatureError, Signatures};

/// Checks that a trusted key signed a file with this digest; otherwise returns why not, in words that fit several
/// files.
pub(crate) fn believed(path: &Path, digest: Digest, trusted: &[PublicKeys]) -> Result<(), String> {
    let name = path.display().to_string();
    let why = |error| match error {
        SignatureError::Missing { .. } => "not signed".to_owned(),
        SignatureError::UnknownKey { key, .. } => format!("signed by {key}, which is not trusted here"),
        _ => "its signature is not valid".to_owned(),
    };
    let signatures = Signatures::read_beside(path).map_err(why)?;
    let mut refused = "no key is trusted here".to_owned();
    for keys in trusted {
        match signatures.check(digest, keys, &name) {
            Ok(_) => return Ok(()),
            Err(error) => refused = why(error),
        }
    }
    Err(refused)
}
