//! `--compiler-options`, on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use autotune_lowered::cache::{Mapping, TieredCache};
use serde_json::{Map, Value, json};

use crate::support::pjrt::NamedTimes;
use crate::support::prerequisite::{plugin, python_with};
use crate::support::program::*;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// `tanh` of a sum, with a unique name.
const MODULE: &str = "module @jit_f {
  func.func public @main(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = stablehlo.add %x, %y : tensor<64x64xf32>
    %1 = stablehlo.tanh %0 : tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
}
";

#[test]
fn a_module_without_labels_is_tuned_and_found_again() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let path = place.path("module.mlir");
    fs::write(&path, MODULE).unwrap();
    let (module, plugin) = (path.display().to_string(), plugin.display().to_string());
    let arguments = [&*module, "--plugin", &plugin, "--compiler-options", "safe", "--format", "json"];
    // a named option is set, and not tried; nothing gains so much, so a busy machine decides likewise
    let named = ["--base-options", "xla_backend_optimization_level=1", "--min-improvement", "0.9"];
    let first = run(&place.path("cache"), &[&arguments[..], &named[..]].concat());
    assert_eq!(first.code, 0, "{}", first.stderr);
    for said in ["inputs and outputs take 160.0 KiB of", " to compile, and up to "] {
        assert!(first.stderr.contains(said), "{}", first.stderr);
    }
    let found: serde_json::Value = serde_json::from_str(&first.stdout).unwrap();
    let operation = &found["operations"][0];
    // nothing about labels that are not needed, a key that fits a line, and no goal that is exceeded
    let key = operation["call_key"].as_str().unwrap();
    assert!(!first.stderr.contains("no-metadata") && !first.stderr.contains(key), "{}", first.stderr);
    let said = format!("compiler_options@v1:{}: ", &key[..16]);
    assert!(first.stderr.contains(&said) && first.stderr.contains(" option values: "), "{}", first.stderr);
    let mut rounds = first.stderr.lines().filter(|line| line.contains(": round "));
    assert!(!rounds.any(|line| line.contains(" of 20")), "{}", first.stderr);
    let rounds = operation["rounds_measured"].as_u64().unwrap();
    assert!(rounds > 0 && first.stderr.contains(&format!("; {rounds} rounds measured")), "{}", first.stderr);
    assert_eq!(operation["op_id"], "compiler_options@v1");
    assert_eq!(operation["call_key"].as_str().unwrap().len(), 64);
    assert_eq!(operation["baseline"]["config"], serde_json::json!({"xla_backend_optimization_level": 1}));
    assert_eq!(operation["best"]["config"]["xla_backend_optimization_level"], 1);
    let rows = operation["candidates"].as_array().unwrap();
    let status = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    // programs with XNNPACK cannot be serialized; the others are still distinguished by their code
    assert!(status("same-program") > rows.len() / 2, "most options change nothing: {rows:?}");
    let refused = rows.iter().find(|row| row["config"].get("xla_cpu_opt_preset").is_some()).unwrap();
    assert!(refused["failure"]["message"].as_str().unwrap().contains("No such compile option"), "{refused}");
    // on a CPU, JAX uses its own compiler
    assert!(operation["flags"].as_array().unwrap().iter().any(|flag| flag.as_str().unwrap().contains("`--timer jax`")));
    // the entry that a process reads when it compiles the module
    let published = TieredCache::published(&place.path("cache"), Mapping::Never, vec![]).unwrap().entries().unwrap();
    let [(key, entry, _)] = &published[..] else { panic!("{} entries", published.len()) };
    assert_eq!(key.call.call_key, operation["call_key"].as_str().unwrap());
    assert_eq!(serde_json::to_value(&entry.config).unwrap(), operation["best"]["config"]);
    let again = run(&place.path("cache"), &[&arguments[..], &named[..]].concat());
    let again: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["operations"][0]["status"], "cached");
    what_else_knows_the_entry(&place, (&module, &plugin), operation);
    own_list_is_tried(&place, &module, &plugin);
    // the same module, compressed, in a folder with ignored files: also found
    let folder = place.path("folder");
    fs::create_dir(&folder).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(MODULE.as_bytes()).unwrap();
    fs::write(folder.join("module.mlir.gz"), gzip.finish().unwrap()).unwrap();
    fs::write(folder.join("again.mlir"), MODULE).unwrap();
    fs::copy(data("hlo/grouped_matmul.hash.post.hlo.pb"), folder.join("after.hlo.pb")).unwrap();
    let folder = folder.display().to_string();
    let of_folder = [&[&*folder], &["--only-compiler-options"], &arguments[1..], &named[..]].concat();
    let of_folder = run(&place.path("cache"), &of_folder);
    let of_folder: serde_json::Value = serde_json::from_str(&of_folder.stdout).unwrap();
    let rows = of_folder["operations"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{of_folder}");
    assert_eq!((&rows[0]["status"], &rows[0]["how"]), (&"cached".into(), &"again.mlir".into()));
    assert_eq!(
        of_folder["notes"].as_array().unwrap().last().unwrap(),
        "skipped, 2 of 3 modules: `after.hlo.pb` (HLO from after XLA's passes), `module.mlir.gz` (the same program as another one)"
    );
    assert_eq!(again["operations"][0]["best"]["config"], operation["best"]["config"]);
}

#[test]
fn a_plugin_is_asked_once_which_options_it_takes() {
    let Some(plugin) = plugin() else { return };
    asked_once(&["--timer", "pjrt", "--plugin", plugin.to_str().unwrap()]);
}

#[test]
fn the_compiler_of_jax_is_asked_once_which_options_it_takes() {
    let Some(python) = python_with("jax") else { return };
    asked_once(&["--timer", &format!("jax:{}", python.display())]);
}

fn asked_once(timer: &[&str]) {
    let place = Place::new();
    let option = |name: &str, value: &str| {
        format!(
            r#"{{"name": "{name}", "values": [{value}], "kind": "safe", "scope": "compile", "does": "-", "source": "own"}}"#
        )
    };
    let list = place.path("list.json");
    let options = [option("xla_tpu_scoped_vmem_limit_kib", "1"), option("xla_cpu_enable_fast_math", "1")].join(",");
    fs::write(&list, format!(r#"{{"schema": 1, "platform": "cpu", "options": [{options}]}}"#)).unwrap();
    let list = list.display().to_string();
    let messages = |size: u32| {
        let module = place.path(&format!("{size}.mlir"));
        fs::write(&module, MODULE.replace("64x64", &format!("{size}x64"))).unwrap();
        let how = ["--compiler-options", "safe", "--options-file", &list];
        let run = place.run(&[&[module.to_str().unwrap(), "--format", "json"], &how[..], timer].concat());
        let found = run.json();
        let rows = found["operations"][0]["candidates"].as_array().unwrap().clone();
        let failed = rows.iter().filter_map(|row| row["failure"]["message"].as_str().map(str::to_owned));
        (run.code, failed.collect::<Vec<_>>())
    };
    let (code, first) = messages(8);
    assert_eq!(code, 0);
    assert!(
        first.iter().any(|message| message.contains("No such compile option: 'xla_tpu_scoped_vmem_limit_kib'")),
        "{first:?}"
    );
    assert!(first.iter().any(|message| message.contains("While setting option xla_cpu_enable_fast_math")), "{first:?}");
    let kept = place.path("cache").join("executables-v1/refused-options.json");
    let text = fs::read_to_string(&kept).unwrap();
    // a message that no plugin gives shows that the next module does not ask again
    fs::write(&kept, text.replace("No such compile", "kept: no such").replace("While setting", "kept: setting"))
        .unwrap();
    let (_, second) = messages(16);
    assert_eq!(second.iter().filter(|message| message.contains("kept: ")).count(), 2, "{second:?}");
    // another plugin's answers do not apply to this one
    let digest = &serde_json::from_str::<serde_json::Value>(&text).unwrap()[0]["plugin"];
    fs::write(&kept, text.replace(digest.as_str().unwrap(), &"0".repeat(64)).replace("No such", "kept")).unwrap();
    let (_, third) = messages(24);
    assert!(
        third.iter().any(|message| message.contains("No such compile option: 'xla_tpu_scoped_vmem_limit_kib'")),
        "{third:?}"
    );
}

/// Modules by their time in the capture, according to another program, the longest first; without first executions.
fn by_time_of_another_program() -> Vec<String> {
    let oracle = fs::read(data("xplane/autotune6x5.oracle.json")).unwrap();
    let oracle: serde_json::Value = serde_json::from_slice(&oracle).unwrap();
    let mut times: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for run in oracle["modules"].as_array().unwrap() {
        let (start, busy) = (run["start_ps"].as_u64().unwrap(), run["busy_union_ps"].as_u64().unwrap());
        times.entry(run["hlo_module"].as_str().unwrap().to_owned()).or_default().push((start, busy));
    }
    let sum = |runs: &[(u64, u64)]| {
        let first = runs.iter().map(|run| run.0).min();
        runs.iter().filter(|run| Some(run.0) != first).map(|run| run.1).sum::<u64>()
    };
    let mut sums: Vec<(u64, String)> = times.into_iter().map(|(name, runs)| (sum(&runs), name)).collect();
    sums.sort_by(|a, b| b.cmp(a));
    sums.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn modules_of_a_process_are_taken_by_their_time_in_a_profile() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let (folder, profile) = (place.path("folder"), place.path("step.xplane.pb"));
    fs::create_dir(&folder).unwrap();
    let packed = fs::File::open(data("xplane/autotune6x5.xplane.pb.gz")).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut fs::File::create(&profile).unwrap()).unwrap();
    // file names in another order, each a different program; modules that the profile lacks come last
    let names =
        [("a", "jit_other"), ("b", "jit_autotune_fn_1"), ("c", "jit_autotune_fn_5"), ("d", "jit_autotune_fn_3")];
    for (row, (file, name)) in names.iter().enumerate() {
        let text = MODULE.replace("@jit_f", &format!("@{name}")).replace("64x64", &format!("{}x64", 32 + row));
        fs::write(folder.join(file).with_extension("mlir"), text).unwrap();
    }
    let list = place.path("list.json");
    let option = r#"{"name": "xla_cpu_prefer_vector_width", "values": [512], "kind": "safe", "scope": "compile",
        "does": "bits of a vector", "source": "own"}"#;
    fs::write(&list, format!(r#"{{"schema": 1, "platform": "cpu", "options": [{option}]}}"#)).unwrap();
    let [folder, profile, plugin, list] = [folder, profile, plugin, list].map(|path| path.display().to_string());
    let how = ["--compiler-options", "safe", "--options-file", &list, "--format", "json"];
    let shared = ["--only-compiler-options", "--shared", "--plugin", &plugin, "--timer", "pjrt"];
    let order = |more: &[&str]| {
        let run = place.run(&[&[&*folder], &how[..], &shared, more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let found = run.json();
        let rows = found["operations"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["failure"].is_null()), "{found}");
        rows.iter().map(|row| row["how"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let file_of =
        |name: &String| names.iter().find(|(_, module)| module == name).map(|(file, _)| format!("{file}.mlir"));
    let mut by_time: Vec<String> = by_time_of_another_program().iter().filter_map(file_of).collect();
    by_time.push("a.mlir".to_owned());
    assert_eq!(order(&["--profile", &profile]), by_time);
    let by_name = ["a.mlir", "b.mlir", "c.mlir", "d.mlir"];
    assert!(by_time.len() == 4 && by_time != by_name && !by_time.is_sorted(), "{by_time:?}");
    assert_eq!(order(&["--dry-run"]), by_name);
}

/// Only the values of the user's list are tried; a list for another platform is refused.
fn own_list_is_tried(place: &Place, module: &str, plugin: &str) {
    let tried = |platform: &str| {
        let list = place.path("list.json");
        let option = r#"{"name": "xla_cpu_prefer_vector_width", "values": [512], "kind": "safe", "scope": "compile",
            "does": "bits of a vector", "source": "own"}"#;
        fs::write(&list, format!(r#"{{"schema": 1, "platform": "{platform}", "options": [{option}]}}"#)).unwrap();
        let list = list.display().to_string();
        let arguments = ["--plugin", plugin, "--compiler-options", "safe", "--format", "json", "--options-file", &list];
        run(&place.path("own"), &[&[module], &arguments[..]].concat())
    };
    let own = tried("cpu");
    let found: serde_json::Value = serde_json::from_str(&own.stdout).unwrap_or_else(|_| panic!("{}", own.stderr));
    let rows = found["operations"][0]["candidates"].as_array().unwrap();
    let mut configs: Vec<String> = rows.iter().map(|row| row["config"].to_string()).collect();
    // the better one is first
    configs.sort_by_key(String::len);
    assert_eq!(configs, ["{}", r#"{"xla_cpu_prefer_vector_width":512}"#]);
    let other = tried("tpu");
    assert_eq!(other.code, 4, "{}", other.stderr);
    assert!(other.stderr.contains("is for `tpu`, and the device's platform is `cpu`"), "{}", other.stderr);
}

/// Caches of such an entry are published, merged, verified, drawn and exported like others, and a module's coverage
/// shows it.
fn what_else_knows_the_entry(place: &Place, (module, plugin): (&str, &str), operation: &serde_json::Value) {
    let cache = place.path("cache");
    let text = |name: &str| place.path(name).display().to_string();
    let done = |arguments: &[&str]| {
        let run = run(&cache, arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run.stdout
    };
    let (snapshot, merged, page) = (text("one.snapshot"), text("merged"), text("page.html"));
    let own = cache.display().to_string();
    done(&["cache", "snapshot", &snapshot]);
    done(&["cache", "merge", &own, &snapshot, "--out", &merged]);
    done(&["cache", "verify", &own, &snapshot, &merged]);
    assert!(done(&["cache", "diff", &own, &merged]).contains("0 differ, 1 are the same"));
    done(&["report", &own, "--out", &page]);
    let key = operation["call_key"].as_str().unwrap();
    let drawn = fs::read_to_string(&page).unwrap();
    assert!(drawn.contains(&format!("compiler_options@v1:{}", &key[..16])), "a row of the page");
    // the default's copy in the last race is no candidate
    let is_set = operation["best"]["config"] != operation["baseline"]["config"];
    assert_eq!(drawn.matches(r#"<tr role="row" class="baseline">"#).count(), usize::from(is_set), "{drawn}");
    let options: serde_json::Value =
        serde_json::from_str(&done(&["cache", "export", "--format", "options-json"])).unwrap();
    assert_eq!(options["compiler_options"][key], operation["best"]["config"]);
    for of in [&own, &snapshot, &merged] {
        let covered = done(&["cache", "coverage", module, "--of", of, "--for", "cpu", "--format", "json"]);
        let covered: serde_json::Value = serde_json::from_str(&covered).unwrap();
        let call = &covered["calls"][0];
        assert_eq!((&call["op_id"], &call["call_key"]), (&operation["op_id"], &operation["call_key"]));
        assert_eq!((&call["covered"], &call["config"]), (&true.into(), &operation["best"]["config"]));
    }
    let junit = text("junit.xml");
    let checked =
        run(&cache, &["check", module, "--plugin", plugin, "--rounds", "6", "--junit", &junit, "--format", "json"]);
    let checked: serde_json::Value =
        serde_json::from_str(&checked.stdout).unwrap_or_else(|_| panic!("{}", checked.stderr));
    let [found] = &checked["operations"].as_array().unwrap()[..] else { panic!("{checked}") };
    assert_eq!((&found["op_id"], &found["call_key"]), (&operation["op_id"], &operation["call_key"]));
    // this machine's noise decides which of them; if the baseline was kept, there is nothing to measure
    let verdict = found["verdict"].as_str().unwrap();
    assert!(["holds", "faster", "regressed", "not-better"].contains(&verdict), "{found}");
    assert_eq!((&checked["compared"], &checked["e_value_needed"]), (&1.into(), &100.0.into()));
    assert!(fs::read_to_string(&junit).unwrap().contains("compiler_options@v1"));
}

/// Gathered rows, divided repeatedly by one number. Without one pass its compiler aborts, and fast arithmetic
/// multiplies the divisors and divides once.
fn divisions() -> String {
    let rows = "tensor<128x512xf32>";
    let divided: Vec<String> =
        (1..33).map(|turn| format!("    %x{turn} = stablehlo.divide %x{}, %y : {rows}\n", turn - 1)).collect();
    format!(
        "module @jit_takes_800000 {{
  func.func public @main(%table: tensor<64x512xf32>, %rows: tensor<128x1xi32>) -> ({rows} {{jax.result_info = \"divided\"}}) {{
    %one = stablehlo.constant dense<1.0> : {rows}
    %x0 = \"stablehlo.gather\"(%table, %rows) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 512>,
      indices_are_sorted = false}}> : (tensor<64x512xf32>, tensor<128x1xi32>) -> {rows}
    %size = stablehlo.abs %x0 : {rows}
    %y = stablehlo.add %size, %one : {rows}
{}    return %x32 : {rows}
  }}
}}
",
        divided.concat()
    )
}

/// On a real plugin, whose times are SIMULATED: 0.8 ms, and half of that with fast arithmetic.
#[test]
fn passes_that_crash_and_fast_arithmetic_are_rows_with_what_they_do() {
    let Some(plugin) = NamedTimes::new() else { return };
    let place = Place::new();
    let module = place.file("divisions.mlir", divisions());
    let with: Map<String, Value> = ["nans", "infs", "division", "functions"]
        .map(|what| (format!("xla_cpu_fast_math_honor_{what}"), false.into()))
        .into_iter()
        .collect();
    let options = json!([
        {"name": "xla_disable_hlo_passes", "values": ["gather_simplifier"], "kind": "passes", "scope": "compile",
         "does": "-", "source": "own"},
        {"name": "xla_cpu_enable_fast_math", "values": [true], "kind": "fast-math", "scope": "compile", "with": with,
         "does": "-", "source": "own"},
    ]);
    let list = place.file("list.json", json!({"schema": 1, "platform": "cpu", "options": options}).to_string());
    let how = ["--timer", "pjrt", "--compiler-options", "fast-math", "--options-file", &list, "--format", "json"];
    let mut tune = command(&place.path("cache"));
    plugin.measures(tune.args([&[&*module], &how[..]].concat()));
    let run = ended(tune.env("SIMULATED_PROFILER_FLAG", "xla_cpu_enable_fast_math"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    // the inputs take 128 KiB, and the indices 512 bytes; the table once more with NaN in it, two programs' outputs of
    // 256 KiB, and the table and the output in f64: 1536.5 KiB
    assert!(run.stderr.contains("inputs and outputs take 1.5 MiB"), "{}", run.stderr);
    let operation = &run.json()["operations"][0];
    let row = |config: &Value| {
        let rows = operation["candidates"].as_array().unwrap();
        rows.iter().find(|row| row["config"] == *config).unwrap_or_else(|| panic!("{operation}")).clone()
    };
    let crash = row(&json!({"xla_disable_hlo_passes": "gather_simplifier"}))["failure"]["message"].clone();
    assert!(crash.as_str().unwrap().contains("SIGABRT during `compile`"), "{crash}");
    let mut fast = with;
    fast.insert("xla_cpu_enable_fast_math".to_owned(), true.into());
    let fast = Value::Object(fast);
    let found = row(&fast);
    let kinds: Vec<&str> =
        found["special_values"].as_array().unwrap().iter().map(|one| one["values"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["nan", "infinities", "denormals"], "{found}");
    assert!(found["differences"][0]["max_absolute"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(operation["best"]["config"], fast, "{operation}\n{}", run.stderr);
    let flags = operation["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap());
    let said = "it changes arithmetic, and with it output 0 `divided` by up to ";
    assert!(flags.clone().any(|flag| flag.starts_with(said)), "{operation}");
}
