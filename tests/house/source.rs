//! The names in a Rust source: its items, child modules, imports and the paths in its code, without its tests.

use std::collections::BTreeSet;

/// One `use`, flattened: `as_name` refers to `path` from then on; `*` refers to everything in `path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    pub(crate) as_name: String,
    /// `pub use` in any form: a re-export, which counts as a use only if the code itself uses the name.
    pub(crate) is_handed_on: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Source {
    /// `mod name;`: children with files of their own.
    pub(crate) children: Vec<String>,
    pub(crate) items: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two or more names outside imports, relative to the file's module: paths in an inline module lose the
    /// `super::` that lead to the file's module.
    pub(crate) paths: Vec<Vec<String>>,
    /// The names in the code outside imports.
    pub(crate) names: BTreeSet<String>,
}

impl Source {
    pub(crate) fn read(text: &str) -> Self {
        let tokens = without_tests(tokens(text));
        let mut source = Self::default();
        // the open inline modules, each with the depth of braces at its start
        let (mut inner, mut depth): (Vec<usize>, usize) = (Vec::new(), 0);
        let mut at = 0;
        while at < tokens.len() {
            let is_item_place = depth == inner.len();
            let next = tokens.get(at + 1).map(String::as_str);
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inner.pop_if(|begun| *begun == depth);
                }
                "use" => {
                    let end = at + tokens[at..].iter().position(|token| token == ";").unwrap_or(tokens.len() - at);
                    let is_handed_on = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
                    for (path, as_name) in use_tree(&tokens[at + 1..end]) {
                        source.import(leave(path, inner.len()), as_name, is_handed_on);
                    }
                    at = end;
                }
                "mod" => match tokens.get(at + 2).map(String::as_str) {
                    Some(";") => source.children.extend(next.map(str::to_owned)),
                    Some("{") => {
                        source.items.extend(next.map(str::to_owned));
                        inner.push(depth);
                        depth += 1;
                        at += 2;
                    }
                    _ => {}
                },
                "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" | "union" | "macro_rules"
                    if is_item_place =>
                {
                    let named = tokens[at + 1..]
                        .iter()
                        .find(|token| is_name(token) && !["mut", "fn"].contains(&token.as_str()));
                    source.items.extend(named.cloned());
                }
                word if is_name(word) => {
                    let mut path = vec![word.to_owned()];
                    while tokens.get(at + 1).is_some_and(|token| token == "::")
                        && tokens.get(at + 2).is_some_and(|token| is_name(token))
                    {
                        path.push(tokens[at + 2].clone());
                        at += 2;
                    }
                    source.names.insert(path[0].clone());
                    if path.len() > 1 {
                        source.paths.extend(leave(path, inner.len()));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        source
    }

    fn import(&mut self, path: Option<Vec<String>>, as_name: String, is_handed_on: bool) {
        self.imports.extend(path.map(|path| Import { path, as_name, is_handed_on }));
    }
}

/// A path relative to the file's module; `None` if it stays within the inline modules.
fn leave(path: Vec<String>, inner: usize) -> Option<Vec<String>> {
    let up = path.iter().take_while(|name| *name == "super").count();
    match () {
        () if inner == 0 || path[0] == "crate" => Some(path),
        () if up == 0 => Some(path).filter(|path| path[0] != "self"),
        () if up < inner => None,
        () => Some([vec!["self".to_owned()], path[inner..].to_vec()].concat()),
    }
}

/// The paths of a `use` and their names.
fn use_tree(tokens: &[String]) -> Vec<(Vec<String>, String)> {
    let mut path: Vec<String> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                let inside = tokens[at + 1..].strip_suffix(&["}".to_owned()]).unwrap_or(&tokens[at + 1..]);
                let named = split_at_commas(inside).into_iter().flat_map(use_tree);
                return named.map(|(rest, name)| joined(&path, rest, name)).collect();
            }
            "as" => return vec![(path, tokens.get(at + 1).cloned().unwrap_or_default())],
            "::" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    let Some(last) = path.last().cloned() else { return Vec::new() };
    if last == "*" {
        path.pop();
    }
    vec![(path, last)]
}

/// `{self}` in a group is the group's own path, under its own name.
fn joined(path: &[String], mut rest: Vec<String>, mut name: String) -> (Vec<String>, String) {
    if !path.is_empty() && rest.first().is_some_and(|first| first == "self") {
        rest.remove(0);
        if name == "self" {
            name = path[path.len() - 1].clone();
        }
    }
    ([path, &rest].concat(), name)
}

fn split_at_commas(tokens: &[String]) -> Vec<&[String]> {
    let mut depth = 0;
    tokens
        .split(|token| {
            depth += match token.as_str() {
                "{" => 1,
                "}" => -1,
                _ => 0,
            };
            depth == 0 && token == ","
        })
        .filter(|part| !part.is_empty())
        .collect()
}

/// Removes each item under `#[cfg(test)]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut rest = tokens.as_slice();
    while let Some(token) = rest.first() {
        if !(rest.len() > MARK.len() && rest.iter().zip(MARK).all(|(token, mark)| token == mark)) {
            kept.push(token.clone());
            rest = &rest[1..];
            continue;
        }
        let mut depth = 0;
        let end = rest.iter().position(|token| {
            depth += match token.as_str() {
                "{" => 1,
                "}" => -1,
                _ => 0,
            };
            depth == 0 && (token == "}" || token == ";")
        });
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
    }
    kept
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single characters; without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name = rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' || rest.starts_with("b\"") || rest.starts_with("c\"") {
            let begin = if first == '"' { 1 } else { 2 };
            begin + quoted(&rest[begin..], '"')
        } else if first == '\'' {
            let (second, third) = (rest.chars().nth(1), rest.chars().nth(2));
            // an unclosed quote is a lifetime
            if second == Some('\\') || third == Some('\'') { 1 + quoted(&rest[1..], '\'') } else { 1 }
        } else if name > 0 {
            // a lifetime is not a name, nor is a number
            let is_lifetime = text[..text.len() - rest.len()].ends_with('\'');
            tokens.extend((is_name(rest) && !is_lifetime).then(|| rest[..name].to_owned()));
            name
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            tokens.extend((!first.is_whitespace()).then(|| first.to_string()));
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of the rest of a literal, with its closing quote.
fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = rest.find(|c| {
        let closes = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        closes
    });
    end.map_or(rest.len(), |end| end + 1)
}

/// The length of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = inside.len() - inside.trim_start_matches('#').len();
    let inside = inside[hashes..].strip_prefix('"')?;
    let end = inside.find(&format!("\"{}", "#".repeat(hashes))).map_or(inside.len(), |end| end + 1 + hashes);
    Some(rest.len() - inside.len() + end)
}

#[test]
fn what_a_source_names_is_found() {
    let source = Source::read(
        r##"
        //! use crate::comment::Never;
        mod child;
        pub use child::{Deep, other as Another};
        use super::super::far::{self, Thing, nested::*};
        use crate::{a::A, b};
        const QUOTED: &str = r#"crate::raw::Never " "#;
        fn run<'a>(x: &'a str) { let c = ['"', '\'']; b::call("crate::quoted::Never"); Thing::new(1..2); }
        mod inner { use super::A; fn f() { super::child::g(); super::super::up::h() } }
        #[cfg(test)]
        mod tests { use crate::tested::Never; fn f() { {} } }
        "##,
    );
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
    let import = |text: &str, name: &str, is_handed_on| Import { path: path(text), as_name: name.into(), is_handed_on };
    assert_eq!(source.children, ["child"]);
    assert_eq!(source.items, ["QUOTED", "run", "inner", "f"]);
    assert_eq!(
        source.imports,
        [
            import("child::Deep", "Deep", true),
            import("child::other", "Another", true),
            import("super::super::far", "far", false),
            import("super::super::far::Thing", "Thing", false),
            import("super::super::far::nested", "*", false),
            import("crate::a::A", "A", false),
            import("crate::b", "b", false),
            import("self::A", "A", false),
        ]
    );
    assert_eq!(source.paths, [path("b::call"), path("Thing::new"), path("self::child::g"), path("self::super::up::h")]);
    assert!(source.names.contains("Thing") && !source.names.contains("Deep"));
}
