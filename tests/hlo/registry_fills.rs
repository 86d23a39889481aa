//! Fills: the same bytes as an independent derivation, and the guarantees of each kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use autotune_lowered::array::{ArraySpec, DType, Fill, Reference, Tolerance, argument_seed, generate};
use proptest::prelude::*;

fn bytes(spec: &str, fill: &Fill) -> Vec<u8> {
    generate(&spec.parse().unwrap(), fill, argument_seed("x", 0)).unwrap()
}

fn f32s(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(4).map(|chunk| f64::from(f32::from_le_bytes(chunk.try_into().unwrap()))).collect()
}

fn s32s(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(4).map(|chunk| i64::from(i32::from_le_bytes(chunk.try_into().unwrap()))).collect()
}

#[test]
fn bytes_equal_the_independent_derivation() {
    // tests/data/array/README.md describes how the values were made
    let table: serde_json::Value = serde_json::from_str(include_str!("../data/array/fills.json")).unwrap();
    let seed = argument_seed(table["argument"].as_str().unwrap(), table["index"].as_u64().unwrap());
    assert_eq!(Some(seed), table["seed"].as_u64());
    let cases = table["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 11);
    for case in cases {
        let spec: ArraySpec = case["spec"].as_str().unwrap().parse().unwrap();
        let fill: Fill = serde_json::from_value(case["fill"].clone()).unwrap();
        let ours: String = generate(&spec, &fill, seed).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ours, case["hex"].as_str().unwrap(), "{spec} {fill:?}");
    }
}

#[test]
fn normal_values_are_normal() {
    let values = f32s(&bytes("f32[100000]", &Fill::Normal { scale: 2.0 }));
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let moment = |power: i32| values.iter().map(|value| ((value - mean) / 2.0).powi(power)).sum::<f64>() / n;
    // five standard errors of each: 1/sqrt(n), sqrt(2/n), sqrt(15/n), sqrt(96/n)
    assert!((mean / 2.0).abs() < 5.0 / n.sqrt(), "mean {mean}");
    assert!((moment(2) - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "variance {}", moment(2));
    assert!(moment(3).abs() < 5.0 * (15.0 / n).sqrt(), "skewness {}", moment(3));
    assert!((moment(4) - 3.0).abs() < 5.0 * (96.0 / n).sqrt(), "kurtosis {}", moment(4));
}

#[test]
fn uniform_values_fill_their_range() {
    let values = f32s(&bytes("f32[100000]", &Fill::Uniform { low: -1.0, high: 3.0 }));
    assert!(values.iter().all(|value| (-1.0..=3.0).contains(value)));
    let mean = values.iter().sum::<f64>() / 1e5;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 1e5;
    assert!((mean - 1.0).abs() < 5.0 * (16.0 / 12.0 / 1e5_f64).sqrt(), "{mean}");
    assert!((variance - 16.0 / 12.0).abs() < 0.02, "{variance}");
    let integers = s32s(&bytes("s32[1000]", &Fill::IntegerRange { low: -2, high: 2 }));
    assert!((-2..=2).all(|value| integers.contains(&value)) && integers.iter().all(|value| (-2..=2).contains(value)));
    let true_ones = bytes("pred[100000]", &Fill::BooleanDensity { density: 0.3 }).iter().filter(|&&b| b == 1).count();
    assert!((true_ones as f64 - 3e4).abs() < 5.0 * (0.21 * 1e5_f64).sqrt(), "{true_ones}");
}

proptest! {
    #[test]
    fn rows_keep_their_promises(rows in 1_u64..5, n in 1_u64..60, total in 0_i64..10_000, seed: u64) {
        let spec = ArraySpec::new(DType::S32, [rows, n]);
        let make = |fill: &Fill| s32s(&generate(&spec, fill, seed).unwrap());
        for row in make(&Fill::Permutation).chunks(n as usize) {
            let mut sorted = row.to_vec();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..n as i64).collect::<Vec<_>>());
        }
        for row in make(&Fill::SortedCumulative { total }).chunks(n as usize) {
            prop_assert!(row.is_sorted() && row.last() == Some(&total) && (n == 1 || row[0] == 0));
        }
        for row in make(&Fill::Partition { total }).chunks(n as usize) {
            prop_assert!(row.iter().all(|&part| part >= 0) && row.iter().sum::<i64>() == total);
        }
    }
}

#[test]
fn every_fill_makes_or_refuses_every_type_and_never_a_value_that_is_not_finite() {
    let fills = [
        Fill::Normal { scale: 1e300 },
        Fill::Uniform { low: -1e300, high: 1e300 },
        Fill::Constant { value: 1.0 },
        Fill::IntegerRange { low: 0, high: 1 },
        Fill::Permutation,
        Fill::SortedCumulative { total: 1 },
        Fill::Partition { total: 1 },
        Fill::BooleanDensity { density: 0.5 },
    ];
    for &dtype in DType::ALL {
        let mut made = 0;
        for fill in &fills {
            for dims in [vec![], vec![0], vec![2, 2], vec![3, 0]] {
                let spec = ArraySpec::new(dtype, dims);
                let Ok(bytes) = generate(&spec, fill, 1) else { continue };
                made += 1;
                assert_eq!(Some(bytes.len() as u64), spec.host_bytes(), "{spec} {fill:?}");
                if dtype.bits() < 8 {
                    assert!(bytes.iter().all(|byte| byte >> dtype.bits() == 0), "{spec} {fill:?}");
                }
                // a non-finite value only matches the same value: any other array of the type shows it
                let loose = Tolerance::EXACT.absolute(f64::MAX).relative(f64::MAX);
                let exact = Reference::new(spec.clone(), vec![0; bytes.len()], loose).compare(&bytes);
                assert!(exact.matches, "{spec} {fill:?}");
            }
        }
        // the type without a zero refuses values that may be zero
        assert!(made >= if dtype == DType::F8E8M0Fnu { 8 } else { 16 }, "{dtype}: {made}");
    }
}

#[test]
fn what_a_type_cannot_hold_is_refused() {
    for (spec, fill) in [
        ("u8[300]", Fill::Permutation),
        ("s4[4]", Fill::IntegerRange { low: 0, high: 8 }),
        ("u4[4]", Fill::IntegerRange { low: -1, high: 8 }),
        ("f16[4]", Fill::SortedCumulative { total: 2049 }),
        ("s8[4]", Fill::Partition { total: 128 }),
        ("s32[4]", Fill::Partition { total: -1 }),
        ("s32[4]", Fill::Constant { value: 0.5 }),
        ("pred[4]", Fill::Constant { value: 2.0 }),
        ("f8e4m3fn[4]", Fill::Constant { value: 1000.0 }),
        ("s32[4]", Fill::Normal { scale: 1.0 }),
        ("pred[4]", Fill::Uniform { low: 0.0, high: 1.0 }),
        ("f32[4]", Fill::Normal { scale: -1.0 }),
        ("f32[4]", Fill::Uniform { low: 1.0, high: 1.0 }),
        ("f32[4]", Fill::IntegerRange { low: 2, high: 1 }),
        ("pred[4]", Fill::BooleanDensity { density: 1.5 }),
        ("f8e8m0fnu[4]", Fill::Normal { scale: 1.0 }),
        ("f32[99999999999999]", Fill::Constant { value: 0.0 }),
        ("f32[4]", Fill::ValuesUnknown),
    ] {
        let error = generate(&spec.parse().unwrap(), &fill, 0).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot fill `{spec}`: ")) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn arguments_get_values_of_their_own() {
    let of = |name: &str, index: u64| {
        generate(&"f32[4]".parse().unwrap(), &Fill::Normal { scale: 1.0 }, argument_seed(name, index)).unwrap()
    };
    assert_eq!(of("query", 0), of("query", 0));
    assert_ne!(of("query", 0), of("key", 0));
    assert_ne!(of("query", 0), of("query", 1));
}
