//! `tune --from`: the calls that an upgrade found to be tuned again.

use std::path::Path;

use serde::Deserialize;

use crate::call::Call;
use crate::io_hint::io_hint;
use crate::outside_file;
use crate::upgrade::{UPGRADE_SCHEMA, UpgradeVerdict};

use super::fault::Fault;

/// Maximum size of the result of an upgrade.
const MAX_BYTES: u64 = 1 << 26;

#[derive(Deserialize)]
struct Upgraded {
    schema: u32,
    calls: Vec<Judged>,
}

#[derive(Deserialize)]
struct Judged {
    #[serde(flatten)]
    call: Call,
    verdict: UpgradeVerdict,
}

/// The calls whose config is no longer the best, as `--only` names them.
pub(super) fn calls_to_tune_again(path: &Path) -> Result<Vec<String>, Fault> {
    let shown = path.display();
    let bytes = outside_file::input(path, MAX_BYTES)
        .map_err(|error| Fault::input(format!("cannot read `{shown}`: {error}{}", io_hint(&error))))?;
    let none = |why: String| Fault::input(format!("`{shown}` is not a result of `upgrade --format json`: {why}"));
    let found: Upgraded = serde_json::from_slice(&bytes).map_err(|error| none(error.to_string()))?;
    if found.schema != UPGRADE_SCHEMA {
        return Err(none(format!("its schema is {}, and this program reads {UPGRADE_SCHEMA}", found.schema)));
    }
    let mut names: Vec<String> =
        found.calls.iter().filter(|one| one.verdict.is_alarm()).map(|one| one.call.to_string()).collect();
    // both directions of a call have one name
    names.dedup();
    Ok(names)
}
