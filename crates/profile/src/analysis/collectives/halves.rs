//! Joins the halves of asynchronous operations, which are two events on TPUs: `x-start` and `x-done`, `send` and
//! `send-done`.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::hlo::{HloInstruction, HloModule};
use crate::profile::interval::Interval;

use super::hiding::{EventKind, Hiding};

/// Maximum number of `async-update`s between the halves of an operation.
const MAX_UPDATES: usize = 16;

/// Which half of an asynchronous operation an event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Half {
    /// It is not asynchronous.
    Whole,
    /// The first, of a kind.
    First { kind: String },
    /// The second, and the name of the first, if the HLO has it.
    Second { kind: String, first: Option<String> },
}

impl Half {
    /// By the opcode, or by the name of an operation that no HLO describes.
    pub(super) fn of_opcode(opcode: &str) -> Self {
        let kind = match opcode {
            "send" | "recv" => Some(opcode),
            _ => opcode.strip_suffix("-start"),
        };
        match (kind, opcode.strip_suffix("-done")) {
            (Some(kind), _) => Self::First { kind: kind.to_owned() },
            (None, Some(kind)) => Self::Second { kind: kind.to_owned(), first: None },
            (None, None) => Self::Whole,
        }
    }

    /// By the instruction; a second half has the first as its operand.
    pub(super) fn of(module: &HloModule, instruction: &HloInstruction) -> Self {
        match Self::of_opcode(instruction.opcode()) {
            Self::Second { kind, .. } => {
                let mut first = module.operands_of(instruction).next();
                for _ in 0..MAX_UPDATES {
                    let Some(update) = first.filter(|one| one.opcode().ends_with("-update")) else { break };
                    first = module.operands_of(update).next();
                }
                Self::Second { kind, first: first.map(|one| one.name().to_owned()) }
            }
            half => half,
        }
    }
}

/// The halves of one execution. An operation lasts from the start of the first to the end of the second; events after a
/// first half wait for the second.
#[derive(Debug, Default)]
pub(super) struct AsyncPairs {
    waiting: VecDeque<PendingEvent>,
    /// How many have left the queue.
    gone: usize,
    /// Places of first halves, by name.
    named: HashMap<String, Vec<usize>>,
    /// Places of first halves that have no second yet, by kind.
    open: HashMap<String, BTreeSet<usize>>,
    /// Whether a collective was one of them.
    pub(super) joined: bool,
}

#[derive(Debug)]
struct PendingEvent {
    event_kind: EventKind,
    time: Interval,
    is_whole: bool,
}

impl AsyncPairs {
    pub(super) fn add(
        &mut self,
        (name, half): (&str, &Half),
        event_kind: EventKind,
        time: Interval,
        hiding: &mut Hiding,
    ) {
        match half {
            Half::First { kind } => {
                let place = self.gone + self.waiting.len();
                self.named.entry(name.to_owned()).or_default().push(place);
                self.open.entry(kind.clone()).or_default().insert(place);
            }
            Half::Second { kind, first } => self.join(kind, name, first.as_deref(), time.end_ps),
            Half::Whole => {}
        }
        let is_whole = !matches!(half, Half::First { .. });
        self.waiting.push_back(PendingEvent { event_kind, time, is_whole });
        while let Some(event) = self.waiting.pop_front_if(|event| event.is_whole) {
            self.gone += 1;
            hiding.add(event.event_kind, event.time);
        }
    }

    fn join(&mut self, kind: &str, second: &str, first: Option<&str>, end_ps: i64) {
        let Some(open) = self.open.get_mut(kind) else { return };
        // the halves are numbered alike, or there is only one of the kind in progress
        let numbered = || match second.split_once('.') {
            Some((opcode, number)) => format!("{}.{number}", start_name(opcode)),
            None => start_name(second),
        };
        let name = first.map_or_else(numbered, ToOwned::to_owned);
        let named = self.named.get_mut(&name).and_then(|places| {
            // one that was joined because it was the only one is still listed
            while let Some(place) = places.pop() {
                if open.contains(&place) {
                    return Some(place);
                }
            }
            None
        });
        let only = || open.first().copied().filter(|_| open.len() == 1);
        let Some(place) = named.or_else(only) else { return };
        open.remove(&place);
        if let Some(first) = place.checked_sub(self.gone).and_then(|place| self.waiting.get_mut(place)) {
            first.time.end_ps = first.time.end_ps.max(end_ps);
            first.is_whole = true;
            self.joined |= matches!(first.event_kind, EventKind::Communication(_));
        }
    }

    /// A first half without a second ends by itself.
    pub(super) fn finish(&mut self, hiding: &mut Hiding) {
        self.waiting.drain(..).for_each(|event| hiding.add(event.event_kind, event.time));
    }
}

/// The name of a first half by that of the second, without its number.
fn start_name(second: &str) -> String {
    match second.strip_suffix("-done") {
        Some(kind @ ("send" | "recv")) => kind.to_owned(),
        Some(kind) => format!("{kind}-start"),
        None => second.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hiding::Timed;
    use super::*;

    type Ran<'a> = (&'a str, Half, EventKind, i64, i64);

    fn joined(events: &[Ran<'_>]) -> (Vec<Timed>, bool) {
        let (mut async_pairs, mut hiding) = (AsyncPairs::default(), Hiding::default());
        for (name, half, event_kind, start_ps, end_ps) in events {
            let time = Interval { start_ps: *start_ps, end_ps: *end_ps };
            async_pairs.add((name, half), *event_kind, time, &mut hiding);
        }
        async_pairs.finish(&mut hiding);
        (hiding.finish(), async_pairs.joined)
    }

    fn by_name<'a>(&(name, event_kind, start_ps, end_ps): &(&'a str, EventKind, i64, i64)) -> Ran<'a> {
        let half = Half::of_opcode(name.split('.').next().unwrap());
        (name, half, event_kind, start_ps, end_ps)
    }

    fn timed(operation: u32, start_ps: i64, end_ps: i64, hidden_ps: u64, overlaps_ps: u64) -> Timed {
        Timed { operation, time: Interval { start_ps, end_ps }, hidden_ps, overlaps_ps }
    }

    #[test]
    fn halves_wait_for_each_other() {
        let events = [
            ("all-gather-start.1", EventKind::Communication(1), 0, 2),
            ("copy-start.9", EventKind::Computation, 4, 5),
            ("fusion.1", EventKind::Computation, 6, 8),
            ("copy-done.9", EventKind::Other, 10, 12),
            ("all-gather-done.4", EventKind::Other, 20, 21),
            ("all-gather-start.2", EventKind::Communication(1), 30, 33),
        ];
        let (found, is_joined) = joined(&events.map(|event| by_name(&event)));
        assert!(is_joined);
        assert_eq!(found, [timed(1, 0, 21, 8, 10), timed(1, 30, 33, 0, 0)]);
    }

    #[test]
    fn sends_and_receipts_are_halves_without_a_suffix() {
        let events = [
            ("recv.1", EventKind::Communication(1), 0, 1),
            ("send.2", EventKind::Communication(2), 1, 2),
            ("send.5", EventKind::Communication(3), 2, 3),
            ("send-done.2", EventKind::Other, 10, 11),
            ("recv-done.1", EventKind::Other, 20, 21),
            ("send-done.5", EventKind::Other, 30, 31),
        ];
        let (found, _) = joined(&events.map(|event| by_name(&event)));
        assert_eq!(found, [timed(1, 0, 21, 0, 0), timed(2, 1, 11, 0, 0), timed(3, 2, 31, 0, 0)]);
    }

    /// Two are in progress, and their names say nothing: the operand tells.
    #[test]
    fn the_operand_names_the_first_half() {
        let first = || Half::First { kind: "async".to_owned() };
        let second = |first: &str| Half::Second { kind: "async".to_owned(), first: Some(first.to_owned()) };
        let events = [
            ("psum.1", first(), EventKind::Communication(1), 0, 1),
            ("psum.2", first(), EventKind::Communication(2), 1, 2),
            ("out.8", second("psum.1"), EventKind::Other, 10, 11),
            ("out.9", second("psum.2"), EventKind::Other, 20, 21),
        ];
        assert_eq!(joined(&events).0, [timed(1, 0, 11, 0, 0), timed(2, 1, 21, 0, 0)]);
    }
}
