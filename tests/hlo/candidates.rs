//! Search spaces: their configs, and the positions in their errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

use autotune_lowered::call::split_op_id;
use autotune_lowered::candidates::{CandidateSpace, Spaces};
use autotune_lowered::registry::Registry;
use proptest::prelude::*;

fn configs(space: &CandidateSpace) -> Vec<String> {
    space.configs().map(|config| config.unwrap().to_string()).collect()
}

#[test]
fn a_space_gives_exactly_the_configs_that_hold() {
    let text = r#"{"schema":1,"op":"f","given":{"rows":256},
        "parameters":{"m":{"from":64,"to":512,"times":2},"p.k":[32,64],"s":{"from":1,"to":3,"step":2},"mode":["a","b"]},
        "constraints":["rows % m == 0","m >= p.k * 2","s == 1 || mode == \"b\""],
        "configs":[{"m":7}],
        "baseline":{"m":64,"p":{"k":32},"s":1,"mode":"a"}}"#;
    let space = CandidateSpace::parse("f.json", text).unwrap();
    let mut expected = vec![r#"{"m":7}"#.to_owned()];
    for m in [64, 128, 256, 512] {
        for k in [32, 64] {
            for s in [1, 3] {
                for mode in ["a", "b"] {
                    if 256 % m == 0 && m >= k * 2 && (s == 1 || mode == "b") {
                        expected.push(format!(r#"{{"m":{m},"mode":"{mode}","p":{{"k":{k}}},"s":{s}}}"#));
                    }
                }
            }
        }
    }
    assert_eq!(configs(&space), expected);
    assert_eq!(space.count_bound(), 4 * 2 * 2 * 2 + 1);
    assert!(configs(&space).iter().all(|text| space.contains(&serde_json::from_str(text).unwrap()).unwrap()));
    for other in
        [r#"{"m":512,"mode":"a","p":{"k":32},"s":1}"#, r#"{"m":64}"#, r#"{"m":64,"mode":"a","p":{"k":32},"s":1,"x":1}"#]
    {
        assert!(!space.contains(&serde_json::from_str(other).unwrap()).unwrap(), "{other}");
    }
    let larger = space.given("rows", 512.into()).unwrap();
    assert!(configs(&larger).iter().any(|config| config.contains("\"m\":512")));
}

#[test]
fn excluded_choices_are_never_combined() {
    // eight parameters of four values; each must equal its predecessor
    let parameters: Vec<String> = (0..8).map(|n| format!(r#""p{n}":{{"from":0,"to":3,"step":1}}"#)).collect();
    let constraints: Vec<String> = (1..8).map(|n| format!(r#""p{n} == p{}""#, n - 1)).collect();
    let text = format!(
        r#"{{"schema":1,"op":"f","parameters":{{{}}},"constraints":[{}],"baseline":{}}}"#,
        parameters.join(","),
        constraints.join(","),
        serde_json::json!((0..8).map(|n| (format!("p{n}"), 3)).collect::<std::collections::BTreeMap<_, _>>())
    );
    let space = CandidateSpace::parse("f.json", &text).unwrap();
    assert_eq!(space.count_bound(), 4_u128.pow(8));
    let mut walk = space.configs();
    assert_eq!(walk.by_ref().count(), 4);
    // four choices of the first parameter, and for each of them four of every later one
    assert_eq!(walk.visited(), 4 + 4 * 7 * 4);
}

#[test]
fn a_space_that_excludes_everything_ends() {
    // 40 parameters of two values whose only constraint needs the last: 2^40 combinations without a config
    let parameters: Vec<String> = (0..40).map(|n| format!(r#""p{n}":[0,1]"#)).collect();
    let text = format!(
        r#"{{"schema":1,"op":"f","parameters":{{{}}},"constraints":["p39 > 1"],"configs":[{{}}],"baseline":{{}}}}"#,
        parameters.join(",")
    );
    let space = CandidateSpace::parse("f.json", &text).unwrap();
    let found: Vec<_> = space.configs().collect();
    assert_eq!(found.len(), 2);
    let error = found[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("narrow the values"), "{error}");
}

#[test]
fn what_a_file_says_cannot_break_the_line_of_an_error() {
    for text in [
        r#"{"schema":1,"op":"f","parameters":{"a\nb":[1]},"baseline":{}}"#,
        r#"{"schema":1,"op":"f","parameters":{"a":[1]},"baseline":{},"x\ny":1}"#,
    ] {
        let error = CandidateSpace::parse("f.json", text).unwrap_err();
        assert!(!error.message.contains(char::is_control), "{error}");
    }
}

#[test]
fn errors_name_file_line_and_column() {
    let good = "{\n  \"schema\": 1,\n  \"op\": \"f\",\n  \"parameters\": {\n    \"m\": [1, 2],\n    \"n\": [1]\n  },\n  \
                \"constraints\": [\n    \"m > 0\",\n    \"n <= m\"\n  ],\n  \"baseline\": {\"m\": 1, \"n\": 1}\n}\n";
    assert!(CandidateSpace::parse("f.json", good).is_ok());
    for (from, to, place, part) in [
        ("\"schema\": 1", "\"schema\": 2", "2:13", "use a newer"),
        ("[1, 2],", "[1, 2", "6:5:", "expected"),
        ("[1, 2]", "[]", "5:10", "no value"),
        ("[1, 2]", "[1, 1]", "5:10", "twice"),
        ("[1, 2]", "[1, [2]]", "5:10", "single value"),
        ("[1, 2]", "{\"from\": 1, \"to\": 2}", "5:10", "one of `step` and `times`"),
        ("[1, 2]", "{\"from\": 0, \"to\": 2, \"times\": 2}", "5:10", "above 1"),
        ("[1, 2]", "7", "5:", "a list of values"),
        ("\"n\": [1]", "\"m\": [1]", "5:10", "occurs twice"),
        ("\"n\": [1]", "\"m.x\": [1]", "6:12", "clashes"),
        ("\"n\": [1]", "\"n x\": [1]", "6:12", "is not a name"),
        ("n <= m", "n <= mm", "10:11", "`mm` is neither"),
        ("n <= m", "n <= * m", "10:11", ""),
        ("n <= m", "n + m", "10:6", "not true or false"),
        ("n <= m", "n / 0 == 1", "10:8", "failed"),
        ("n <= m", r#"n \u003c= m || \"\n\" == '\\n' || mm > 0"#, "10:40", "`mm` is neither"),
        ("\"n\": 1}", "\"n\": 4}", "12:15", "baseline"),
        ("n <= m", "n > m", "12:15", "baseline"),
        ("\"op\"", "\"opp\"", "3:", "unknown field `opp`"),
        ("\"f\"", "\"\"", "3:9", "no name"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = CandidateSpace::parse("dir/f.json", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("dir/f.json:{place}")), "{to}: {error}");
        assert!(error.contains(part) && !error.contains('\n'), "{to}: {error}");
    }
}

#[test]
fn a_folder_overrides_what_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let own = r#"{"schema":1,"op":"blocked_matmul","parameters":{"m":[5]},"baseline":{"m":5}}"#;
    std::fs::write(folder.path().join("mine.json"), own).unwrap();
    std::fs::write(folder.path().join("bad.json"), "{").unwrap();
    let mut spaces = Spaces::built_in().unwrap();
    let errors = spaces.override_from(folder.path());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].file.ends_with("bad.json"));
    assert_eq!(configs(spaces.get("blocked_matmul").unwrap()), [r#"{"m":5}"#]);
    assert!(spaces.get("flash_attention").is_some());
}

#[test]
fn built_in_spaces_are_those_that_the_example_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer/registry");
    let registry = Registry::open(root).unwrap();
    let spaces = Spaces::built_in().unwrap();
    for invocation in registry.invocations() {
        let space = spaces.get(split_op_id(&invocation.call.op_id).0).unwrap();
        let recorded: BTreeSet<_> = invocation.candidates.iter().map(|candidate| candidate.config.clone()).collect();
        let enumerated: BTreeSet<_> = space.configs().collect::<Result<_, _>>().unwrap();
        assert_eq!(recorded, enumerated, "{}", invocation.call.op_id);
        assert_eq!(invocation.baseline, *space.baseline(), "{}", invocation.call.op_id);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = CandidateSpace::parse("f.json", &text);
    }

    #[test]
    fn any_constraint_is_read_or_refused(constraint in "[mn0-9 ().+*/%<>=!&|\"'`{}\\[\\];:a-c]{0,40}") {
        let text = serde_json::json!({
            "schema": 1, "op": "f", "parameters": {"m": [1, 2], "n": [3]}, "constraints": [constraint],
            "baseline": {"m": 1, "n": 3}
        });
        if let Ok(space) = CandidateSpace::parse("f.json", &text.to_string()) {
            let _ = space.configs().count();
        }
    }
}
