//! `cache keygen` and `cache sign`.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use etcetera::BaseStrategy;

use crate::cache::{Cached, Snapshot};
use crate::counted::counted;
use crate::mapped_file::Mapping;
use crate::signature::{PrivateKey, PublicKeys, SignatureError, Signatures, Signer, Statement, signature_path};

use super::exit;
use super::fault::Fault;

#[derive(Debug, Args)]
pub(super) struct KeygenArgs {
    /// File of the private key; the public one is FILE.pub
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct SignArgs {
    /// Snapshot to sign; the signature is SNAPSHOT.sig
    pub snapshot: PathBuf,
    /// Private key, as `cache keygen` makes it
    #[arg(
        id = "sign_key",
        long = "key",
        value_name = "FILE",
        env = "AUTOTUNE_LOWERED_SIGN_KEY",
        required_unless_present = "sign_command"
    )]
    pub key: Option<PathBuf>,
    /// Signing command to use instead of a key file, with a key of --verify-key (docs/trust.md)
    #[arg(long, value_name = "CMD", env = "AUTOTUNE_LOWERED_SIGN_COMMAND", conflicts_with = "sign_key")]
    pub sign_command: Option<OsString>,
    /// File of public keys; the command signs with one of them
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
}

/// The signer of what is published.
#[derive(Debug, Clone, Args)]
pub(super) struct SignerArgs {
    /// Private key to sign what is published at a URL (docs/trust.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_SIGN_KEY")]
    pub sign_key: Option<PathBuf>,
    /// Signing command to use instead of a key file, with a key of --verify-key: it reads the bytes to sign and prints
    /// the signature (docs/trust.md)
    #[arg(long, value_name = "CMD", env = "AUTOTUNE_LOWERED_SIGN_COMMAND", conflicts_with = "sign_key")]
    pub sign_command: Option<OsString>,
}

impl SignerArgs {
    /// The signer, if any.
    pub(super) fn signer(&self, keys: Option<&PublicKeys>) -> Result<Option<Signer>, Fault> {
        signer(self.sign_key.as_deref(), self.sign_command.as_deref(), keys)
    }
}

/// The signer of executables and refusals.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct StoreSignerArgs {
    /// Private key to sign executables so that other machines may load them (docs/targets.md) [default: this user's own
    /// key, created if necessary]
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_SIGN_KEY")]
    pub sign_key: Option<PathBuf>,
}

impl StoreSignerArgs {
    /// The keys whose refusals are believed: the one that signs, this user's own, and the named ones.
    pub(super) fn trusted(&self, named: Option<&Path>) -> Result<Vec<PublicKeys>, Fault> {
        let signing = self.sign_key.as_deref().map(PrivateKey::read).transpose()?;
        Ok(trusted_keys(named)?.into_iter().chain(signing.map(|key| key.to_public_keys())).collect())
    }

    /// The named key, or else this user's own; `None` if that can be neither read nor created.
    pub(super) fn signer(&self) -> Result<Option<Signer>, Fault> {
        if let Some(key) = &self.sign_key {
            return Ok(Some(Signer::Key(PrivateKey::read(key)?)));
        }
        let own = own_key_path().map(|path| match PrivateKey::read(&path) {
            Err(SignatureError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => make_own_key(&path),
            read => read,
        });
        match own {
            Some(Ok(key)) => Ok(Some(Signer::Key(key))),
            Some(Err(error)) => {
                tracing::warn!(
                    "nothing is signed: no machine will load the executables, and no run believe the refusals: {error}"
                );
                Ok(None)
            }
            None => {
                tracing::warn!(
                    "nothing is signed: no machine will load the executables, and no run believe the refusals: no \
                     home folder; name a key with `--sign-key`"
                );
                Ok(None)
            }
        }
    }
}

/// The path of the key that signs what this user compiles.
fn own_key_path() -> Option<PathBuf> {
    let strategy = etcetera::base_strategy::choose_native_strategy().ok()?;
    Some(strategy.data_dir().join("autotune-lowered").join("own-key"))
}

fn make_own_key(path: &Path) -> Result<PrivateKey, SignatureError> {
    if let Some(folder) = path.parent() {
        // a missing folder is reported when the key is created in it
        let _ = std::fs::create_dir_all(folder);
    }
    match PrivateKey::generate(path) {
        Ok((key, _)) => Ok(key),
        // another process created it in the meantime
        Err(SignatureError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => PrivateKey::read(path),
        Err(error) => Err(error),
    }
}

/// The keys whose executables are loaded here, and whose refusals are believed: this user's own, and the named ones.
pub(super) fn trusted_keys(named: Option<&Path>) -> Result<Vec<PublicKeys>, Fault> {
    let own = own_key_path().and_then(|path| PrivateKey::read(&path).ok()).map(|key| key.to_public_keys());
    Ok(public_keys(named)?.into_iter().chain(own).collect())
}

/// Public keys from a file.
pub(super) fn public_keys(path: Option<&Path>) -> Result<Option<PublicKeys>, Fault> {
    Ok(path.map(PublicKeys::read).transpose()?)
}

/// The signer, if any: a key file, or a command with the trusted keys.
fn signer(key: Option<&Path>, command: Option<&OsStr>, keys: Option<&PublicKeys>) -> Result<Option<Signer>, Fault> {
    Ok(match (key, command, keys) {
        (Some(key), ..) => Some(Signer::Key(PrivateKey::read(key)?)),
        (None, Some(command), Some(keys)) => Some(Signer::Command(command.to_owned(), keys.clone())),
        (None, Some(_), None) => {
            let message = "`--sign-command` signs with a key of `--verify-key`: name that file of public keys, too";
            return Err(Fault::new(exit::USAGE, message));
        }
        (None, None, _) => None,
    })
}

/// Runs `cache keygen`.
pub(super) fn keygen(args: &KeygenArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let (_, public) = PrivateKey::generate(&args.file)?;
    writeln!(out, "{}", public.display())?;
    Ok(exit::FINE)
}

/// Runs `cache sign`. Every byte is checked first, because a signature vouches for it.
pub(super) fn sign(args: &SignArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let keys = public_keys(args.verify_key.as_deref())?;
    let Some(signer) = signer(args.key.as_deref(), args.sign_command.as_deref(), keys.as_ref())? else {
        return Err(Fault::new(exit::USAGE, "name a private key with `--key`, or a command with `--sign-command`"));
    };
    let snapshot = Snapshot::open(&args.snapshot, Mapping::Never)?;
    snapshot.verify()?;
    let name = args.snapshot.display().to_string();
    let digest = snapshot.digest();
    let (_, replayed) = Cached::of_snapshot(snapshot).publishable()?;
    if replayed > 0 {
        let what = counted(replayed, "decision");
        let message = format!(
            "`{name}` is not signed: it has {what} of replayed samples, or of a busy machine, which nobody else should get; \
             `cache push` leaves them out"
        );
        return Err(Fault::new(exit::CACHE_TROUBLE, message));
    }
    let mut signatures = match Signatures::read_beside(&args.snapshot) {
        Err(error @ SignatureError::Io { .. }) => return Err(error.into()),
        // an invalid signature is replaced
        read => read.unwrap_or_default(),
    };
    signatures.renew(signer.sign(Statement::of_file(digest))?, &name)?;
    signatures.write_beside(&args.snapshot)?;
    writeln!(out, "{}", signature_path(&args.snapshot).display())?;
    Ok(exit::FINE)
}
