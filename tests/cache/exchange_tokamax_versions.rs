//! Results and databases of versions of Tokamax that this program does not know.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use super::exchange_tokamax::{Pair, benchmark, data, export, import, read, result_of};
use crate::support::folder::in_memory;
use autotune_lowered::cache::{ConfigStore, Mapping, Snapshot, SnapshotStore, write_snapshot};
use autotune_lowered::call::Call;
use autotune_lowered::exchange::{TokamaxOperations, export_tokamax, import_tokamax};
use serde_json::{Value, json};

#[test]
fn members_of_later_versions_leave_byte_for_byte() {
    let folder = in_memory();
    let (path, out) = (folder.path().join("result.json"), folder.path().join("out.json"));
    let of_0_0_17 = read(&data("tokamax/newer/result.json"));
    assert!(of_0_0_17.ends_with(r#","tokamax_version":"0.0.17"}"#));
    let in_call = of_0_0_17.replace(r#"}},{"{}":"#, r#"},"é":[1e-6,{}]},{"{}":"#);
    let at_every_level = in_call
        .replace(r#"{"device_kind""#, r#"{"schema":2.50,"device_kind""#)
        .replace(r#""bypass_device_check":"#, r#""precision":null,"bypass_device_check":"#)
        .replace(r#""metadata":{}"#, r#""metadata":{"clock":1},"energy_mj":0.10"#);
    assert!(at_every_level.len() > in_call.len() + 50 && in_call.len() > of_0_0_17.len());
    for text in [of_0_0_17, in_call, at_every_level] {
        fs::write(&path, &text).unwrap();
        let entries = import(&path);
        assert_eq!(entries.len(), 1);
        export(&out, &entries).unwrap();
        assert_eq!(read(&out), text);
        // a snapshot keeps them, too
        let snapshot = folder.path().join("a.snapshot");
        write_snapshot(&snapshot, &entries).unwrap();
        let kept = SnapshotStore::new(Snapshot::open(&snapshot, Mapping::WhereLocal).unwrap()).entries().unwrap();
        export(&out, &kept).unwrap();
        assert_eq!(read(&out), text);
    }
    // what is too long to be kept with every call is named
    let long = read(&path).replace("2.50", &format!("\"{}\"", "x".repeat(5000)));
    fs::write(&path, long).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!((imported.entries.len(), imported.skipped.len()), (1, 1));
    assert!(imported.skipped[0].contains("more than 4096 bytes"), "{:?}", imported.skipped);
}

#[test]
fn a_file_has_one_version_of_tokamax() {
    let folder = in_memory();
    let (path, out) = (folder.path().join("result.json"), folder.path().join("out.json"));
    let text = |class: &str, end: &str| {
        let fine = format!(r#"{{"{{}}":{}}}"#, benchmark("[1]"));
        let result = result_of(&[(&format!(r#"{{"__type":"{class}"}}"#), "{}", &fine)]);
        result.replace("]}\n", "]}").strip_suffix('}').unwrap().to_owned() + end
    };
    let entries: Vec<Pair> = ["}", r#","tokamax_version":"0.0.16"}"#, r#","tokamax_version":"0.0.17"}"#]
        .into_iter()
        .zip(["tokamax.A", "tokamax.B", "tokamax.C"])
        .flat_map(|(end, class)| {
            fs::write(&path, text(class, end)).unwrap();
            import(&path)
        })
        .collect();
    let written = export_tokamax(&out, &entries, None, &mut |_, _| Err(String::new())).unwrap();
    assert_eq!((written.written, written.skipped.len()), (3, 1));
    assert!(written.skipped[0].contains("the results of 1 call") && written.skipped[0].contains("0.0.16"));
    assert!(read(&out).ends_with(r#","tokamax_version":"0.0.16"}"#), "{}", read(&out));
}

#[test]
fn an_unknown_operation_is_kept_by_name_until_a_table_names_it() {
    let folder = in_memory();
    let root = data("tokamax/newer/databases");
    let database = Path::new("tpu_v6_lite/batched_lookup_demo.json");
    let json = |path: &Path| serde_json::from_str::<Value>(&read(path)).unwrap();
    let export = |name: &str, entries: &[Pair]| {
        let out = folder.path().join(name);
        (export_tokamax(&out, entries, None, &mut |_, _| Err(String::new())).unwrap(), out)
    };
    let by_name = import_tokamax(&root, None, None).unwrap();
    assert_eq!((by_name.entries.len(), by_name.skipped.len()), (1, 0));
    assert_eq!(by_name.entries[0].0.call.op_id, "batched_lookup_demo");
    let note = by_name.notes.join("\n");
    assert!(note.contains("1 call kept") && note.contains("--operations FILE"), "{note}");
    assert!(note.contains("python -m autotune_lowered.tokamax_operations"), "{note}");
    let (written, out) = export("by-name", &by_name.entries);
    assert_eq!((written.written, written.skipped.len()), (1, 0));
    assert_eq!(json(&out.join(database)), json(&root.join(database)));
    // Tokamax would import the class and load nothing
    let (written, out) = export("by-name.json", &by_name.entries);
    assert!(!out.exists() && written.skipped[0].contains("`batched_lookup_demo`: no class"), "{:?}", written.skipped);

    let class = "tokamax._src.ops.lookup.base.BatchedLookupDemo";
    let table = folder.path().join("operations.json");
    fs::write(&table, json!({"tokamax": "0.0.18", "classes": {"batched_lookup_demo": class}}).to_string()).unwrap();
    let operations = TokamaxOperations::read(&table).unwrap();
    let named = import_tokamax(&root, None, Some(&operations)).unwrap();
    assert_eq!((named.entries.len(), named.skipped.len(), named.notes.len()), (1, 0, 0));
    let call = &named.entries[0].0.call;
    // printf '{"x":"bf16[64,128]"}' | sha256sum
    assert_eq!(*call, Call::new(class, "0b202624dc69df0b"));
    let (written, out) = export("named.json", &named.entries);
    assert_eq!(written.written, 1);
    assert_eq!(json(&out)["data"][0][0]["op"]["__type"], class);
    // both are one call for Tokamax
    let (written, out) = export("both", &[by_name.entries, named.entries].concat());
    assert_eq!((written.written, written.skipped.len()), (1, 0));
    assert_eq!(json(&out.join(database)), json(&root.join(database)));

    for (text, expected) in [
        ("{}", "missing field"),
        (r#"{"tokamax":"1","classes":{"../x":"a.B"}}"#, "no database of the class"),
        (r#"{"tokamax":"1","classes":{"a_b":"a.B"}}"#, "no database of the class"),
    ] {
        fs::write(&table, text).unwrap();
        let error = TokamaxOperations::read(&table).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("autotune_lowered.tokamax_operations"), "{error}");
    }
}
