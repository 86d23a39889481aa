//! Stats as arguments of a slice.

use crate::profile::Event;

use super::plane_names::{Argument, PlaneNames, Value};

/// Maximum number of arguments of a slice, and maximum size of their texts together.
const MAX_ARGUMENTS: usize = 64;
const MAX_BYTES: usize = 4096;

/// The arguments of an event: its own stats, then those that its metadata adds. If two have the same name, the first
/// counts; also returns whether some were left out.
pub(super) fn collect<'a>(
    names: &PlaneNames<'a>,
    place: u32,
    event: &Event<'a>,
    arguments: &mut Vec<Argument<'a>>,
) -> bool {
    arguments.clear();
    let mut bytes = 0;
    for stat in event.stats().filter_map(Result::ok).chain(names.shared_stats(place)) {
        let Some(argument) = names.argument(stat) else { continue };
        if arguments.iter().any(|known| known.name == argument.name) {
            continue;
        }
        bytes += match &argument.value {
            Value::Text(text) => text.len(),
            Value::Name(place) => names.stat_names().get(*place as usize).map_or(0, |name| name.len()),
            _ => 8,
        };
        if arguments.len() == MAX_ARGUMENTS || bytes > MAX_BYTES {
            return true;
        }
        arguments.push(argument);
    }
    false
}
