//! What a capture's events say about their operations themselves, for programs whose HLO it does not hold: on TPUs the
//! instruction as HLO text, its category, scopes, source line and cost; on GPUs its scopes.

use std::collections::{HashMap, HashSet};

use crate::profile::{Line, OPERATION_LINES, Plane, Stat, StatValue, XSpace, instruction_name};

/// What the events of one operation say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EventFacts {
    /// The opcode; empty if the events do not say it.
    pub(super) opcode: String,
    /// XLA's category of it, such as `convolution fusion`.
    pub(super) category: String,
    /// The scopes that it came from.
    pub(super) op_name: String,
    /// File and line.
    pub(super) source: Option<(String, u64)>,
    /// Floating-point operations of a run.
    pub(super) flops: f64,
    /// Bytes that a run reads and writes.
    pub(super) bytes: f64,
}

/// The facts of a capture's operations, by program id and name.
#[derive(Debug, Default)]
pub(super) struct FactsByOperation(HashMap<(Option<i64>, String), EventFacts>);

/// What a stat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    Operation,
    Program,
    Line,
    Category,
    OpName,
    TfOp,
    Source,
    Flops,
    Bytes,
}

fn fact(stat_name: &[u8]) -> Option<Fact> {
    Some(match stat_name {
        b"hlo_op" => Fact::Operation,
        b"program_id" => Fact::Program,
        b"long_name" | b"hlo_text" => Fact::Line,
        b"hlo_category" => Fact::Category,
        b"name" => Fact::OpName,
        b"tf_op" => Fact::TfOp,
        b"source" => Fact::Source,
        b"flops" => Fact::Flops,
        b"bytes_accessed" => Fact::Bytes,
        _ => return None,
    })
}

impl FactsByOperation {
    /// Reads those of the devices' events.
    pub(super) fn of(space: &XSpace) -> Self {
        let mut all = Self::default();
        for plane in space.planes().filter(|plane| plane.name().starts_with("/device:")) {
            let roles: HashMap<i64, Fact> =
                plane.all_stat_names().filter_map(|(id, name)| Some((id, fact(name)?))).collect();
            let has_operations = plane.lines().any(|line| OPERATION_LINES.contains(&&*line.name()));
            let reader = Reader { plane, roles };
            match has_operations {
                true => all.add_operations(&reader),
                false => plane.lines().for_each(|line| all.add_stream(&reader, line)),
            }
        }
        all
    }

    pub(super) fn find(&self, program_id: Option<i64>, operation: &str) -> Option<&EventFacts> {
        let of = |program_id| self.0.get(&(program_id, operation.to_owned()));
        of(program_id).or_else(|| of(None))
    }

    /// On TPUs: metadata describe the instructions; what is missing there is with the first event.
    fn add_operations(&mut self, reader: &Reader<'_>) {
        let mut seen: HashSet<i64> = HashSet::new();
        let lines = reader.plane.lines().filter(|line| OPERATION_LINES.contains(&&*line.name()));
        for event in lines.flat_map(|line| line.events()).filter_map(Result::ok) {
            if !seen.insert(event.metadata_id) {
                continue;
            }
            let Some(metadata) = reader.plane.event_metadata(event.metadata_id) else { continue };
            let name = instruction_name(metadata.name(), metadata.display_name());
            let mut read = ReadFacts { operation: String::from_utf8_lossy(name).into_owned(), ..ReadFacts::default() };
            read.line(&String::from_utf8_lossy(metadata.name()));
            metadata.stats().chain(event.stats().filter_map(Result::ok)).for_each(|stat| reader.read(stat, &mut read));
            // on this layout `hlo_op` may be a number of the operation
            read.operation = String::from_utf8_lossy(name).into_owned();
            self.add(read);
        }
    }

    /// On GPUs: each event names its operation.
    fn add_stream(&mut self, reader: &Reader<'_>, line: Line<'_>) {
        for event in line.events().filter_map(Result::ok) {
            let mut read = ReadFacts::default();
            event.stats().filter_map(Result::ok).for_each(|stat| reader.read(stat, &mut read));
            if !read.operation.is_empty() {
                self.add(read);
            }
        }
    }

    fn add(&mut self, mut read: ReadFacts) {
        read.name_opcode();
        if read.facts != EventFacts::default() {
            self.0.entry((read.program_id, read.operation)).or_insert(read.facts);
        }
    }
}

struct Reader<'a> {
    plane: Plane<'a>,
    roles: HashMap<i64, Fact>,
}

#[derive(Default)]
struct ReadFacts {
    operation: String,
    program_id: Option<i64>,
    facts: EventFacts,
}

impl<'a> Reader<'a> {
    fn read(&self, stat: Stat<'a>, into: &mut ReadFacts) {
        let Some(role) = self.roles.get(&stat.metadata_id) else { return };
        let text = || self.plane.stat_text(stat.value).unwrap_or_default();
        let facts = &mut into.facts;
        match role {
            Fact::Operation => into.operation = text().into_owned(),
            Fact::Program => into.program_id = stat.value.as_integer(),
            Fact::Line => into.line(&text()),
            Fact::Category => facts.category = text().into_owned(),
            Fact::OpName => facts.op_name = text().into_owned(),
            Fact::TfOp => {
                let op_name = op_name_of(&text());
                if !op_name.is_empty() {
                    facts.op_name = op_name;
                }
            }
            Fact::Source => facts.source = source_of(&text()),
            Fact::Flops => facts.flops = number(stat.value),
            Fact::Bytes => facts.bytes = number(stat.value),
        }
    }
}

impl ReadFacts {
    fn line(&mut self, text: &str) {
        if let Some(opcode) = opcode_of(text) {
            opcode.clone_into(&mut self.facts.opcode);
        }
    }

    /// Without the instruction's text, its category or its name says the opcode.
    fn name_opcode(&mut self) {
        let category = self.facts.category.as_str();
        if !self.facts.opcode.is_empty() || category.is_empty() {
            return;
        }
        let is_opcode = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase() || c == b'-');
        let named = self.operation.split('.').next().unwrap_or_default();
        self.facts.opcode = match category {
            _ if category.ends_with("fusion") && !category.starts_with("non-fusion") => "fusion".to_owned(),
            _ if is_opcode(named) => named.to_owned(),
            _ if is_opcode(category) => category.to_owned(),
            _ => return,
        };
    }
}

fn number(value: StatValue<'_>) -> f64 {
    let number = match value {
        StatValue::Double(number) => number,
        StatValue::Uint(number) => number as f64,
        StatValue::Int(number) => number as f64,
        _ => 0.0,
    };
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

/// The opcode in an instruction's text: `%fusion.3 = (f32[2]{0:T(256)}, s32[]) fusion(…), kind=kLoop`.
fn opcode_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" = ")?;
    // the shape ends with the first space outside its brackets
    let mut depth = 0_i32;
    let shape_end = rest.find(|c: char| {
        depth += match c {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        c == ' ' && depth <= 0
    })?;
    let (opcode, _) = rest.get(shape_end..)?.trim_start().split_once('(')?;
    let is_opcode = |word: &str| word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    (!opcode.is_empty() && is_opcode(opcode)).then_some(opcode)
}

/// The `op_name` in a `tf_op`, which ends with a colon and the operation's type, if any; XLA for GPUs writes
/// `XlaModule:`.
fn op_name_of(tf_op: &str) -> String {
    let op_name = match tf_op.rsplit_once(':') {
        Some((name, "")) => name,
        Some((name, of_type)) if name.rsplit('/').next() == Some(of_type) => name,
        Some((name, of_type)) if of_type.starts_with(|c: char| c.is_ascii_uppercase()) => name,
        _ => tf_op,
    };
    if op_name == "XlaModule" { String::new() } else { op_name.to_owned() }
}

/// `file:line`, or `file:line:column`.
fn source_of(text: &str) -> Option<(String, u64)> {
    let (rest, last) = text.rsplit_once(':')?;
    let last: u64 = last.parse().ok()?;
    let with_column = rest.rsplit_once(':').and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
    Some(with_column.unwrap_or_else(|| (rest.to_owned(), last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_in_instructions() {
        for (line, opcode) in [
            ("%convolution.4 = f32[8]{0} convolution(...)", Some("convolution")),
            ("%f = (f32[2]{0:T(256)S(1)}, /*index=1*/s32[]) fusion(f32[2]{0} %p), kind=kLoop", Some("fusion")),
            ("ROOT %all-gather-start.1 = (f32[1]{0}, f32[4]{0}) all-gather-start(%p)", Some("all-gather-start")),
            ("%t = () tuple()", Some("tuple")),
            ("%cut = (f32[2]{0:T(2", None),
            ("fusion.3", None),
            ("a = b", None),
        ] {
            assert_eq!(opcode_of(line), opcode, "{line}");
        }
    }

    #[test]
    fn scopes_and_sources() {
        for (tf_op, op_name) in [
            ("jit(f)/gate_mix@v3:00aa11/dot_general:", "jit(f)/gate_mix@v3:00aa11/dot_general"),
            ("jit(f)/gate_mix@v3:00aa11", "jit(f)/gate_mix@v3:00aa11"),
            ("jit(f)/add:add", "jit(f)/add"),
            ("model/dense/MatMul:MatMul", "model/dense/MatMul"),
            ("XlaModule:", ""),
            (":", ""),
        ] {
            assert_eq!(op_name_of(tf_op), op_name, "{tf_op}");
        }
        assert_eq!(source_of("/src/model.py:41"), Some(("/src/model.py".to_owned(), 41)));
        assert_eq!(source_of("/src/model.py:41:7"), Some(("/src/model.py".to_owned(), 41)));
        assert_eq!(source_of("model.py"), None);
    }
}
