//! `cache verify`: checks every byte of caches.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::ledger::{Verified, verify_cache};
use crate::report::VerifiedCaches;
use crate::signature::PublicKeys;

use super::exit;
use super::fault::Fault;
use super::options::FormatArg;

/// Arguments of `cache verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Cache folders, snapshots, sample logs, and JSON files; they are not changed
    #[arg(value_name = "CACHE", required = true)]
    pub caches: Vec<PathBuf>,
    /// File of public keys: each snapshot must be signed by one of them (docs/trust.md)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Checks each cache; exit code 4 if one is damaged, or no key vouches for it.
pub(super) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let keys = args.key.as_deref().map(PublicKeys::read).transpose()?;
    let mut found: Vec<Verified> = args.caches.iter().flat_map(|path| verify_cache(path)).collect();
    if let Some(keys) = &keys {
        found.iter_mut().for_each(|found| found.check_signature(keys));
    }
    let problems: usize = found.iter().map(|found| found.problems.len()).sum();
    args.format.write(out, VerifiedCaches(&found))?;
    if problems == 0 {
        return Ok(exit::FINE);
    }
    out.flush()?;
    let names = |untrusted: bool| {
        let wrong = found.iter().filter(|found| !found.problems.is_empty() && found.untrusted == untrusted);
        wrong.map(|found| format!("`{}`", found.path.display())).collect::<Vec<_>>().join(", ")
    };
    let mut lines = Vec::new();
    let (damaged, untrusted) = (names(false), names(true));
    if !damaged.is_empty() {
        lines.push(format!("unreadable or changed since it was written: {damaged}"));
    }
    if let Some(key) = args.key.as_deref().filter(|_| !untrusted.is_empty()) {
        lines.push(format!("not signed by a key of `{}`: {untrusted}", key.display()));
    }
    Err(Fault::input(format!("{}; the problems are listed on stdout", lines.join("; "))))
}
