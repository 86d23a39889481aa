//! A module of a dozen operations with simulated times, so that a run's decisions are known beforehand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use autotune_lowered::cache::{CacheKey, Entry, Mapping, SNAPSHOT_FILE, Snapshot};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::Registry;
use autotune_lowered::samples::{Replay, SampleLog};
use serde_json::{Value, json};

use crate::support::folder::in_memory;
use crate::support::prerequisite::python3;
use crate::support::program::{self, Run, copy_folder};

pub const OPERATIONS: usize = 12;
pub const CANDIDATES: usize = 4;
const KEY: &str = "0123456789abcdef";
const LOG_FILE: &str = "samples-v1.log";

/// The entry of each key in a folder, without the time of the decision.
pub type Decided = BTreeMap<CacheKey, Entry>;

/// Registry, module and recording, and the decisions of an undisturbed run.
pub struct Tuning {
    folder: tempfile::TempDir,
    pub expected: Decided,
}

/// Nanoseconds of candidate `n` of operation `op`: one is twice as fast as the next, a different one in each operation.
fn played_ns(op: usize, candidate: usize) -> u64 {
    if candidate == op % CANDIDATES { 1_000_000 } else { 2_000_000 + 100_000 * candidate as u64 }
}

impl Tuning {
    pub fn new() -> Self {
        let folder = in_memory();
        let tuning = Self { folder, expected: Decided::new() };
        tuning.write_inputs();
        let cache = tuning.path("undisturbed");
        let run = tuning.run(&cache);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let expected = decided_in(&Ledger::open(&cache, Vec::new()).unwrap());
        assert_eq!(expected.len(), OPERATIONS);
        for (key, entry) in &expected {
            let op: usize = key.call.op_id.trim_start_matches("op").trim_end_matches("@v1").parse().unwrap();
            assert_eq!(entry.config.to_string(), json!({"block": op % CANDIDATES}).to_string());
            let provenance = entry.provenance.as_ref().unwrap();
            assert_eq!((provenance.best_ns, provenance.baseline_ns), (1e6, played_ns(op, 0) as f64));
        }
        Self { expected, ..tuning }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_inputs(&self) {
        let mut module = String::from("#at = loc(\"model.py\":7:3)\n");
        let (mut body, mut recorded) = (String::new(), Vec::new());
        let mut registry = Registry::create_or_open(self.path("registry")).unwrap();
        for op in 0..OPERATIONS {
            writeln!(module, "#op{op} = loc(\"jit(step)/ejkernel_ops#op{op}@v1:{KEY}/add\"(#at))").unwrap();
            writeln!(body, "    %{op} = stablehlo.add %arg0, %arg0 : tensor<8xf32> loc(#op{op})").unwrap();
            let mut rows = Vec::new();
            let mut played = Vec::new();
            for candidate in 0..CANDIDATES {
                let program = self.path(&format!("op{op}-{candidate}.mlir"));
                let text = format!("module @m {{ func.func @main() {{ return }} }} // {op} {candidate}");
                fs::write(&program, text).unwrap();
                let config = json!({"block": candidate});
                rows.push(json!({"config": config, "program_file": program}));
                played.push(json!({"config": config, "epochs": [[played_ns(op, candidate)]],
                                   "outputs": [{"spec": "f32[1]", "hex": "0000803f"}]}));
            }
            let op_id = format!("op{op}@v1");
            let description = json!({
                "target": {"platform": "cpu"}, "op_id": op_id, "call_key": KEY, "baseline": {"block": 0}, "candidates": rows,
                "arguments": [{"name": "x", "spec": "f32[8]", "fill": {"kind": "normal", "scale": 1.0}}],
            });
            let file = self.path(&format!("op{op}.json"));
            fs::write(&file, description.to_string()).unwrap();
            registry.add_described(&file).unwrap();
            recorded.push(json!({"op_id": op_id, "call_key": KEY, "direction": "forward", "candidates": played}));
        }
        writeln!(module, "module @jit_step {{\n  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {{")
            .unwrap();
        writeln!(module, "{body}    return %0 : tensor<8xf32> loc(#at)\n  }} loc(#at)\n}} loc(#at)").unwrap();
        fs::write(self.path("module.mlir"), module).unwrap();
        let device = json!({"identity": {"platform": "cpu", "device_kind": "played", "hardware": {}},
                            "environment": {"platform_version": "cpu"}});
        let recording = json!({"schema": 1, "device": device, "invocations": recorded});
        fs::write(self.path("replay.json"), recording.to_string()).unwrap();
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The arguments of a run.
    pub fn words(&self) -> Vec<String> {
        let timer = format!("replay:{}", self.text("replay.json"));
        let registry = self.text("registry");
        [&self.text("module.mlir"), "--registry", &registry, "--timer", &timer, "--rounds", "8", "--format", "json"]
            .map(str::to_owned)
            .to_vec()
    }

    /// A run whose worker plays the same times; only one operation if `only` names it. The arguments are the worker's.
    pub fn played_command(&self, cache: &Path, arguments: &str, only: &str) -> Command {
        let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/played_worker.py");
        let mut command = program::command(cache);
        command.arg(self.path("module.mlir")).arg("--registry").arg(self.path("registry"));
        command.arg("--timer").arg(format!("command:{} {} {arguments}", python3(), worker.display()));
        if !only.is_empty() {
            command.args(["--only", only]);
        }
        command.args(["--rounds", "8", "--format", "json"]);
        command
    }

    pub fn command(&self, cache: &Path) -> Command {
        let mut command = program::command(cache);
        command.args(self.words());
        command
    }

    pub fn run(&self, cache: &Path) -> Run {
        let words = self.words();
        program::run(cache, &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same through a shell that sets limits first.
    pub fn run_limited(&self, cache: &Path, limits: &str) -> Run {
        let mut shell = Command::new("sh");
        // files that this test inherited would count
        let closed = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
        let script = format!("{closed}; {limits}; exec \"$0\" \"$@\"");
        shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_autotune-lowered"));
        let output = shell.args(self.words()).env("AUTOTUNE_LOWERED_CACHE", cache).env_remove("RUST_LOG").output();
        let output = output.unwrap();
        Run::of(output, &[])
    }

    /// Checks everything that must hold for a folder after any run: `acknowledged` has the operations that the run
    /// reported as decided, with each one's reported rounds. The folder itself stays unchanged.
    pub fn check(&self, cache: &Path, acknowledged: &Acknowledged) {
        if !cache.exists() {
            assert!(acknowledged.decided.is_empty());
            return;
        }
        let log = SampleLog::read(&cache.join(LOG_FILE)).unwrap();
        assert!(log.is_consistent(), "a decision of the log is lost");
        let in_log: Decided = log
            .entries
            .iter()
            .map(|(key, value)| (CacheKey::from_text(key).unwrap(), timeless(&serde_json::from_str(value).unwrap())))
            .collect();
        self.expect_some(&in_log, acknowledged, "the sample log");
        self.check_rounds(cache, &log, acknowledged);
        let snapshot = cache.join(SNAPSHOT_FILE);
        let in_snapshot = if snapshot.exists() { read_snapshot(&snapshot) } else { Decided::new() };
        // a decision is reported after its publication
        let nothing = Acknowledged::default();
        self.expect_some(
            &in_snapshot,
            if acknowledged.is_unpublished { &nothing } else { acknowledged },
            "the snapshot",
        );
        assert!(in_snapshot.iter().all(|(key, entry)| in_log.get(key) == Some(entry)), "the log is written first");

        let copy = tempfile::tempdir_in(self.folder.path()).unwrap();
        copy_folder(cache, copy.path());
        let ledger = Ledger::open(copy.path(), Vec::new()).unwrap();
        assert_eq!(decided_in(&ledger), in_log, "sled holds what the log holds");
        drop(ledger);
        let names = fs::read_dir(copy.path()).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.contains("set-aside") || name.starts_with(".tmp")).collect();
        assert_eq!(left, [] as [String; 0], "a kill leaves nothing behind and breaks nothing");
    }

    fn expect_some(&self, found: &Decided, acknowledged: &Acknowledged, place: &str) {
        for (key, entry) in found {
            assert_eq!(Some(entry), self.expected.get(key), "{place} holds another entry for {}", key.call.op_id);
        }
        for op_id in &acknowledged.decided {
            assert!(
                found.keys().any(|key| key.call.op_id == *op_id),
                "{place} lacks {op_id}, which was reported as decided"
            );
        }
    }

    /// The log has every reported round, intact.
    fn check_rounds(&self, cache: &Path, log: &Replay, acknowledged: &Acknowledged) {
        for (key, entry) in &self.expected {
            let op: usize = key.call.op_id.trim_start_matches("op").trim_end_matches("@v1").parse().unwrap();
            let job = entry.provenance.as_ref().unwrap().job;
            let rounds = log.history_of(&cache.join(LOG_FILE), job).unwrap().rounds;
            let reported = acknowledged.rounds.get(&key.call.op_id).copied().unwrap_or(0);
            assert!(
                rounds.len() >= reported,
                "{}: {} rounds of {reported} reported ones",
                key.call.op_id,
                rounds.len()
            );
            for (place, round) in rounds.iter().enumerate() {
                assert_eq!(round.round as usize, place, "{}: each round once, in order", key.call.op_id);
                for samples in &round.samples {
                    assert!(samples.ns.iter().all(|ns| *ns == played_ns(op, samples.candidate)), "{round:?}");
                }
            }
        }
    }

    /// Every store has all entries of an undisturbed run.
    pub fn check_complete(&self, cache: &Path) {
        let acknowledged = Acknowledged {
            decided: self.expected.keys().map(|key| key.call.op_id.clone()).collect(),
            ..Default::default()
        };
        self.check(cache, &acknowledged);
    }
}

/// A run's reports on stderr.
#[derive(Debug, Clone, Default)]
pub struct Acknowledged {
    pub decided: Vec<String>,
    /// Whether it reported that the snapshot could not be written.
    pub is_unpublished: bool,
    pub rounds: BTreeMap<String, usize>,
}

impl Acknowledged {
    /// Reads the complete lines of a run's stderr.
    pub fn take(&mut self, stderr: &str) {
        self.is_unpublished = stderr.contains("the snapshot was not published");
        let whole = stderr.rfind('\n').map_or("", |end| &stderr[..end]);
        for line in whole.lines() {
            if let Some((op_id, rest)) = line.split_once(&format!(":{KEY}: ")) {
                let is_decided = ["tuned", "baseline kept", "cached"].iter().any(|status| rest.starts_with(status));
                let rounds: Option<usize> =
                    rest.strip_prefix("round ").and_then(|rest| rest.split(' ').next()?.parse().ok());
                let op_id = op_id.rsplit(' ').next().unwrap().to_owned();
                if is_decided && op_id.starts_with("op") && !self.decided.contains(&op_id) {
                    self.decided.push(op_id);
                } else if let Some(rounds) = rounds {
                    let most = self.rounds.entry(op_id).or_default();
                    *most = rounds.max(*most);
                }
            }
        }
    }
}

/// The entry without the time of its decision, and without what depends on which calls its run confirmed beside it:
/// their processes tell the spread between processes.
pub fn timeless(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    if let Some(provenance) = &mut entry.provenance {
        provenance.decided_at = 0;
        provenance.stability = None;
        (provenance.interval.low, provenance.interval.high) = (0.0, 0.0);
    }
    entry
}

pub fn decided_in(ledger: &Ledger) -> Decided {
    ledger.own_entries().unwrap().into_iter().map(|(key, entry)| (key, timeless(&entry))).collect()
}

pub fn read_snapshot(path: &Path) -> Decided {
    let snapshot = Snapshot::open(path, Mapping::WhereLocal).unwrap();
    snapshot.verify().unwrap();
    let read = snapshot.records().map(|record| {
        let record = record.unwrap();
        (record.key.to_key(), timeless(&snapshot.entry(&record).unwrap()))
    });
    read.collect()
}

/// The statuses of the operations of a run's JSON.
pub fn best_configs(result: &Value) -> Vec<(String, Value)> {
    let operations = result["operations"].as_array().unwrap().iter();
    let mut best: Vec<(String, Value)> = operations
        .map(|operation| (operation["op_id"].as_str().unwrap().to_owned(), operation["best"]["config"].clone()))
        .collect();
    best.sort_by(|a, b| a.0.cmp(&b.0));
    best
}

/// The undisturbed entries as a list, to fill stores directly.
pub fn as_pairs(decided: &Decided) -> Vec<(CacheKey, Arc<Entry>)> {
    decided.iter().map(|(key, entry)| (key.clone(), Arc::new(entry.clone()))).collect()
}
