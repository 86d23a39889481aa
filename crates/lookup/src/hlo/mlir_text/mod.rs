//! The structure of StableHLO text: functions, operations with their regions, operands, types, calls and locations.
//!
//! As in MLIR's parser, white space means nothing, and no dialect is known by its own syntax: an operation goes on
//! until the next one begins. So its pretty form, the generic one, and the operations of any dialect are read alike.
//! Locations are aliases (`#loc12 = loc(…)`) that the printer may put before or after their use, so they are read
//! first.

mod body;
mod function;
mod group;
mod location;
mod operation;
mod state;
mod types;
mod values;
mod words;

use std::collections::HashMap;

use self::location::Locations;
use self::state::{Function, Reader};
use self::types::spelling;
pub(crate) use self::words::attribute;
use self::words::is_word;
use super::graph::{Computation, Head, Type};
use super::text_cursor::Cursor;

/// Reads a whole text; `each` receives its functions, each after the functions within it.
pub(crate) fn read<'a>(text: &'a [u8], each: &mut dyn FnMut(Computation<'a>)) -> Head {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut head = Head::default();
    let locations = Locations::defined_in(text, &mut head.census);
    let cursor = Cursor::new(text);
    let function = Function::default();
    let aliases = HashMap::new();
    let mut reader = Reader { cursor, each, head, locations, aliases, function, modules: Vec::new(), depth: 0 };
    reader.text();
    let Reader { mut head, locations, .. } = reader;
    if head.cut.is_none() {
        head.cut = locations.missing.map(|missing| format!("location `{missing}` is used and not defined"));
    }
    head
}

/// The functions of a whole text.
pub(crate) fn functions(text: &[u8]) -> Vec<Computation<'_>> {
    let mut functions = Vec::new();
    read(text, &mut |function| functions.push(function));
    functions
}

/// A type as MLIR spells it.
pub(crate) fn read_type(spelled: &[u8]) -> Type {
    types::read(spelled, &HashMap::new())
}

/// The first lines of a module that is too large to be read completely.
pub(crate) fn read_head(head: &[u8]) -> Head {
    read(head, &mut |_| {})
}

impl<'a> Reader<'a, '_> {
    /// Reads modules, functions and aliases; lines of anything else are prose around them, or what was copied without
    /// its function.
    fn text(&mut self) {
        while let Some(byte) = self.cursor.next() {
            if byte == b'!' && self.alias_of_type() {
                continue;
            }
            if byte == b'#' {
                self.definition();
            } else if self.module_or_function_begins() {
                self.operation(None);
            } else {
                if byte == b'%' {
                    let line = self.cursor.line();
                    self.head.unread.add(line);
                }
                self.cursor.skip_line();
            }
        }
    }

    /// `!t = tensor<2xf32>`.
    fn alias_of_type(&mut self) -> bool {
        let start = self.cursor.rest();
        self.cursor.take(1);
        let name = start.get(..self.cursor.word(is_word).len() + 1).unwrap_or_default();
        let spelled = if self.cursor.eat(b"=") { spelling(&mut self.cursor) } else { None };
        if let Some(spelled) = spelled {
            self.aliases.insert(name, spelled);
        }
        spelled.is_some()
    }

    fn module_or_function_begins(&self) -> bool {
        let mut ahead = self.cursor.clone();
        if [&b"\"builtin.module\""[..], b"\"func.func\""].iter().any(|name| ahead.eat(name)) {
            return true;
        }
        match ahead.word(is_word) {
            b"module" | b"builtin.module" => {
                matches!(ahead.next(), Some(b'@' | b'{')) || ahead.word(is_word) == b"attributes"
            }
            b"func.func" => ahead.next() == Some(b'@') || !ahead.word(is_word).is_empty(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::hlo::graph::NodeKind;

    fn read_whole(text: &str) -> (Head, Vec<Computation<'_>>) {
        let mut functions = Vec::new();
        let head = read(text.as_bytes(), &mut |function| functions.push(function));
        (head, functions)
    }

    /// What XLA takes for `op_name` when it converts these to HLO (jaxlib 0.10.2).
    #[test]
    fn a_location_names_the_scope_that_xla_takes_from_it() {
        for (location, scope) in [
            (r#""A"("B"(#f))"#, "A"),
            (r#""A:"("B"(#f))"#, "B"),
            (r#"callsite("C"(#f) at "D")"#, "C"),
            (r#"fused["E", "F"("G")]"#, "E;F"),
            (r#"fused["E:", "F/x"]"#, "F/x"),
            (r#""N"(callsite("O" at "P"))"#, "N"),
            (r#""N:"(callsite("O" at "P"))"#, "O"),
            (r#""N"(fused["O", "P"])"#, "N"),
            (r#"fused<"meta">["Q", "f.py":3:4, "R"]"#, "Q;R"),
            (r#""A:"("B:"("C"(#f)))"#, "C"),
            (r#"fused["A:", "B:"("X")]"#, "X"),
            (r#"callsite("A"("B") at "C"("D"))"#, "A"),
            ("unknown", ""),
        ] {
            let body = |place: &str| {
                format!(
                    "func.func @main(%x: tensor<4xf32>) {{\n %0 = stablehlo.negate %x : tensor<4xf32> {place}\n}}\n"
                )
            };
            let file = "#f = loc(\"f.py\":1:2)\n";
            for text in [
                format!("#a = loc({location})\n{file}{}", body("loc(#a)")),
                format!("{}{file}", body(&format!("loc({location})"))),
            ] {
                let (head, functions) = read_whole(&text);
                let found = String::from_utf8_lossy(&functions[0].nodes[1].scope).into_owned();
                assert_eq!((&*found, head.cut, head.unread.count), (scope, None, 0), "{text}");
            }
        }
    }

    /// Names stand for other values in each region, in each function, and in each module within the module.
    #[test]
    fn names_are_known_where_they_are_visible() {
        let text = "module {
          module @kernels {
            func.func @add(%a: f32) -> f32 { %0 = arith.addf %a, %a : f32  return %0 : f32 }
            func.func @main(%a: f32) { %0 = func.call @add(%a) : (f32) -> f32  return }
          }
          // a comment: %a = \"no\"(%b)
          func.func @main(%a: tensor<2xf32>, %b: !t) -> (tensor<2xf32> {x = \"}\"}) attributes {y} {
            %0:2 = scf.for %i = %a to %b iter_args(%c = %b) -> (f32, f32) { %1 = foo.a %i, %c : f32 scf.yield %1 : f32 }
            %1 = stablehlo.reduce(%0#1 init: %a) applies stablehlo.add across dimensions = [0] : (f32, f32) -> f32
            %2 = stablehlo.reduce(%a init: %1) across dimensions = [0] : (f32, f32) -> tensor<f32>
              reducer(%d: f32, %e: f32) { %3 = foo.b %d, %e : f32  stablehlo.return %3 : f32 }
            cf.br ^next(%2 : tensor<f32>)
          ^next(%f: tensor<f32>):
            %3, %4 = \"foo.c\"(%f, %0#0, %missing) : (f32, f32, f32) -> (f32, f32)
            return %a : tensor<2xf32>
          }
        }";
        let (head, functions) = read_whole(text);
        let names: Vec<_> = functions.iter().map(|one| String::from_utf8_lossy(&one.name)).collect();
        assert_eq!(names, ["kernels::add", "kernels::main", "main"]);
        assert_eq!(functions[1].nodes[1].called, ["kernels::add".as_bytes()]);
        assert_eq!((head.unread.count, head.unread.first), (1, Some(14)), "one value is missing");
        let main = &functions[2];
        assert_eq!(main.results.as_deref(), Some(&[b"x = \"}\"".into()][..]));
        let place = |opcode: &str| main.nodes.iter().position(|node| node.opcode == opcode).unwrap();
        let operands = |opcode: &str| {
            let values = main.nodes[place(opcode)].operands.iter();
            values.map(|value| (value.node, value.part)).collect::<Vec<_>>()
        };
        let held = |holder: usize| {
            let arguments = main
                .nodes
                .iter()
                .enumerate()
                .filter(move |(_, node)| node.kind == NodeKind::Argument && node.holder == Some(holder));
            arguments.map(|(at, _)| (at, None)).collect::<Vec<_>>()
        };
        assert_eq!(operands("foo.a"), held(place("scf.for")));
        let reduces: Vec<usize> =
            (0..main.nodes.len()).filter(|&at| main.nodes[at].opcode == "stablehlo.reduce").collect();
        assert_eq!(operands("stablehlo.reduce"), [(place("scf.for"), Some(1)), (0, None)]);
        assert_eq!(operands("foo.b"), held(reduces[1]));
        let [block] = main
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.kind == NodeKind::Argument && node.holder.is_none())
            .map(|(at, _)| at)
            .skip(2)
            .collect::<Vec<_>>()[..]
        else {
            panic!("one argument of a block")
        };
        assert_eq!(operands("foo.c"), [(block, None), (place("scf.for"), Some(0))]);
        assert_eq!(main.nodes[place("foo.c")].results.len(), 2);
    }

    #[test]
    fn texts_that_are_cut_or_damaged_are_read_to_their_end() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hlo/printed");
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read(file.unwrap().path()).unwrap();
            for at in (0..text.len()).step_by(3) {
                read(&text[..at], &mut |_| {});
                for byte in *b"{}()<>\"%#:,=@^\n\xff" {
                    let mut damaged = text.clone();
                    damaged[at] = byte;
                    read(&damaged, &mut |_| {});
                }
            }
        }
    }

    #[test]
    fn hostile_texts_take_time_in_proportion_to_their_bytes() {
        const COUNT: usize = 100_000;
        let within = |inside: &str| format!("func.func @main(%a: f32) {{\n{inside}\n}}\n");
        let mut chain = String::from("#loc0 = loc(\"name\")\n");
        for number in 1..COUNT / 10 {
            let before = number - 1;
            chain += &format!("#loc{number} = loc(fused[#loc{before}, #loc{before}])\n");
        }
        let chained = (0..COUNT / 10).map(|number| format!("%{number} = a.b %a : f32 loc(#loc{number})\n"));
        for text in [
            "module {".repeat(COUNT),
            within(&"\"a.b\"() ({".repeat(COUNT)),
            within(&"%0 = a.b %a {".repeat(COUNT)),
            within(&"%a, ".repeat(COUNT)),
            within(&"%a ".repeat(COUNT)),
            within(&"^a(".repeat(COUNT)),
            within(&"a.b : tuple<".repeat(COUNT)),
            within(&"a.b : (".repeat(COUNT)),
            within(&"a.b : f32 loc(fused[".repeat(COUNT)),
            within(&"= ) ] > ".repeat(COUNT)),
            "#a = loc(\"".repeat(COUNT),
            "!a = tuple<!a, !a>\n".repeat(COUNT),
            within(&chained.collect::<String>()) + &chain,
        ] {
            let begin = Instant::now();
            read(text.as_bytes(), &mut |_| {});
            let spent = begin.elapsed();
            assert!(spent < Duration::from_secs(20), "{spent:?} for {}", &text[..60]);
        }
    }
}
