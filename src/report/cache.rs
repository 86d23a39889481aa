//! Entries of caches: listed, looked up, compared, checked.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cache::{COMPILER_OPTIONS, CacheDiff, CacheKey, Entry, EntryChange, EntryDifference, Hit, Tier};
use crate::candidates::{OptionClass, OptionSet, OptionSpace};
use crate::counted::counted;
use crate::ledger::{FolderBytes, Verified};
use crate::printable::printable_json;

use super::grid::{cells, dash};
use super::naming::brief_config;
use super::{Document, Grid, format_bytes, format_ns, format_part, format_ratio, name_of};

/// The entries of a cache, and the size of its folder.
pub struct CacheEntries {
    /// The entries, and where each is from.
    pub entries: Vec<(CacheKey, Arc<Entry>, Tier)>,
    /// The folder's size on disk, if there is one.
    pub folder_bytes: Option<FolderBytes>,
}

impl CacheEntries {
    /// Joins entries with the size of their folder.
    pub fn new(entries: Vec<(CacheKey, Arc<Entry>, Tier)>, folder_bytes: Option<FolderBytes>) -> Self {
        Self { entries, folder_bytes }
    }
}

impl Document for CacheEntries {
    fn into_json(self) -> impl Serialize {
        let rows: Vec<_> = self.entries.iter().map(|(key, entry, tier)| row(key, entry, *tier)).collect();
        let mut document = json!({"schema": 1, "entries": rows});
        if let Some(taken) = self.folder_bytes {
            document["folder_bytes"] = json!(taken);
        }
        document
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid =
            Grid::new(&["operation", "direction", "device", ">time", ">speed-up", ">stable", "tier", "config"]);
        for (key, entry, tier) in &self.entries {
            let time = dash(entry.provenance.as_ref(), |provenance| format_ns(provenance.best_ns));
            let speed_up = dash(entry.speed_up(), |(speed_up, _)| format_ratio(speed_up));
            let stable = dash(entry.provenance.as_ref().and_then(|from| from.stability), format_part);
            let config = brief_config(&key.call, &entry.config);
            let config = match (class_of_options(key, entry), is_option_set(key, entry)) {
                (Some(class), _) => format!("{config} ({class})"),
                (None, true) => format!("{config} (class unknown)"),
                (None, false) => config,
            };
            grid.row(cells![key.call, key.direction, key.device, time, speed_up, stable, tier, config]);
        }
        grid.write_or(out, "the cache is empty")
    }
}

/// Says whether an entry sets options of a compiler.
fn is_option_set(key: &CacheKey, entry: &Entry) -> bool {
    key.call.op_id == COMPILER_OPTIONS && !entry.config.as_map().is_empty()
}

/// Returns the smallest class that has all compiler options of an entry, if the program's own list knows them.
pub fn class_of_options(key: &CacheKey, entry: &Entry) -> Option<OptionClass> {
    let space = OptionSpace::built_in(&key.device.platform).filter(|_| is_option_set(key, entry))?;
    space.class_of(&OptionSet::from_config(&entry.config).ok()?)
}

fn row(key: &CacheKey, entry: &Entry, tier: Tier) -> Value {
    let mut row = json!({
        "op_id": key.call.op_id, "call_key": key.call.call_key, "direction": key.direction, "device": key.device,
        "tier": tier, "config": entry.config, "provenance": entry.provenance,
    });
    if let Some(class) = class_of_options(key, entry) {
        row["class"] = json!(class.as_str());
    }
    if !entry.superseded.is_empty() {
        row["superseded"] = json!(entry.superseded);
    }
    row
}

/// Returns a folder's size on disk, in total and by kind of file.
pub fn bytes_by_kind(taken: &FolderBytes) -> String {
    let kinds = taken.by_kind().into_iter().filter(|(_, bytes)| *bytes > 0);
    let kinds: Vec<String> = kinds.map(|(kind, bytes)| format!("{kind} {}", format_bytes(bytes))).collect();
    format!("{}: {}", format_bytes(taken.total()), kinds.join(", "))
}

impl Document for &Hit<'_> {
    fn into_json(self) -> impl Serialize {
        let mut row = row(&self.key().to_key(), &self.entry, self.tier);
        row["schema"] = json!(1);
        row["flags"] = json!(self.flags);
        row
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", printable_json(&self.entry.config.to_string()))
    }
}

impl Document for &CacheDiff {
    fn into_json(self) -> impl Serialize {
        let row = |difference: &EntryDifference| {
            let EntryDifference { key, before, after } = difference;
            json!({
                "change": difference.change(), "op_id": key.call.op_id, "call_key": key.call.call_key,
                "direction": key.direction, "device": key.device,
                "before": before.as_deref(), "after": after.as_deref(),
            })
        };
        let rows: Vec<_> = self.differences.iter().map(row).collect();
        json!({"schema": 1, "differences": rows, "same": self.same})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["change", "operation", "direction", "device", "before", "after"]);
        for difference in &self.differences {
            let (key, change) = (&difference.key, difference.change());
            let [before, after] = [&difference.before, &difference.after]
                .map(|entry| dash(entry.as_deref(), |entry| brief(entry, change)));
            grid.row(cells![name_of(change), key.call, key.direction, key.device, before, after]);
        }
        if !grid.is_empty() {
            grid.write(out)?;
        }
        writeln!(out, "{} differ, {} are the same", self.differences.len(), self.same)
    }
}

fn brief(entry: &Entry, change: EntryChange) -> String {
    let evidence = entry.provenance.as_ref().zip(entry.speed_up()).map(|(provenance, (speed_up, _))| {
        format!(
            "{} in {} by {}",
            format_ratio(speed_up),
            counted(provenance.rounds, "round"),
            provenance.measured_by.source
        )
    });
    match change {
        EntryChange::Evidence => evidence.unwrap_or_else(|| "no provenance".to_owned()),
        _ => entry.config.to_brief(),
    }
}

/// Caches whose bytes were checked.
pub struct VerifiedCaches<'a>(pub &'a [Verified]);

impl Document for VerifiedCaches<'_> {
    fn into_json(self) -> impl Serialize {
        json!({"schema": 1, "checked": self.0})
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["path", "kind", ">entries", "state"]);
        for Verified { path, kind, entries, problems, untrusted, notes } in self.0 {
            let state = match (kind, problems.as_slice()) {
                (_, []) => "good",
                _ if *untrusted => "untrusted",
                (None, _) => "unreadable",
                (Some(_), _) => "damaged",
            };
            grid.row(cells![path.display(), dash(*kind, name_of), entries, state]);
            problems.iter().for_each(|problem| grid.line(&format!("problem: {problem}")));
            notes.iter().for_each(|note| grid.line(&format!("note: {note}")));
        }
        grid.write(out)
    }
}
