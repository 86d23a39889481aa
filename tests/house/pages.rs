//! The pages of the documentation: links and anchors, commands that are run, and the tutorial's script.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What coding agents read.
const SKILL: &str = "skills/autotune-lowered/SKILL.md";

/// The documents for readers: at the root, in `docs`, and in the examples.
fn pages() -> Vec<PathBuf> {
    let at_root = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", SKILL];
    let mut pages = at_root.map(|name| root().join(name)).to_vec();
    let examples = fs::read_dir(root().join("examples")).unwrap().map(|item| item.unwrap().path().join("README.md"));
    pages.extend(examples.filter(|path| path.exists()));
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|item| item.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages.sort();
    pages
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// The text between fences, each with the words after its opening fence; and the lines outside.
#[derive(Default)]
struct Markdown {
    blocks: Vec<(String, String)>,
    prose: Vec<String>,
}

impl Markdown {
    fn of(text: &str) -> Self {
        let mut page = Self::default();
        let mut is_open = false;
        for line in text.lines() {
            match line.strip_prefix("```") {
                Some(info) => {
                    is_open = !is_open;
                    if is_open {
                        page.blocks.push((info.to_owned(), String::new()));
                    }
                }
                None if is_open => {
                    let (_, block) = page.blocks.last_mut().unwrap();
                    *block += line;
                    *block += "\n";
                }
                None => page.prose.push(line.to_owned()),
            }
        }
        assert!(!is_open, "a fence is not closed");
        page
    }

    fn read(page: &Path) -> Self {
        Self::of(&fs::read_to_string(page).unwrap())
    }

    /// Anchors of headings as GitHub makes them (html-pipeline, `TableOfContentsFilter`): lower case, letters, digits,
    /// hyphens and underscores, hyphens for blanks, and a number after repeated names.
    fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for heading in self.prose.iter().filter(|line| line.starts_with('#')) {
            let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            let anchor: String =
                words.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
            let numbered = (1..).map(|number| format!("{anchor}-{number}"));
            let free = [anchor.clone()].into_iter().chain(numbered).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }

    fn links(&self) -> impl Iterator<Item = &str> {
        let behind = self.prose.iter().flat_map(|line| line.split("](").skip(1));
        behind.filter_map(|rest| rest.split(')').next())
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut anchored = 0;
    for page in pages() {
        for link in Markdown::read(&page).links().filter(|link| !link.contains("://")) {
            let (target, anchor) = link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
            let file = if target.is_empty() { page.clone() } else { page.parent().unwrap().join(target) };
            assert!(file.exists(), "{}: `{link}` leads nowhere", name(&page));
            // the site contains nothing else
            let leaves = page.parent() == Some(&root().join("docs")) && target.starts_with("..");
            assert!(
                !leaves,
                "{}: `{link}` leads out of docs/, and the site has nothing there: name the path",
                name(&page)
            );
            if let Some(anchor) = anchor {
                assert!(
                    Markdown::read(&file).anchors().contains(anchor),
                    "{}: `{link}` has no such heading",
                    name(&page)
                );
                anchored += 1;
            }
        }
    }
    assert!(anchored > 50, "{anchored} anchors: links are not found any more");
}

#[test]
fn anchors_are_made_as_github_makes_them() {
    let page = Markdown::of("# The `vmap`s, again\n## Next_one\n```sh\n# none\n```\n## Next_one\n[a](#next_one-1)\n");
    assert_eq!(page.anchors().into_iter().collect::<Vec<_>>(), ["next_one", "next_one-1", "the-vmaps-again"]);
    assert_eq!(page.links().collect::<Vec<_>>(), ["#next_one-1"]);
}

/// The programs whose command blocks must say whether they are run.
const PROGRAMS: [&str; 5] = ["autotune-lowered ", "cargo ", "pip ", "python ", "python3 "];

/// How a shell block is run; `None` for a block without commands. A block with commands and without the tag `sh` is an
/// error.
fn how_it_is_run<'a>(info: &'a str, block: &str) -> Result<Option<&'a str>, String> {
    if let Some(how) = info.strip_prefix("sh").filter(|how| how.is_empty() || how.starts_with(' ')) {
        return Ok(Some(how));
    }
    match block.lines().find(|line| PROGRAMS.iter().any(|program| line.starts_with(program))) {
        Some(command) => Err(format!("```{info}, `{command}`: tag the block `sh`, and say how it is run")),
        None => Ok(None),
    }
}

#[test]
fn a_block_with_commands_and_no_tag_is_found() {
    assert_eq!(how_it_is_run("sh run", "autotune-lowered device\n"), Ok(Some(" run")));
    assert_eq!(how_it_is_run("", "module ─▶ labels\n"), Ok(None));
    assert_eq!(how_it_is_run("python", "import jax\n"), Ok(None));
    for info in ["", "console", "shell"] {
        assert!(how_it_is_run(info, "# a comment\nautotune-lowered device\n").is_err(), "{info}");
    }
}

/// A shell block is run (`.ci/full docs`), is part of a script that is run, or says why it is not.
#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut run = 0;
    // the program generates the reference: its blocks are usages, not commands
    for page in pages().iter().filter(|page| !page.ends_with("docs/cli.md")) {
        for (info, block) in Markdown::read(page).blocks {
            let how = how_it_is_run(&info, &block).unwrap_or_else(|wrong| panic!("{}, {wrong}", name(page)));
            let Some(how) = how else { continue };
            let place = format!("{}, ```{info}, `{}`", name(page), block.lines().next().unwrap_or_default());
            match how.trim() {
                "run" => run += 1,
                how => match (how.strip_prefix("not run: "), how.strip_prefix("run by ")) {
                    (Some(reason), _) => assert!(!reason.trim().is_empty(), "{place}"),
                    (None, Some(script)) => {
                        let script = fs::read_to_string(root().join(script)).expect(&place);
                        let commands = block.lines().map(|line| line.split(" #").next().unwrap().trim());
                        for command in commands.filter(|command| !command.is_empty()) {
                            assert!(script.contains(command), "{place}: `{command}` is not in the script");
                        }
                        run += 1;
                    }
                    (None, None) => panic!("{place}: mark the block `run`, `run by SCRIPT` or `not run: WHY`"),
                },
            }
        }
    }
    assert!(run > 30, "{run}");
}

/// Maximum columns of prose in `docs`, and in the README, whose number of lines is limited too.
const COLUMNS: usize = 120;
const README: (usize, usize) = (150, 150);

/// Lines of prose with more columns; without rows of tables and code spans that cannot be broken.
fn wide(page: &Markdown, columns: usize) -> Vec<&String> {
    let can_be_broken = |line: &str| line.split('`').step_by(2).any(|outside| outside.trim().contains(' '));
    let is_prose = |line: &&String| !line.starts_with(['|', '!']) && can_be_broken(line);
    page.prose.iter().filter(is_prose).filter(|line| line.chars().count() > columns).collect()
}

#[test]
fn prose_is_narrow_and_the_readme_short() {
    let (lines, columns) = README;
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= lines, "README.md has {} lines, not {lines}", readme.lines().count());
    let mut wrong = Vec::new();
    for page in pages().iter().filter(|page| !page.ends_with("docs/cli.md")) {
        let columns = match page.parent() {
            Some(folder) if folder.ends_with("docs") => COLUMNS,
            _ if page.ends_with("README.md") && page.parent() == Some(root()) => columns,
            _ => continue,
        };
        wrong.extend(wide(&Markdown::read(page), columns).iter().map(|line| format!("{}: {line}", name(page))));
    }
    assert!(wrong.is_empty(), "longer than its page's columns:\n{}", wrong.join("\n"));
}

#[test]
fn a_wide_line_is_found() {
    let page = Markdown::of(&format!("{0} {0}\n| {0} | {0} |\n`{0} {0}`.\n```\n{0} {0}\n```\n{0}\n", "x".repeat(60)));
    assert_eq!(wide(&page, 120), [&format!("{0} {0}", "x".repeat(60))]);
}

/// The script has exactly the page's commands, in the same order.
#[test]
fn the_tutorial_and_its_script_are_the_same() {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let script = fs::read_to_string(root().join("examples/tutorial/run")).unwrap();
    let (_, commands) = script.split_once("set -x\n").unwrap();
    let blocks = Markdown::read(&root().join("docs/tutorial.md")).blocks;
    let told = blocks.iter().filter(|(info, _)| info == "sh run by examples/tutorial/run");
    let told: Vec<String> = told.flat_map(|(_, block)| lines(block)).collect();
    assert!(told.len() > 8, "{told:?}");
    assert_eq!(told, lines(commands));
}

#[test]
fn every_page_stands_in_the_table_of_contents_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let link = |line: &str| Some(line.strip_prefix("- [")?.split_once("](")?.1.trim_end_matches(')').to_owned());
    let listed: Vec<String> = summary.lines().filter_map(link).collect();
    let docs = pages().into_iter().filter(|page| page.starts_with(root().join("docs")));
    let docs = docs.map(|page| page.file_name().unwrap().to_str().unwrap().to_owned());
    let files: BTreeSet<String> = docs.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(listed.len(), files.len(), "a page is listed twice, or not at all");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), files);
}
