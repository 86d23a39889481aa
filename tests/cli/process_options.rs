//! `--compiler-options` with process options, on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::prerequisite::plugin;
use crate::support::program::*;

/// Two hundred products and sums of data that fits into the nearest cache: wider vectors take half the time.
fn module() -> String {
    const KIND: &str = "tensor<16384xf32>";
    let step = |step: usize| {
        let next = step + 1;
        format!(
            "    %m{step} = stablehlo.multiply %v{step}, %c : {KIND}\n    %v{next} = stablehlo.add %m{step}, %x : {KIND}\n"
        )
    };
    let steps: String = (0..200).map(step).collect();
    format!(
        "module @jit_f {{\n  func.func public @main(%x: {KIND}) -> {KIND} {{\n    %c = stablehlo.constant dense<0.5> : \
         {KIND}\n    %v0 = stablehlo.add %x, %c : {KIND}\n{steps}    return %v200 : {KIND}\n  }}\n}}\n"
    )
}

fn has_wide_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has
}

/// Only a process-wide set can have them; a program's own set, and its baseline, cannot.
#[test]
fn options_of_a_process_are_tried_for_a_process_alone() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    // XLA also accepts it as an option of one compilation
    let wide = "xla_cpu_prefer_vector_width";
    let options = [(wide, 512), ("xla_none", 1)].map(|(name, value)| {
        format!(
            r#"{{"name": "{name}", "values": [{value}], "kind": "safe", "scope": "process", "does": "-", "source": "-"}}"#
        )
    });
    let list = format!(r#"{{"schema": 1, "platform": "cpu", "options": [{}]}}"#, options.join(","));
    let (list, module) = (place.file("list.json", list), place.file("m.mlir", module()));
    let plugin = plugin.display().to_string();
    let how = ["--timer", "pjrt", "--compiler-options", "safe", "--options-file", &list, "--format", "json"];
    let arguments = [&[&*module, "--plugin", &plugin], &how[..]].concat();
    let set = format!("set for the process: XLA_FLAGS='--{wide}=512'");
    // other work on this machine may hide any gain
    let found = |number: u32| {
        let run = run(&place.path(&format!("shared-{number}")), &[&arguments[..], &["--shared"]].concat());
        let is_found = run.stderr.contains(&set);
        (run, is_found)
    };
    let mut of_process = found(0);
    for number in 1..4 {
        if !of_process.1 && has_wide_vectors() {
            of_process = found(number);
        }
    }
    let (of_process, _) = of_process;
    assert_eq!(of_process.code, 0, "{}", of_process.stderr);
    let said = "xla_none=1 is rejected: compile: this plugin does not accept `--xla_none=1` in XLA_FLAGS";
    assert!(of_process.stderr.contains(said), "{}", of_process.stderr);
    if has_wide_vectors() {
        let found = of_process.json();
        assert_eq!(found["notes"].as_array().unwrap().last().unwrap(), &set);
        assert!(found["operations"][0]["speed_up"].as_f64().unwrap() > 1.2, "{found}");
        let flags = found["operations"][0]["flags"].to_string();
        assert!(flags.contains(&format!("not in the cache: `{wide}` acts on a process")), "{flags}");
        assert!(of_process.stderr.contains("\n0 of 1 best config in "), "{}", of_process.stderr);
        assert!(!of_process.stderr.contains("compile with `compiler_options="), "{}", of_process.stderr);
    }
    let of_program = place.run(&arguments);
    assert_eq!(of_program.code, 0, "{}", of_program.stderr);
    let rows = of_program.json()["operations"][0]["candidates"].to_string();
    assert!(!rows.contains(wide) && !rows.contains("xla_none"), "{rows}");
    let named = place.run(&[&arguments[..], &["--base-options", "xla_none=1"]].concat());
    assert_eq!(named.code, USAGE, "{}", named.stderr);
    assert!(named.fault().contains("set it in XLA_FLAGS for this run"), "{}", named.fault());
}
