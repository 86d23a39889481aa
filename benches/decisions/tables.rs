//! The report as Markdown.

use std::fmt::{Display, Write};

use crate::Report;
use crate::flips::{Compared, Figures, Part, Row};
use crate::summary::{Summary, mean};
use crate::wall::Wall;

pub(crate) fn markdown(report: &Report) -> String {
    let mut out = String::new();
    let part = |(name, seconds, load): &(String, f64, f64)| format!("{name} {seconds:.0} s, load {load}");
    let parts = report.parts.iter().map(part).collect::<Vec<_>>().join("; ");
    let _ = writeln!(out, "{}; {} cores. {parts}.\n", report.tool, report.cores);
    let sections = [references(report), repeats(report), wall(report), peer(report), aa(report), flips(report)];
    out.push_str(&sections.into_iter().flatten().collect::<Vec<_>>().join("\n"));
    out
}

/// A title and a table; nothing if it has no row.
fn table<const N: usize>(title: &str, head: [&str; N], rows: Vec<[String; N]>) -> Option<String> {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("{title}\n\n{}{}", line(&head.map(str::to_owned)), line(&["---"; N].map(str::to_owned)));
    for row in &rows {
        out.push_str(&line(row));
    }
    (!rows.is_empty()).then_some(out)
}

fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:.1} %", part * 100.0) } else { "–".to_owned() }
}

fn seconds(summary: &Summary) -> String {
    spread(summary, |seconds| format!("{seconds:.2}"))
}

/// `median (lower to upper quartile)`.
fn spread(summary: &Summary, text: impl Fn(f64) -> String) -> String {
    if summary.n == 0 {
        return "–".to_owned();
    }
    format!("{} ({} to {})", text(summary.median), text(summary.low_quartile), text(summary.high_quartile))
}

fn median_p95_most(summary: &Summary) -> String {
    let [median, p95, most] = [summary.median, summary.p95, summary.most].map(percent);
    format!("{median} / {p95} / {most}")
}

fn part(some: impl Display, all: impl Display) -> String {
    format!("{some} of {all}")
}

/// Distinct names with their counts, most frequent first.
fn counted(names: &[String]) -> String {
    let mut counts: Vec<(usize, &String)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(_, known)| *known == name) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, name)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counts.iter().map(|(count, name)| format!("{name} ({count})")).collect::<Vec<_>>().join(", ")
}

fn references(report: &Report) -> Option<String> {
    let rows = report.reference.iter().map(|row| {
        [
            row.load.to_string(),
            row.case.clone(),
            format!("{}, {:.1} µs", row.best, row.best_ns / 1e3),
            percent(row.second_regret),
            percent(row.slowest_regret),
            format!("{}, {}", row.baseline, percent(row.baseline_regret)),
            format!("{} at {}", row.ties, percent(row.resolution)),
            median_p95_most(&row.halves_differ),
            row.halves_regret.map(percent).join(", "),
            format!("{:.2} ({} and {} ties)", row.halves_jaccard, row.ties_of_halves[0], row.ties_of_halves[1]),
        ]
    });
    table(
        "The reference, and how far its two halves differ:",
        [
            "busy processes",
            "case",
            "best",
            "second slower by",
            "slowest by",
            "baseline, by",
            "tied with the best",
            "the halves' ratios differ by: median / 95th percentile / worst",
            "regret of each half's best in the other",
            "Jaccard index of their tie sets",
        ],
        rows.collect(),
    )
}

fn repeats(report: &Report) -> Option<String> {
    let regrets = report.repeats.iter().map(|row| {
        [
            row.load.to_string(),
            row.case.clone(),
            row.min_improvement.clone(),
            row.n.to_string(),
            median_p95_most(&row.regret),
            percent(row.allowed),
            row.regret_of_halves.each_ref().map(|half| percent(half.p95)).join(", "),
            part(row.winners_tied, row.n),
            counted(&row.winners),
        ]
    });
    let sets = report.repeats.iter().map(|row| {
        [
            row.load.to_string(),
            row.case.clone(),
            row.min_improvement.clone(),
            spread(&row.resolution, percent),
            part(row.runs_with_slower, row.n),
            percent(row.slowest_tied),
            format!("{:.2}", row.jaccard),
            spread(&row.ties, |ties| format!("{ties:.0}")),
            spread(&row.rounds, |rounds| format!("{rounds:.0}")),
            seconds(&row.seconds),
            row.undecided.to_string(),
        ]
    });
    let regrets = table(
        "Winners:",
        [
            "busy processes",
            "case",
            "minimum improvement",
            "n",
            "regret: median / 95th percentile / worst",
            "allowed",
            "95th percentile against each half",
            "winner in the reference's tie set",
            "winners",
        ],
        regrets.collect(),
    )?;
    let sets = table(
        "Tie sets:",
        [
            "busy processes",
            "case",
            "minimum improvement",
            "resolution",
            "runs that tie one slower by over twice that",
            "slowest tied",
            "mean Jaccard index",
            "ties",
            "rounds",
            "seconds of the run, all cases",
            "undecided",
        ],
        sets.collect(),
    )?;
    Some(format!("{regrets}\n{sets}"))
}

fn wall(report: &Report) -> Option<String> {
    let rows = report.wall.iter().flat_map(|wall| wall_rows(report, wall));
    let head = ["busy processes", "what", "median (quartiles)", "n", "over the bound", "over the first run"];
    table("Wall time, seconds:", head, rows.collect())
}

/// The rows for one load.
fn wall_rows(report: &Report, wall: &Wall) -> Vec<[String; 6]> {
    let Wall { first, bound, measuring_share, .. } = wall;
    let row = |what: &str, shown: String, n: String, value: f64| {
        let over = |what: f64| format!("{:.2}", value / what);
        [wall.load.to_string(), what.to_owned(), shown, n, over(*bound), over(first.median)]
    };
    let timed = |what: &str, summary: &Summary| row(what, seconds(summary), summary.n.to_string(), summary.median);
    let plain = |what: &str, value: f64| row(what, format!("{value:.2}"), String::new(), value);
    let mut rows = vec![timed(&format!("first run, {} programs", wall.programs), first)];
    if wall.thorough.n > 0 {
        rows.push(timed("first run, `--thorough`", &wall.thorough));
    }
    if wall.by_jax.n > 0 {
        rows.push(timed("first run, `--timer jax`", &wall.by_jax));
    }
    rows.push(timed("nothing new", &wall.nothing_new));
    rows.push(timed("`--force`, executables kept", &wall.force));
    if let Some(peer) = report.peer.iter().find(|peer| peer.load == wall.load) {
        rows.push(timed(&format!("{}, `Tuner`", peer.version), &peer.seconds));
    }
    rows.push(timed("processor time of compiling, one at a time", &wall.compile_cpu));
    rows.push(plain("one run of each candidate at its reference time", wall.one_run_of_each));
    rows.push(plain(&format!("compile processor time ÷ {} cores + 20 runs of each", report.cores), *bound));
    rows.extend(wall.spent.iter().map(|(name, spent)| timed(&format!("first run: {name}"), spent)));
    let (load, share, n) = (wall.load.to_string(), spread(measuring_share, percent), measuring_share.n.to_string());
    rows.push([load, "measuring over the whole first run".to_owned(), share, n, String::new(), String::new()]);
    rows
}

fn peer(report: &Report) -> Option<String> {
    let rows = report.peer.iter().flat_map(|peer| peer.rows.iter().map(|row| (peer.load, row))).map(|(load, row)| {
        [
            load.to_string(),
            row.case.clone(),
            row.seconds.n.to_string(),
            seconds(&row.seconds),
            median_p95_most(&row.regret),
            median_p95_most(&row.own_regret),
            row.own_best.clone(),
            counted(&row.winners),
        ]
    });
    table(
        &format!("{}, `Tuner` at its defaults:", report.peer.first()?.version),
        [
            "busy processes",
            "case",
            "n",
            "seconds",
            "regret here: median / 95th percentile / worst",
            "regret in its own runtime",
            "best there",
            "winners",
        ],
        rows.collect(),
    )
}

fn aa(report: &Report) -> Option<String> {
    let rows = report.aa.iter().map(|row| {
        [
            row.load.to_string(),
            row.n.to_string(),
            row.false_wins.to_string(),
            percent(row.rate_at_most),
            row.undecided.to_string(),
            median_p95_most(&row.largest_difference),
            spread(&row.resolution, percent),
            part(format!("{:.0}", row.ties.median), row.names),
            spread(&row.rounds, |rounds| format!("{rounds:.0}")),
            seconds(&row.seconds),
        ]
    });
    table(
        "One kernel under eight names:",
        [
            "busy processes",
            "runs",
            "false wins",
            "rate at most (95 %)",
            "undecided",
            "largest difference: median / 95th percentile / worst",
            "resolution",
            "tied, median",
            "rounds",
            "seconds",
        ],
        rows.collect(),
    )
}

fn flips(report: &Report) -> Option<String> {
    let tables: Vec<String> =
        report.flips.iter().flat_map(|of| [five_numbers(of), flips_by_case(of)]).flatten().collect();
    (!tables.is_empty()).then(|| tables.join("\n"))
}

/// The five numbers of each tuner under one load.
fn five_numbers(compared: &Compared) -> Option<String> {
    let row = |of: &Figures| {
        [
            of.tuner.clone(),
            of.seconds.n.to_string(),
            percent(of.mean_regret),
            median_p95_most(&of.regret),
            share(&of.top_1),
            format!("{}, {}", percent(mean(&of.flips.values)), spread(&of.flips, percent)),
            of.replayed.as_ref().map_or_else(|| "–".to_owned(), share),
            share(&of.ranks_agree),
            share(&of.undecided),
            seconds(&of.seconds),
        ]
    };
    table(
        &format!("Fresh runs of each tuner beside {} busy processes, all cases:", compared.load),
        [
            "tuner",
            "runs",
            "mean regret",
            "regret: median / 95th percentile / worst",
            "top-1",
            "flips: mean over the cases, median (quartiles)",
            "replayed",
            "cases in which four ranks agree",
            "undecided",
            "seconds of a run",
        ],
        compared.tuners.iter().map(row).collect(),
    )
}

fn flips_by_case(compared: &Compared) -> Option<String> {
    let row = |(tuner, row): (&str, &Row)| {
        [
            row.case.clone(),
            tuner.to_owned(),
            percent(row.mean_regret),
            median_p95_most(&row.regret),
            median_p95_most(&row.regret_here),
            share(&row.top_1),
            percent(row.flips),
            row.replayed.as_ref().map_or_else(|| "–".to_owned(), share),
            row.best.clone(),
            counted(&row.configs),
            counted(&row.configs_of_ranks),
        ]
    };
    let mut rows: Vec<(&str, &Row)> =
        compared.tuners.iter().flat_map(|of| of.cases.iter().map(|row| (of.tuner.as_str(), row))).collect();
    // the tuners of a case below each other; the sort is stable
    let order: Vec<&String> = compared.tuners.first()?.cases.iter().map(|row| &row.case).collect();
    rows.sort_by_key(|(_, row)| order.iter().position(|&case| *case == row.case));
    table(
        &format!("The same by case, beside {} busy processes:", compared.load),
        [
            "case",
            "tuner",
            "mean regret",
            "regret in its own runtime: median / 95th percentile / worst",
            "regret here",
            "top-1",
            "flips",
            "replayed",
            "best there",
            "configs of the runs",
            "of four ranks",
        ],
        rows.into_iter().map(row).collect(),
    )
}

fn share(of: &Part) -> String {
    part(of.some, of.all)
}
