//! Builds XSpaces by hand: synthetic, for layouts of which no capture is at hand.

#![allow(dead_code, clippy::unwrap_used)]

/// A message under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn number(mut self, field: u64, value: i64) -> Self {
        self.raw(field << 3);
        self.raw(value as u64);
        self
    }

    pub(crate) fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Self {
        self.raw(field << 3 | 2);
        self.raw(value.as_ref().len() as u64);
        self.0.extend(value.as_ref());
        self
    }

    pub(crate) fn message(self, field: u64, value: &Message) -> Self {
        self.bytes(field, &value.0)
    }
}

/// A plane: names become metadata as they come, and ids are places in the lists, from one.
#[derive(Debug, Clone)]
pub(crate) struct PlaneBuilder {
    name: String,
    events: Vec<(String, String)>,
    stats: Vec<String>,
    lines: Vec<Message>,
}

/// A stat's value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Is<'a> {
    Int(i64),
    Uint(u64),
    Text(&'a str),
    Ref(&'a str),
    Compressed(&'a [u8]),
}

impl PlaneBuilder {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), events: Vec::new(), stats: Vec::new(), lines: Vec::new() }
    }

    fn stat_id(&mut self, name: &str) -> i64 {
        let place = self.stats.iter().position(|known| known == name).unwrap_or_else(|| {
            self.stats.push(name.to_owned());
            self.stats.len() - 1
        });
        place as i64 + 1
    }

    /// An event by name, display name, offset, duration and stats.
    pub(crate) fn event(
        &mut self,
        name: (&str, &str),
        offset_ps: i64,
        duration_ps: i64,
        stats: &[(&str, Is<'_>)],
    ) -> Message {
        let name = (name.0.to_owned(), name.1.to_owned());
        let place = self.events.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.events.push(name);
            self.events.len() - 1
        });
        let mut event = Message::default().number(1, place as i64 + 1).number(2, offset_ps).number(3, duration_ps);
        for (name, value) in stats {
            let stat = Message::default().number(1, self.stat_id(name));
            let stat = match *value {
                Is::Int(value) => stat.number(4, value),
                Is::Uint(value) => stat.number(3, value as i64),
                Is::Text(text) => stat.bytes(5, text),
                Is::Ref(text) => {
                    let id = self.stat_id(text);
                    stat.number(7, id)
                }
                Is::Compressed(bytes) => stat.bytes(8, bytes),
            };
            event = event.message(4, &stat);
        }
        event
    }

    pub(crate) fn line(&mut self, name: &str, timestamp_ns: i64, events: &[Message]) {
        let line = Message::default().number(1, self.lines.len() as i64).bytes(2, name).number(3, timestamp_ns);
        self.lines.push(events.iter().fold(line, |line, event| line.message(4, event)));
    }

    pub(crate) fn message(&self) -> Message {
        let mut plane = Message::default().bytes(2, &self.name);
        plane = self.lines.iter().fold(plane, |plane, line| plane.message(3, line));
        for (id, (name, display)) in (1..).zip(&self.events) {
            let metadata = Message::default().number(1, id).bytes(2, name).bytes(4, display);
            plane = plane.message(4, &Message::default().number(1, id).message(2, &metadata));
        }
        for (id, name) in (1..).zip(&self.stats) {
            let metadata = Message::default().number(1, id).bytes(2, name);
            plane = plane.message(5, &Message::default().number(1, id).message(2, &metadata));
        }
        plane
    }
}

/// A capture of these planes.
pub(crate) fn space(planes: &[PlaneBuilder]) -> Message {
    planes.iter().fold(Message::default(), |space, plane| space.message(1, &plane.message()))
}
