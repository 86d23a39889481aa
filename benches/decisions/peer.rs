//! ejkernel's own tuner on the same functions, in the user's Python.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::Options;
use crate::programs::{Operation, Programs};
use crate::reference::{Judged, Reference, Rounds};
use crate::summary::Summary;

#[derive(Deserialize)]
struct Tuned {
    case: String,
    seconds: f64,
    winner: Value,
}

#[derive(Deserialize)]
struct Measured {
    case: String,
    rounds: Rounds,
}

/// The results of its processes.
#[derive(Default)]
pub(crate) struct Peers {
    version: String,
    tuned: Vec<Vec<Tuned>>,
    own_reference: Vec<Measured>,
}

/// The peer's row in the report.
#[derive(Serialize)]
pub(crate) struct Peer {
    /// Busy processes during its runs.
    pub(crate) load: usize,
    pub(crate) version: String,
    /// The tuner's time over all cases, without the start of Python.
    pub(crate) seconds: Summary,
    pub(crate) rows: Vec<Row>,
}

#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) seconds: Summary,
    /// Relative to the reference of our plugin's runtime.
    pub(crate) regret: Summary,
    /// Relative to the reference of its own runtime.
    pub(crate) own_regret: Summary,
    pub(crate) own_best: String,
    pub(crate) winners: Vec<String>,
}

impl Peers {
    /// Runs the tuner in a fresh process, which then measures all candidates in its own runtime for some rounds.
    pub(crate) fn take(&mut self, options: &Options, python: &Path, rounds: usize) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/decisions/peer.py");
        let mut command = Command::new(python);
        command.arg(&script).arg(rounds.to_string()).args(&options.cases);
        let said = command.stdin(Stdio::null()).output();
        let said = said.unwrap_or_else(|error| panic!("cannot run `{}`: {error}", python.display()));
        assert!(said.status.success(), "the peer failed: {}", String::from_utf8_lossy(&said.stderr));
        let mut lines = said.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let versions: Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
        self.version = format!("ejkernel {}, jax {}", versions["ejkernel"], versions["jax"]).replace('"', "");
        let mut tuned = Vec::new();
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(one) => tuned.push(one),
                Err(_) => self.own_reference.push(serde_json::from_slice(line).unwrap()),
            }
        }
        self.tuned.push(tuned);
    }

    /// Judges by the reference of our plugin's runtime, and by that of its own, which `quiet` measured.
    pub(crate) fn judge(&self, load: usize, quiet: &Self, programs: &Programs, references: &[Reference]) -> Peer {
        let operations = programs.cases.operations.iter().zip(references);
        let whole = |tuned: &Vec<Tuned>| tuned.iter().map(|tuned| tuned.seconds).sum();
        let row = |(operation, reference): (&Operation, &Reference)| self.row(operation, &reference.pooled, quiet);
        Peer {
            load,
            version: self.version.clone(),
            seconds: Summary::of(self.tuned.iter().map(whole).collect()),
            rows: operations.map(row).collect(),
        }
    }

    fn row(&self, operation: &Operation, ours: &Judged, quiet: &Self) -> Row {
        let of_case: Vec<&Tuned> = self.tuned.iter().flatten().filter(|tuned| tuned.case == operation.name).collect();
        let winners: Vec<usize> = of_case.iter().map(|tuned| operation.candidate(&tuned.winner).unwrap()).collect();
        let own: Vec<&Rounds> =
            quiet.own_reference.iter().filter(|own| own.case == operation.name).map(|own| &own.rounds).collect();
        let own = (!own.is_empty()).then(|| Judged::of(&own, operation.len(), operation.baseline));
        let regrets = |judged: &Judged| Summary::of(winners.iter().map(|&winner| judged.regret(winner)).collect());
        Row {
            case: operation.name.clone(),
            seconds: Summary::of(of_case.iter().map(|tuned| tuned.seconds).collect()),
            regret: regrets(ours),
            own_regret: own.as_ref().map_or_else(|| Summary::of(Vec::new()), regrets),
            own_best: own.map_or_else(String::new, |own| operation.brief(own.best)),
            winners: winners.iter().map(|&winner| operation.brief(winner)).collect(),
        }
    }
}
