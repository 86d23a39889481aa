//! Signers: a private key of this machine, or a key service behind a command.

use std::ffi::OsString;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};

use super::command::answer_of;
use super::key::bytes_of;
use super::{PrivateKey, PublicKeys, Signature, SignatureError, Statement};

/// A signer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Signer {
    /// A local key.
    Key(PrivateKey),
    /// A command of the user, and the public keys, one of which it must use.
    Command(OsString, PublicKeys),
}

impl Signer {
    /// Signs a statement.
    ///
    /// # Errors
    /// If the command fails, or its answer is not a signature by any of its keys.
    pub fn sign(&self, statement: Statement) -> Result<Signature, SignatureError> {
        let (command, keys) = match self {
            Self::Key(key) => return Ok(Signature::sign(statement, key)),
            Self::Command(command, keys) => (command, keys),
        };
        let wrong = |what: String| SignatureError::Command { command: command.to_string_lossy().into_owned(), what };
        let answer = answer_of(command, &statement.to_message()).map_err(wrong)?;
        let signature = of_text(&answer).ok_or_else(|| {
            wrong("it must print 64 bytes in base64 or hexadecimal digits, and nothing else".to_owned())
        })?;
        Signature::of_bytes(statement, signature, keys)
            .ok_or_else(|| wrong(format!("no key of `{}` made what it printed", keys.path.display())))
    }

    /// The keys whose signatures this signer trusts.
    pub fn to_public_keys(&self) -> PublicKeys {
        match self {
            Self::Key(key) => key.to_public_keys(),
            Self::Command(_, keys) => keys.clone(),
        }
    }
}

/// A signature as key services print it.
fn of_text(answer: &[u8]) -> Option<[u8; 64]> {
    let text = std::str::from_utf8(answer).ok()?.trim();
    bytes_of(&text.to_ascii_lowercase()).or_else(|| BASE64.decode(text).ok()?.try_into().ok())
}

/// Base64 (RFC 4648, section 4), with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_as_key_services_print_them() {
        let bytes: [u8; 64] = std::array::from_fn(|at| (at * 37 + 250) as u8);
        // by Python's base64
        let base64 = "+h9EaY6z2P0iR2yRttsAJUpvlLneAyhNcpe84QYrUHWav+QJLlN4ncLnDDFWe6DF6g80WX6jyO0SN1yBpsvwFQ==";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of_text(format!("{hex}\n").as_bytes()), Some(bytes));
        assert_eq!(of_text(hex.to_uppercase().as_bytes()), Some(bytes));
        assert_eq!(of_text(format!(" {base64}\r\n").as_bytes()), Some(bytes));
        assert_eq!(of_text(base64.trim_end_matches('=').as_bytes()), Some(bytes));
        let (url, long, twice) = (base64.replace('+', "-"), format!("{base64}AAAA"), format!("{hex} {hex}"));
        // Q is 010000: of its bits only the first two belong to a byte
        let loose = base64.replace("FQ==", "FR==");
        for wrong in ["", "AA==", &base64[1..], &url, &long, &twice, &loose, &hex[2..]] {
            assert_eq!(of_text(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
