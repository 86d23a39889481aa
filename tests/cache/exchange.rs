//! Entries to and from other tools' cache files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::folder::in_memory;
use autotune_lowered::cache::{CacheKey, Entry};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::exchange::{
    EjkernelFields, EjkernelImport, ExchangeError, export_ejkernel, export_json, import_ejkernel, import_json,
};
use serde_json::{Value, json};

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ejkernel")
}

fn value(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn pair(op_id: &str, direction: Direction, cores: &str, config: &Value) -> (CacheKey, Arc<Entry>) {
    let device = DeviceIdentity {
        platform: "cpu".into(),
        device_kind: "cpu".into(),
        hardware: BTreeMap::from([("cores".into(), cores.into())]),
    };
    let key = CacheKey { call: Call::new(op_id, "fecadd86b926e7e8"), direction, device };
    (key, Arc::new(serde_json::from_value(json!({"config": config})).unwrap()))
}

const FLASH: &str = "flash_attention@v2";

#[test]
fn what_ejkernel_wrote_goes_in_and_out_unchanged() {
    for name in ["own", "external"] {
        let folder = in_memory();
        let source = fixtures().join(name);
        let EjkernelImport { entries, skipped, .. } = import_ejkernel(&source).unwrap();
        assert_eq!(skipped, &[] as &[String]);
        let files: Vec<_> = fs::read_dir(&source).unwrap().map(|file| file.unwrap().file_name()).collect();
        let expected: usize = files.iter().map(|file| value(&source.join(file)).as_object().unwrap().len()).sum();
        assert_eq!(entries.len(), expected);
        let export = export_ejkernel(folder.path(), &entries, None, None).unwrap();
        assert_eq!((export.written, export.files.len(), export.skipped.len()), (expected, files.len(), 0));
        for file in &files {
            let (mut was, is) = (value(&source.join(file)), value(&folder.path().join(file)));
            // without a type, ejkernel sees only the written fields; fields missing from a hand-written config get
            // their defaults
            if file == "attention.json" {
                let config = was.as_object_mut().unwrap().values_mut().next().unwrap();
                let defaults = json!({"block_k": 128, "num_stages": 2, "num_warps": 4,
                                      "weights_block_k": 64, "weights_block_q": 64});
                config.as_object_mut().unwrap().extend(defaults.as_object().unwrap().clone());
            }
            assert_eq!(is, was, "{file:?}");
        }
        // a second round trip changes nothing
        let again = import_ejkernel(folder.path()).unwrap().entries;
        let second = in_memory();
        export_ejkernel(second.path(), &again, None, None).unwrap();
        for file in &files {
            assert_eq!(fs::read(second.path().join(file)).unwrap(), fs::read(folder.path().join(file)).unwrap());
        }
    }
}

#[test]
fn a_key_is_read_from_the_right() {
    let folder = in_memory();
    let name = "NVIDIA|H200|PJRT C API\ncuda 12090|flash_attention@v2|fecadd86b926e7e8";
    let config = json!({"platform": "triton", "backend": "gpu", "fwd_params": null, "bwd_params": null});
    let content = json!({ name: config, "cpu|cpu|flash_attention@v2|0000000000000000": null, "no key": {} });
    fs::write(folder.path().join("flash-attn.json"), content.to_string()).unwrap();
    let EjkernelImport { entries, skipped, .. } = import_ejkernel(folder.path()).unwrap();
    let [(key, entry)] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(key.call, Call::new(FLASH, "fecadd86b926e7e8"));
    assert_eq!((key.device.platform.as_str(), key.device.device_kind.as_str()), ("cuda", "NVIDIA"));
    assert_eq!(Value::Object(entry.config.as_map().clone()), config);
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert!(skipped.iter().any(|line| line.contains("`no key` is not a key")));
    let out = in_memory();
    export_ejkernel(out.path(), &entries, None, None).unwrap();
    assert_eq!(value(&out.path().join("flash-attn.json")), json!({ name: config }));
}

#[test]
fn an_unknown_field_is_refused_by_name_and_nothing_is_written() {
    let folder = in_memory();
    let good = pair("attention@v0", Direction::Forward, "2", &json!({"block_q": 7}));
    for (config, expected) in [
        (json!({"q_blocksize": 32}), "it has no field `q_blocksize`"),
        (json!({"fwd_params": {"q_block": 32}}), "it has no field `fwd_params.q_block`"),
        (json!({"platform": {"name": "xla"}}), "the field `platform` holds no object there"),
    ] {
        let bad = pair(FLASH, Direction::Forward, "2", &config);
        let error = export_ejkernel(folder.path(), &[good.clone(), bad], None, None).unwrap_err();
        assert!(matches!(error, ExchangeError::Refused { .. }));
        let message = error.to_string();
        assert!(message.contains(FLASH) && message.contains(expected) && message.contains("0.0.80.3"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn other_entries_of_a_file_stay_and_a_broken_file_is_refused() {
    let folder = in_memory();
    let path = folder.path().join("flash-attn.json");
    fs::write(&path, json!({"cpu|cpu|flash_attention@v2|aa": {"platform": "xla"}}).to_string()).unwrap();
    let entry = pair(FLASH, Direction::Forward, "2", &json!({"fwd_params": {"q_blocksize": 64}}));
    let export = export_ejkernel(folder.path(), std::slice::from_ref(&entry), None, None).unwrap();
    assert_eq!((export.files, export.written), (vec![path.clone()], 1));
    let content = value(&path);
    assert_eq!(content.as_object().unwrap().len(), 2);
    assert_eq!(content["cpu|cpu|flash_attention@v2|fecadd86b926e7e8"], json!({"fwd_params": {"q_blocksize": 64}}));
    let named = export_ejkernel(folder.path(), std::slice::from_ref(&entry), Some("x|y"), None).unwrap();
    assert_eq!(named.written, 1);
    assert!(value(&path)["x|y|flash_attention@v2|fecadd86b926e7e8"].is_object());

    fs::write(&path, "{\"cpu|").unwrap();
    let message = export_ejkernel(folder.path(), &[entry], None, None).unwrap_err().to_string();
    assert!(message.contains("flash-attn.json") && message.contains("is not a cache of ejkernel"), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"cpu|", "what a hand may repair is left as it is");
}

#[test]
fn the_measured_backward_goes_before_and_devices_are_never_mixed() {
    let folder = in_memory();
    let config = |q: u32| json!({"fwd_params": {"q_blocksize": q}});
    let forward = pair(FLASH, Direction::Forward, "2", &config(32));
    let both = pair(FLASH, Direction::ForwardVjp, "2", &config(64));
    for entries in [[forward.clone(), both.clone()], [both.clone(), forward.clone()]] {
        export_ejkernel(folder.path(), &entries, None, None).unwrap();
        let content = value(&folder.path().join("flash-attn.json"));
        assert_eq!(content["cpu|cpu|flash_attention@v2|fecadd86b926e7e8"], config(64));
    }
    // ejkernel calls every CPU `cpu|cpu`
    let elsewhere = pair(FLASH, Direction::Forward, "64", &config(128));
    let error = export_ejkernel(folder.path(), &[forward.clone(), elsewhere], None, None).unwrap_err().to_string();
    assert!(error.contains("cores=2") && error.contains("cores=64") && error.contains("--for"), "{error}");
    let same = pair(FLASH, Direction::Forward, "64", &config(32));
    assert!(export_ejkernel(folder.path(), &[forward, same], None, None).is_ok(), "one config is one config");
}

#[test]
fn operations_that_ejkernel_has_not_are_named() {
    let folder = in_memory();
    let entries = [
        pair("my_matmul@v1", Direction::Forward, "2", &json!({})),
        pair("flash_attention@v1", Direction::Forward, "2", &json!({})),
    ];
    let export = export_ejkernel(folder.path(), &entries, None, None).unwrap();
    assert_eq!((export.written, export.files.len()), (0, 0));
    assert!(export.skipped["my_matmul@v1"].contains("no such operation"));
    assert!(export.skipped["flash_attention@v1"].contains("has version 2"));
}

#[test]
fn json_holds_everything_and_needs_little() {
    let folder = in_memory();
    let entries = [
        pair("b@v1", Direction::ForwardVjp, "2", &json!({"block": 1.0, "name": "größe"})),
        pair("a@v1", Direction::Forward, "64", &json!({})),
    ];
    let mut sorted = entries.to_vec();
    sorted.reverse();
    for name in ["out.json", "deep/out.jsonl"] {
        let path = folder.path().join(name);
        export_json(&path, &entries).unwrap();
        assert_eq!(import_json(&path).unwrap(), sorted);
        let first = fs::read(&path).unwrap();
        export_json(&path, &sorted).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first, "equal entries are equal bytes");
    }
    let lines = fs::read_to_string(folder.path().join("deep/out.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    export_json(&folder.path().join("empty.json"), &[]).unwrap();
    assert_eq!(import_json(&folder.path().join("empty.json")).unwrap(), []);

    let least =
        r#"{"device":{"platform":"cuda","device_kind":"NVIDIA H200"},"op_id":"a@v1","call_key":"k","config":{"b":2}}"#;
    let path = folder.path().join("hand.jsonl");
    fs::write(&path, format!("\n{least}\n\n")).unwrap();
    let [(key, entry)] = &import_json(&path).unwrap()[..] else { panic!() };
    assert_eq!((key.direction, entry.config.as_str()), (Direction::Forward, r#"{"b":2}"#));

    for (name, text, expected) in [
        ("x.jsonl", format!("{least}\n{{\"op_id\":1}}"), "line 2"),
        ("x.json", r#"{"schema":1,"entries":[{"op_id":"a"}]}"#.to_owned(), "entry 0"),
        ("x.json", r#"{"schema":2,"entries":[]}"#.to_owned(), "schema is 2"),
        ("x.json", "[]".to_owned(), "no `schema`"),
        ("x.json", "{".to_owned(), "EOF"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let message = import_json(&path).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains(name), "{message}");
    }
}

#[test]
fn the_fields_of_another_ejkernel_decide_where_they_are_given() {
    let folder = in_memory();
    let path = folder.path().join("fields.json");
    let field = json!({"default": 1});
    let operation =
        |file: &str| json!({"file": file, "version": "3", "typed": false, "fields": {"stages": field, "q": {}}});
    let table = |file: &str| json!({"ejkernel": "9.9", "operations": {"flash_attention": operation(file)}}).to_string();
    fs::write(&path, table("flash-attn-9.json")).unwrap();
    let fields = EjkernelFields::read(&path).unwrap();
    let out = folder.path().join("out");
    let old = pair(FLASH, Direction::Forward, "2", &json!({"q": 5}));
    let export = export_ejkernel(&out, std::slice::from_ref(&old), None, Some(&fields)).unwrap();
    assert!(export.skipped[FLASH].contains("ejkernel 9.9 has version 3"));
    let new = pair("flash_attention@v3", Direction::Forward, "2", &json!({"q": 5}));
    export_ejkernel(&out, std::slice::from_ref(&new), None, Some(&fields)).unwrap();
    let written = value(&out.join("flash-attn-9.json"));
    assert_eq!(written["cpu|cpu|flash_attention@v3|fecadd86b926e7e8"], json!({"q": 5, "stages": 1}));
    let lacking = pair("flash_attention@v3", Direction::Forward, "2", &json!({"stages": 5}));
    let message = export_ejkernel(&out, &[lacking], None, Some(&fields)).unwrap_err().to_string();
    assert!(message.contains("lacks the field `q`") && message.contains("ejkernel 9.9"), "{message}");

    for (text, expected) in [
        (table("../flash.json"), "is not a file name"),
        (table("/etc/passwd"), "is not a file name"),
        (table(".."), "is not a file name"),
        ("{}".to_owned(), "missing field"),
        ("[".to_owned(), "EOF"),
    ] {
        fs::write(&path, text).unwrap();
        let message = EjkernelFields::read(&path).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("fields.json"), "{message}");
    }
}

#[test]
fn of_the_batches_of_a_call_the_unmapped_one_leaves_and_it_is_said() {
    let mapped = |block: u64, variant: &str, direction| {
        let (key, entry) = pair("attention@v0", direction, "2", &json!({ "block_q": block }));
        (CacheKey { call: Call { call_key: format!("{}{variant}", key.call.call_key), ..key.call }, ..key }, entry)
    };
    let (forward, both) = (Direction::Forward, Direction::ForwardVjp);
    let export = |entries: &[(CacheKey, Arc<Entry>)]| {
        let folder = in_memory();
        let export = export_ejkernel(folder.path(), entries, None, None).unwrap();
        let content = value(&folder.path().join("attention.json"));
        let ((name, config), 1) = (content.as_object().unwrap().iter().next().unwrap(), export.written) else {
            panic!()
        };
        // ejkernel's own key, independent of the measurement
        assert!(name.ends_with("|attention@v0|fecadd86b926e7e8"), "{name}");
        (config["block_q"].as_u64().unwrap(), export.other_batch)
    };
    let all = [
        mapped(8, "~8-00000001", both),
        mapped(1, "", forward),
        mapped(32, "~8x4-00000002", forward),
        mapped(33, "~8x4-00000002", both),
    ];
    let call = "`attention@v0:fecadd86b926e7e8` has what was measured";
    let others = "not what was measured under `vmap` of 8 or under `vmap` of 8x4";
    assert_eq!(export(&all), (1, vec![format!("{call} unmapped, {others}")]));
    let without = [all[0].clone(), all[2].clone(), all[3].clone()];
    let other = "not what was measured under `vmap` of 8";
    assert_eq!(export(&without), (33, vec![format!("{call} under `vmap` of 8x4, {other}")]));
    assert_eq!(export(&all[..1]), (8, vec![format!("{call} under `vmap` of 8")]));
    assert_eq!(export(&all[1..2]), (1, vec![]));
}
