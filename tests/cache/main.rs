//! The stores: log, snapshots and tiers, other programs' files, shared caches and their signatures.

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
