//! Programs of several partitions on the devices of real plugins: each has its part of the arguments, the outputs are
//! reassembled, and a mismatch with the devices is reported.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::pjrt::options;
use crate::support::prerequisite::{plugins, python_with};
use autotune_lowered::array::{ArraySpec, Reference, Tolerance};
use autotune_lowered::call::Call;
use autotune_lowered::config::Config;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::measured_by::CacheState;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::pjrt::PjrtTimer;
use autotune_lowered::timer::{
    CommandTimer, InputArray, JaxScript, Job, JobCandidate, OutputArray, ProgramFile, Timer, TimerExt, WorkerLimits,
};
use serde_json::{Value, json};

/// An array with its values.
type Values = (&'static str, Vec<f32>);

fn program(name: &str) -> ProgramFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name);
    of_file(&path)
}

/// A worker's answers to `hello` and these calls.
fn answers(plugin: &Path, arguments: &[&str], calls: &[(&str, &Value)]) -> Vec<Value> {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_autotune-lowered"));
    worker.args(["worker", "pjrt"]).args(arguments).arg("--plugin").arg(plugin);
    worker.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut worker = worker.spawn().unwrap();
    let mut requests = worker.stdin.take().unwrap();
    let hello = ("hello", &json!({"protocol": 1}));
    for (id, (method, params)) in std::iter::once(&hello).chain(calls).enumerate() {
        writeln!(requests, "{}", json!({"id": id, "method": method, "params": params})).unwrap();
    }
    drop(requests);
    let answered = String::from_utf8(worker.wait_with_output().unwrap().stdout).unwrap();
    answered.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_file(path: &Path) -> ProgramFile {
    let digest = Digest::of(&fs::read(path).unwrap());
    let format = match path.extension().unwrap().to_str().unwrap() {
        "mlir" => ProgramFormat::StablehloText,
        _ => ProgramFormat::StablehloPortable,
    };
    ProgramFile::new(path, Program::new(format, digest, digest))
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn job(folder: &Path, programs: Vec<ProgramFile>, arguments: &[Values], donated: usize) -> Job {
    let candidates = programs.into_iter().enumerate().map(|(index, program)| {
        let config = serde_json::from_str::<Config>(&format!("{{\"index\":{index}}}")).unwrap();
        JobCandidate::new(config).program(Some(program))
    });
    let inputs = arguments.iter().enumerate().map(|(index, (spec, values))| {
        let path = folder.join(format!("input-{index}.bin"));
        fs::write(&path, f32s(values)).unwrap();
        InputArray::new(format!("input {index}"), spec.parse().unwrap(), path).donated(index == donated)
    });
    Job::new(Call::new("test@v1", "0123456789abcdef"), folder).inputs(inputs.collect()).candidates(candidates.collect())
}

/// Different numbers.
fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|index| (index as f32 * 0.37 + 1.0).sin() * scale).collect()
}

fn product_arguments() -> [Values; 3] {
    [("f32[64,128]", numbers(64 * 128, 1.0)), ("f32[128,32]", numbers(128 * 32, 0.5)), ("f32[32]", numbers(32, 2.0))]
}

/// The outputs of `sharded2`: `x w + b` and `2 x`.
fn product([(_, x), (_, w), (_, b)]: &[Values; 3]) -> Vec<Values> {
    let mut sum = Vec::new();
    for row in 0..64 {
        for column in 0..32 {
            let terms = (0..128).map(|k| f64::from(x[row * 128 + k]) * f64::from(w[k * 32 + column]));
            sum.push((terms.sum::<f64>() + f64::from(b[column])) as f32);
        }
    }
    vec![("f32[64,32]", sum), ("f32[64,128]", x.iter().map(|x| 2.0 * x).collect())]
}

fn eight_arguments() -> [Values; 4] {
    [
        ("f32[8,4]", numbers(32, 1.0)),
        ("f32[8,4]", numbers(32, 3.0)),
        ("f32[3,8,2]", numbers(48, 2.0)),
        ("f32[]", vec![1.5]),
    ]
}

/// The outputs of `sharded8`: each part of `x`, one of 4 × 2, with its number added; `(x + y) s`; the sums of the
/// columns of `y`; `2 z`; `s + 1`.
fn eight([(_, x), (_, y), (_, z), (_, s)]: &[Values; 4]) -> Vec<Values> {
    let numbered = (0..32).map(|at| x[at] + (2 * (at / 4 / 2) + at % 4 / 2) as f32);
    let scaled = x.iter().zip(y).map(|(x, y)| (x + y) * s[0]);
    let sums = (0..4).map(|column| (0..8).map(|row| y[row * 4 + column]).sum());
    vec![
        ("f32[8,4]", numbered.collect()),
        ("f32[8,4]", scaled.collect()),
        ("f32[4]", sums.collect()),
        ("f32[3,8,2]", z.iter().map(|z| 2.0 * z).collect()),
        ("f32[]", vec![s[0] + 1.0]),
    ]
}

fn assert_outputs(outputs: &[OutputArray], expected: &[Values], whose: &str) {
    assert_eq!(outputs.len(), expected.len(), "{whose}");
    for (index, (output, (spec, values))) in outputs.iter().zip(expected).enumerate() {
        let spec: ArraySpec = spec.parse().unwrap();
        assert_eq!(output.spec, spec, "{whose}: output {index}");
        let tolerance = Tolerance::for_dtype(spec.dtype);
        let found = Reference::new(spec, f32s(values), tolerance).compare(&output.read().unwrap());
        assert!(found.matches, "{whose}: output {index}: {found:?}");
    }
}

fn started(plugin: &Path, folder: &Path, devices: usize, first: usize) -> PjrtTimer {
    let devices = format!("cpu_device_count={devices}");
    PjrtTimer::start(&options(plugin, folder).client_options(vec![devices]).device(first)).unwrap()
}

#[test]
fn each_device_has_its_part_and_the_outputs_are_whole() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["sharded2.mlir", "sharded2.mlirbc", "sharded2_whole.mlir", "sharded2_gspmd.mlir"].map(program);
        let arguments = product_arguments();
        let expected = product(&arguments);
        let job = job(folder.path(), files.to_vec(), &arguments, 0);
        // the first two of eight devices, then two in the middle, each pair with different executables
        for first in [0, 5] {
            let mut timer = started(&plugin, folder.path(), 8, first);
            assert_eq!(timer.info().device_count, Some(8));
            timer.begin(&job).unwrap();
            for candidate in 0..files.len() {
                let whose = format!("{} from {first} on: {candidate}", plugin.display());
                let prepared = timer.prepare(candidate).unwrap_or_else(|failure| panic!("{whose}: {failure}"));
                assert!(!prepared.reused, "{whose}");
                assert_outputs(&timer.output_files(candidate).unwrap(), &expected, &whose);
                assert!(timer.run(candidate, 5).unwrap().iter().all(|&sample| sample > 1000), "{whose}");
                // once more, with the donated argument in a batch
                assert_eq!(timer.run_batches(candidate, 3, 4).unwrap().len(), 3, "{whose}");
            }
            timer.end();
            timer.begin(&job).unwrap();
            assert!(timer.prepare(1).unwrap().reused);
            assert_outputs(&timer.output_files(1).unwrap(), &expected, "kept");
        }
    }
}

#[test]
fn eight_devices_on_a_mesh_of_two_axes() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = eight_arguments();
        let expected = eight(&arguments);
        let files = ["sharded8.mlir", "sharded8_gspmd.mlir"].map(program);
        let job = job(folder.path(), files.to_vec(), &arguments, 0).cache_state(CacheState::Cold);
        let mut timer = started(&plugin, folder.path(), 8, 0);
        timer.begin(&job).unwrap();
        for candidate in 0..files.len() {
            let whose = format!("{}: {candidate}", plugin.display());
            timer.prepare(candidate).unwrap_or_else(|failure| panic!("{whose}: {failure}"));
            assert_outputs(&timer.output_files(candidate).unwrap(), &expected, &whose);
            assert_eq!(timer.run(candidate, 3).unwrap().len(), 3, "{whose}");
        }
    }
}

/// A part with a hundred times the iterations makes the run equally long on either device.
#[test]
fn the_slowest_device_counts() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = started(&plugin, folder.path(), 2, 0);
        let mut shortest = |rounds: [i32; 2], runs: u32| {
            let job = job(folder.path(), vec![program("sharded2_control.mlir")], &[("f32[8]", numbers(8, 1.0))], 1);
            let path = folder.path().join("rounds.bin");
            fs::write(&path, rounds.iter().flat_map(|rounds| rounds.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
            let mut inputs = job.inputs.clone();
            inputs.insert(0, InputArray::new("rounds", "s32[2]".parse().unwrap(), path));
            timer.begin(&job.inputs(inputs)).unwrap();
            timer.prepare(0).unwrap();
            timer.run(0, runs).unwrap().into_iter().min().unwrap()
        };
        // of many short runs one is undisturbed on any machine, and disturbances only make the long ones longer
        let short = shortest([10_000; 2], 100);
        let (first, second) = (shortest([1_000_000, 10_000], 3), shortest([10_000, 1_000_000], 3));
        let whose = plugin.display();
        assert!(first > 5 * short && second > 5 * short, "{whose}: {short}, {first} and {second} ns");
    }
}

/// An output declared as one array on both devices, with different values.
#[test]
fn copies_that_differ_are_no_output() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = started(&plugin, folder.path(), 2, 0);
        timer
            .begin(&job(folder.path(), vec![program("sharded2_apart.mlir")], &[("f32[4]", numbers(4, 1.0))], 1))
            .unwrap();
        timer.prepare(0).unwrap();
        let failure = timer.output_files(0).unwrap_err();
        assert_eq!(failure.kind, FailureKind::WrongOutput);
        let expected = "output 0 is not a whole array: devices 0 and 1 of the program differ in 4 of the elements";
        assert!(failure.message.contains(expected), "{}: {failure}", plugin.display());
    }
}

/// An executable compiled for two devices is not loaded on two others, which would get its arguments.
#[test]
fn an_executable_for_other_devices_is_refused() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("executable");
        let program = json!({"format": "stablehlo-text", "path": program("sharded2_apart.mlir").path});
        let input = folder.path().join("input.bin");
        fs::write(&input, f32s(&numbers(4, 1.0))).unwrap();
        let begin = json!({
            "op_id": "test@v1", "call_key": "0123456789abcdef", "direction": "forward", "scratch": folder.path(),
            "inputs": [{"name": "x", "spec": "f32[4]", "path": input, "donated": false}],
        });
        let compile = json!({"candidate": 0, "program": program, "executable": executable});
        let load = json!({"candidate": 0, "config": {}, "executable": {"path": executable, "offset": 0}});
        let answers = |first: &str, calls: &[(&str, &Value)]| {
            answers(&plugin, &["--client-option", "cpu_device_count=8", "--device", first], calls)
        };
        let here = answers("0", &[("begin", &begin), ("compile", &compile), ("load", &load)]);
        assert!(here.iter().all(|answer| answer.get("error").is_none()), "{here:?}");
        let there = answers("2", &[("begin", &begin), ("load", &load)]);
        assert_eq!(there[2]["error"]["kind"], "compile", "{there:?}");
    }
}

#[test]
fn what_the_compiler_counts_is_told_where_it_counts() {
    let mut told = 0;
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let program = json!({"format": "stablehlo-text", "path": program("matmul.mlir").path});
        let compile = json!({"candidate": 0, "program": program, "executable": folder.path().join("executable")});
        let answers = answers(&plugin, &["--client-option", "cpu_device_count=1"], &[("compile", &compile)]);
        let compiled = &answers[1]["result"];
        assert!(compiled["compile_ns"].as_u64().unwrap() > 0, "{answers:?}");
        // a product of 64 × 64 matrices; three of them are read or written
        if let Some(cost) = compiled.get("cost") {
            assert_eq!(cost["flops"], f64::from(2 * 64 * 64 * 64), "{cost}");
            assert_eq!(cost["accessed_bytes"], f64::from(3 * 64 * 64 * 4), "{cost}");
            told += 1;
        }
    }
    assert!(told > 0 || plugins().is_empty(), "no plugin counts");
}

/// The same programs in JAX, which splits arrays by its own shardings.
#[test]
fn jax_gives_the_same() {
    let Some(python) = python_with("jax") else { return };
    // the worker inherits this process's environment, which other tests share
    let wrapper = tempfile::tempdir().unwrap();
    let wrapped = wrapper.path().join("python");
    let text =
        format!("#!/bin/sh\nXLA_FLAGS=--xla_force_host_platform_device_count=8 exec '{}' \"$@\"\n", python.display());
    crate::support::executable::write_executable(&wrapped, &text);
    for (files, donated, arguments, expected) in [
        (vec!["sharded2.mlir", "sharded2_whole.mlir"], 0, product_arguments().to_vec(), product(&product_arguments())),
        (vec!["sharded8.mlir"], 0, eight_arguments().to_vec(), eight(&eight_arguments())),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let job = job(folder.path(), files.iter().map(|name| program(name)).collect(), &arguments, donated);
        let exe = env!("CARGO_BIN_EXE_autotune-lowered");
        let script = JaxScript { python: wrapped.clone(), device: 0, xla_flags: None, template: None };
        let mut timer = CommandTimer::start_jax(Path::new(exe), script, WorkerLimits::default(), None).unwrap();
        timer.begin(&job).unwrap();
        let of_jax: Vec<Vec<OutputArray>> = (0..files.len())
            .map(|candidate| {
                timer.prepare(candidate).unwrap();
                timer.output_files(candidate).unwrap()
            })
            .collect();
        for (candidate, outputs) in of_jax.iter().enumerate() {
            assert_outputs(outputs, &expected, &format!("JAX: {}", files[candidate]));
        }
        for plugin in plugins() {
            let mut timer = started(&plugin, folder.path(), 8, 0);
            timer.begin(&job).unwrap();
            for (candidate, outputs) in of_jax.iter().enumerate() {
                timer.prepare(candidate).unwrap();
                let ours = timer.output_files(candidate).unwrap();
                for (ours, theirs) in ours.iter().zip(outputs) {
                    assert_eq!(ours.spec, theirs.spec);
                    let tolerance = Tolerance::for_dtype(theirs.spec.dtype);
                    let theirs = Reference::new(theirs.spec.clone(), theirs.read().unwrap(), tolerance);
                    assert!(theirs.compare(&ours.read().unwrap()).matches, "{}", plugin.display());
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_said() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let failed = |timer: &mut PjrtTimer, job: &Job| {
            timer.begin(job).unwrap();
            timer.prepare(0).unwrap_err()
        };
        let arguments = product_arguments();
        let fitting = job(folder.path(), vec![program("sharded2.mlir")], &arguments, 0);
        // no device follows the last one
        let mut last = started(&plugin, folder.path(), 8, 7);
        let failure = failed(&mut last, &fitting);
        assert_eq!(failure.kind, FailureKind::Device);
        assert_eq!(
            failure.message,
            "the program has 2 partitions and needs as many devices, from number 7 on; 8 are there; `--client-option \
             cpu_device_count=9` makes as many of a CPU"
        );
        // an array other than the program's is not split
        let mut timer = started(&plugin, folder.path(), 8, 0);
        let mut other = product_arguments();
        other[1] = ("f32[256,32]", numbers(256 * 32, 1.0));
        let failure = failed(&mut timer, &job(folder.path(), vec![program("sharded2.mlir")], &other, 0));
        assert_eq!(failure.kind, FailureKind::Signature);
        let expected = "the program takes f32[128,32], f32[256,32] is recorded";
        assert!(failure.message.contains(expected), "{failure}");
        // unequal parts, which JAX never makes: 129 in two
        let uneven = folder.path().join("uneven.mlir");
        let text = fs::read_to_string(program("sharded2_gspmd.mlir").path).unwrap();
        fs::write(&uneven, text.replace("128x", "129x").replace("x128", "x129")).unwrap();
        let mut odd = product_arguments();
        odd[0] = ("f32[64,129]", numbers(64 * 129, 1.0));
        odd[1] = ("f32[129,32]", numbers(129 * 32, 1.0));
        let failure = failed(&mut timer, &job(folder.path(), vec![of_file(&uneven)], &odd, 0));
        assert_eq!(failure.kind, FailureKind::Signature, "{failure}");
        assert!(failure.message.contains("f32[64,129] is recorded"), "{failure}");
    }
}
