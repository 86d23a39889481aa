//! Timers and their workers.

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod endless;
mod following;
mod jax;
mod jax_partitions;
mod numerics;
mod pjrt;
mod pjrt_caches;
mod pjrt_outputs;
mod pjrt_partitions;
mod pjrt_process;
mod pjrt_profiler;
mod replay_profiles;
mod worker;

/// A round of candidates, each run so many times.
fn round(launches: &[(usize, u32)]) -> autotune_lowered::timer::RoundRequest {
    let runs = |&(candidate, runs): &(usize, u32)| autotune_lowered::timer::CandidateRuns::new(candidate, runs);
    autotune_lowered::timer::RoundRequest::new(launches.iter().map(runs).collect())
}
