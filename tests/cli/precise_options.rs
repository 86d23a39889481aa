//! `--compiler-options` compared with the module in `f64`, on a real compiler: errors that are known in closed form.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Map, Value, json};

use crate::support::prerequisite::plugin;
use crate::support::program::*;

/// Adds one to a number a thousand times, rounds another to `bf16`, and divides a row by one number repeatedly. The
/// constants are `0.1`, once as `bf16` and once as the raw bytes of an `f32`.
fn module() -> String {
    let row = "tensor<64xf32>";
    let divided: Vec<String> =
        (1..33).map(|turn| format!("    %x{turn} = stablehlo.divide %x{}, %y : {row}\n", turn - 1)).collect();
    format!(
        "module @jit_sums {{
  func.func public @main(%a: tensor<f32>, %b: tensor<f32>, %x0: {row}) -> (tensor<f32> {{jax.result_info = \"sum\"}},
      tensor<bf16>, {row}, tensor<2xf32>) {{
    %none = stablehlo.constant dense<0> : tensor<i32>
    %turns = stablehlo.constant dense<1000> : tensor<i32>
    %next = stablehlo.constant dense<1> : tensor<i32>
    %one = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0:2 = stablehlo.while(%turn = %none, %sum = %a) : tensor<i32>, tensor<f32>
    cond {{
      %1 = stablehlo.compare LT, %turn, %turns, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }} do {{
      %1 = stablehlo.add %turn, %next : tensor<i32>
      %2 = stablehlo.add %sum, %one : tensor<f32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<f32>
    }}
    %rounded = stablehlo.convert %b : (tensor<f32>) -> tensor<bf16>
    %tenth = stablehlo.constant dense<1.000980e-01> : tensor<bf16>
    %wide = stablehlo.convert %tenth : (tensor<bf16>) -> tensor<f32>
    %row = stablehlo.broadcast_in_dim %wide, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %raw = stablehlo.constant dense<\"0xCDCCCC3DCDCCCC3D\"> : tensor<2xf32>
    %tenths = stablehlo.subtract %row, %raw : tensor<2xf32>
    %size = stablehlo.abs %x0 : {row}
    %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> {row}
    %y = stablehlo.add %size, %ones : {row}
{}    return %0#1, %rounded, %x32, %tenths : tensor<f32>, tensor<bf16>, {row}, tensor<2xf32>
  }}
}}
",
        divided.concat()
    )
}

#[test]
fn errors_from_the_module_in_f64_are_known() {
    let Some(plugin) = plugin() else { return };
    let timer = ["--timer", "pjrt", "--plugin", plugin.to_str().unwrap()];
    let place = Place::new();
    let module = place.file("sums.mlir", module());
    let with: Map<String, Value> = ["nans", "infs", "division", "functions"]
        .map(|what| (format!("xla_cpu_fast_math_honor_{what}"), false.into()))
        .into_iter()
        .collect();
    let options = json!([{"name": "xla_cpu_enable_fast_math", "values": [true], "kind": "fast-math", "scope": "compile",
        "with": with, "does": "-", "source": "own"}]);
    let list = place.file("list.json", json!({"schema": 1, "platform": "cpu", "options": options}).to_string());
    let inputs = place.path("inputs");
    std::fs::create_dir(&inputs).unwrap();
    let row: Vec<f32> = (0..64).map(|number| (number as f32 - 31.0) / 97.0).collect();
    for (index, values) in [&[1e8_f32][..], &[0.1], &row].into_iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(inputs.join(format!("{index}.bin")), bytes).unwrap();
    }
    let inputs = inputs.display().to_string();
    let how = ["--compiler-options", "fast-math", "--options-file", &list, "--inputs", &inputs, "--format", "json"];
    let run = place.run(&[&[&*module], &how[..], &timer].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let operation = &run.json()["operations"][0];
    let rows = operation["candidates"].as_array().unwrap();
    let fast = rows.iter().find(|row| row["config"].get("xla_cpu_enable_fast_math").is_some()).unwrap();
    let errors = fast["reference_errors"].as_array().unwrap_or_else(|| panic!("{operation}"));
    let of = |output: usize, whose: &str| errors[output][whose]["max_absolute"].as_f64().unwrap();
    let is = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
    // 1e8 plus one is 1e8 in f32, whose numbers there are eight apart
    assert_eq!((of(0, "baseline"), errors[0]["name"].as_str()), (1000.0, Some("sum")));
    // bf16's nearest to 0.1 is 205 / 2048, f32's 13421773 / 2^27
    let tenths = 205.0 / 2048.0 - 13_421_773.0 / f64::from(1 << 27);
    is(of(1, "baseline"), tenths);
    assert_eq!((of(3, "baseline"), of(3, "own")), (0.0, 0.0), "the difference of constants is exact");
    // fast arithmetic multiplies the divisors; the default rounds each quotient, or its replacement in XLA
    let differs = fast["differences"].as_array().unwrap().iter().find(|one| one["output"] == 2);
    let apart = differs.map_or(0.0, |one| one["max_absolute"].as_f64().unwrap());
    let (own, base) = (of(2, "own"), of(2, "baseline"));
    assert!(apart > 0.0 && own > 0.0 && base > 0.0 && apart <= (own + base) * 1.000_001, "{fast}");
    // the maximum error of rounding 32 times, and once for the divisor: 33 halves of 2^-23, and again 32 for the
    // divisor's own
    let exact = |x: &f32| (f64::from(*x) / (1.0 + f64::from(x.abs())).powi(32)).abs();
    let most = row.iter().map(exact).fold(0.0, f64::max);
    assert!(own.max(base) < 65.0 * f64::from(f32::EPSILON) / 2.0 * most, "{own} {base} {most}");
    let said = operation["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap());
    assert!(said.clone().all(|flag| !flag.contains("no reference in f64")), "{operation}");
}
