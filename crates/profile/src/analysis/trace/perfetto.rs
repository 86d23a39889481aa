//! Perfetto's format: a `Trace` of `TracePacket`s (google/perfetto, `protos/perfetto/trace`).
//!
//! Each line is a packet sequence of its own: its first packet clears the incremental state and names the line's track
//! as the default, and names are written once per sequence. The clock starts at zero; a snapshot ties it to real time,
//! if known.

use crate::wire::Message;

use super::plane_names::{Argument, PlaneNames, Value};
use super::sink::{Sink, Track};

mod field {
    pub(super) const PACKET: u32 = 1;

    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;

    pub(super) const TRACK_EVENT_DEFAULTS: u32 = 11;

    pub(super) const CLOCKS: u32 = 1;
    pub(super) const PRIMARY_CLOCK: u32 = 2;
    pub(super) const CLOCK_ID: u32 = 1;
    pub(super) const CLOCK_TIMESTAMP: u32 = 2;

    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const PROCESS: u32 = 3;
    pub(super) const THREAD: u32 = 4;
    pub(super) const PARENT_UUID: u32 = 5;
    pub(super) const PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;
    pub(super) const TID: u32 = 2;
    pub(super) const THREAD_NAME: u32 = 5;

    pub(super) const ANNOTATIONS: u32 = 4;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_NAME_IID: u32 = 10;
    pub(super) const EVENT_TRACK: u32 = 11;

    pub(super) const EVENT_NAMES: u32 = 2;
    pub(super) const ANNOTATION_NAMES: u32 = 3;
    pub(super) const ANNOTATION_STRINGS: u32 = 29;
    pub(super) const IID: u32 = 1;
    pub(super) const INTERNED: u32 = 2;

    pub(super) const ANNOTATION_NAME_IID: u32 = 1;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_INT: u32 = 4;
    pub(super) const ANNOTATION_DOUBLE: u32 = 5;
    pub(super) const ANNOTATION_STRING: u32 = 6;
    pub(super) const ANNOTATION_STRING_IID: u32 = 17;
}

const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;

/// Writes packets.
#[derive(Debug, Default)]
pub(super) struct Perfetto {
    out: Message,
    packet: Message,
    event: Message,
    interned: Message,
    sequence: u32,
    /// By place: the sequence that the name was last written for.
    names: Vec<u32>,
    stat_names: Vec<u32>,
    stat_texts: Vec<u32>,
}

impl Perfetto {
    fn packet(&mut self, write: impl FnOnce(&mut Message)) {
        self.packet.0.clear();
        write(&mut self.packet);
        self.out.bytes(field::PACKET, &self.packet.0);
    }

    /// Writes the packet of `self.event` and `self.interned`.
    #[inline]
    fn event_packet(&mut self, time_ns: u64) {
        self.packet.0.clear();
        let packet = &mut self.packet;
        packet.number(field::TIMESTAMP, time_ns);
        packet.number(field::SEQUENCE_ID, u64::from(self.sequence));
        packet.number(field::SEQUENCE_FLAGS, NEEDS_STATE);
        if !self.interned.0.is_empty() {
            packet.bytes(field::INTERNED_DATA, &self.interned.0);
            self.interned.0.clear();
        }
        packet.bytes(field::TRACK_EVENT, &self.event.0);
        self.out.bytes(field::PACKET, &self.packet.0);
    }

    fn annotation(&mut self, names: &PlaneNames<'_>, argument: &Argument<'_>) {
        let texts = names.stat_names();
        let (interned, sequence) = (&mut self.interned, self.sequence);
        intern(interned, field::ANNOTATION_NAMES, &mut self.stat_names, sequence, argument.name, texts);
        if let Value::Name(place) = argument.value {
            intern(interned, field::ANNOTATION_STRINGS, &mut self.stat_texts, sequence, place, texts);
        }
        self.event.message(field::ANNOTATIONS, |annotation| {
            annotation.number(field::ANNOTATION_NAME_IID, u64::from(argument.name) + 1);
            match &argument.value {
                Value::Double(value) => annotation.double(field::ANNOTATION_DOUBLE, *value),
                Value::Uint(value) => annotation.number(field::ANNOTATION_UINT, *value),
                Value::Int(value) => annotation.number(field::ANNOTATION_INT, *value as u64),
                Value::Name(place) => annotation.number(field::ANNOTATION_STRING_IID, u64::from(*place) + 1),
                Value::Text(text) => annotation.bytes(field::ANNOTATION_STRING, text.as_bytes()),
            };
        });
    }
}

/// Writes a name the first time that a sequence uses it. Its iid is its place plus one, since zero is none.
#[inline]
fn intern(
    interned: &mut Message,
    kind: u32,
    written: &mut [u32],
    sequence: u32,
    place: u32,
    texts: &[impl AsRef<str>],
) {
    let (Some(last), Some(text)) = (written.get_mut(place as usize), texts.get(place as usize)) else { return };
    if *last != sequence {
        *last = sequence;
        interned.message(kind, |name| {
            name.number(field::IID, u64::from(place) + 1).bytes(field::INTERNED, text.as_ref().as_bytes());
        });
    }
}

impl Sink for Perfetto {
    fn start(&mut self, real_ns: Option<u64>) {
        let Some(real_ns) = real_ns else { return };
        self.packet(|packet| {
            packet.message(field::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, time) in [(BOOTTIME, 0), (REALTIME, real_ns)] {
                    snapshot.message(field::CLOCKS, |one| {
                        one.number(field::CLOCK_ID, clock).number(field::CLOCK_TIMESTAMP, time);
                    });
                }
                snapshot.number(field::PRIMARY_CLOCK, BOOTTIME);
            });
        });
    }

    fn plane(&mut self, process: u32, name: &str, names: &PlaneNames<'_>) {
        self.names = vec![0; names.names().len()];
        self.stat_names = vec![0; names.stat_names().len()];
        self.stat_texts = vec![0; names.stat_names().len()];
        self.packet(|packet| {
            packet.message(field::TRACK_DESCRIPTOR, |track| {
                track.number(field::TRACK_UUID, u64::from(process)).message(field::PROCESS, |inner| {
                    inner.number(field::PID, u64::from(process)).bytes(field::PROCESS_NAME, name.as_bytes());
                });
            });
        });
    }

    fn line(&mut self, process: u32, track: Track, name: &str) {
        self.sequence += 1;
        let sequence = u64::from(self.sequence);
        self.packet(|packet| {
            packet.number(field::SEQUENCE_ID, sequence).number(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(field::DEFAULTS, |defaults| {
                defaults.message(field::TRACK_EVENT_DEFAULTS, |of_events| {
                    of_events.number(field::EVENT_TRACK, u64::from(track.id));
                });
            });
            packet.message(field::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.number(field::TRACK_UUID, u64::from(track.id));
                descriptor.number(field::PARENT_UUID, u64::from(process)).message(field::THREAD, |thread| {
                    thread.number(field::PID, u64::from(process)).number(field::TID, u64::from(track.id));
                    thread.bytes(field::THREAD_NAME, name.as_bytes());
                });
            });
        });
    }

    fn extra_track(&mut self, process: u32, line: Track, track: Track, name: &str) {
        let _ = process;
        self.packet(|packet| {
            packet.message(field::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.number(field::TRACK_UUID, u64::from(track.id));
                descriptor.number(field::PARENT_UUID, u64::from(line.id)).bytes(field::TRACK_NAME, name.as_bytes());
            });
        });
    }

    #[inline]
    fn slice(
        &mut self,
        names: &PlaneNames<'_>,
        track: Track,
        place: u32,
        times: (u64, u64),
        arguments: &[Argument<'_>],
    ) {
        self.event.0.clear();
        self.event.number(field::EVENT_TYPE, SLICE_BEGIN).number(field::EVENT_NAME_IID, u64::from(place) + 1);
        if track.is_extra {
            self.event.number(field::EVENT_TRACK, u64::from(track.id));
        }
        intern(&mut self.interned, field::EVENT_NAMES, &mut self.names, self.sequence, place, names.names());
        for argument in arguments {
            self.annotation(names, argument);
        }
        self.event_packet(times.0);
    }

    #[inline]
    fn slice_end(&mut self, track: Track, end_ns: u64) {
        self.event.0.clear();
        self.event.number(field::EVENT_TYPE, SLICE_END);
        if track.is_extra {
            self.event.number(field::EVENT_TRACK, u64::from(track.id));
        }
        self.event_packet(end_ns);
    }

    fn finish(&mut self) {}

    fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out.0
    }
}
