//! The names of a plane's events and stats, by index.

use std::borrow::Cow;

use crate::profile::{EventMetadata, IdTable, Plane, Stat, StatValue, text};

/// Maximum length of names and texts: a short event must not become a long slice by repetition.
pub(super) const MAX_TEXT_BYTES: usize = 1024;

/// Stands for events without metadata.
const NAMELESS: &str = "(no metadata)";

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Argument<'a> {
    /// Place of the name among the plane's stat names.
    pub(super) name: u32,
    pub(super) value: Value<'a>,
}

/// An argument's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Double(f64),
    Uint(u64),
    Int(i64),
    /// Text from the plane's stat names.
    Name(u32),
    Text(Cow<'a, str>),
}

/// The names of one plane.
#[derive(Debug)]
pub(super) struct PlaneNames<'a> {
    plane: Plane<'a>,
    places: IdTable,
    metadata: Vec<EventMetadata<'a>>,
    /// By index; the last one is for all events without metadata.
    names: Vec<Cow<'a, str>>,
    stat_places: IdTable,
    stat_names: Vec<Cow<'a, str>>,
}

impl<'a> PlaneNames<'a> {
    pub(super) fn new(plane: Plane<'a>) -> Self {
        let metadata: Vec<EventMetadata<'a>> = plane.all_event_metadata().collect();
        let name = |one: &EventMetadata<'a>| match one.display_name() {
            [] => cut(text(one.name())),
            shown => cut(text(shown)),
        };
        let names = metadata.iter().map(name).chain([Cow::Borrowed(NAMELESS)]).collect();
        let stats: Vec<(i64, &'a [u8])> = plane.all_stat_names().collect();
        Self {
            plane,
            places: IdTable::new(metadata.iter().map(EventMetadata::id).zip(0..)),
            metadata,
            names,
            stat_places: IdTable::new(stats.iter().map(|(id, _)| *id).zip(0..)),
            stat_names: stats.iter().map(|(_, name)| cut(text(name))).collect(),
        }
    }

    /// The place of an event's name, and whether it has one of its own.
    #[inline]
    pub(super) fn place(&self, metadata_id: i64) -> (u32, bool) {
        match self.places.get(metadata_id) {
            Some(place) => (place, true),
            None => (self.metadata.len() as u32, false),
        }
    }

    pub(super) fn names(&self) -> &[Cow<'a, str>] {
        &self.names
    }

    pub(super) fn stat_names(&self) -> &[Cow<'a, str>] {
        &self.stat_names
    }

    /// Stats that hold for every event of this name.
    pub(super) fn shared_stats(&self, place: u32) -> impl Iterator<Item = Stat<'a>> + use<'a> {
        self.metadata.get(place as usize).copied().into_iter().flat_map(|metadata| metadata.stats())
    }

    /// A stat as an argument; `None` if it has no name or no value.
    pub(super) fn argument(&self, stat: Stat<'a>) -> Option<Argument<'a>> {
        let name = self.stat_places.get(stat.metadata_id)?;
        let value = match stat.value {
            StatValue::Missing => return None,
            StatValue::Double(value) => Value::Double(value),
            StatValue::Uint(value) => Value::Uint(value),
            StatValue::Int(value) => Value::Int(value),
            StatValue::Ref(id) => Value::Name(self.stat_places.get(i64::try_from(id).ok()?)?),
            StatValue::Bytes(bytes) => Value::Text(Cow::Owned(format!("{} bytes", bytes.len()))),
            StatValue::Str(_) | StatValue::CompressedStr(_) => Value::Text(cut(self.plane.stat_text(stat.value)?)),
        };
        Some(Argument { name, value })
    }
}

/// The beginning of a text, with `…` where more follows.
pub(super) fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES - '…'.len_utf8());
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("ü".into()), "ü");
        let long = cut("ü".repeat(1024).into());
        assert_eq!((long.len(), long.chars().count(), long.ends_with("ü…")), (1023, 511, true));
    }
}
