//! Builds XSpaces by hand: synthetic, for layouts without a real capture.

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

/// A plane: names become metadata in order of use, and ids are positions in the lists, from one.
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

/// Operation, module, program, run, start and length in nanoseconds.
pub(crate) type Ran<'a> = (&'a str, &'a str, i64, i64, i64, i64);

/// A CPU plane with these threads.
pub(crate) fn host(threads: &[&[Ran<'_>]]) -> PlaneBuilder {
    let mut plane = PlaneBuilder::new("/host:CPU");
    for events in threads {
        let events: Vec<Message> = events
            .iter()
            .map(|&(operation, module, program, run, start, length)| {
                let stats = [
                    ("hlo_op", Is::Ref(operation)),
                    ("hlo_module", Is::Ref(module)),
                    ("program_id", Is::Int(program)),
                    ("run_id", Is::Int(run)),
                    ("device_ordinal", Is::Int(0)),
                ];
                plane.event((operation, ""), start * 1000, length * 1000, &stats)
            })
            .collect();
        plane.line("thread", 0, &events);
    }
    plane
}

/// A proto of one module: instructions by name, opcode and `op_name`.
pub(crate) fn proto(module: &str, id: i64, instructions: &[(&str, &str, &str)]) -> Message {
    let mut computation = Message::default().bytes(1, "main").number(5, 7);
    for (place, (name, opcode, op_name)) in instructions.iter().enumerate() {
        let metadata = Message::default().bytes(2, op_name).bytes(3, "model.py").number(4, place as i64 + 10);
        // f32[2, 3]
        let shape = Message::default().number(2, 11).bytes(3, [2, 3]);
        let instruction = Message::default().bytes(1, name).bytes(2, opcode).message(3, &shape).message(7, &metadata);
        computation = computation.message(2, &instruction.number(35, place as i64));
    }
    Message::default().bytes(1, module).bytes(2, "main").message(3, &computation).number(5, id)
}
