//! Whether this machine kept processes waiting, which may be why a call took too long.
//!
//! The kernel adds up for how long any process waited for a core, for memory or for a disk (`/proc/pressure`), and what
//! a hypervisor took of the cores. A program that hangs on a machine that keeps nobody waiting hangs by itself.

use std::fs;
use std::time::Instant;

/// From which part of the time on the machine may be why.
const STALLED: f64 = 0.1;
/// Shorter calls tell nothing: they did not wait for their limit.
const LEAST_SECONDS: f64 = 0.5;
/// The kernel's ticks in a second, in what it prints.
const TICKS: f64 = 100.0;

/// What processes waited since the machine's start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stalls {
    at: Instant,
    seconds: f64,
}

impl Stalls {
    /// Up to now; `None` where the kernel does not tell, as in some containers.
    pub(super) fn now() -> Option<Self> {
        let pressures = ["cpu", "memory", "io"].map(|of| fs::read_to_string(format!("/proc/pressure/{of}")).ok());
        let waited: Option<Vec<f64>> = pressures.iter().map(|text| some_seconds(text.as_deref()?)).collect();
        let stolen = stolen_seconds(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { at: Instant::now(), seconds: waited?.iter().sum::<f64>() + stolen })
    }

    /// Whether hardly anybody waited since.
    pub(super) fn were_few_since(&self) -> bool {
        Self::now().is_some_and(|now| now.are_few_since(self))
    }

    fn are_few_since(&self, earlier: &Self) -> bool {
        let elapsed = (self.at - earlier.at).as_secs_f64();
        elapsed >= LEAST_SECONDS && self.seconds - earlier.seconds < STALLED * elapsed
    }
}

/// Seconds in which some process waited: the `total` of the first line, which is in microseconds.
fn some_seconds(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<u64>().ok()? as f64 / 1e6)
}

/// What the hypervisor took of all cores: the eighth number of the first line.
fn stolen_seconds(stat: &str) -> Option<f64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    Some(all.split_whitespace().nth(7)?.parse::<u64>().ok()? as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_the_kernel_prints_is_read() {
        let pressure = "some avg10=6.25 avg60=33.33 avg300=57.97 total=3400100\nfull avg10=0.00 total=7\n";
        assert_eq!(some_seconds(pressure), Some(3.4001));
        assert_eq!(some_seconds("full avg10=0.00 total=7\n"), None);
        assert_eq!(some_seconds("some total=x"), None);
        assert_eq!(stolen_seconds("cpu  10 0 5 300 20 0 0 250 0 0\ncpu0 5 0 2 100 10 0 0 3 0 0\n"), Some(2.5));
        assert_eq!(stolen_seconds("cpu  10 0 5\n"), None);
    }

    #[test]
    fn a_machine_that_keeps_nobody_waiting_is_no_reason() {
        let at = Instant::now();
        let stalls = |ms: u64, seconds: f64| Stalls { at: at + Duration::from_millis(ms), seconds };
        let begin = stalls(0, 100.0);
        assert!(stalls(8000, 100.2).are_few_since(&begin));
        assert!(!stalls(8000, 101.0).are_few_since(&begin), "it was busy for an eighth of the time");
        assert!(!stalls(100, 100.0).are_few_since(&begin), "a call that failed at once");
    }
}
