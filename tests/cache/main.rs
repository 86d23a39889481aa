//! The stores: log, snapshots and tiers, what other programs keep, caches that machines share and who vouches for them.

#[path = "../support/mod.rs"]
mod support;

mod exchange;
mod exchange_tokamax;
mod ledger;
mod merge;
mod remote;
mod remote_folder;
mod signature;
mod snapshot;
mod tiers;
mod trust;
