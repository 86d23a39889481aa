//! Tests that the program accepts every command in the documentation.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::layers;
use super::run::with_main_job;

const PROGRAM: &str = "autotune-lowered ";

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = |folder: &str| fs::read_dir(root.join(folder)).unwrap().map(|item| item.unwrap().path());
    let mut pages: Vec<PathBuf> =
        below("docs").filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(below("examples").map(|path| path.join("README.md")).filter(|path| path.exists()));
    pages.extend(["README.md", "skills/autotune-lowered/SKILL.md"].map(|name| root.join(name)));
    pages
}

/// A command as written, and whether it is part of a sentence, where it may be a bare name.
struct DocumentedCommand {
    line: String,
    is_in_prose: bool,
}

/// The commands of a page: those in code blocks for a shell or without a language, and those between backticks.
fn commands(text: &str) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    let mut fence = None;
    let mut line = String::new();
    for part in text.lines() {
        if let Some(info) = part.strip_prefix("```") {
            fence = if fence.is_none() { Some(info.split(' ').next().unwrap_or_default().to_owned()) } else { None };
            continue;
        }
        match fence.as_deref() {
            Some("" | "sh") => {
                line += part.trim_end_matches('\\');
                if !part.ends_with('\\') {
                    found.extend(inside(&line).map(|line| DocumentedCommand { line, is_in_prose: false }));
                    line.clear();
                }
            }
            Some(_) => {}
            None => {
                let spans = part.split('`').skip(1).step_by(2).filter(|span| span.starts_with(PROGRAM));
                found.extend(spans.map(|span| DocumentedCommand { line: span.to_owned(), is_in_prose: true }));
            }
        }
    }
    found
}

/// The commands in a shell line: the one after assignments, and those of `$(…)`.
fn inside(line: &str) -> impl Iterator<Item = String> {
    let is_command = |before: &str| {
        before.chars().last().is_none_or(|letter| letter == ' ' || letter == '(') && !before.contains(" #")
    };
    let starts = line.match_indices(PROGRAM).filter(move |(at, _)| is_command(&line[..*at]));
    starts.map(|(at, _)| {
        let command = &line[at..];
        let end = line[..at].ends_with('(').then(|| command.find(')')).flatten();
        command[..end.unwrap_or(command.len())].to_owned()
    })
}

/// What is wrong with a command, if anything.
fn wrong(documented: &DocumentedCommand) -> Option<String> {
    let words = shlex::split(&documented.line).unwrap_or_default();
    let steers = |word: &String| ["|", "||", "&&", ";", ">", "2>"].contains(&word.as_str()) || word.starts_with('>');
    let words: Vec<String> = words.into_iter().take_while(|word| !steers(word)).collect();
    if words.iter().any(|word| word.contains('…')) {
        return None;
    }
    let given: Vec<OsString> = words.iter().map(OsString::from).collect();
    let full = with_main_job(given.clone());
    // a module is a file name or a placeholder for one; anything else was meant as a command
    let is_module =
        |word: &str| word.contains(['.', '/', '$', '-']) || word.chars().all(|letter| letter.is_uppercase());
    if full.len() > given.len() && words.get(1).is_none_or(|word| !is_module(word)) {
        return Some("there is no such command".to_owned());
    }
    let error = layers::parsed(layers::command(), &full).err()?;
    let is_name = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let is_fine = is_help || (documented.is_in_prose && is_name);
    (!is_fine).then(|| error.to_string())
}

#[test]
fn every_command_of_the_documents_is_taken() {
    let mut found = 0;
    let mut faults = Vec::new();
    for page in documents() {
        for documented in commands(&fs::read_to_string(&page).unwrap()) {
            found += 1;
            faults
                .extend(wrong(&documented).map(|fault| format!("{}: `{}`: {fault}", page.display(), documented.line)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 100, "{found} commands: they are not found any more");
}

#[test]
fn commands_that_are_not_accepted_are_reported() {
    let verdicts = |page: &str| commands(page).iter().map(|command| wrong(command).is_none()).collect::<Vec<_>>();
    let page = "`autotune-lowered scan` and `autotune-lowered chek`\n```sh run\n\
                A=1 autotune-lowered scan a.mlir --format \\\n  json | head # autotune-lowered no\n\
                export \"$(autotune-lowered cache exporte x)\"\nautotune-lowered scan a.mlir --nonsense\n\
                autotune-lowered tune\n```\n\
                ```python\nautotune-lowered no\n```\n";
    assert_eq!(verdicts(page), [true, false, true, false, false, false]);
}
