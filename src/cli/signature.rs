//! `cache keygen` and `cache sign`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cache::Snapshot;
use crate::mapped_file::Mapping;
use crate::signature::{PrivateKey, Signature, signature_path};

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
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_SIGN_KEY")]
    pub key: PathBuf,
}

/// Runs `cache keygen`.
pub(super) fn keygen(args: &KeygenArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let (_, public) = PrivateKey::generate(&args.file)?;
    writeln!(out, "{}", public.display())?;
    Ok(exit::FINE)
}

/// Runs `cache sign`: every byte is checked first, since a signature vouches for it.
pub(super) fn sign(args: &SignArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let key = PrivateKey::read(&args.key)?;
    let snapshot = Snapshot::open(&args.snapshot, Mapping::default())?;
    snapshot.verify()?;
    Signature::sign(snapshot.digest(), &key).write_beside(&args.snapshot)?;
    writeln!(out, "{}", signature_path(&args.snapshot).display())?;
    Ok(exit::FINE)
}
