//! How much tuned calls speed up their step.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::counted::counted;
use crate::digest::Digest;
use crate::measured_by::TOOL;
use crate::prove::{Effect, ProveResult};

use super::document::versioned;
use super::figures::format_interval;
use super::grid::{cells, dash};
use super::{Document, Grid, format_ns, format_part, format_ratio, line, write_notes};

/// The contributions of a step's calls, and the snapshot that was written.
#[derive(Debug, Serialize)]
pub struct ProvenStep<'a> {
    tool: &'static str,
    #[serde(flatten)]
    result: &'a ProveResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<WrittenSnapshot<'a>>,
}

#[derive(Debug, Serialize)]
struct WrittenSnapshot<'a> {
    path: &'a Path,
    digest: Digest,
}

impl<'a> ProvenStep<'a> {
    /// Joins the result and the snapshot of the proven set with its digest, if one was written.
    pub fn new(result: &'a ProveResult, snapshot: Option<(&'a Path, Digest)>) -> Self {
        Self { tool: TOOL, result, snapshot: snapshot.map(|(path, digest)| WrittenSnapshot { path, digest }) }
    }

    fn name(&self, call: usize) -> String {
        self.result.calls.get(call).map_or_else(|| "another call".to_owned(), |call| call.call.call.to_string())
    }

    fn write_verdict(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(proven) = &self.result.proven else {
            return writeln!(out, "nothing is proven in this step, so no snapshot is written");
        };
        let (some, all) = (proven.calls.len(), self.result.calls.len());
        line!(out, "proven: {} with {some} of {} tuned", gain(&proven.in_step), counted(all, "call"))?;
        let left = self.result.calls.iter().filter(|call| !call.is_proven).map(|call| call.call.call.to_string());
        let left: Vec<String> = left.collect();
        if !left.is_empty() {
            line!(out, "left out: {}", left.join(", "))?;
        }
        match &self.snapshot {
            Some(WrittenSnapshot { path, digest }) => line!(out, "written: {digest}  {}", path.display()),
            None => writeln!(out, "not written: `-o FILE` writes it as a snapshot"),
        }
    }
}

/// Writes a gain such as `1.061× (1.052–1.070)`.
fn gain(effect: &Effect) -> String {
    let interval = effect.interval.map(|held| format!(" ({})", format_interval(held, 3))).unwrap_or_default();
    format!("{}{interval}", dash(effect.speed_up, ratio))
}

/// Writes a step's ratio, which is close to one.
pub(super) fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}×")
}

impl Document for ProvenStep<'_> {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        // the verdict first: no line begins with a name, which a CI service could mistake for a command
        let mut grid = Grid::new(&["in the step", "call", ">share", ">alone", ">part", "interval", "tuned"]);
        for effect in &self.result.calls {
            let call = &effect.call;
            grid.row(cells![
                effect.in_step.verdict.name(),
                call.call,
                dash(call.share, format_part),
                dash(call.alone, format_ratio),
                dash(effect.in_step.speed_up, ratio),
                dash(effect.in_step.interval, |held| format_interval(held, 3)),
                call.tuned.to_brief()
            ]);
            if let Some(failure) = &effect.in_step.failure {
                grid.line(&failure.to_string());
            }
        }
        grid.write(out)?;
        let ProveResult { device, measured_by, step, baseline_ns, dump_without, notes, .. } = self.result;
        let (timer, metric) = (&measured_by.timer, &measured_by.metric);
        writeln!(out)?;
        line!(
            out,
            "the step takes {} at its baselines; with all tuned it is {} as fast: {}",
            dash(*baseline_ns, format_ns),
            gain(step),
            step.verdict.name()
        )?;
        if let Some(failure) = &step.failure {
            line!(out, "with all tuned: {failure}")?;
        }
        line!(out, "on {} with `{timer}` ({metric})", device.identity)?;
        self.write_verdict(out)?;
        if !dump_without.is_empty() {
            let names: Vec<String> = dump_without.iter().map(|&call| format!("\"{}\"", self.name(call))).collect();
            let names = names.join(", ");
            line!(
                out,
                "several calls lose: `dump(…, variants=…, without=[{names}])` and `prove` again decide on the rest"
            )?;
        }
        write_notes(out, notes)
    }
}
