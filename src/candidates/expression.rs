//! Constraints: one boolean expression over a config's parameters.

use std::sync::LazyLock;

use rhai::{AST, Dynamic, Engine, Map, Scope};
use serde_json::Value;

/// Limits of one evaluation: a space from a stranger cannot hang or exhaust the tuner.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut engine = Engine::new_raw();
    engine.set_max_operations(10_000);
    engine.set_max_expr_depths(64, 64);
    engine.set_max_call_levels(8);
    engine.set_max_string_size(4096);
    engine.set_max_array_size(1024);
    engine.set_max_map_size(1024);
    for symbol in ["eval", "print", "debug"] {
        engine.disable_symbol(symbol);
    }
    engine.register_fn("min", |a: i64, b: i64| a.min(b));
    engine.register_fn("max", |a: i64, b: i64| a.max(b));
    engine.register_fn("min", |a: f64, b: f64| a.min(b));
    engine.register_fn("max", |a: f64, b: f64| a.max(b));
    engine.register_fn("abs", i64::saturating_abs);
    engine.register_fn("abs", f64::abs);
    engine
});

/// Words of the language that are no names.
const KEYWORDS: &[&str] = &["true", "false", "if", "else"];

/// What is wrong with an expression, and the character where it is, from 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpressionError {
    pub(super) message: String,
    pub(super) at: usize,
}

/// A compiled constraint.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    program: AST,
    /// Indices of the names that it reads.
    pub(super) reads: Vec<usize>,
}

impl Expression {
    /// Compiles an expression over names, which may hold points; a name that it reads must be one of them.
    pub(super) fn compile(text: &str, names: &[&str]) -> Result<Self, ExpressionError> {
        let program = ENGINE.compile_expression(text).map_err(|error| {
            let at = error.position().position().map_or(0, |column| column.saturating_sub(1));
            let message = error.err_type().to_string();
            ExpressionError { message, at }
        })?;
        let mut reads = Vec::new();
        for (at, chain) in chains(text) {
            let mut known = false;
            for (index, name) in names.iter().enumerate() {
                let inside = |outer: &str, inner: &str| {
                    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                // a whole object of parameters reads all of them
                if inside(name, chain) || inside(chain, name) {
                    known = true;
                    reads.push(index);
                }
            }
            if !known {
                let message = format!("`{chain}` is neither a parameter nor a given value");
                return Err(ExpressionError { message, at });
            }
        }
        reads.sort_unstable();
        reads.dedup();
        Ok(Self { program, reads })
    }

    /// Whether the constraint holds. `values` gives each name that the expression reads and its value.
    pub(super) fn holds<'a>(&self, values: impl Iterator<Item = (&'a str, &'a Value)>) -> Result<bool, String> {
        let mut roots: Vec<(&str, Dynamic)> = Vec::new();
        for (name, value) in values {
            let value = to_dynamic(value)?;
            let (root, path) = name.split_once('.').map_or((name, None), |(root, path)| (root, Some(path)));
            let place = roots.iter().position(|(known, _)| *known == root);
            let slot = place.and_then(|place| roots.get_mut(place));
            match (slot, path) {
                (Some((_, object)), Some(path)) => insert(object, path, value),
                (_, Some(path)) => {
                    let mut object = Dynamic::from_map(Map::new());
                    insert(&mut object, path, value);
                    roots.push((root, object));
                }
                (_, None) => roots.push((root, value)),
            }
        }
        let mut scope = Scope::new();
        for (name, value) in roots {
            scope.push_dynamic(name, value);
        }
        let result = ENGINE.eval_ast_with_scope::<Dynamic>(&mut scope, &self.program);
        let result = result.map_err(|error| error.to_string().replace('\n', " "))?;
        result.as_bool().map_err(|kind| format!("it gives {kind}, not true or false"))
    }
}

fn insert(object: &mut Dynamic, path: &str, value: Dynamic) {
    let Some(mut map) = object.write_lock::<Map>() else { return };
    match path.split_once('.') {
        None => {
            map.insert(path.into(), value);
        }
        Some((key, rest)) => {
            let inner = map.entry(key.into()).or_insert_with(|| Dynamic::from_map(Map::new()));
            insert(inner, rest, value);
        }
    }
}

fn to_dynamic(value: &Value) -> Result<Dynamic, String> {
    Ok(match value {
        Value::Null => Dynamic::UNIT,
        Value::Bool(value) => (*value).into(),
        Value::String(value) => value.as_str().into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(real)) if number.is_f64() => real.into(),
            _ => return Err(format!("`{number}` is larger than an expression's integers")),
        },
        Value::Array(_) | Value::Object(_) => return Err(format!("`{value}` is no single value")),
    })
}

/// The names in an expression, with what follows their points, and the character where each starts. Words of the
/// language, called functions and what stands in strings are left out.
fn chains(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        if matches!(byte, b'"' | b'\'' | b'`') {
            let mut escaped = false;
            let closing = rest.iter().skip(1).position(|&next| {
                let closes = next == byte && !escaped;
                escaped = next == b'\\' && !escaped;
                closes
            });
            at += closing.map_or(rest.len(), |length| length + 2);
        } else if byte.is_ascii_digit() {
            // numbers, with what belongs to them: 0x1f, 1_000, 2.5
            at += rest.iter().take_while(|&&byte| word(byte) || byte == b'.').count();
        } else if word(byte) {
            let length = rest.iter().take_while(|&&byte| word(byte) || byte == b'.').count();
            let chain = text.get(at..at + length).unwrap_or_default();
            let called = rest.get(length..).unwrap_or_default().trim_ascii_start().starts_with(b"(");
            // a method is called on what stands before its point
            let name = if called { chain.rsplit_once('.').map_or("", |(object, _)| object) } else { chain };
            if !name.is_empty() && !KEYWORDS.contains(&name) {
                found.push((text.get(..at).unwrap_or_default().chars().count(), name.trim_end_matches('.')));
            }
            at += length;
        } else {
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, values: &[(&str, Value)]) -> Result<bool, String> {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let expression = Expression::compile(text, &names).map_err(|error| error.message)?;
        expression.holds(expression.reads.iter().map(|&index| (values[index].0, &values[index].1)))
    }

    #[test]
    fn expressions_hold_or_not() {
        let values =
            [("m", 64.into()), ("p.k", 128.into()), ("p.q.r", 2.into()), ("kind", "x la".into()), ("f", 0.5.into())];
        for (text, expected) in [
            ("m * p.q.r == p.k", true),
            ("p.k % m != 0", false),
            ("min(m, p.k) == m && max(f, 2.0) == 2.0", true),
            ("kind == \"x la\" && kind != \"m > 1\"", true),
            ("if m > 32 { p.k > 64 } else { true }", true),
            ("abs(-m) == m", true),
            ("!(f < 1.0)", false),
        ] {
            assert_eq!(holds(text, &values), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_must_be_known_and_results_boolean() {
        let error = Expression::compile("m > 1 && blok < 2", &["m"]).unwrap_err();
        assert_eq!((error.at, error.message.contains("`blok`")), (9, true));
        let error = Expression::compile("m >", &["m"]).unwrap_err();
        assert!(!error.message.is_empty());
        assert!(holds("m + 1", &[("m", 1.into())]).unwrap_err().contains("not true or false"));
        assert!(holds("1 / m == 1", &[("m", 0.into())]).is_err());
        assert!(holds("m * m > 0", &[("m", i64::MAX.into())]).is_err(), "overflow is an error");
    }

    #[test]
    fn hostile_expressions_end() {
        let deep = format!("{}m{} == 1", "(".repeat(5000), ")".repeat(5000));
        assert!(Expression::compile(&deep, &["m"]).is_err());
        assert!(Expression::compile("while true {}", &["m"]).is_err(), "an expression only");
        for text in ["eval(\"m\")", "print(m)", "if true { loop {} } else { true }"] {
            assert!(holds(text, &[("m", 1.into())]).is_err(), "{text}");
        }
    }
}
