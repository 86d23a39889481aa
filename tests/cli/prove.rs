//! `prove`: a step of two calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use autotune_lowered::cache::{Mapping, Snapshot};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::prerequisite::{plugin, python3};
use crate::support::program::*;
use crate::support::step::{seal, write_step};

/// A step of two loops that negate an even number of times, `baseline` or `tuned` each: its output equals its input.
fn step(folder: &Path, baseline: [u32; 2], tuned: [u32; 2]) {
    fs::create_dir_all(folder).unwrap();
    let turns = |calls: &[usize], call: usize| if calls.contains(&call) { tuned[call] } else { baseline[call] };
    let text = |calls: &[usize]| {
        let repeated = |call: usize, from: &str| {
            format!(
                "    %n{call} = stablehlo.constant dense<{}> : tensor<i32>
    %r{call}:2 = stablehlo.while(%i{call} = %zero, %v{call} = {from}) : tensor<i32>, tensor<4096xf32>
    cond {{
      %c{call} = stablehlo.compare LT, %i{call}, %n{call} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c{call} : tensor<i1>
    }} do {{
      %j{call} = stablehlo.add %i{call}, %one : tensor<i32>
      %w{call} = stablehlo.negate %v{call} : tensor<4096xf32>
      stablehlo.return %j{call}, %w{call} : tensor<i32>, tensor<4096xf32>
    }}\n",
                turns(calls, call)
            )
        };
        format!(
            "module @jit_step {{
  func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
{}{}    return %r1#1 : tensor<4096xf32>
  }}
}}\n",
            repeated(0, "%x"),
            repeated(1, "%r0#1")
        )
    };
    write_step(folder, 2, &text);
}

/// Times are those of `tests/data/cli/turns_worker.py`: a microsecond for each turn.
#[test]
fn a_call_that_loses_in_the_step_is_not_in_the_snapshot() {
    let place = Place::new();
    let (folder, snapshot) = (place.path("variants"), place.path("proven.snapshot"));
    let (folder_name, snapshot_name) = (folder.display().to_string(), snapshot.display().to_string());
    let timer = format!("command:{} tests/data/cli/turns_worker.py", python3());
    let given = ["prove", &folder_name, "-o", &snapshot_name, "--timer", &timer];
    // 2100 turns become 1200, 300 if the second is put back, and 3000 if the first is
    step(&folder, [2000, 100], [200, 1000]);
    let found = place.run(&[&given[..], &["--format", "json"]].concat());
    assert_eq!(found.code, 0, "{}{}", found.stdout, found.stderr);
    // each race says what it is about, and how far it takes the run: two sets, then what they left
    let (first, second) = ("op@v1:0000000000000000", "op@v1:0000000000000001");
    for race in [
        "[1/3] the step, 2 calls tuned against none: 3 programs ready".to_owned(),
        format!("[3/3] put back, each alone: {first}, {second}: 4 programs ready"),
        format!("[4/4] to be proven: {first} tuned against none: 3 programs ready"),
    ] {
        assert!(found.stderr.lines().any(|line| line == race), "{race}: {}", found.stderr);
    }
    let found = found.json();
    let standing = |call: usize| found["calls"][call]["in_step"]["verdict"].as_str().unwrap();
    assert_eq!((standing(0), standing(1)), ("gains", "loses"), "{found}");
    let proven: Vec<_> = found["proven"]["calls"].as_array().unwrap().iter().collect();
    assert_eq!(proven.len(), 1, "{found}");
    let entries = Snapshot::open(&snapshot, Mapping::Never).unwrap();
    let entries: Vec<_> = entries.records().map(|one| one.and_then(|one| entries.entry(&one)).unwrap()).collect();
    let [entry] = &entries[..] else { panic!("{} entries", entries.len()) };
    assert_eq!(entry.config.as_str(), "{\"block\":64}");
    // both lose: earlier proven results stay, and nothing new is written
    fs::remove_dir_all(&folder).unwrap();
    step(&folder, [100, 100], [1000, 1000]);
    let before = fs::read(&snapshot).unwrap();
    let nothing = place.run(&given);
    assert_eq!(nothing.code, 1, "{}{}", nothing.stdout, nothing.stderr);
    assert!(nothing.stdout.contains("op@v1"), "{}", nothing.stdout);
    assert_eq!(fs::read(&snapshot).unwrap(), before);
}

/// On a real plugin, whatever its times are.
#[test]
fn a_step_is_compiled_with_its_options_but_not_with_those_that_write_files() {
    let Some(plugin) = plugin() else { return };
    let (place, plugin) = (Place::new(), plugin.display().to_string());
    let folder = place.path("variants");
    let folder_name = folder.display().to_string();
    let given = ["prove", &folder_name, "--plugin", &plugin, "--timer", "pjrt", "--rounds", "6", "--format", "json"];
    step(&folder, [100, 10], [10, 100]);
    let manifest = fs::read_to_string(folder.join("prove.json")).unwrap();
    let mut told: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // the folder's author must not be able to write files: env_option_overrides (field 7) with a string and with a
    // boolean
    let dumps = place.text("dumps");
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let named = |name: &str, value: &[u8]| field(7, &[field(1, name.as_bytes()), field(2, value)].concat());
    let options = [named("xla_dump_to", &field(1, dumps.as_bytes())), named("xla_dump_hlo_as_text", &[2 << 3, 1])];
    told["compile_options"] = STANDARD.encode(options.concat()).into();
    seal(&folder, &told);
    let found = place.run(&given);
    assert!([0, 1].contains(&found.code), "{}{}", found.stdout, found.stderr);
    assert!(!Path::new(&dumps).exists(), "{}", found.stderr);
    let found = found.json();
    let said = "compiled without what only writes, logs or finds tools: `xla_dump_hlo_as_text`, `xla_dump_to`";
    assert_eq!(found["notes"].as_array().unwrap().iter().filter(|note| *note == said).count(), 1, "{found}");
    assert!(found["rounds_measured"].as_u64() >= Some(6), "{found}");
    // the step is compiled as JAX compiles it: an option that this compiler does not know makes it fail
    told["compile_options"] = STANDARD.encode(named("xla_tpu_enable_copy_fusion", &[2 << 3, 1])).into();
    seal(&folder, &told);
    let refused = place.run(&given);
    assert_eq!(refused.code, BAD_INPUT, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("No such compile option: 'xla_tpu_enable_copy_fusion'"), "{}", refused.stderr);
    // what is on no list is refused before a device is started
    told["compile_options"] = STANDARD.encode(named("xla_gpu_ptx_compiler_extra_flags", &field(1, b"-o,/x"))).into();
    seal(&folder, &told);
    let refused = place.run(&given);
    let said =
        "has `compile_options` with `xla_gpu_ptx_compiler_extra_flags`, which is on no list of what a file may set";
    assert!(refused.code == BAD_INPUT && refused.fault().contains(said), "{}", refused.stderr);
}

/// The drawing of each call follows the document's figures, and a name that looks like markup stays text.
#[test]
fn a_page_shows_calls_alone_and_in_the_step() {
    let place = Place::new();
    let (document, page) = (place.path("proven.json"), place.path("step.html"));
    let call = |op_id: &str, more: serde_json::Value| {
        let mut call = serde_json::json!({
            "op_id": op_id, "call_key": "0000000000000000", "direction": "forward", "baseline": {"block": 8},
            "tuned": {"block": 64},
        });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let hostile = "<img src=x onerror=alert(1)>@v1";
    let held = |low: f64, high: f64| serde_json::json!({"low": low, "high": high, "confidence": 0.95});
    let gains =
        serde_json::json!({"verdict": "gains", "rounds": 21, "speed_up": 1.0625, "interval": held(1.05, 1.075)});
    let written = serde_json::json!({
        "schema": 1, "tool": "autotune-lowered 0", "jobs": [], "inputs": [], "sets": [], "dump_without": [],
        "rounds_measured": 42, "rounds_kept": 0, "notes": ["a </script><script>alert(2)</script> note"],
        "device": {
            "identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}},
            "environment": {"platform_version": "cpu"},
        },
        "measured_by": {"timer": "pjrt", "source": "host-wall", "metric": "elapsed"},
        "step": gains, "baseline_ns": 2e6, "proven": {"calls": [0], "in_step": gains},
        "calls": [
            call(hostile, serde_json::json!({
                "alone": 2.25, "alone_interval": held(2.125, 2.375), "in_step": gains, "is_proven": true,
            })),
            call("other@v1", serde_json::json!({
                "in_step": {"verdict": "not-separated", "rounds": 0}, "is_proven": false,
            })),
        ],
    });
    fs::write(&document, written.to_string()).unwrap();
    let drawn = |from: &Path| place.run(&["report", from.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    let run = drawn(&document);
    assert_eq!((run.code, run.stdout.trim()), (0, page.to_str().unwrap()), "{}", run.stderr);
    let html = fs::read_to_string(&page).unwrap();
    assert!(!html.contains("<img") && !html.contains("alert(2)</script>"), "{html}");
    assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;@v1:0000000000000000"), "{html}");
    let body = html.split("<tbody").nth(1).unwrap().split("</tbody>").next().unwrap();
    let rows: Vec<&str> = body.split("<tr ").skip(1).collect();
    let cell = |row: &str, name: &str| {
        let cell = row.split(&format!("data-name=\"{name}\"")).nth(1).unwrap();
        cell.split_once('>').unwrap().1.split("</td>").next().unwrap().to_owned()
    };
    let cells = |row: &str| (cell(row, "alone"), cell(row, "in-step"), cell(row, "proven"));
    let of_first = ["2.250× <small>2.125–2.375</small>", "1.062× <small>1.050–1.075</small>", "in the set"];
    let of_first = of_first.map(str::to_owned).into();
    assert_eq!(
        rows.iter().map(|row| cells(row)).collect::<Vec<_>>(),
        [of_first, ("—".to_owned(), "—".to_owned(), "left out".to_owned()),]
    );
    let badge = |row: &str| row.split("<span class=\"badge ").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert_eq!(rows.iter().map(|row| badge(row)).collect::<Vec<_>>(), ["tuned\">gains", "open\">not separated"]);
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["step"], written);
    // a truncated step document, and one with an unknown verdict
    for broken in [written.to_string()[..400].to_owned(), written.to_string().replace("not-separated", "perhaps")] {
        fs::write(&document, broken).unwrap();
        fs::remove_file(&page).ok();
        let run = drawn(&document);
        assert_eq!((run.code, page.exists()), (BAD_INPUT, false), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}
