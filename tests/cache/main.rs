//! The stores: log, snapshots and tiers, other programs' files, shared caches and their signatures.

#[path = "../support/mod.rs"]
mod support;

mod exchange;
mod exchange_tokamax;
mod exchange_tokamax_versions;
mod ledger;
mod merge;
mod remote;
mod remote_folder;
mod signature;
mod snapshot;
mod tiers;
mod trust;
