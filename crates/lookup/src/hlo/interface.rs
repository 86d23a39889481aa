//! The names of a program's arguments, and which of them it may overwrite.

use std::collections::BTreeSet;

use prost::Message;

use super::bytecode;
use super::error::ScanErrorKind;
use super::escape::{Escapes, Unescaper};
use super::found::ModuleForm;
use super::graph::{Computation, Node, NodeKind};
use super::mlir_text::{self, attribute};
use super::module::HloModule;
use super::schema::hlo::HloModuleProto;
use super::text_cursor::quoted;

/// The name in MLIR's text and bytecode of an argument that may be overwritten: jax, `jax/_src/interpreters/mlir.py`.
pub(super) const DONATED: [&[u8]; 2] = [b"tf.aliasing_output", b"jax.buffer_donor"];
/// Longest path of an argument.
const MAX_PATH_BYTES: usize = 1024;

/// One argument of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramArgument {
    /// Its place in the tree of arguments, such as `params/w` for JAX's `params['w']`; empty if unknown.
    pub path: String,
    /// Whether the program may overwrite it.
    pub is_donated: bool,
}

/// The arguments of a module's entry in their order; `None` if the form or the module does not list them individually,
/// like unusual text and bytecode that cannot be read.
pub(super) fn arguments(form: ModuleForm, bytes: &[u8]) -> Result<Option<Vec<ProgramArgument>>, ScanErrorKind> {
    match form {
        ModuleForm::HloProto => of_proto(bytes),
        _ => Ok(entry(form, bytes).map(|main| of_function(&main))),
    }
}

fn of_function(main: &Computation<'_>) -> Vec<ProgramArgument> {
    let is_argument = |node: &&Node<'_>| node.kind == NodeKind::Argument && node.holder.is_none();
    let argument = |node: &Node<'_>| {
        let has = |mark: &&[u8]| memchr::memmem::find(&node.attributes, mark).is_some();
        ProgramArgument { path: path(&node.name), is_donated: DONATED.iter().any(has) }
    };
    main.nodes.iter().take_while(is_argument).map(argument).collect()
}

/// The functions of a StableHLO module, as text or bytecode; `None` for another form and for damaged bytecode.
pub(super) fn functions(form: ModuleForm, bytes: &[u8]) -> Option<Vec<Computation<'_>>> {
    match form {
        ModuleForm::StablehloText => Some(mlir_text::functions(bytes)),
        ModuleForm::StablehloBytecode => bytecode::functions(bytes),
        _ => None,
    }
}

/// The function that a program begins with.
fn entry(form: ModuleForm, bytes: &[u8]) -> Option<Computation<'_>> {
    functions(form, bytes)?.into_iter().find(|function| &*function.name == b"main")
}

/// The names of the results of a module's entry, as JAX notes them: `loss` for `result['loss']`. The list is empty if
/// no result has one.
pub(super) fn results(form: ModuleForm, bytes: &[u8]) -> Vec<String> {
    let results = entry(form, bytes).and_then(|main| main.results).unwrap_or_default();
    let names: Vec<String> = results.iter().map(|attributes| result_name(attributes)).collect();
    if names.iter().all(String::is_empty) { Vec::new() } else { names }
}

fn result_name(attributes: &[u8]) -> String {
    let named = attribute(attributes, b"jax.result_info").and_then(|name| name.strip_prefix(b"\"")).map(quoted);
    let named: Vec<u8> = Unescaper::new(named.unwrap_or_default(), Escapes::Mlir).collect();
    let name = path(&String::from_utf8_lossy(&named));
    name.strip_prefix("result").map_or(name.as_str(), |rest| rest.trim_start_matches('/')).to_owned()
}

/// Whether a module's entry has results; `None` if the form or the module does not tell.
pub(super) fn has_results(form: ModuleForm, bytes: &[u8]) -> Option<bool> {
    if form == ModuleForm::HloProto {
        return proto_has_results(bytes);
    }
    let main = entry(form, bytes)?;
    // the generic form lists only results with attributes
    Some(main.results.map_or(!main.returns.is_empty(), |results| !results.is_empty()))
}

/// Whether the result of a module's `host_program_shape` is anything but tuples of nothing.
fn proto_has_results(module: &[u8]) -> Option<bool> {
    let result = HloModuleProto::decode(module).ok()?.host_program_shape?.result?;
    Some(!result.leaves().is_empty())
}

fn of_proto(bytes: &[u8]) -> Result<Option<Vec<ProgramArgument>>, ScanErrorKind> {
    let module = match HloModule::read(bytes, "module").map_err(|error| error.kind) {
        Ok(module) => module,
        Err(cut @ ScanErrorKind::Truncated { .. }) => return Err(cut),
        // the compiler refuses it
        Err(_) => return Ok(None),
    };
    let aliased = module.message.input_output_alias.iter().flat_map(|alias| &alias.entries);
    let given = module.message.buffer_donor.iter().flat_map(|donor| &donor.entries);
    let aliased = aliased.map(|entry| entry.parameter_number);
    let donated: BTreeSet<u64> = aliased.chain(given.map(|entry| entry.parameter_number)).collect();
    let Some(entry) = module.computations.iter().find(|one| one.id == module.entry) else { return Ok(None) };
    let instructions = module.instructions.get(entry.instructions.clone()).unwrap_or_default();
    let parameters = instructions.iter().filter(|one| one.opcode() == "parameter");
    let mut found: Vec<(u64, String)> =
        parameters.map(|one| (one.message.parameter_number, path(one.op_name()))).collect();
    found.sort();
    if (0_u64..).zip(&found).any(|(index, (number, _))| index != *number) {
        return Ok(None);
    }
    let argument = |(number, path): (u64, String)| ProgramArgument { path, is_donated: donated.contains(&number) };
    Ok(Some(found.into_iter().map(argument).collect()))
}

/// JAX's name of a leaf as a path: `opt[0].mu['w']` is `opt/0/mu/w`.
fn path(name: &str) -> String {
    let mut parts: Vec<String> = vec![String::new()];
    let mut quote = None;
    for character in name.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '[' | '.') => parts.push(String::new()),
            (None, ']' | '\\') => {}
            (_, character) => parts.last_mut().into_iter().for_each(|part| part.push(character)),
        }
    }
    parts.retain(|part| !part.is_empty());
    let path = parts.join("/");
    if path.len() > MAX_PATH_BYTES { String::new() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A step that JAX 0.10.2 lowered with `donate_argnums=(0, 1)`: tests/data/inputs/README.md.
    #[test]
    fn arguments_of_a_step_are_those_of_its_function() {
        let expected = [
            ("params/b", true),
            ("params/w", true),
            ("opt/mu/b", true),
            ("opt/mu/w", true),
            ("opt/nu/b", true),
            ("opt/nu/w", true),
            ("opt/count", true),
            ("batch/ids", false),
            ("batch/pos", false),
            ("table", false),
        ];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/inputs");
        for (file, form) in [("step.mlir", ModuleForm::StablehloText), ("step.hlo.pb", ModuleForm::HloProto)] {
            let bytes = std::fs::read(folder.join(file)).unwrap();
            let found = arguments(form, &bytes).unwrap().unwrap();
            let found: Vec<(&str, bool)> = found.iter().map(|one| (one.path.as_str(), one.is_donated)).collect();
            // XLA's own form of the step lacks the donations that JAX makes only when it compiles
            match form {
                ModuleForm::StablehloText => assert_eq!(found, expected),
                _ => assert!(found.iter().zip(expected).all(|(found, expected)| found.0 == expected.0), "{found:?}"),
            }
            for end in (0..bytes.len()).step_by(97) {
                let _ = arguments(form, &bytes[..end]);
            }
        }
    }

    #[test]
    fn donation_is_read_for_each_parameter() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/timer");
        let mut module = std::fs::read(folder.join("add.hlo.pb")).unwrap();
        let donated = |module: &[u8]| -> Vec<bool> {
            arguments(ModuleForm::HloProto, module).unwrap().unwrap().iter().map(|one| one.is_donated).collect()
        };
        assert!(!donated(&module).contains(&true));
        // input_output_alias { entries { parameter_number: 1 } }
        module.extend([0x42, 4, 0x0a, 2, 0x10, 1]);
        assert_eq!(donated(&module)[..2], [false, true]);
        // buffer_donor { entries {} }: the first argument, whose number zero is not written
        module.extend([0x92, 0x01, 2, 0x0a, 0]);
        assert_eq!(donated(&module)[..2], [true, true]);
    }

    #[test]
    fn a_module_without_results_is_known_as_one() {
        let text = |results: &str| {
            let text = format!("module {{\n func.func public @main(%x: tensor<2xf32>) {results}");
            has_results(ModuleForm::StablehloText, text.as_bytes())
        };
        for without in ["{", "-> () {", "attributes {a = 1 : i32} {"] {
            assert_eq!(text(without), Some(false), "{without}");
        }
        for with in ["-> tensor<f32> {", "-> (tensor<f32>, tensor<f32>) {"] {
            assert_eq!(text(with), Some(true), "{with}");
        }
        assert_eq!(text(""), None);
        assert_eq!(has_results(ModuleForm::StablehloText, b"module { func.func @f() { } }"), None);
        assert_eq!(has_results(ModuleForm::StablehloText, b"module { func.func @main() { } }"), Some(false));
        assert_eq!(has_results(ModuleForm::StablehloBytecode, b""), None);

        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/timer");
        let proto = |bytes: &[u8]| has_results(ModuleForm::HloProto, bytes);
        let module = std::fs::read(folder.join("add.hlo.pb")).unwrap();
        assert_eq!(proto(&module), Some(true));
        for end in 0..module.len() {
            let _ = proto(&module[..end]);
        }
        // host_program_shape { result { element_type: TUPLE tuple_shapes { element_type: TUPLE } } }
        assert_eq!(proto(b"\x22\x08\x12\x06\x10\x0d\x22\x02\x10\x0d"), Some(false));
        assert_eq!(proto(b"\x22\x08\x12\x06\x10\x0d\x22\x02\x10\x0b"), Some(true));
        assert_eq!(proto(b""), None);
    }

    #[test]
    fn results_are_called_as_jax_notes_them() {
        let named = |results: &str| {
            let text =
                format!("module {{\n func.func public @main(%x: tensor<2xf32> {{a = \") -> (\"}}) -> ({results}) {{");
            results_in(&text)
        };
        let two = r#"tensor<f32> {jax.result_info = "result[0]['loss']"}, tensor<2xf32> {jax.result_info = "[1].w"}"#;
        assert_eq!(named(two), ["0/loss", "1/w"]);
        let escaped = r#"tensor<f32> {jax.result_info = "result['Gr\C3\B6\C3\9Fe']['a\22b']"}, tensor<f32>"#;
        assert_eq!(named(escaped), ["Größe/a\"b", ""]);
        // the only result of a function has no name, and what has none is not listed
        let none = Vec::<String>::new();
        assert_eq!(named(r#"tensor<f32> {jax.result_info = "result"}"#), none);
        assert_eq!(named(r#"tensor<f32> {jax.result_info = "result"}, tensor<f32>"#), none);
        assert_eq!(results_in("module {\n func.func public @main() -> tensor<f32> {"), none);
        assert_eq!(results_in("func.func public @main(%x: tensor<f32>) -> (tensor"), Vec::<String>::new());
        assert_eq!(results(ModuleForm::HloProto, two.as_bytes()), Vec::<String>::new());
    }

    fn results_in(text: &str) -> Vec<String> {
        results(ModuleForm::StablehloText, text.as_bytes())
    }

    #[test]
    fn text_is_read_whatever_the_names_hold() {
        let found = |text: &str| arguments(ModuleForm::StablehloText, text.as_bytes()).unwrap();
        let text = "#loc1 = loc(\"a)b\")\n#loc2 = loc(\"file.py\":3:4)\nmodule {\n  func.func public @main(\
                    %x: tensor<2xf32> {jax.buffer_donor = true, mhlo.sharding = \"{(,}\"} loc(\"p['k\\\"')']\"), \
                    %y: tensor<2xf32, #e<(d0) -> (d0)>> loc(#loc1), %z: tensor<f32> loc(#loc2)) -> tensor<f32> {";
        let found_in = found(text).unwrap();
        let donated: Vec<bool> = found_in.iter().map(|one| one.is_donated).collect();
        assert_eq!(donated, [true, false, false]);
        assert_eq!((found_in[1].path.as_str(), found_in[2].path.as_str()), ("a)b", ""));
        assert_eq!(found("module {\n func.func public @main() -> tensor<f32> {"), Some(vec![]));
        assert_eq!(found("module {}"), None);
        assert_eq!(found("func.func public @main(%x: tensor<2xf32>"), None);
        assert_eq!(path("opt[0].mu['a.b'][\"c\"]"), "opt/0/mu/a.b/c");
    }
}
