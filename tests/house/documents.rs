//! What the documents say is what the program does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::support::prerequisite::plugin;
use crate::support::program::*;
use autotune_lowered::cli::exit;
use serde_json::Value;

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Names of members, but for the objects whose members are data: configs, hardware, recorded arguments.
fn members(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                let is_data = ["config", "hardware", "arguments", "parameters", "tie_set", "timings", "sample_counts"]
                    .contains(&name.as_str());
                let is_config = name == "baseline" && value.get("config").is_none();
                if !is_data && !is_config && name != "configs" {
                    members(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, found)),
        _ => {}
    }
}

#[test]
fn every_member_of_the_json_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, replay) = (folder.path().join("cache"), folder.path().join("replay.json"));
    let registry = example().join("registry").display().to_string();
    write_replay(Path::new(&registry), &replay);
    let (module, timer) = (module(), format!("replay:{}", replay.display()));
    let config = folder.path().join("autotune.toml").display().to_string();
    fs::write(&config, "timer = \"auto\"\n").unwrap();
    let text = document("docs/json.md");
    let worker = "tests/data/cli/profiling_worker.py";
    let captured = format!("command:python3 {worker} cpu tests/data/xplane/trivial.xplane.pb '' ''");
    let measure = ["measure", "tests/data/timer/add.mlir", "--mode", "kernels", "--per-kernel", "--iterations", "4"];
    for arguments in [
        &[module.as_str(), "--timer", &timer][..],
        &["check", &module, "--timer", &timer],
        &["scan", &module],
        &["cache", "ls"],
        &["config", "--config", &config],
        &["registry", "ls", &registry],
        &["registry", "verify", &registry],
        &["candidates", "ls"],
        &["candidates", "show", "flash_attention"],
        &["profile", "timings", "tests/data/xplane/trivial.xplane.pb"],
        &["profile", "collectives", "tests/data/xplane/multi8_shardmap.xplane.pb.gz"],
        &["profile", "compile", "tests/data/compile/compile2.xplane.pb.gz"],
        &["profile", "diff", "tests/data/xplane/trivial.xplane.pb", "tests/data/xplane/trivial.xplane.pb"],
        &["profile", "summary", "tests/data/xplane/multi8_shardmap.xplane.pb.gz"],
        &["profile", "summary", "tests/data/xplane/tf2_step.xplane.pb.gz"],
        &[module.as_str(), "--timer", &timer, "--profile", "tests/data/xplane/tf2_step.xplane.pb.gz"],
        &["profile", "list", "tests/data/xplane"],
        &["profile", "mosaic-size", "--grid", "1", "--block", "128", "--entries", "7"],
        &[&measure[..], &["--timer", &captured]].concat(),
    ] {
        let run = run(&cache, &[arguments, &["--format", "json"]].concat());
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        let mut found = BTreeSet::new();
        members(&run.json(), &mut found);
        assert!(found.len() > 2, "{arguments:?}: {found:?}");
        for name in found {
            assert!(text.contains(&format!("`{name}`")), "{arguments:?}: docs/json.md does not say what `{name}` is");
        }
    }
    let stored = cache.display().to_string();
    for (code, arguments) in [
        (1, &["diff", &stored, "tests/data/cache/version-1.jsonl"][..]),
        (0, &["verify", &stored, "tests/data/cache/version-1.jsonl"]),
        (0, &["prune", "--for", "simulated", "--dry-run"]),
        (1, &["coverage", &module, "--of", "tests/data/cache/version-1.jsonl", "--for", "cpu:cpu"]),
        (0, &["coverage", &module, "--registry", &registry, "--for", "simulated"]),
    ] {
        let run = run(&cache, &[&["cache"], arguments, &["--format", "json"]].concat());
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        let mut found = BTreeSet::new();
        members(&run.json(), &mut found);
        assert!(found.len() > 4, "{arguments:?}: {found:?}");
        for name in found {
            assert!(text.contains(&format!("`{name}`")), "{arguments:?}: docs/json.md does not say what `{name}` is");
        }
    }
    let Some(plugin) = plugin() else { return };
    let small =
        ["selftest", "--copies", "2", "--rounds", "6", "--format", "json", "--plugin", plugin.to_str().unwrap()];
    let run = run(&cache, &small);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let mut found = BTreeSet::new();
    members(&run.json(), &mut found);
    let section = text.split("## `selftest`").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    for name in found {
        assert!(section.contains(&format!("`{name}`")), "docs/json.md does not say what `{name}` of `selftest` is");
    }
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

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|item| item.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in pages.chain(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name))) {
        let text = fs::read_to_string(&page).unwrap();
        // what stands between fences is code
        let prose: String = text.split("```").step_by(2).collect();
        for link in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if !target.is_empty() && !target.contains("://") {
                let path = page.parent().unwrap().join(target);
                assert!(path.exists(), "{}: `{link}`", page.display());
            }
        }
    }
}

/// The figures of the search benchmark: the means are those of the columns, what is below random is marked, and the text
/// says what the table says.
#[test]
fn the_figures_of_the_search_benchmark_agree_with_each_other() {
    let page = document("docs/search.md");
    let (_, figures) = page.split_once("\n## Figures\n").unwrap();
    // by strategy: whose it is, the mean as it is told, milliseconds an evaluation, and the score on each space
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
    let mean_of = |strategy: &str, left_out: &[usize]| {
        let scores = rows[strategy].3.iter().enumerate().filter(|(space, _)| !left_out.contains(space));
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
    // without those that the settings were chosen on, and without the shortest one
    let (auto, peer) = (mean_of("auto", &[0, 3, 4, 6]), mean_of(best, &[0, 3, 4, 6]));
    said(format!("`auto` has {auto:.3} and Kernel Tuner's best, `{best}`, {peer:.3}, a ratio of {:.2}", auto / peer));
    let (auto, peer) = (mean_of("auto", &[4]), mean_of(best, &[4]));
    said(format!("`auto` has {auto:.3} and the best of Kernel Tuner's, `{best}`, {peer:.3}: {:.2}", auto / peer));
}
