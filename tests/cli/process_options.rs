//! `--compiler-options` with process options, on a real plugin with SIMULATED times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::pjrt::NamedTimes;
use crate::support::program::*;

/// A program that takes 0.8 ms, and half of that if it is compiled under the flag: both SIMULATED.
const MODULE: &str = "module @jit_takes_800000 {
  func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
    %0 = stablehlo.add %x, %x : tensor<64xf32>
    return %0 : tensor<64xf32>
  }
}
";

/// Plugins for CPUs do not know it.
const OF_TPUS: &str = "xla_tpu_scoped_vmem_limit_kib";

/// Only a process-wide set can have them; a program's own set, and its baseline, cannot.
#[test]
fn options_of_a_process_are_tried_for_a_process_alone() {
    let Some(plugin) = NamedTimes::new() else { return };
    let place = Place::new();
    // XLA also accepts it as an option of one compilation
    let wide = "xla_cpu_prefer_vector_width";
    let options = [(wide, 512), (OF_TPUS, 1)].map(|(name, value)| {
        format!(
            r#"{{"name": "{name}", "values": [{value}], "kind": "safe", "scope": "process", "does": "-", "source": "-"}}"#
        )
    });
    let list = format!(r#"{{"schema": 1, "platform": "cpu", "options": [{}]}}"#, options.join(","));
    let (list, module) = (place.file("list.json", list), place.file("m.mlir", MODULE));
    let tune = |more: &[&str]| {
        let mut tune = command(&place.path("cache"));
        tune.args([&module, "--timer", "pjrt", "--compiler-options", "safe", "--options-file", &list]);
        plugin.measures(tune.args(["--format", "json"]).args(more));
        ended(tune.env("SIMULATED_PROFILER_FLAG", format!("{wide}=512")))
    };
    let of_process = tune(&["--shared"]);
    assert_eq!(of_process.code, 0, "{}", of_process.stderr);
    let said = format!("{OF_TPUS}=1 is rejected: compile: this plugin does not accept `--{OF_TPUS}=1` in XLA_FLAGS");
    assert!(of_process.stderr.contains(&said), "{}", of_process.stderr);
    let found = of_process.json();
    let set = format!("set for the process: XLA_FLAGS='--{wide}=512'");
    assert_eq!(found["notes"].as_array().unwrap().last().unwrap(), &set, "{found}\n{}", of_process.stderr);
    assert!(found["operations"][0]["speed_up"].as_f64().unwrap() > 1.9, "{found}");
    let flags = found["operations"][0]["flags"].to_string();
    assert!(flags.contains(&format!("not in the cache: `{wide}` acts on a process")), "{flags}");
    assert!(of_process.stderr.contains("\n0 of 1 best config in "), "{}", of_process.stderr);
    assert!(!of_process.stderr.contains("compile with `compiler_options="), "{}", of_process.stderr);
    let of_program = tune(&[]);
    assert_eq!(of_program.code, 0, "{}", of_program.stderr);
    let rows = of_program.json()["operations"][0]["candidates"].to_string();
    assert!(!rows.contains(wide) && !rows.contains(OF_TPUS), "{rows}");
    let named = tune(&["--base-options", &format!("{OF_TPUS}=1")]);
    assert_eq!(named.code, USAGE, "{}", named.stderr);
    assert!(named.fault().contains("set it in XLA_FLAGS for this run"), "{}", named.fault());
}
