//! Runs whose workers are killed: measuring and compiling workers, and the supervisors of both, found in `/proc`.
//!
//! No operation is hit twice, since a program that kills two workers is rightly dropped: a second kill hits an
//! operation that began after the first one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use autotune_lowered::cache::SNAPSHOT_FILE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Chance;
use super::real::Real;
use super::tuning::{Tuning, read_snapshot};

/// The result.
#[derive(Debug, Default)]
pub struct Killed {
    pub runs: u64,
    /// How many of each kind were killed.
    pub victims: BTreeMap<&'static str, u64>,
    /// How often runs reported that the measuring worker was started again.
    pub restarts: u64,
}

impl Killed {
    pub fn kills(&self) -> u64 {
        self.victims.values().sum()
    }
}

/// Kills `count` workers of runs with played times, whose results must equal the undisturbed run's.
pub fn run_played(count: u64, seed: u64) -> Killed {
    let tuning = Tuning::new();
    run(count, seed, &tuning.path("workers"), &|cache| tuning.played_command(cache, "", ""))
}

/// Kills `count` workers of runs on a plugin, whose results must be in the undisturbed run's tie sets; `None` without a
/// plugin.
pub fn run_real(count: u64, seed: u64) -> Option<Killed> {
    let real = Real::new()?;
    Some(run(count, seed, &real.path("workers"), &|cache| real.command(cache)))
}

fn run(count: u64, seed: u64, folder: &Path, command: &dyn Fn(&Path) -> Command) -> Killed {
    let mut chance = Chance::new(seed);
    let start = Instant::now();
    let undisturbed = command(&folder.join("undisturbed")).output().unwrap();
    let stderr = String::from_utf8_lossy(&undisturbed.stderr).into_owned();
    assert!(undisturbed.status.success(), "{stderr}");
    let lines = stderr.lines().count() as u64;
    let a_line = start.elapsed().as_micros() as u64 / lines;
    let accepted = accepted(&folder.join("undisturbed"));
    let of_an_operation = lines / accepted.len() as u64;
    let mut seen = Killed::default();
    while seen.kills() < count {
        let cache = folder.join("cache");
        let mut child = command(&cache).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(child.stderr.take().unwrap());
        let results = lines_of(child.stdout.take().unwrap());
        let mut stderr = Vec::new();
        // finished operations to wait for, then lines, then a while
        let mut finished = 0;
        loop {
            let until = chance.below(of_an_operation);
            if !wait(&lines, &mut stderr, finished, until) {
                break;
            }
            let is_first = stderr.is_empty();
            std::thread::sleep(Duration::from_micros(chance.below(a_line * if is_first { 16 } else { 2 })));
            let Some(victim) = kill_one(child.id(), &mut chance) else { continue };
            *seen.victims.entry(victim).or_default() += 1;
            // everything reported by now precedes the kill, which can only have hit the operation after that
            stderr.extend(lines.try_iter());
            finished = 2;
            if seen.kills() == count {
                break;
            }
        }
        stderr.extend(lines.iter());
        let stderr = stderr.join("\n");
        let stdout: String = results.iter().collect();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}\n{stderr}");
        check(&serde_json::from_str(&stdout).unwrap(), &accepted, &stderr);
        seen.restarts += stderr.matches("worker restarted").count() as u64;
        seen.runs += 1;
        fs::remove_dir_all(&cache).unwrap();
    }
    seen
}

/// For each operation, the configs that count as the undisturbed run's result: its best one and those tied with it.
type Accepted = BTreeMap<String, Vec<Value>>;

fn accepted(cache: &Path) -> Accepted {
    let entries = read_snapshot(&cache.join(SNAPSHOT_FILE)).into_iter();
    entries
        .map(|(key, entry)| {
            let tied = entry.provenance.as_ref().unwrap().tie_set.iter();
            (key.call.op_id, tied.chain([&entry.config]).map(|config| serde_json::to_value(config).unwrap()).collect())
        })
        .collect()
}

fn check(result: &Value, accepted: &Accepted, stderr: &str) {
    let operations = result["operations"].as_array().unwrap();
    assert_eq!(operations.len(), accepted.len());
    for operation in operations {
        let op_id = operation["op_id"].as_str().unwrap();
        let status = operation["status"].as_str().unwrap();
        assert!(["tuned", "baseline-kept"].contains(&status), "{operation}\n{stderr}");
        // on a busy machine, a real timer may fail to distinguish two configs that it distinguished before
        let mut ties = operation["tie_set"].as_array().into_iter().flatten();
        let is_accepted = |config: &Value| accepted[op_id].contains(config);
        assert!(is_accepted(&operation["best"]["config"]) || ties.any(is_accepted), "{operation}\n{stderr}");
        for candidate in operation["candidates"].as_array().unwrap() {
            assert_ne!(candidate["status"], "failed", "{op_id}: {candidate}\n{stderr}");
        }
    }
}

/// The lines of a pipe, read as they come.
fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Waits for this many finished operations and then this many lines; `false` if the run ended before.
fn wait(lines: &Receiver<String>, taken: &mut Vec<String>, mut finished: u64, mut until: u64) -> bool {
    while finished > 0 || until > 0 {
        let Ok(line) = lines.recv() else { return false };
        if finished > 0 {
            finished -= u64::from([": tuned", ": baseline kept"].iter().any(|status| line.contains(status)));
        } else {
            until -= 1;
        }
        taken.push(line);
    }
    true
}

/// Kills a random process below a run.
fn kill_one(run: u32, chance: &mut Chance) -> Option<&'static str> {
    let below = descendants(run);
    let (pid, words) = below.get(usize::try_from(chance.below(below.len() as u64)).unwrap())?;
    let kind = kind_of(words)?;
    kill_process(Pid::from_raw(*pid)?, Signal::KILL).ok()?;
    Some(kind)
}

/// A compiling worker is told not to use the profiler.
fn kind_of(words: &str) -> Option<&'static str> {
    let compiles = words.contains("--no-profiler");
    match (words.contains("\0worker\0exec\0"), compiles) {
        _ if words.is_empty() => None,
        (true, true) => Some("supervisor of a compile worker"),
        (true, false) => Some("supervisor of a measuring worker"),
        (false, true) => Some("compile worker"),
        (false, false) => Some("measuring worker"),
    }
}

/// The processes below one, each with its command line, without dead ones.
fn descendants(root: u32) -> Vec<(i32, String)> {
    let mut parents: Vec<(i32, i32)> = Vec::new();
    for item in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = item.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(item.path().join("stat")) else { continue };
        let mut fields = stat[stat.rfind(')').unwrap() + 1..].split_whitespace();
        let (state, parent) = (fields.next().unwrap(), fields.next().unwrap().parse().unwrap());
        if state != "Z" {
            parents.push((pid, parent));
        }
    }
    let mut below = vec![i32::try_from(root).unwrap()];
    let mut at = 0;
    while let Some(&one) = below.get(at) {
        below.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid));
        at += 1;
    }
    below.sort_unstable();
    let words = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    below.into_iter().filter(|pid| *pid != i32::try_from(root).unwrap()).map(|pid| (pid, words(pid))).collect()
}

/// One run for each request to a run's workers, or for every `step`-th one: the worker that receives it is killed, or
/// its supervisor. One candidate crashes its workers anyway, so that restarts are hit too. Returns the number of runs.
pub fn run_every_request(step: usize) -> u64 {
    let tuning = Tuning::new();
    let folder = tuning.path("requests");
    fs::create_dir(&folder).unwrap();
    let state = folder.join("state");
    let tune = |at: u64, who: &str| {
        let _ = fs::remove_file(&state);
        let cache = folder.join("cache");
        let arguments = format!("{} {at} {who}", state.display());
        let output = tuning.played_command(&cache, &arguments, "op1@v1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // the candidate that always fails is no reason for the run to fail
        assert!(output.status.success(), "request {at}, {who}: {stderr}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let operation = &result["operations"][0];
        let summary: Vec<String> = operation["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|candidate| format!("{} {}", candidate["config"], candidate["status"]))
            .collect();
        fs::remove_dir_all(&cache).unwrap();
        ((operation["status"].clone(), operation["best"]["config"].clone(), summary), stderr)
    };
    let (expected, stderr) = tune(0, "worker");
    assert_eq!((&expected.0, &expected.1["block"]), (&Value::from("tuned"), &Value::from(1)), "{stderr}");
    assert!(expected.2.iter().any(|row| row.contains("failed")), "{expected:?}");
    let requests = fs::metadata(&state).unwrap().len();
    for at in (1..=requests).step_by(step) {
        // whichever of them dies, the worker's pipe closes
        let who = if at % 2 == 0 { "supervisor" } else { "worker" };
        let (found, stderr) = tune(at, who);
        assert_eq!(found, expected, "request {at}, {who}: {stderr}");
        assert!(fs::metadata(&state).unwrap().len() >= at, "request {at} was never sent");
    }
    requests.div_ceil(step as u64)
}
