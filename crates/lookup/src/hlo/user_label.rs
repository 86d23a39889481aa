//! A user's own label expression, and all labels of one name.

use std::borrow::Cow;

use regex::bytes::Regex;

use super::escape::{Escapes, Unescaper};
use super::stamp::{Family, Stamp};
use super::tally::{Entry, Tally, Transformations, stamps_of};
use super::{Evidence, Label};

/// A regular expression with a group `op` and, if labels have a key, a group `key`.
#[derive(Debug, Clone)]
pub struct UserLabels(Regex);

/// An expression that cannot serve as a label expression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserLabelsError {
    /// It does not parse.
    #[error("label expression does not parse: {0}")]
    Syntax(String),
    /// It has no group `op`.
    #[error("label expression `{0}` has no group `op`; write `(?P<op>…)`, and `(?P<key>…)` for the key")]
    NoOpGroup(String),
}

impl UserLabels {
    /// Compiles an expression; it is matched against the strings of a module, without the escapes of its form.
    ///
    /// # Errors
    ///
    /// A pattern that is not a regular expression, or that has no group `op`.
    pub fn new(pattern: &str) -> Result<Self, UserLabelsError> {
        // the lines before the last repeat the expression
        let what = |error: regex::Error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        };
        let regex = Regex::new(pattern).map_err(|error| UserLabelsError::Syntax(what(error)))?;
        if regex.capture_names().flatten().any(|name| name == "op") {
            Ok(Self(regex))
        } else {
            Err(UserLabelsError::NoOpGroup(pattern.to_owned()))
        }
    }

    /// The labels in one string: the start of each, its operation and its key.
    fn matches<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8], Option<&'a [u8]>)> + 'a {
        self.0.captures_iter(text).filter_map(|captures| {
            let op = captures.name("op").map(|op| op.as_bytes()).filter(|op| !op.is_empty())?;
            Some((captures.get(0)?.start(), op, captures.name("key").map(|key| key.as_bytes())))
        })
    }

    pub(crate) fn count(&self, text: &[u8], escapes: Escapes, offset: u64, tally: &mut Tally) {
        let text = unescaped(text, escapes);
        for (at, op, key) in self.matches(&text) {
            // a control byte keeps these apart from the spellings of the other families
            let spelling = [&b"\0"[..], op, b"\0", key.unwrap_or_default()].concat();
            let transformations = || Transformations::of(text.get(..at).unwrap_or_default(), Escapes::Raw);
            tally.count(&spelling, offset + at as u64, transformations, || Some(stamp(op, key)));
        }
    }

    /// Labels in one string, with the transformations around each.
    pub(crate) fn labels(&self, text: &[u8], escapes: Escapes) -> Vec<Entry> {
        let mut tally = Tally::default();
        self.count(text, escapes, 0, &mut tally);
        tally.entries
    }
}

/// A string as people write it; most hold no escape.
fn unescaped(text: &[u8], escapes: Escapes) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\\', text) {
        Some(_) if escapes != Escapes::Raw => Cow::Owned(Unescaper::new(text, escapes).collect()),
        _ => Cow::Borrowed(text),
    }
}

/// The labels of an instruction, each with its evidence: those in its `op_name`, from the outermost scope inwards, then
/// those in the payload that a library attached to it.
pub fn labels_in(op_name: &str, payload: &str, user: Option<&UserLabels>) -> Vec<(Label, Evidence)> {
    let labels = |text: &str| {
        let text = text.as_bytes();
        let found = stamps_of(text, Escapes::Raw).into_iter().filter_map(|(_, parsed)| parsed.stamp);
        let of_user = user.into_iter().flat_map(|user| user.labels(text, Escapes::Raw)).map(|entry| entry.stamp);
        found.chain(of_user).map(|stamp| (stamp.label, stamp.evidence)).collect::<Vec<_>>()
    };
    let mut all = labels(op_name);
    all.extend(labels(payload));
    all
}

fn stamp(op: &[u8], key: Option<&[u8]>) -> Stamp {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Stamp {
        family: Family::User,
        label: Label::new(text(op), key.map(text)),
        evidence: if key.is_some() { Evidence::Exact } else { Evidence::ByName },
        arguments: None,
    }
}
