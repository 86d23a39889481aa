//! Kernel Tuner's strategies on a recorded space, in the user's Python.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use autotune_lowered::search::TrialOutcome;

use super::args::SearchArgs;
use super::recorded::Recorded;

const DRIVER: &str = include_str!("peer_driver.py");

/// The runs of one peer strategy on one space.
pub(super) struct PeerRuns {
    pub(super) strategy: String,
    /// For each seed, the points in order of evaluation.
    pub(super) asked: Vec<Vec<usize>>,
    /// Total seconds of the searches.
    pub(super) seconds: f64,
    /// Why there is no score.
    pub(super) failure: Option<String>,
}

/// The peer's version and its runs, in the order of its own list.
pub(super) struct Peer {
    pub(super) version: String,
    pub(super) runs: Vec<PeerRuns>,
}

#[derive(Deserialize)]
struct Line {
    version: Option<String>,
    strategy: Option<String>,
    #[serde(default)]
    asked: Option<Vec<usize>>,
    #[serde(default)]
    seconds: f64,
    failure: Option<String>,
}

/// Runs the peer's strategies on a space.
pub(super) fn run(python: &Path, args: &SearchArgs, recorded: &Recorded, evaluations: usize) -> Result<Peer, String> {
    let task = task(args, recorded, evaluations)?;
    let cannot = |error: std::io::Error| format!("cannot run `{}`: {error}", python.display());
    let mut child = Command::new(python)
        .args(["-c", DRIVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    // both ends are read at once: a full pipe would block the driver
    let complaint = std::thread::spawn(move || {
        let lines = stderr.map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok)).into_iter().flatten();
        lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
    });
    let mut peer = Peer { version: String::new(), runs: Vec::new() };
    if let Some(mut stdin) = stdin {
        // a driver that has ended gives its reason on stderr
        let _ = stdin.write_all(task.to_string().as_bytes());
    }
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            peer.take(&line.map_err(cannot)?)?;
        }
    }
    let status = child.wait().map_err(cannot)?;
    let complaint = complaint.join().unwrap_or_default();
    if !status.success() || peer.version.is_empty() {
        return Err(format!(
            "`{}` could not run Kernel Tuner ({status}): {complaint}; install kernel-tuner 1.x into it",
            python.display()
        ));
    }
    for runs in &mut peer.runs {
        if runs.failure.is_none() && runs.asked.len() as u64 != args.seeds {
            runs.failure = Some("not all seeds were run".to_owned());
        }
    }
    Ok(peer)
}

impl Peer {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("the peer's driver answered: {error}"))?;
        if let Some(version) = line.version {
            self.version = version;
        }
        let Some(strategy) = line.strategy else { return Ok(()) };
        let runs = match self.runs.iter_mut().position(|runs| runs.strategy == strategy) {
            Some(at) => self.runs.get_mut(at),
            None => {
                self.runs.push(PeerRuns { strategy, asked: Vec::new(), seconds: 0.0, failure: None });
                self.runs.last_mut()
            }
        };
        let Some(runs) = runs else { return Ok(()) };
        match line.asked {
            Some(asked) => {
                runs.asked.push(asked);
                runs.seconds += line.seconds;
            }
            None => runs.failure = line.failure.or_else(|| Some("no run".to_owned())),
        }
        Ok(())
    }
}

/// The driver's task. Its configs are flat: one value per parameter.
fn task(args: &SearchArgs, recorded: &Recorded, evaluations: usize) -> Result<Value, String> {
    let space = &recorded.space;
    let mut parameters = Vec::new();
    for parameter in space.parameters() {
        let flat = |value: &Value| !value.is_object() && !value.is_array();
        let values: Option<Vec<&Value>> = parameter.values().iter().map(|v| v.as_ref().filter(|v| flat(v))).collect();
        let name = parameter.name();
        let values = values.ok_or_else(|| format!("the parameter `{name}` is none that Kernel Tuner takes"))?;
        parameters.push(json!([name, values]));
    }
    let points: Vec<&[u16]> = (0..space.count()).map(|point| space.levels(point)).collect();
    let times: Vec<Option<f64>> = recorded
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            TrialOutcome::Time(time) => Some(*time),
            TrialOutcome::Failed => None,
        })
        .collect();
    Ok(json!({
        "parameters": parameters, "points": points, "times": times, "evaluations": evaluations, "seeds": args.seeds,
        "strategies": args.peer_strategies, "seconds": args.peer_seconds,
    }))
}
