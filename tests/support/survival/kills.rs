//! Tuning runs that are killed at random moments, one after the other in the same folder, until one completes.
//!
//! A moment is a number of output lines, plus a delay. Time alone would hit runs elsewhere, or before their start, if
//! the machine's load changes after the first run.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Chance;
use super::tuning::{Acknowledged, OPERATIONS, Tuning, best_configs};

/// The result.
#[derive(Debug, Default)]
pub struct Kills {
    pub kills: u64,
    /// Folders whose tuning completed.
    pub folders: u64,
    /// Decisions that a killed run had reported.
    pub reported: u64,
    /// Kills after a run had reported some decisions, but not all.
    pub in_between: u64,
    /// Kills in the middle of a write to the log.
    pub torn: u64,
}

/// Kills `count` runs; panics if a reported decision is lost, or if a folder's last run gives another result.
pub fn run(count: u64, seed: u64) -> Kills {
    let tuning = Tuning::new();
    let mut chance = Chance::new(seed);
    let start = Instant::now();
    let undisturbed = tuning.run(&tuning.path("timed"));
    let lines = undisturbed.stderr.lines().count() as u64;
    let a_line = start.elapsed().as_micros() as u64 / lines;
    let expected = best_configs(&undisturbed.json());
    let mut seen = Kills::default();
    while seen.kills < count {
        let cache = tuning.path(&format!("cache-{}", seen.folders));
        let mut acknowledged = Acknowledged::default();
        loop {
            // the first line takes longer
            let until = chance.below(lines);
            let after = Duration::from_micros(chance.below(a_line * if until == 0 { 16 } else { 2 }));
            let mut command = tuning.command(&cache);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let (mut pipe, mut stderr) = (BufReader::new(child.stderr.take().unwrap()), String::new());
            for _ in 0..until {
                pipe.read_line(&mut stderr).unwrap();
            }
            std::thread::sleep(after);
            child.kill().unwrap();
            // everything that it wrote before it died: such a run's output fits into the pipe
            pipe.read_to_string(&mut stderr).unwrap();
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
        seen.torn += last.stderr.matches("incomplete record").count() as u64;
        assert_eq!(best_configs(&last.json()), expected);
        tuning.check_complete(&cache);
        fs::remove_dir_all(&cache).unwrap();
        seen.folders += 1;
    }
    seen
}
