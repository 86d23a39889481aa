//! Tuning runs that are killed at random moments, one after the other over the same folder until one gets through.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Chance;
use super::tuning::{Acknowledged, OPERATIONS, Tuning, best_configs};

/// What was seen.
#[derive(Debug, Default)]
pub struct Kills {
    pub kills: u64,
    /// Folders that were tuned to the end.
    pub folders: u64,
    /// Decisions that a killed run had reported.
    pub reported: u64,
    /// Kills after which a run had neither reported nothing nor everything.
    pub in_between: u64,
    /// Kills in the middle of a write to the log.
    pub torn: u64,
}

/// Kills `count` runs; panics where something that was reported is lost, or the last run of a folder gives another result.
pub fn run(count: u64, seed: u64) -> Kills {
    let tuning = Tuning::new();
    let mut chance = Chance::new(seed);
    let start = Instant::now();
    let undisturbed = tuning.run(&tuning.path("timed"));
    let length = start.elapsed().as_micros() as u64;
    let expected = best_configs(&undisturbed.json());
    let mut seen = Kills::default();
    while seen.kills < count {
        let cache = tuning.path(&format!("cache-{}", seen.folders));
        let mut acknowledged = Acknowledged::default();
        loop {
            let after = Duration::from_micros(chance.below(length));
            let mut command = tuning.command(&cache);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(after);
            child.kill().unwrap();
            let mut stderr = String::new();
            // all that it wrote before it died: the pipe holds more than such a run writes
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            let is_killed = !child.wait().unwrap().success();
            assert!(!stderr.contains("panicked"), "{stderr}");
            acknowledged.take(&stderr);
            tuning.check(&cache, &acknowledged);
            if !is_killed {
                break;
            }
            seen.kills += 1;
            seen.in_between += u64::from((1..OPERATIONS).contains(&acknowledged.decided.len()));
            if acknowledged.decided.len() == OPERATIONS || seen.kills == count {
                break;
            }
        }
        seen.reported += acknowledged.decided.len() as u64;
        let last = tuning.run(&cache);
        assert_eq!(last.code, 0, "{}", last.stderr);
        seen.torn += last.stderr.matches("half-written").count() as u64;
        assert_eq!(best_configs(&last.json()), expected);
        tuning.check_complete(&cache);
        fs::remove_dir_all(&cache).unwrap();
        seen.folders += 1;
    }
    seen
}
