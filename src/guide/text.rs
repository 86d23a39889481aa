//! Markdown as plain text: links name topics, and fences lose the tags for tests.

/// A page's text for a terminal.
pub(super) fn plain(topic: &str, markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut fenced = false;
    for line in markdown.lines() {
        if let Some(info) = line.strip_prefix("```") {
            fenced = !fenced;
            let language = info.split([' ', ',']).next().unwrap_or_default();
            text.push_str(&format!("```{language}"));
        } else if fenced {
            text.push_str(line);
        } else {
            text.push_str(&without_links(topic, line));
        }
        text.push('\n');
    }
    text
}

/// A line with its links, `[text](target)` and `![text](target)`, in words.
fn without_links(topic: &str, line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let target = after.split_once(')').filter(|(target, _)| !target.contains(' '));
        match (before.rsplit_once('['), target) {
            (Some((head, words)), Some((target, behind))) => {
                text.push_str(head.strip_suffix('!').unwrap_or(head));
                text.push_str(&spelled(topic, words, target));
                rest = behind;
            }
            _ => {
                text.push_str(before);
                text.push_str("](");
                rest = after;
            }
        }
    }
    text + rest
}

/// A link in words.
fn spelled(topic: &str, text: &str, target: &str) -> String {
    let (file, section) = target.split_once('#').unwrap_or((target, ""));
    let section = if section.is_empty() { String::new() } else { format!("#{section}") };
    let page = if file.is_empty() { Some(topic) } else { file.strip_suffix(".md").filter(|name| !name.contains('/')) };
    match page {
        _ if target.contains("://") => format!("{text} ({target})"),
        Some(page) if [page, file].contains(&text) => format!("`guide {page}{section}`"),
        Some(page) => format!("{text} (`guide {page}{section}`)"),
        None => match file.strip_prefix("../") {
            Some(path) => format!("{text} (`{path}`)"),
            None => format!("{text} (`docs/{file}`)"),
        },
    }
}

/// The anchor of a heading, as GitHub and mdBook make it.
pub(super) fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    let kept = letters.filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(|letter| if letter == ' ' { '-' } else { letter }.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_topics_and_code_stays_as_it_is() {
        let page = "See [fleets](fleet.md#the-gate), [trust.md](trust.md) and [below](#exit-codes).\n\
                    ![A picture](view.png) of [`x`](../examples/x), [JSON](schemas/a.json), [XLA](https://x.org/a).\n\
                    ```sh not run: why\n[a](b.md)\n```\n";
        let text = "See fleets (`guide fleet#the-gate`), `guide trust` and below (`guide this#exit-codes`).\n\
                    A picture (`docs/view.png`) of `x` (`examples/x`), JSON (`docs/schemas/a.json`), XLA (https://x.org/a).\n\
                    ```sh\n[a](b.md)\n```\n";
        assert_eq!(plain("this", page), text);
    }

    #[test]
    fn anchors_are_those_of_the_links() {
        // as on GitHub's own pages
        assert_eq!(anchor("## Under `vmap`"), "under-vmap");
        assert_eq!(anchor("## The main job: `tune MODULE` (schema 1)"), "the-main-job-tune-module-schema-1");
        assert_eq!(anchor("### Reading a page, twice"), "reading-a-page-twice");
    }
}
