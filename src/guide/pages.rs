//! The pages by topic, in the order of their table of contents.

use super::text::{anchor, plain};

/// A page of `docs/`.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// The file's name without `.md`.
    pub topic: &'static str,
    markdown: &'static str,
}

macro_rules! pages {
    ($($topic:literal)*) => {
        &[$(Page { topic: $topic, markdown: include_str!(concat!("../../docs/", $topic, ".md")) }),*]
    };
}

/// All but the reference of the command line, which the program generates.
const PAGES: &[Page] = pages![
    "absent-device" "analysis" "benchmarks" "caches" "capi" "candidates" "ci" "collectives" "compare" "compile"
    "configuration" "decisions" "fleet" "fuzzing" "install" "json" "mosaic" "no-labels" "nsys" "options"
    "profiles" "prove" "python" "read-profile" "recording" "registry" "release" "reliability" "remote"
    "report" "roofline" "scanning" "search" "targets" "traces" "trust" "tunable" "tune-jax" "tutorial"
    "view" "worker-protocol" "write-worker"
];

const SUMMARY: &str = include_str!("../../docs/SUMMARY.md");

/// The topic of the reference of the command line.
const REFERENCE: &str = "cli";

/// The requested page or section does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPage {
    /// No page has this name.
    #[error("no page is called `{topic}`: did you mean `{nearest}`? `autotune-lowered guide` lists all pages")]
    Topic {
        /// The requested name.
        topic: String,
        /// The page whose name is nearest.
        nearest: &'static str,
    },
    /// The page has no such section.
    #[error("`{topic}` has no section `{section}`: did you mean `{topic}#{nearest}`?")]
    Section {
        /// The page.
        topic: &'static str,
        /// The requested name.
        section: String,
        /// The section whose name is nearest.
        nearest: String,
    },
}

impl Page {
    /// The page of a topic; `None` for the reference of the command line, which is generated. `fleet`, `fleet.md`
    /// and `docs/fleet.md` are one.
    ///
    /// # Errors
    /// If there is no such page.
    pub fn of_topic(topic: &str) -> Result<Option<Self>, NoPage> {
        let name = topic.strip_prefix("docs/").unwrap_or(topic);
        let name = name.strip_suffix(".md").unwrap_or(name);
        if name == REFERENCE {
            return Ok(None);
        }
        let found = PAGES.iter().find(|page| page.topic == name);
        found.copied().map(Some).ok_or_else(|| NoPage::Topic {
            topic: topic.to_owned(),
            nearest: nearest(name, PAGES.iter().map(|page| page.topic).chain([REFERENCE])).unwrap_or(REFERENCE),
        })
    }

    /// The page as text: links name topics, and markup for browsers is left out.
    pub fn to_text(self) -> String {
        plain(self.topic, self.markdown)
    }

    /// The section of that anchor, to the next heading of its level or above.
    ///
    /// # Errors
    /// If the page has no such section.
    pub fn section(self, section: &str) -> Result<String, NoPage> {
        let text = self.to_text();
        let (mut found, mut headings) = (String::new(), Vec::new());
        let (mut level, mut fenced) = (None, false);
        for line in text.lines() {
            fenced ^= line.starts_with("```");
            let depth = if fenced { 0 } else { line.bytes().take_while(|byte| *byte == b'#').count() };
            if depth > 0 {
                let name = anchor(line);
                match level {
                    Some(level) if depth <= level => break,
                    None if name == section => level = Some(depth),
                    _ => {}
                }
                headings.push(name);
            }
            if level.is_some() {
                found.push_str(line);
                found.push('\n');
            }
        }
        if level.is_none() {
            let nearest = nearest(section, headings.iter().map(String::as_str)).unwrap_or_default().to_owned();
            return Err(NoPage::Section { topic: self.topic, section: section.to_owned(), nearest });
        }
        Ok(found.trim_end().to_owned() + "\n")
    }
}

/// The table of contents: each part with its topics and their titles.
pub fn contents() -> String {
    let mut text = "`autotune-lowered guide TOPIC` prints a page, `guide TOPIC#SECTION` a section of it.\n".to_owned();
    for line in SUMMARY.lines().skip(1) {
        if let Some(part) = line.strip_prefix("# ") {
            text += &format!("\n{part}\n");
        } else if let Some((title, topic)) = line.strip_prefix("- [").and_then(|rest| rest.split_once("](")) {
            text += &format!("  {:<16} {title}\n", topic.trim_end_matches(".md)"));
        }
    }
    text
}

fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), other);
    names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_document_is_a_topic_and_stands_in_the_table_of_contents_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let names = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
        let mut files: BTreeSet<String> = names.filter_map(|name| Some(name.strip_suffix(".md")?.to_owned())).collect();
        assert!(files.remove("SUMMARY"));
        let listed: Vec<String> = contents()
            .lines()
            .filter_map(|line| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned()))
            .collect();
        assert_eq!(listed.len(), files.len(), "a topic is listed twice, or not at all");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), files);
        let mut topics: BTreeSet<String> = PAGES.iter().map(|page| page.topic.to_owned()).collect();
        assert_eq!(topics.len(), PAGES.len());
        assert!(topics.insert(REFERENCE.to_owned()));
        assert_eq!(topics, files, "src/guide/pages.rs");
    }

    #[test]
    fn pages_and_sections_are_found_by_name_and_others_with_a_hint() {
        let page = |topic| Page::of_topic(topic).unwrap().unwrap().topic;
        assert_eq!([page("fleet"), page("docs/fleet.md"), page("fleet.md")], ["fleet"; 3]);
        assert!(Page::of_topic("cli").unwrap().is_none());
        let wrong = Page::of_topic("Fleets").unwrap_err().to_string();
        assert!(wrong.contains("`Fleets`") && wrong.contains("did you mean `fleet`?"), "{wrong}");
        assert!(Page::of_topic("").is_err());
        let markdown = "# A page\n\nx\n## One, two\n```sh run\n# no heading\n```\n### Below\ny\n\n## Next\nz\n";
        let page = Page { topic: "page", markdown };
        assert_eq!(page.section("one-two").unwrap(), "## One, two\n```sh\n# no heading\n```\n### Below\ny\n");
        assert_eq!(page.section("next").unwrap(), "## Next\nz\n");
        assert_eq!(page.section("a-page").unwrap(), page.to_text());
        let wrong = page.section("nexd").unwrap_err().to_string();
        assert_eq!(wrong, "`page` has no section `nexd`: did you mean `page#next`?");
    }
}
