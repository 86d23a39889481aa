//! The documents agree with the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use autotune_lowered::cli::exit;

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_readme_lists_every_exit_code() {
    let readme = document("README.md");
    for (code, meaning) in exit::TABLE {
        assert!(readme.contains(&format!("| {code} | {meaning} |")), "{code}: {meaning}");
    }
}

#[test]
fn a_version_is_the_same_in_every_place_and_has_its_changes() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(document("python/autotune_lowered/_version.py").trim(), format!("__version__ = \"{version}\""));
    let changes = document("CHANGELOG.md");
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(newest.split(' ').next(), Some(version), "CHANGELOG.md");
}

/// The figures of the search benchmark: the means match the columns, values below random are marked, and the text
/// agrees with the table.
#[test]
fn the_figures_of_the_search_benchmark_agree_with_each_other() {
    let page = document("docs/search.md");
    let (_, figures) = page.split_once("\n## Figures\n").unwrap();
    // for each strategy: its owner, the stated mean, milliseconds per evaluation, and the score on each space
    let rows: BTreeMap<&str, (&str, f64, f64, Vec<f64>)> = figures
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .map(|(strategy, cells)| {
            let cells: Vec<&str> = cells.split(" | ").collect();
            assert!(cells[1..].iter().skip(2).all(|cell| cell.starts_with('-') == cell.ends_with('*')), "{strategy}");
            let numbers: Vec<f64> = cells[1..].iter().map(|cell| cell.trim_end_matches('*').parse().unwrap()).collect();
            (strategy, (cells[0], numbers[0], numbers[1], numbers[2..].to_vec()))
        })
        .collect();
    let mean_of = |strategy: &str, skipped: &[usize]| {
        let scores = rows[strategy].3.iter().enumerate().filter(|(space, _)| !skipped.contains(space));
        let scores: Vec<f64> = scores.map(|(_, score)| *score).collect();
        scores.iter().sum::<f64>() / scores.len() as f64
    };
    for (strategy, (_, mean, _, scores)) in &rows {
        assert_eq!(scores.len(), 12, "{strategy}");
        assert!((mean_of(strategy, &[]) - mean).abs() < 0.001, "{strategy}: {mean}");
    }
    let peers = rows.iter().filter(|(_, row)| row.0.starts_with("kernel_tuner"));
    let (best, _) = peers.max_by(|a, b| a.1.1.total_cmp(&b.1.1)).unwrap();
    assert_eq!(*best, "simulated_annealing");
    let (_, mean, ms, _) = rows["auto"];
    let words = figures.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = |told: String| assert!(words.contains(&told), "docs/search.md does not say `{told}`");
    said(format!("`auto` reaches {:.2} times the mean score of Kernel Tuner's best, `{best}`", mean / rows[best].1));
    said(format!("{mean:.3} in absolute terms (aim 0.65). It is below random on no space and costs {ms:.2} ms"));
    // without the spaces on which the settings were chosen, and without the shortest one
    let (auto, peer) = (mean_of("auto", &[0, 3, 4, 6]), mean_of(best, &[0, 3, 4, 6]));
    said(format!("`auto` has {auto:.3} and Kernel Tuner's best, `{best}`, {peer:.3}, a ratio of {:.2}", auto / peer));
    let (auto, peer) = (mean_of("auto", &[4]), mean_of(best, &[4]));
    said(format!("`auto` has {auto:.3} and the best of Kernel Tuner's, `{best}`, {peer:.3}: {:.2}", auto / peer));
}
