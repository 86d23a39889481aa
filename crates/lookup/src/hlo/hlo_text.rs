//! The structure of HLO text: module line, computations, instructions with operands, calls and names.

use std::collections::HashMap;

use super::census::Structure;
use super::escape::Escapes;
use super::sites::{Instruction, Sites};
use super::user_label::UserLabels;
use crate::array::ArraySpec;

/// Reads the structure of a whole text.
pub(crate) fn read(text: &[u8], user: Option<&UserLabels>) -> Structure {
    let mut reader = Reader { structure: Structure::default(), sites: Sites::default(), user, has_sharding: false };
    let mut computation: Option<(usize, Builder)> = None;
    let mut header = String::new();
    let mut has_entry = false;
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            [b' ' | b'\t', ..] => {
                if let Some((_, builder)) = &mut computation {
                    reader.instruction(line.trim_ascii_start(), index as u64 + 1, builder);
                }
            }
            [b'}', ..] => {
                if let Some((id, builder)) = computation.take() {
                    reader.sites.add(id, &builder.instructions);
                }
            }
            _ if line.starts_with(b"HloModule ") && header.is_empty() => {
                // the layouts of a large entry make this line long; the attributes read here are short
                header = String::from_utf8_lossy(line).into_owned();
            }
            _ if line.trim_ascii_end().ends_with(b"{") => {
                let name = line.strip_prefix(b"ENTRY ");
                has_entry |= name.is_some();
                let id = reader.sites.computation_id(identifier(name.unwrap_or(line)));
                computation = Some((id, Builder::default()));
            }
            _ => {}
        }
    }
    let Reader { mut structure, sites, has_sharding, .. } = reader;
    if computation.is_some() {
        structure.cut = Some("its last computation is not closed".to_owned());
    } else if !has_entry && !header.is_empty() {
        structure.cut = Some("it has no `ENTRY` computation".to_owned());
    }
    read_header(&header, has_sharding, &mut structure);
    structure.resolved = sites.resolve();
    structure
}

/// The first line of a module that is too large to be read completely.
pub(crate) fn read_head(head: &[u8]) -> Structure {
    let mut structure = Structure::default();
    let line = head.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"HloModule ")).unwrap_or_default();
    read_header(&String::from_utf8_lossy(line), false, &mut structure);
    structure
}

fn read_header(header: &str, has_sharding: bool, structure: &mut Structure) {
    let Some(rest) = header.strip_prefix("HloModule ") else { return };
    let name = rest.split([',', ' ']).next().unwrap_or_default();
    structure.module = Some(name.trim_start_matches('%').to_owned()).filter(|name| !name.is_empty());
    structure.is_optimized = rest.contains("is_scheduled=true");
    let partitions: u64 = rest
        .split_once("num_partitions=")
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or(1);
    structure.partitioned = match (structure.is_optimized, partitions > 1) {
        // the scheduler runs long after the partitioner
        (true, many) => Some(many),
        (false, false) => Some(false),
        // shardings are gone once the partitioner has acted on them
        (false, true) if has_sharding => Some(false),
        (false, true) => None,
    };
}

#[derive(Default)]
struct Builder {
    instructions: Vec<Instruction>,
    index: HashMap<Vec<u8>, usize>,
}

struct Reader<'a> {
    structure: Structure,
    sites: Sites,
    user: Option<&'a UserLabels>,
    has_sharding: bool,
}

/// An instruction's or a computation's name: up to the first blank or parenthesis, without `%`.
fn identifier(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"%").unwrap_or(text);
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'(' | b',' | b'}' | b')')).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Length of the text up to the bracket that closes the one at its start; quotes are respected.
fn balanced(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'(' | b'{' | b'[' if !in_string => depth += 1,
            b')' | b'}' | b']' if !in_string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Parts of a text between top-level commas.
fn top_level_parts(text: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'(' | b'{' | b'[' => at += balanced(text.get(at..).unwrap_or_default()).max(1),
            b'"' => at += quoted(text.get(at + 1..).unwrap_or_default()).len() + 2,
            b',' => {
                parts.push(text.get(start..at).unwrap_or_default().trim_ascii());
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    parts.push(text.get(start..).unwrap_or_default().trim_ascii());
    parts.retain(|part| !part.is_empty());
    parts
}

/// The content of a quoted string whose opening quote was just passed, still escaped.
pub(crate) fn quoted(text: &[u8]) -> &[u8] {
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return text.get(..at).unwrap_or_default(),
            _ => {}
        }
    }
    text
}

/// `f32[2,128]{1,0}` as an array; `None` for tuples and other shapes.
fn array_shape(text: &[u8]) -> Option<ArraySpec> {
    let end = text.iter().position(|&byte| byte == b']')? + 1;
    let text = std::str::from_utf8(text.get(..end)?).ok()?;
    text.replace("<=", "").parse().ok()
}

impl Reader<'_> {
    fn instruction(&mut self, line: &[u8], number: u64, builder: &mut Builder) {
        let line = line.strip_prefix(b"ROOT ").unwrap_or(line);
        let Some(equals) = memchr::memmem::find(line, b" = ") else { return };
        let name = identifier(line);
        let rest = line.get(equals + 3..).unwrap_or_default();
        let shape_length = match rest.first() {
            Some(b'(') => balanced(rest),
            _ => rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len()),
        };
        let (shape, rest) = rest.split_at(shape_length);
        let rest = rest.trim_ascii_start();
        let opcode_length = rest.iter().position(|&byte| byte == b'(').unwrap_or(rest.len());
        let (opcode, rest) = rest.split_at(opcode_length);
        let operands_length = balanced(rest);
        let (operands, attributes) = rest.split_at(operands_length);
        let mut instruction = Instruction {
            name: String::from_utf8_lossy(name).into_owned(),
            shape: array_shape(shape),
            is_constant: opcode == b"constant",
            line: Some(number),
            ..Instruction::default()
        };
        self.structure.census.instruction(&instruction.name);
        if !matches!(opcode, b"constant" | b"parameter") {
            let inner = operands.strip_prefix(b"(").and_then(|inner| inner.strip_suffix(b")")).unwrap_or_default();
            for operand in top_level_parts(inner) {
                // older texts print the operand's shape before its name, and comments count the operands
                let token = operand.rsplit(|&byte| byte == b' ' || byte == b'/').next().unwrap_or_default();
                instruction.operands.extend(builder.index.get(identifier(token)));
            }
        }
        for attribute in top_level_parts(attributes) {
            self.attribute(attribute, &mut instruction);
        }
        builder.index.insert(name.to_vec(), builder.instructions.len());
        builder.instructions.push(instruction);
    }

    fn attribute(&mut self, attribute: &[u8], instruction: &mut Instruction) {
        let Some(equals) = memchr::memchr(b'=', attribute) else { return };
        let (key, value) = attribute.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        match key {
            b"to_apply" | b"calls" | b"body" | b"condition" | b"true_computation" | b"false_computation" => {
                let callee = self.sites.computation_id(identifier(value));
                instruction.called.push(callee);
            }
            b"branch_computations" | b"called_computations" => {
                let inner = value.strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}")).unwrap_or(value);
                for callee in top_level_parts(inner) {
                    let callee = self.sites.computation_id(identifier(callee));
                    instruction.called.push(callee);
                }
            }
            b"sharding" => self.has_sharding = true,
            b"metadata" => {
                const KEY: &[u8] = b"op_name=\"";
                let Some(at) = memchr::memmem::find(value, KEY) else { return };
                let name = quoted(value.get(at + KEY.len()..).unwrap_or_default());
                self.structure.census.name(name, Escapes::C);
                instruction.scope = self.sites.scope(name, Escapes::C, self.user);
            }
            _ => {}
        }
    }
}
