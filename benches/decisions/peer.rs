//! Other tuners on the same functions, in the user's Python, and ejkernel's among them beside our wall time.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::Options;
use crate::programs::{Operation, Programs};
use crate::reference::{Judged, Reference, Rounds};
use crate::summary::Summary;

/// A script of another tuner, and the Python that has the tuner.
#[derive(Clone, Copy)]
pub(crate) struct Script<'a> {
    pub(crate) file: &'static str,
    pub(crate) python: &'a Path,
}

/// The script of ejkernel's tuner.
pub(crate) const EJKERNEL: &str = "peer.py";

#[derive(Deserialize)]
pub(crate) struct Tuned {
    case: String,
    pub(crate) seconds: f64,
    winner: Value,
    /// Whether an earlier process left it in the store.
    pub(crate) is_stored: bool,
}

/// The rounds of one case in a peer's own runtime.
#[derive(Deserialize)]
pub(crate) struct Measured {
    case: String,
    rounds: Rounds,
}

/// What one process of a script printed.
pub(crate) struct Said {
    pub(crate) version: String,
    tuned: Vec<Tuned>,
    pub(crate) own_reference: Vec<Measured>,
}

impl Script<'_> {
    /// Tunes all cases in a fresh process, which then measures all candidates in its own runtime for some rounds.
    pub(crate) fn run(&self, options: &Options, rounds: usize, store: Option<&Path>) -> Said {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/decisions").join(self.file);
        let mut command = Command::new(self.python);
        command.arg(&script).arg(rounds.to_string()).arg(store.unwrap_or(Path::new("-"))).args(&options.cases);
        let output = command.stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run `{}`: {error}", self.python.display()));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{}` failed: {complaint}", self.file);
        let mut lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let version = serde_json::from_slice(lines.next().unwrap()).unwrap();
        let mut said = Said { version, tuned: Vec::new(), own_reference: Vec::new() };
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(one) => said.tuned.push(one),
                Err(_) => said.own_reference.push(serde_json::from_slice(line).unwrap()),
            }
        }
        said
    }
}

impl Said {
    /// The result for a case, with the candidate that won.
    pub(crate) fn of_case(&self, operation: &Operation) -> (&Tuned, usize) {
        let tuned = self.tuned.iter().find(|tuned| tuned.case == operation.name).unwrap();
        (tuned, operation.candidate(&tuned.winner).unwrap())
    }
}

/// The reference of one case in the peers' own runtime, all its rounds together; none if nothing was measured.
pub(crate) fn own_reference<'a>(
    measured: impl IntoIterator<Item = &'a Measured>,
    operation: &Operation,
) -> Option<Judged> {
    let of_case = measured.into_iter().filter(|own| own.case == operation.name);
    let own: Vec<&Rounds> = of_case.map(|own| &own.rounds).collect();
    (!own.is_empty()).then(|| Judged::of(&own, operation.len(), operation.baseline))
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
    /// Runs the tuner once, which then measures all candidates in its own runtime for some rounds.
    pub(crate) fn take(&mut self, options: &Options, python: &Path, rounds: usize) {
        let said = Script { file: EJKERNEL, python }.run(options, rounds, None);
        self.version = said.version;
        self.own_reference.extend(said.own_reference);
        self.tuned.push(said.tuned);
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
        let own = own_reference(&quiet.own_reference, operation);
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
