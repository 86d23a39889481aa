//! How compiled programs changed against an earlier store.

use std::io::{self, Write};

use crate::compile::{CompiledFigure, FigureChange, FigureSummary, FigureUnit, ProgramChange, StoreComparison};
use crate::counted::counted;

use super::document::write_more;
use super::grid::dash;
use super::lines::heading;
use super::{Grid, format_bytes, line};

/// Most regressions, and most programs in the table.
const TOP: usize = 10;
const JSON_HAS_ALL: &str = "; `--format json` has all";

/// Writes what is worse than in the baseline, the ratios of all figures, and the programs that changed most.
pub(super) fn write_comparison(comparison: &StoreComparison, out: &mut dyn Write) -> io::Result<()> {
    let besides = |count: usize, which: &str| match count {
        0 => String::new(),
        count => format!("; {} {which}", counted(count, "program")),
    };
    let regressions = counted(comparison.regressions.len(), "regression");
    let compared = counted(comparison.compared, "program");
    let unknown = besides(comparison.unknown, "not in it");
    let only = besides(comparison.only_in_baseline, "only in it");
    line!(out, "{regressions} in {compared} that the baseline has{unknown}{only}")?;
    for regression in comparison.regressions.iter().take(TOP) {
        line!(out, "  {regression}")?;
    }
    write_more(out, TOP, comparison.regressions.len(), JSON_HAS_ALL)?;
    match comparison.changes.as_slice() {
        [] => Ok(()),
        [change] => write_one(change, out),
        _ => {
            heading(out, "figures over the baseline's")?;
            write_figures(&comparison.figures, out)?;
            write_changes(comparison, out)
        }
    }
}

/// Writes the figures of the only program.
fn write_one(change: &ProgramChange, out: &mut dyn Write) -> io::Result<()> {
    heading(out, "figures beside the baseline's")?;
    let mut grid = Grid::new(&["figure", ">before", ">now", ">ratio"]);
    for of in &change.figures {
        let amount = |value| dash(value, |value| amount(of.figure, value));
        grid.row([of.figure.name().to_owned(), amount(of.before), amount(of.now), dash(of.ratio, ratio)]);
    }
    kernels_of_one_side(change).iter().for_each(|kernels| grid.line(kernels));
    grid.write(out)
}

fn write_figures(figures: &[FigureSummary], out: &mut dyn Write) -> io::Result<()> {
    let mut grid = Grid::new(&["figure", ">programs", ">mean", ">lowest", ">highest", "other programs"]);
    for summary in figures {
        let others = [(summary.from_zero, "from zero"), (summary.to_zero, "to zero"), (summary.unknown, "unknown")];
        let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, which)| format!("{count} {which}"));
        let cell = |value: Option<f64>| dash(value, ratio);
        grid.row([
            summary.figure.name().to_owned(),
            summary.programs.to_string(),
            cell(summary.mean_ratio),
            cell(summary.min_ratio),
            cell(summary.max_ratio),
            others.collect::<Vec<_>>().join(", "),
        ]);
    }
    grid.write(out)
}

/// Writes the programs that changed most, with the figures that changed in any of them.
fn write_changes(comparison: &StoreComparison, out: &mut dyn Write) -> io::Result<()> {
    let changed: Vec<&ProgramChange> =
        comparison.changes.iter().filter(|change| change.changed_most.is_some()).collect();
    let same = comparison.changes.len() - changed.len();
    if changed.is_empty() {
        return line!(out, "no figure but seconds changed in {}", counted(same, "program"));
    }
    let differs = |change: &FigureChange| change.ratio != Some(1.0);
    let is_shown = |figure: &CompiledFigure| changed.iter().any(|change| change.figure(*figure).is_some_and(differs));
    let shown: Vec<CompiledFigure> =
        CompiledFigure::ALL.into_iter().map(|(figure, _)| figure).filter(is_shown).collect();
    heading(out, "programs that changed most")?;
    let names: Vec<String> = shown.iter().map(|figure| format!(">{}", figure.name())).collect();
    let headings = names.iter().map(String::as_str).chain(["changed most", "program"]).collect::<Vec<_>>();
    let mut grid = Grid::new(&headings);
    for change in changed.iter().take(TOP) {
        let most = change.changed_most.and_then(|figure| change.figure(figure));
        let most = dash(most, |most| format!("{} {}", most.figure.name(), from_to(most)));
        let ratios = shown.iter().map(|figure| dash(change.figure(*figure), short));
        grid.row(ratios.chain([most, format!("{} {}", change.operation, change.config)]));
        kernels_of_one_side(change).iter().for_each(|kernels| grid.line(kernels));
    }
    grid.write(out)?;
    write_more(out, TOP, changed.len(), JSON_HAS_ALL)?;
    if same > 0 {
        line!(out, "no figure but seconds changed in {}", counted(same, "other program"))?;
    }
    Ok(())
}

/// Says how many kernels only one of the compilers made.
fn kernels_of_one_side(change: &ProgramChange) -> Option<String> {
    let before = change.kernels.iter().filter(|kernel| kernel.now.is_none()).count();
    let now = change.kernels.iter().filter(|kernel| kernel.before.is_none()).count();
    let text = || format!("{} only before, {} only now", counted(before, "kernel"), counted(now, "kernel"));
    (before + now > 0).then(text)
}

/// Writes a change as its ratio, or as both figures if there is none.
fn short(change: &FigureChange) -> String {
    change.ratio.map_or_else(|| from_to(change), ratio)
}

fn from_to(change: &FigureChange) -> String {
    let amount = |value| dash(value, |value| amount(change.figure, value));
    format!("{} → {}", amount(change.before), amount(change.now))
}

fn amount(figure: CompiledFigure, value: f64) -> String {
    match figure.unit() {
        FigureUnit::Bytes => format_bytes(value as u64),
        FigureUnit::Seconds => format!("{value:.2} s"),
        FigureUnit::Count => value.to_string(),
    }
}

/// Writes a ratio with three decimals: compilers are compared exactly, so a change of a part in a thousand counts.
fn ratio(ratio: f64) -> String {
    format!("{ratio:.3}×")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(comparison: serde_json::Value) -> String {
        let mut out = Vec::new();
        write_comparison(&serde_json::from_value(comparison).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn at_most_ten_programs_are_shown_with_the_figures_that_changed() {
        let bundles = json!({"figure": "bundles", "before": 1000, "now": 970, "ratio": 0.97});
        let figures = json!([{"figure": "memory", "before": 8, "now": 8, "ratio": 1.0}, bundles,
                             {"figure": "vmem", "now": 4096}, {"figure": "stack", "before": 0, "now": 3384}]);
        let changed = json!({"operation": "op@v1:k", "config": {"block": 1}, "changed_most": "stack",
                             "figures": figures, "kernels": [{"now": {"name": "new", "code_bytes": 1, "registers": 1,
                                                                      "stack_bytes": 0, "shared_bytes": 0}}]});
        let same = json!({"operation": "op@v1:k", "config": {"block": 2}, "figures": []});
        let mut changes = vec![changed; 12];
        changes.push(same);
        let summary = json!({"figure": "stack", "programs": 1, "mean_ratio": 1.0, "min_ratio": 1.0, "max_ratio": 1.0,
                             "from_zero": 12, "to_zero": 0, "unknown": 3});
        let shown = shown(json!({"compared": 13, "unknown": 0, "only_in_baseline": 2, "regressions": [],
                                 "figures": [summary], "changes": changes}));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "0 regressions in 13 programs that the baseline has; 2 programs only in it");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[4]), "stack 1 1.000× 1.000× 1.000× 12 from zero, 3 unknown");
        assert_eq!(words(lines[7]), "bundles vmem stack changed most program");
        let row = r#"0.970× — → 4.10 kB 0 B → 3.38 kB stack 0 B → 3.38 kB op@v1:k {"block":1}"#;
        assert_eq!(lines.iter().filter(|line| words(line) == row).count(), 10, "{shown}");
        assert_eq!(lines[9], "    0 kernels only before, 1 kernel only now");
        let last = ["and 2 more; `--format json` has all", "no figure but seconds changed in 1 other program"];
        assert_eq!(lines[lines.len() - 2..], last, "{shown}");
    }

    #[test]
    fn programs_with_the_same_figures_have_no_table() {
        let change = json!({"operation": "op@v1:k", "config": {}, "figures": []});
        let summary = json!({"figure": "seconds", "programs": 2, "mean_ratio": 0.5, "min_ratio": 0.5, "max_ratio": 0.5,
                             "from_zero": 0, "to_zero": 0, "unknown": 0});
        let shown = shown(json!({"compared": 2, "unknown": 1, "only_in_baseline": 0, "regressions": [],
                                 "figures": [summary], "changes": [change, change]}));
        assert!(
            shown.starts_with("0 regressions in 2 programs that the baseline has; 1 program not in it\n"),
            "{shown}"
        );
        assert!(shown.ends_with("no figure but seconds changed in 2 programs\n") && !shown.contains("most"), "{shown}");
    }

    #[test]
    fn one_program_has_each_figure_before_and_now() {
        let figures = json!([{"figure": "vmem", "before": 4096, "now": 2048, "ratio": 0.5},
                             {"figure": "bundles", "now": 298},
                             {"figure": "seconds", "before": 1.5, "now": 1.25, "ratio": 0.8333}]);
        let change = json!({"operation": "op@v1:k", "config": {}, "changed_most": "vmem", "figures": figures});
        let shown = shown(json!({"compared": 1, "unknown": 0, "only_in_baseline": 0, "regressions": [], "figures": [],
                                 "changes": [change]}));
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows: Vec<String> = shown.lines().skip(3).map(words).collect();
        let expected = [
            "figure before now ratio",
            "vmem 4.10 kB 2.05 kB 0.500×",
            "bundles — 298 —",
            "seconds 1.50 s 1.25 s 0.833×",
        ];
        assert_eq!(rows, expected, "{shown}");
    }
}
