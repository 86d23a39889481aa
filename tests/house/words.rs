//! Stilted phrases that were replaced by plain English must not come back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Each phrase and its replacement.
const REPLACED: &[(&str, &str)] = &[
    ("beyond doubt", "significantly"),
    ("leaves the race", "is dropped"),
    ("what this machine can tell", "this machine's noise floor"),
    ("told apart", "distinguished"),
    ("tell apart", "distinguish"),
    ("tells apart", "distinguishes"),
    ("begins nothing more", "starts no new ones"),
    ("as many times as much", "N times as much"),
    ("press on a heading", "click a heading"),
    ("under way", "in progress"),
    ("to be had", "available"),
    ("that is said", "a message says so"),
    ("may be given again", "may be repeated"),
    ("order of chance", "random order"),
    ("lies beside", "is beside"),
    ("devices that are not here", "absent devices"),
    ("who is out", "which candidates are dropped"),
    ("candidates that are out", "dropped candidates"),
    ("candidate is out", "candidate is dropped"),
    ("for want of", "without"),
    ("in vain", "without result"),
    ("word for word", "verbatim"),
    ("hangs on it", "depends on it"),
    ("to speak of", "almost no"),
    ("lie there", "is found"),
    ("bear company", "are not thread-safe"),
    ("nobody's business", "irrelevant"),
    ("is no merit", "earns no credit"),
    ("beyond chance", "significantly"),
    ("as good as none", "counts as none"),
    ("is there still", "is intact"),
    ("what came of", "the result of"),
    ("what becomes of", "the result of"),
    ("came of it", "resulted"),
    ("known again", "in the cache"),
    ("is of interest", "matters"),
    ("the deeper the more", "deeper colours mean larger changes"),
    ("shift with enter", "Shift+Enter"),
    ("gives the wheel back", "lets the wheel scroll the page"),
    ("stands in its place", "replaces it"),
    ("is not held against", "is not compared with"),
    ("one a candidate", "one per candidate"),
];

/// The text as one line: without comment marks, line breaks of literals and repeated blanks.
fn joined(text: &str) -> String {
    let marks = |line: &str| line.trim().trim_start_matches(['/', '!', '#', '*']).trim_end_matches('\\').to_lowercase();
    let lines: Vec<String> = text.lines().map(marks).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The replaced idioms in a text, each with its replacement.
fn idioms(text: &str) -> Vec<String> {
    let text = joined(text);
    let found = REPLACED.iter().filter(|(idiom, _)| text.contains(idiom));
    found.map(|(idiom, plain)| format!("`{idiom}`: say `{plain}`")).collect()
}

fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| path.extension().unwrap_or_default() == *ending) {
            found.push(path);
        }
    }
}

#[test]
fn replaced_idioms_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).to_vec();
    files(&root.join("docs"), &["md"], &mut found);
    files(&root.join("src"), &["rs", "js"], &mut found);
    files(&root.join("crates"), &["rs"], &mut found);
    files(&root.join("python/autotune_lowered"), &["py"], &mut found);
    files(&root.join("python/src"), &["rs"], &mut found);
    files(&root.join("capi"), &["rs", "h", "c", "cc", "cpp", "py", ""], &mut found);
    files(&root.join("examples"), &["md", "py", "rs", "sh", "yml", "yaml", ""], &mut found);
    files(&root.join("release"), &["py", ""], &mut found);
    found.push(root.join("action.yml"));
    assert!(found.len() > 400, "{}", found.len());
    let wrong: Vec<String> = found
        .iter()
        .flat_map(|path| idioms(&fs::read_to_string(path).unwrap()).into_iter().map(move |what| (path, what)))
        .map(|(path, what)| format!("{}: {what}", path.display()))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_planted_idiom_is_found() {
    assert_eq!(
        idioms("/// It takes candidates in an order\n    /// of chance."),
        ["`order of chance`: say `random order`"]
    );
    assert_eq!(idioms("\"a run that is under \\\n         way\""), ["`under way`: say `in progress`"]);
    assert!(idioms("it runs in random order").is_empty());
}
