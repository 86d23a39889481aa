//! The signals that end a run cleanly.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

use super::exit;
use super::fault::Fault;

/// Set by the first Ctrl-C, SIGTERM, SIGQUIT or SIGHUP. The same signal again ends the process at once. Another one
/// does not, because service managers send SIGTERM and SIGHUP together.
pub(super) fn cancel_flag() -> Result<Arc<AtomicBool>, Fault> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        let seen = Arc::new(AtomicBool::new(false));
        register_conditional_shutdown(signal, i32::from(exit::INTERRUPTED), Arc::clone(&seen))
            .and_then(|_| register(signal, seen))
            .and_then(|_| register(signal, Arc::clone(&flag)))
            .map_err(|error| Fault::device(format!("cannot watch for signals: {error}")))?;
    }
    Ok(flag)
}

/// The signals that end a run. A terminal's end is not among them if the process ignores it, as under `nohup`.
fn ending_signals() -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let keeps_hang_up = ignores(&status, SIGHUP);
    [SIGINT, SIGTERM, SIGQUIT, SIGHUP].into_iter().filter(move |signal| *signal != SIGHUP || !keeps_hang_up)
}

/// Whether `/proc/PID/status` says that a signal is ignored.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        let ignored: Vec<i32> = (1..=64).filter(|signal| ignores(status, *signal)).collect();
        // the numbers of `kill -l`: 1 is SIGHUP, 13 SIGPIPE
        assert_eq!(ignored, [1, 13]);
        assert!(!ignores("", SIGHUP) && !ignores("SigIgn:\tnone\n", SIGHUP));
    }
}
