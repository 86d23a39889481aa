//! Constraints: their results, compared with Python's; their errors with positions; and evaluation without allocations.

use std::collections::BTreeMap;

use crate::allocations;
use autotune_lowered::constraint::{Constraint, ConstraintError, ConstraintValue, Kinds};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

type Values = BTreeMap<String, serde_json::Value>;

/// Compiles for names of these values' kinds, or of any kind, and evaluates.
fn holds_of(text: &str, values: &Values, any: bool) -> Result<bool, ConstraintError> {
    let values: Vec<(&str, ConstraintValue<'_>)> =
        values.iter().map(|(name, value)| (name.as_str(), ConstraintValue::try_from(value).unwrap())).collect();
    let kinds = |value: &ConstraintValue<'_>| if any { Kinds::ANY } else { value.kinds() };
    let names: Vec<(&str, Kinds)> = values.iter().map(|(name, value)| (*name, kinds(value))).collect();
    Constraint::compile(text, &names)?.holds(|name| Ok(values[name].1))
}

/// The result must not depend on whether the names' kinds are known; only parts that are never evaluated may differ.
fn holds(text: &str, values: &Values) -> Result<bool, ConstraintError> {
    let (typed, untyped) = (holds_of(text, values, false), holds_of(text, values, true));
    if typed.is_ok() || untyped.is_err() {
        assert_eq!(typed.as_ref().ok(), untyped.as_ref().ok(), "{text}");
    }
    typed
}

fn values(of: serde_json::Value) -> Values {
    serde_json::from_value(of).unwrap()
}

fn samples() -> Values {
    values(
        json!({"m": 64, "p.k": 128, "p.q.r": 2, "kind": "x la", "f": 0.5, "least": i64::MIN, "on": true, "none": null}),
    )
}

#[test]
fn expressions_hold_or_not() {
    for (text, expected) in [
        ("m * p.q.r == p.k", true),
        ("p.k % m != 0", false),
        ("min(m, p.k) == m && max(f, 2.0) == 2.0", true),
        ("kind == \"x la\" && kind != 'm > 1' && kind > ''", true),
        ("!(f < 1.0)", false),
        ("none == none && on && on != false", true),
        // unary minus binds most strongly, and powers are right-associative
        ("-2 ** 2 == 4 && 2 ** 3 ** 2 == 512 && 2 ** 0.5 > 1.4", true),
        ("-7 / 2 == -3 && -7 % 3 == -1 && 7 / 2.0 == 3.5", true),
        ("64 == m && 64e0 == m && 6.4E+1 == m && 640e-1 == m", true),
        ("-9223372036854775808 == least", true),
        ("false && m / 0 == 1 || true || m / 0 == 1", true),
    ] {
        assert_eq!(holds(text, &samples()), Ok(expected), "{text}");
    }
}

#[derive(Deserialize)]
struct Row {
    expression: String,
    values: Values,
    python: Option<bool>,
}

#[test]
fn results_are_those_of_python() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../data/constraints/python.json")).unwrap();
    assert!(rows.len() == 600 && rows.iter().filter(|row| row.python.is_none()).count() > 50);
    for row in rows {
        let here = holds(&row.expression, &row.values);
        assert_eq!(here.as_ref().ok(), row.python.as_ref(), "{} {:?}: {here:?}", row.expression, row.values);
    }
}

/// No tolerance between floats, and no order among values of different kinds.
#[test]
fn results_are_exact_or_an_error() {
    for (text, expected) in [
        ("0.1 + 0.2 == 0.3", Some(false)),
        ("1e-20 > 0.0", Some(true)),
        ("1.25 / 9223372036854775807 == 0.0", Some(false)),
        ("1 / 0.0 > 1", None),
        ("9223372036854775808 > 0", None),
        ("kind < 1", None),
        ("kind == 1", None),
        ("1 < m < 100", None),
        ("none < none", None),
        ("kind + 'a' == 'x laa'", None),
        ("false && kind", None),
    ] {
        assert_eq!(holds(text, &samples()).ok(), expected, "{text}");
    }
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    for (text, at, part) in [
        ("m > 1 && blok < 2", 9, "`blok` is neither a parameter nor a given value"),
        ("m + q.k > 1", 4, "`q.k` is neither"),
        ("p == 1", 0, "`p` is an object; name a member of it, as `p.k`"),
        ("m >", 3, "a value is expected here, not the end"),
        ("m > * 2", 4, "a value is expected here, not `*`"),
        ("(m > 2", 6, "`)` is expected here, not the end"),
        ("m > 2)", 5, "an operator or the end is expected here, not `)`"),
        ("m in p", 2, "an operator or the end is expected here, not `in`"),
        ("m = 64", 2, "`=` is not part of an expression"),
        ("kind == \"x", 8, "the string does not end"),
        ("kind == 'é\\' q", 13, "an operator or the end is expected here, not `q`"),
        ("m > 12ab", 4, "`12ab` is not a number"),
        ("m > 1.2.3", 4, "`1.2.3` is not a number"),
        ("m < 9223372036854775808", 4, "beyond an integer of 64 bits"),
        ("m < 1e999", 4, "beyond a float"),
        ("len(m) > 1", 0, "there is no function `len`, only `min` and `max`"),
        ("min(m) > 1", 5, "`,` is expected here, not `)`"),
        ("min(m, 1, 2) > 1", 8, "`)` is expected here, not `,`"),
        ("m & 1 == 0", 2, "`&` is not part of an expression"),
        ("m + 1", 0, "it gives an integer, not true or false"),
        ("m == 1 && kind", 10, "`&&` takes true or false, not a string"),
        ("1 < m < 100", 6, "`<` does not take a boolean and an integer"),
        ("kind % 2 == 0", 5, "`%` does not take a string and an integer"),
        ("!m", 0, "`!` does not take an integer"),
        ("'é' == kind || 8 / (m - m) == 1", 17, "`8 / 0` divides by zero"),
        ("m > 0 && m * 9223372036854775807 > 0", 11, "`64 * 9223372036854775807` is beyond an integer of 64 bits"),
        ("-least > 0", 0, "`-` of `-9223372036854775808` is beyond an integer of 64 bits"),
        ("2 ** -m == 1", 2, "`2 ** -64` has a negative right side"),
    ] {
        let error = holds(text, &samples()).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.message.contains(part) && !error.message.contains('\n'), "{text}: {error}");
    }
}

/// A name with values of several kinds is checked at evaluation, and so are the caller's values.
#[test]
fn what_the_kinds_do_not_tell_is_checked_at_evaluation() {
    let mixed = [("stages", Kinds::INT | Kinds::TEXT)];
    let constraint = Constraint::compile("stages == 'auto' || stages > 2", &mixed).unwrap();
    assert_eq!(constraint.holds(|_| Ok(ConstraintValue::Text("auto"))), Ok(true));
    assert_eq!(constraint.holds(|_| Ok(ConstraintValue::Int(2))), Ok(false));
    let error = constraint.holds(|_| Ok(ConstraintValue::Text("none"))).unwrap_err();
    assert_eq!((error.at, error.message.as_str()), (27, "`>` does not take a string and an integer"));
    let error = constraint.holds(|_| Err("it is not known".to_owned())).unwrap_err();
    assert_eq!((error.at, error.message.as_str()), (0, "it is not known"));
    for (text, at) in [("a", 0), ("true && a", 8), ("a || true", 0), ("!a", 0)] {
        let constraint = Constraint::compile(text, &[("a", Kinds::ANY)]).unwrap();
        assert_eq!(constraint.holds(|_| Ok(ConstraintValue::Int(1))).unwrap_err().at, at, "{text}");
    }
}

#[test]
fn names_are_read_once_each() {
    let names = [("a", Kinds::INT), ("b", Kinds::INT), ("c.d", Kinds::INT)];
    let constraint = Constraint::compile("c.d > a && a > 0 && 'b' != ''", &names).unwrap();
    assert_eq!(constraint.reads(), [0, 2]);
}

#[test]
fn hostile_expressions_end() {
    let names = [("m", Kinds::INT)];
    let compile = |text: String| Constraint::compile(&text, &names);
    for (open, close) in [("(", ")"), ("-", ""), ("!", ""), ("1 + (", ")"), ("min(1, ", ")")] {
        let text = format!("{}m{}", open.repeat(5000), close.repeat(5000));
        let error = compile(text).unwrap_err();
        assert!(error.message.contains("nested more than 127 deep"), "{open}: {error}");
    }
    assert!(compile(format!("m{} == 1", " ** 1".repeat(5000))).unwrap_err().message.contains("nested"));
    assert!(compile(format!("m{} == 1", " + 1".repeat(6000))).unwrap_err().message.contains("more than 10000 steps"));
    // the deepest and the longest allowed
    let deepest = compile(format!("{}m{} == 1", "1 - (".repeat(63), ")".repeat(63))).unwrap();
    assert_eq!(deepest.holds(|_| Ok(ConstraintValue::Int(0))), Ok(true));
    let longest = compile(format!("m{} == 4998", " + 1".repeat(4997))).unwrap();
    assert_eq!(longest.holds(|_| Ok(ConstraintValue::Int(1))), Ok(true));
}

#[test]
fn evaluation_allocates_nothing() {
    let samples = samples();
    let values: Vec<(&str, ConstraintValue<'_>)> =
        samples.iter().map(|(name, value)| (name.as_str(), ConstraintValue::try_from(value).unwrap())).collect();
    let names: Vec<(&str, Kinds)> = values.iter().map(|(name, value)| (*name, value.kinds())).collect();
    let texts = [
        "m <= p.k && p.k % m == 0 || kind == 'x la'".to_owned(),
        "kind > 'a' && min(f, 0.25) < 1 || max(least + 1, 0) > m ** 2".to_owned(),
        format!("{}m{} == 64", "m * (1 + ".repeat(20), ")".repeat(20)).replace("m * (1 + m", "0 * (1 + m"),
    ];
    for text in texts {
        let (compiling, constraint) = allocations(|| Constraint::compile(&text, &names).unwrap());
        assert!(compiling > 0, "the allocator counts");
        let evaluate =
            || constraint.holds(|name| ConstraintValue::try_from(&samples[values[name].0])).is_ok_and(|holds| holds);
        let (evaluating, _) = allocations(|| (0..1000).filter(|_| std::hint::black_box(evaluate())).count());
        assert_eq!(evaluating, 0, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_compiled_or_refused(text in "[mpk0-9 ().+*/%<>=!&|\"',einfxlsaé-]{0,60}") {
        let _ = holds(&text, &samples());
    }

    #[test]
    fn a_place_lies_in_the_text(text in "\\PC{0,40}") {
        if let Err(error) = holds(&text, &samples()) {
            prop_assert!(error.at <= text.chars().count(), "{}: {}", text, error);
        }
    }
}
