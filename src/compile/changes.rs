//! How the figures of programs changed between two compilers: of each program, and over all.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::figure::CompiledFigure;
use crate::config::Config;
use crate::timer::pjrt::{CompileOutcome, CompiledFor};
use crate::timer::protocol::KernelUse;

/// A program that compiled before and compiles now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramChange {
    /// The call and its direction, or the module's file.
    pub operation: String,
    /// The config.
    pub config: Config,
    /// The figure that changed most, seconds aside; `None` if none changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_most: Option<CompiledFigure>,
    /// The figures that at least one of the stores knows.
    pub figures: Vec<FigureChange>,
    /// The kernels that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelChange>,
}

/// A figure before and now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FigureChange {
    /// Which.
    pub figure: CompiledFigure,
    /// What it was; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// What it is; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
    /// Now over before; `None` if one of them is unknown or zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// A kernel that only one of the compilers made, or that differs. Kernels belong together by a name that occurs once on
/// each side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelChange {
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<KernelUse>,
    /// What it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<KernelUse>,
}

/// The ratios of a figure over all programs that compiled before and compile now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FigureSummary {
    /// Which.
    pub figure: CompiledFigure,
    /// Programs with a ratio.
    pub programs: usize,
    /// Geometric mean of the ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
    /// The smallest ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ratio: Option<f64>,
    /// The largest ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ratio: Option<f64>,
    /// Programs in which it was zero and is no longer.
    pub from_zero: usize,
    /// Programs in which it became zero.
    pub to_zero: usize,
    /// Programs in which one of the stores does not know it.
    pub unknown: usize,
}

impl FigureChange {
    fn of(figure: CompiledFigure, before: &CompileOutcome, now: &CompileOutcome) -> Option<Self> {
        let (before, now) = (figure.of(before), figure.of(now));
        let ratio = match (before, now) {
            (None, None) => return None,
            (Some(before), Some(now)) if before == now => Some(1.0),
            (Some(before), Some(now)) => Some(now / before).filter(|ratio| ratio.is_normal()),
            _ => None,
        };
        Some(Self { figure, before, now, ratio })
    }

    /// The size of the change as a logarithm of the ratio. One is added to both figures, because zero has no logarithm.
    /// Seconds count as unchanged, because they depend on what else the machine did.
    fn size(&self) -> f64 {
        match self.before.zip(self.now) {
            Some((before, now)) if self.figure != CompiledFigure::Seconds => (now.ln_1p() - before.ln_1p()).abs(),
            _ => 0.0,
        }
    }
}

impl ProgramChange {
    /// Compares two outcomes of a program; `None` if one of them is not an executable.
    pub(super) fn of(program: &CompiledFor, before: &CompileOutcome, now: &CompileOutcome) -> Option<Self> {
        let (
            CompileOutcome::Compiled { kernels: kernels_before, .. },
            CompileOutcome::Compiled { kernels: kernels_now, .. },
        ) = (before, now)
        else {
            return None;
        };
        let figures = CompiledFigure::ALL.into_iter().filter_map(|(figure, _)| FigureChange::of(figure, before, now));
        let figures: Vec<FigureChange> = figures.collect();
        // of equal ones the first
        let largest = figures.iter().rev().filter(|change| change.size() > 0.0);
        let largest = largest.max_by(|one, other| one.size().total_cmp(&other.size()));
        Some(Self {
            operation: program.operation.clone(),
            config: program.config.clone(),
            changed_most: largest.map(|change| change.figure),
            figures,
            kernels: kernel_changes(kernels_before, kernels_now),
        })
    }

    /// The change of a figure.
    pub fn figure(&self, figure: CompiledFigure) -> Option<&FigureChange> {
        self.figures.iter().find(|change| change.figure == figure)
    }

    fn size(&self) -> f64 {
        self.changed_most.and_then(|figure| self.figure(figure)).map_or(0.0, FigureChange::size)
    }
}

/// The kernels of two compilations that differ.
fn kernel_changes(before: &[KernelUse], now: &[KernelUse]) -> Vec<KernelChange> {
    // without kernels they are unknown
    if before.is_empty() || now.is_empty() {
        return Vec::new();
    }
    let (mut before, mut now) = (by_name(before), by_name(now));
    let names: BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    let pairs =
        names.into_iter().map(|name| (before.remove(name).unwrap_or_default(), now.remove(name).unwrap_or_default()));
    let one_each = pairs.filter(|(before, now)| before.len() < 2 && now.len() < 2 && before != now);
    let change = |(before, now): (Vec<&KernelUse>, Vec<&KernelUse>)| KernelChange {
        before: before.first().copied().cloned(),
        now: now.first().copied().cloned(),
    };
    one_each.map(change).collect()
}

fn by_name(kernels: &[KernelUse]) -> BTreeMap<&str, Vec<&KernelUse>> {
    let mut named: BTreeMap<&str, Vec<&KernelUse>> = BTreeMap::new();
    for kernel in kernels {
        named.entry(&kernel.name).or_default().push(kernel);
    }
    named
}

/// Puts the programs that changed most first.
pub(super) fn rank(changes: &mut [ProgramChange]) {
    changes.sort_by(|one, other| other.size().total_cmp(&one.size()));
}

/// The ratios of each figure that any of the programs has.
pub(super) fn summaries(changes: &[ProgramChange]) -> Vec<FigureSummary> {
    let figures = CompiledFigure::ALL.into_iter().map(|(figure, _)| figure);
    let known = figures.filter(|figure| changes.iter().any(|change| change.figure(*figure).is_some()));
    known.map(|figure| FigureSummary::of(figure, changes)).collect()
}

impl FigureSummary {
    fn of(figure: CompiledFigure, changes: &[ProgramChange]) -> Self {
        let pair = |change: &FigureChange| change.before.zip(change.now);
        let pairs: Vec<(f64, f64)> = changes.iter().filter_map(|change| change.figure(figure).and_then(pair)).collect();
        let ratios = changes.iter().filter_map(|change| change.figure(figure)?.ratio);
        let programs = ratios.clone().count();
        let logarithms = ratios.clone().map(f64::ln).sum::<f64>();
        Self {
            figure,
            programs,
            mean_ratio: (programs > 0).then(|| (logarithms / programs as f64).exp()),
            min_ratio: ratios.clone().reduce(f64::min),
            max_ratio: ratios.reduce(f64::max),
            from_zero: pairs.iter().filter(|(before, now)| *before == 0.0 && *now > 0.0).count(),
            to_zero: pairs.iter().filter(|(before, now)| *before > 0.0 && *now == 0.0).count(),
            unknown: changes.len() - pairs.len(),
        }
    }
}
