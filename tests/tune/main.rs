//! The tuner: decisions, search, whole runs, gates and fleets.

#[path = "../support/mod.rs"]
mod support;

mod autotune;
mod cache_state;
mod compare;
mod compiler_options;
mod decision;
mod devices;
mod distributions;
mod fleet_shards;
mod gate;
mod known_options;
mod noisy;
mod numerics;
mod on_demand;
mod precise_options;
mod process_options;
mod processes;
mod prove;
mod run;
mod search;
mod selftest;
mod shared_options;
mod step;
mod strategies;
mod trace;
mod upgrade;
mod waves;
