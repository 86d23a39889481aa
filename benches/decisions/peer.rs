//! ejkernel's own tuner on the same functions, in a Python of the user's.

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
    size: u64,
    seconds: f64,
    winner: Value,
}

#[derive(Deserialize)]
struct Measured {
    size: u64,
    rounds: Rounds,
}

/// What its processes said.
pub(crate) struct Peers {
    version: String,
    tuned: Vec<Vec<Tuned>>,
    own_reference: Vec<Measured>,
}

/// Runs the tuner in fresh processes; the last of them also measures all candidates in its own runtime.
pub(crate) fn run(options: &Options, python: &Path) -> Peers {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/decisions/peer.py");
    let mut peers = Peers { version: String::new(), tuned: Vec::new(), own_reference: Vec::new() };
    for repeat in 1..=options.peer_repeats {
        eprintln!("peer {repeat} of {}", options.peer_repeats);
        let rounds = if repeat == options.peer_repeats { options.rounds } else { 0 };
        let mut command = Command::new(python);
        command.arg(&script).arg(rounds.to_string()).args(options.sizes.iter().map(u64::to_string));
        let said = command.stdin(Stdio::null()).output();
        let said = said.unwrap_or_else(|error| panic!("cannot run `{}`: {error}", python.display()));
        assert!(said.status.success(), "the peer failed: {}", String::from_utf8_lossy(&said.stderr));
        let mut lines = said.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let versions: Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
        peers.version = format!("ejkernel {}, jax {}", versions["ejkernel"], versions["jax"]).replace('"', "");
        let (mut tuned, mut own) = (Vec::new(), Vec::new());
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(one) => tuned.push(one),
                Err(_) => own.push(serde_json::from_slice(line).unwrap()),
            }
        }
        peers.tuned.push(tuned);
        peers.own_reference.extend(own);
    }
    peers
}

/// The peer as it is reported.
#[derive(Serialize)]
pub(crate) struct Peer {
    pub(crate) version: String,
    /// Of the tuner over all sizes, without the start of Python.
    pub(crate) seconds: Summary,
    pub(crate) rows: Vec<Row>,
}

#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) size: u64,
    pub(crate) seconds: Summary,
    /// Against the reference of our plugin's runtime.
    pub(crate) regret: Summary,
    /// Against that of its own runtime.
    pub(crate) own_regret: Summary,
    pub(crate) own_best: String,
    pub(crate) winners: Vec<String>,
}

impl Peers {
    pub(crate) fn judge(&self, programs: &Programs, references: &[Reference]) -> Peer {
        let operations = programs.matmul.operations.iter().zip(references);
        let whole = |tuned: &Vec<Tuned>| tuned.iter().map(|tuned| tuned.seconds).sum();
        Peer {
            version: self.version.clone(),
            seconds: Summary::of(self.tuned.iter().map(whole).collect()),
            rows: operations.map(|(operation, reference)| self.row(operation, &reference.pooled)).collect(),
        }
    }

    fn row(&self, operation: &Operation, ours: &Judged) -> Row {
        let of_size: Vec<&Tuned> = self.tuned.iter().flatten().filter(|tuned| tuned.size == operation.size).collect();
        let winners: Vec<usize> = of_size.iter().map(|tuned| operation.candidate(&tuned.winner).unwrap()).collect();
        let own: Vec<&Rounds> =
            self.own_reference.iter().filter(|own| own.size == operation.size).map(|own| &own.rounds).collect();
        let own = (!own.is_empty()).then(|| Judged::of(&own, operation.len(), operation.baseline));
        let regrets = |judged: &Judged| Summary::of(winners.iter().map(|&winner| judged.regret(winner)).collect());
        Row {
            size: operation.size,
            seconds: Summary::of(of_size.iter().map(|tuned| tuned.seconds).collect()),
            regret: regrets(ours),
            own_regret: own.as_ref().map_or_else(|| Summary::of(Vec::new()), regrets),
            own_best: own.map_or_else(String::new, |own| operation.brief(own.best)),
            winners: winners.iter().map(|&winner| operation.brief(winner)).collect(),
        }
    }
}
