//! Locations, and the scopes that they name.
//!
//! XLA names an instruction after the location of its operation, and this is the same rule: a name stands for itself,
//! but one that ends with a colon is a type, and what it holds counts; of a call site the callee counts; fused names
//! are joined with `;`. Source: openxla/xla, `location_exporter.cc`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::types::angled;
use super::words::is_word;
use crate::hlo::census::Census;
use crate::hlo::escape::Escapes;
use crate::hlo::graph::join_scopes;
use crate::hlo::text_cursor::{balanced, parts, quoted};

/// Locations nest; deeper chains are cut.
const MAX_DEPTH: usize = 64;
/// Locations followed for one name: each of a chain of aliases may name the next one many times.
const MAX_FOLLOWED: usize = 1024;
const MAX_NAME_BYTES: usize = 1 << 16;
/// Bytes of names assembled from locations, per byte of the text: real modules need a few, while a line of a hostile
/// one names thousands.
const MAX_NAMES_PER_BYTE: usize = 64;

/// What an alias stands for.
#[derive(Debug)]
struct Meaning<'a> {
    /// A location, from its first byte on.
    location: &'a [u8],
    /// The scope that it was found to name.
    scope: Option<Cow<'a, [u8]>>,
}

/// Where in the source a location is.
#[derive(Debug, Default)]
pub(super) struct Place<'a> {
    /// The functions around it, the innermost first.
    pub(super) functions: Vec<&'a [u8]>,
    /// File and line of the innermost.
    pub(super) line: Option<(&'a [u8], u64)>,
}

/// The locations of a text.
#[derive(Debug)]
pub(super) struct Locations<'a> {
    aliases: HashMap<&'a [u8], Meaning<'a>>,
    /// An alias that is used and never defined.
    pub(super) missing: Option<String>,
    /// Remaining bytes of names that may be assembled.
    names_left: usize,
}

/// The alias that a text begins with, its `#` included.
pub(super) fn alias(text: &[u8]) -> &[u8] {
    let length = text.iter().skip(1).take_while(|&&byte| is_word(byte)).count() + 1;
    text.get(..length).unwrap_or_default()
}

/// Whether a location is a place in a file, `"file":line:column`, rather than a name.
fn is_file(location: &[u8]) -> bool {
    let name = quoted(location.get(1..).unwrap_or_default());
    location.get(name.len() + 2) == Some(&b':')
}

/// The name that a location begins with, still escaped.
pub(super) fn name(location: &[u8]) -> Option<&[u8]> {
    location.strip_prefix(b"\"").filter(|_| !is_file(location)).map(quoted)
}

impl<'a> Locations<'a> {
    /// Finds all aliases: `#loc12 = loc(…)`, by whatever name, or without `loc` where a text is printed prettily.
    pub(super) fn defined_in(text: &'a [u8], census: &mut Census) -> Self {
        let mut aliases = HashMap::new();
        for at in memchr::memchr_iter(b'#', text) {
            if at.checked_sub(1).and_then(|at| text.get(at)).is_some_and(|before| !before.is_ascii_whitespace()) {
                continue;
            }
            let rest = text.get(at..).unwrap_or_default();
            let alias = alias(rest);
            let after = rest.get(alias.len()..).unwrap_or_default().trim_ascii_start();
            let Some(meant) = after.strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else { continue };
            let inside = meant.strip_prefix(b"loc").and_then(|rest| rest.trim_ascii_start().strip_prefix(b"("));
            if let Some(location) = inside.or(alias.starts_with(b"#loc").then_some(meant)) {
                let location = location.trim_ascii_start();
                name(location).into_iter().for_each(|name| census.name(name, Escapes::Mlir));
                aliases.insert(alias, Meaning { location, scope: None });
            }
        }
        let names_left = text.len().saturating_mul(MAX_NAMES_PER_BYTE).saturating_add(1 << 20);
        Self { aliases, missing: None, names_left }
    }

    pub(super) fn is_alias(&self, alias: &[u8]) -> bool {
        self.aliases.contains_key(alias)
    }

    /// The scope that a location names; empty if it names none.
    pub(super) fn scope(&mut self, location: &'a [u8]) -> Cow<'a, [u8]> {
        let alias = location.starts_with(b"#").then(|| alias(location));
        let known = alias.and_then(|alias| self.aliases.get(alias)?.scope.as_ref());
        if let Some(known) = known {
            return known.clone();
        }
        let mut scope = Cow::Borrowed(&[][..]);
        if self.names_left > 0 {
            let mut left = MAX_FOLLOWED;
            self.append(location, MAX_DEPTH, &mut left, &mut scope);
            // followed locations count too, because they may lead to nothing
            self.names_left = self.names_left.saturating_sub(scope.len() + (MAX_FOLLOWED - left));
        }
        if let Some(meaning) = alias.and_then(|alias| self.aliases.get_mut(alias)) {
            meaning.scope = Some(scope.clone());
        }
        scope
    }

    /// Where in the source a location is: names that follow each other to a file; of a call site the callee, and of
    /// fused ones the first.
    pub(super) fn place(&self, mut location: &'a [u8]) -> Place<'a> {
        let mut place = Place::default();
        for _ in 0..MAX_DEPTH {
            location = match location.trim_ascii_start() {
                named @ [b'"', rest @ ..] => {
                    let own = quoted(rest);
                    let behind = named.get(own.len() + 2..).unwrap_or_default();
                    if let Some(line) = behind.strip_prefix(b":") {
                        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
                        let line = std::str::from_utf8(line.get(..digits).unwrap_or_default()).ok();
                        place.line = line.and_then(|line| line.parse().ok()).map(|line| (own, line));
                        return place;
                    }
                    place.functions.push(own);
                    match behind.strip_prefix(b"(") {
                        Some(child) => child,
                        None => return place,
                    }
                }
                named @ [b'#', ..] => match self.aliases.get(alias(named)) {
                    Some(meaning) => meaning.location,
                    None => return place,
                },
                other => {
                    let list = other.strip_prefix(b"fused").unwrap_or(other);
                    let list = if list.starts_with(b"<") { list.get(angled(list)..).unwrap_or_default() } else { list };
                    match (other.strip_prefix(b"callsite("), list.strip_prefix(b"[")) {
                        (Some(callee), _) => callee,
                        (None, Some(first)) => first,
                        (None, None) => return place,
                    }
                }
            };
        }
        place
    }

    fn append(&mut self, location: &'a [u8], depth: usize, left: &mut usize, scope: &mut Cow<'a, [u8]>) {
        if depth == 0 || *left == 0 || scope.len() > MAX_NAME_BYTES {
            return;
        }
        *left -= 1;
        match location {
            [b'"', ..] => {
                let Some(own) = name(location) else { return };
                if !own.ends_with(b":") {
                    join_scopes(scope, Cow::Borrowed(own.get(..MAX_NAME_BYTES).unwrap_or(own)));
                } else if let Some([b'(', child @ ..]) = location.get(own.len() + 2..) {
                    self.append(child, depth - 1, left, scope);
                }
            }
            [b'#', ..] => {
                let alias = alias(location);
                match self.aliases.get(alias) {
                    Some(Meaning { scope: Some(known), .. }) => join_scopes(scope, known.clone()),
                    Some(&Meaning { location, .. }) => self.append(location, depth - 1, left, scope),
                    None => {
                        self.missing.get_or_insert_with(|| String::from_utf8_lossy(alias).into_owned());
                    }
                }
            }
            [b'[' | b'<', ..] => self.append_fused(location, depth, left, scope),
            _ => {
                if let Some(list) = location.strip_prefix(b"fused") {
                    self.append_fused(list, depth, left, scope);
                } else if let Some(callee) = location.strip_prefix(b"callsite(") {
                    self.append(callee.trim_ascii_start(), depth - 1, left, scope);
                }
            }
        }
    }

    /// `[a, b]`, with what a pass says about them before it: `<"pass">[a, b]`.
    fn append_fused(&mut self, list: &'a [u8], depth: usize, left: &mut usize, scope: &mut Cow<'a, [u8]>) {
        let list = match list.first() {
            Some(b'<') => list.get(angled(list)..).unwrap_or_default(),
            _ => list,
        };
        let Some(inner) = list.get(1..balanced(list).saturating_sub(1)).filter(|_| list.starts_with(b"[")) else {
            return;
        };
        for part in parts(inner).take(*left) {
            self.append(part, depth - 1, left, scope);
        }
    }
}
