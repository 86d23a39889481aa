//! `measure`: one program's kernels, from recorded profiles and from a real JAX.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::support::prerequisite::{python_with, python3};
use crate::support::program::*;
use crate::support::xspace::{Is, PlaneBuilder, space};
use serde_json::Value;

const PROGRAM: &str = "tests/data/timer/add.mlir";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A folder for captures, and a worker that returns them.
struct Captures(tempfile::TempDir);

impl Captures {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// A real capture, decompressed.
    fn real(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        let file = fs::File::open(data(&format!("xplane/{name}.xplane.pb.gz"))).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        self.file(name, &bytes)
    }

    fn timer(&self, platform: &str, profile: &str, control: &str, module_name: &str) -> String {
        let worker = data("cli/profiling_worker.py").display().to_string();
        format!("command:{} {worker} {platform} '{profile}' '{control}' '{module_name}'", python3())
    }

    fn measure(&self, timer: &str, arguments: &[&str]) -> Run {
        run(self.0.path(), &[&["measure", PROGRAM, "--timer", timer], arguments].concat())
    }
}

/// A capture of a CPU that ran nothing: synthetic.
fn nothing() -> Vec<u8> {
    space(&[PlaneBuilder::new("/host:CPU")]).0
}

/// A capture of one module's executions with these kernels, each of one microsecond: synthetic.
fn executions(of: &[&[&str]]) -> Vec<u8> {
    let mut plane = PlaneBuilder::new("/host:CPU");
    let mut events = Vec::new();
    let mut at_ps = 0;
    for (run, kernels) in (1..).zip(of) {
        for name in *kernels {
            let stats = [
                ("hlo_op", Is::Text(name)),
                ("hlo_module", Is::Text("jit_f")),
                ("program_id", Is::Int(7)),
                ("run_id", Is::Int(run)),
                ("device_ordinal", Is::Int(0)),
            ];
            events.push(plane.event((name, ""), at_ps, 1_000_000, &stats));
            at_ps += 3_000_000;
        }
    }
    plane.line("worker", 1000, &events);
    space(&[plane]).0
}

#[test]
fn figures_are_those_of_the_capture() {
    let captures = Captures::new();
    let timer = captures.timer("cpu", &captures.real("autotune6x5"), "", "jit_autotune_fn_3");
    let oracle: Value =
        serde_json::from_str(&fs::read_to_string(data("xplane/autotune6x5.oracle.json")).unwrap()).unwrap();
    let mut modules: Vec<&Value> = oracle["modules"].as_array().unwrap().iter().collect();
    modules.retain(|module| module["hlo_module"] == "jit_autotune_fn_3");
    modules.sort_by_key(|module| module["start_ps"].as_i64());
    // the first of the five is the warm-up
    let modules = &modules[1..];
    let sums = |module: &Value| -> BTreeMap<String, f64> {
        let sums = module["ops_sum_ps"].as_object().unwrap().iter();
        let kernels = sums.filter(|(name, _)| !name.starts_with("while"));
        kernels.map(|(name, ps)| (name.clone(), ps.as_f64().unwrap() / 1e3)).collect()
    };
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (values[1] + values[2]) / 2.0
    };

    let arguments = ["--iterations", "4", "--mode", "kernels", "--per-kernel", "--format", "json"];
    let run = captures.measure(&timer, &arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = run.json();
    assert_eq!((&found["mode"], &found["iterations"], &found["warm_up"]), (&"kernels".into(), &4.into(), &1.into()));
    assert_eq!((&found["source"], &found["timer"]), (&"device-profile".into(), &timer.as_str().into()));
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-6, "{one} {other}");
    close(found["median_ns"].as_f64().unwrap(), middle(modules.iter().map(|one| sums(one).values().sum()).collect()));
    for (sample, module) in found["samples"].as_array().unwrap().iter().zip(modules) {
        close(sample["kernels_ns"].as_f64().unwrap(), sums(module).values().sum());
        close(sample["span_ns"].as_f64().unwrap(), module["span_ps"].as_f64().unwrap() / 1e3);
    }
    let kernels = found["per_kernel"].as_array().unwrap();
    assert_eq!(kernels.len(), sums(modules[0]).len());
    for kernel in kernels {
        let name = kernel["name"].as_str().unwrap();
        let times: Vec<f64> = modules.iter().map(|module| sums(module)[name]).collect();
        close(kernel["mean_ns"].as_f64().unwrap(), times.iter().sum::<f64>() / 4.0);
        close(kernel["median_ns"].as_f64().unwrap(), middle(times));
    }
    close(kernels.iter().map(|kernel| kernel["share"].as_f64().unwrap()).sum(), 1.0);

    let run = captures.measure(&timer, &["--iterations", "4", "--format", "json"]);
    let found = run.json();
    assert_eq!((&found["mode"], found.get("per_kernel")), (&"span".into(), None));
    let spans = modules.iter().map(|module| module["span_ps"].as_f64().unwrap() / 1e3).collect();
    close(found["median_ns"].as_f64().unwrap(), middle(spans));

    let run = captures.measure(&timer, &["--iterations", "4", "--mode", "kernels", "--per-kernel"]);
    for words in ["sum of ", "ynn_fusion", "4 iterations", "1 iteration before them was left out", "zeros"] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
}

#[test]
fn gaps_are_what_no_kernel_fills() {
    let captures = Captures::new();
    let profile = captures.file("even", &executions(&[&["a", "b"], &["a", "b"], &["a", "b"]]));
    let run = captures.measure(&captures.timer("cpu", &profile, "", ""), &["--iterations", "2", "--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for sample in run.json()["samples"].as_array().unwrap() {
        let ns = ["kernels_ns", "span_ns", "busy_ns", "gaps_ns"].map(|name| sample[name].as_f64().unwrap());
        assert_eq!(ns, [2000.0, 4000.0, 2000.0, 2000.0]);
    }
    assert_eq!(run.json()["median_ns"], 4000.0);
}

#[test]
fn iterations_with_other_kernels_are_refused() {
    let captures = Captures::new();
    for (kernels, said) in [
        (&["a"][..], "`b` ran 1 times in the first, 0 times in iteration 2"),
        (&["a", "b", "b"], "`b` ran 1 times in the first, 2 times in iteration 2"),
        (&["a", "b", "c"], "`c` ran 0 times in the first, 1 times in iteration 2"),
    ] {
        // the warm-up may differ
        let profile = captures.file("uneven", &executions(&[&["x"], &["a", "b"], kernels]));
        let run = captures.measure(&captures.timer("cpu", &profile, "", "jit_f"), &["--iterations", "2"]);
        assert_eq!((run.code, run.stdout.as_str()), (5, ""), "{}", run.stderr);
        assert!(run.fault().contains(said), "{}", run.fault());
    }
}

#[test]
fn a_program_without_kernels_is_told_from_a_blind_profiler() {
    let captures = Captures::new();
    let (nothing, control) = (captures.file("nothing", &nothing()), captures.file("one", &executions(&[&["sine"]])));
    for mode in ["kernels", "span"] {
        let timer = captures.timer("cpu", &nothing, &control, "");
        let run = captures.measure(&timer, &["--mode", mode, "--format", "json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let found = run.json();
        assert_eq!(
            (&found["kernels"], &found["median_ns"], &found["samples"]),
            (&0.into(), &Value::Null, &Value::Array(vec![]))
        );
        assert!(run.stderr.contains("no kernels ran"), "{}", run.stderr);
        assert!(captures.measure(&timer, &["--mode", mode]).stdout.starts_with("no kernels ran\n"));
    }
    let run = captures.measure(&captures.timer("cpu", &nothing, &nothing, ""), &[]);
    assert_eq!((run.code, run.stdout.as_str()), (5, ""));
    assert!(run.fault().contains("not even that of a control program"), "{}", run.fault());
}

#[test]
fn another_subscriber_is_named() {
    let captures = Captures::new();
    let nothing = captures.file("nothing", &nothing());
    let refused = "error:cuptiSubscribe failed with CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    let faults = |platform: &str, profile: &str, variables: &[(&str, &str)]| {
        let mut command = command(captures.0.path());
        for name in std::env::vars().map(|(name, _)| name) {
            if ["NSYS_", "NV_", "CUDA_"].iter().any(|mark| name.starts_with(mark)) {
                command.env_remove(name);
            }
        }
        command.args(["measure", PROGRAM, "--timer", &captures.timer(platform, profile, &nothing, "")]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        String::from_utf8(output.stderr).unwrap()
    };
    let nsys = [("NSYS_PROFILING_SESSION_ID", "1234"), ("CUDA_INJECTION64_PATH", "/opt/libToolsInjection64.so")];
    assert!(faults("cuda", refused, &[]).contains("Nsight Systems, Nsight Compute, Compute Sanitizer, cuda-gdb"));
    assert!(faults("cuda", refused, &nsys).contains("and Nsight Systems is already one: measure without it"));
    // XLA may continue without a message, and the profile is empty
    assert!(faults("cuda", &nothing, &nsys).contains("Nsight Systems is already one"));
    assert!(faults("cuda", &nothing, &nsys[1..]).contains("the library `libToolsInjection64.so`"));
    assert!(!faults("cuda", &nothing, &[]).contains("CUPTI"));
    // on a CPU, CUPTI has nothing to do with it
    assert!(!faults("cpu", &nothing, &nsys).contains("Nsight"));
}

#[test]
fn bad_input_to_a_worker_is_one_line_and_a_code() {
    let captures = Captures::new();
    let capture = captures.file("one", &executions(&[&["a"], &["a"]]));
    let timer = captures.timer("cpu", &capture, "", "");
    let counter = captures.file("counter", b"");
    let no_profiles = format!("command:{} {} steady {counter}", python3(), data("cli/worker.py").display());
    let wrong_size = captures.0.path().join("inputs");
    fs::create_dir(&wrong_size).unwrap();
    fs::write(wrong_size.join("1.bin"), [0; 9]).unwrap();
    let wrong_size = wrong_size.display().to_string();
    for (timer, arguments, code, said) in [
        (&no_profiles, &[][..], 5, "takes no profiles"),
        (&timer, &["--inputs", "/nowhere"], 4, "`/nowhere`"),
        (&timer, &["--inputs", &wrong_size], 4, "9 bytes are not argument 1, s32[2]"),
        // the capture holds two executions
        (&timer, &["--iterations", "2"], 5, "the profile holds 2 executions, 3 were launched"),
    ] {
        let run = captures.measure(timer, arguments);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{arguments:?}: {}", run.stderr);
        assert!(run.fault().contains(said), "{arguments:?}: {}", run.fault());
    }
}

#[test]
fn a_real_program_is_measured() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let timer = format!("jax:{}", python.display());
    let programs = example().join("registry/programs/5c");
    let program = fs::read_dir(programs).unwrap().next().unwrap().unwrap().path().display().to_string();
    let measure = |program: &str, arguments: &[&str]| {
        let run =
            run(folder.path(), &[&["measure", program, "--timer", &timer, "--iterations", "3"], arguments].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run
    };
    let found = measure(&program, &["--mode", "kernels", "--per-kernel", "--format", "json"]).json();
    let samples = found["samples"].as_array().unwrap();
    let ns = |sample: &Value, name: &str| sample[name].as_f64().unwrap();
    assert_eq!(samples.len(), 3);
    for sample in samples {
        assert!(ns(sample, "busy_ns") <= ns(sample, "span_ns") && ns(sample, "busy_ns") <= ns(sample, "kernels_ns"));
        assert!((ns(sample, "busy_ns") + ns(sample, "gaps_ns") - ns(sample, "span_ns")).abs() < 1e-3, "{sample}");
    }
    let kernels = found["per_kernel"].as_array().unwrap();
    let launches: u64 = kernels.iter().map(|kernel| kernel["count"].as_u64().unwrap()).sum();
    assert!(launches > 10 && found["kernels"] == launches, "{launches}");
    let sum: f64 = kernels.iter().map(|kernel| kernel["mean_ns"].as_f64().unwrap()).sum();
    let mean = samples.iter().map(|sample| ns(sample, "kernels_ns")).sum::<f64>() / 3.0;
    assert!((sum - mean).abs() < 1e-3, "{sum} {mean}");
    assert_eq!(found["inputs"][0]["fill"]["kind"], "normal");

    // donated arguments are available for the next run
    let donated = measure("tests/data/timer/donated.mlir", &["--format", "json"]).json();
    assert_eq!((&donated["inputs_given_anew"], &donated["samples"].as_array().unwrap().len()), (&true.into(), &3));

    // nothing to compute, although the profiler works
    let path = folder.path().join("nothing.mlir");
    fs::write(&path, "module @m {\n  func.func public @main(%a: tensor<4xf32>) {\n    return\n  }\n}\n").unwrap();
    let nothing = measure(&path.display().to_string(), &[]);
    assert!(nothing.stdout.starts_with("no kernels ran") && nothing.stderr.contains("no kernels ran"));

    // the loop's body runs as often as the given counter requires
    let path = folder.path().join("loop.mlir");
    fs::write(&path, LOOP).unwrap();
    let kernels_of = |first: i32| {
        fs::write(folder.path().join("0.bin"), first.to_le_bytes()).unwrap();
        let given = folder.path().display().to_string();
        let found =
            measure(&path.display().to_string(), &["--mode", "kernels", "--inputs", &given, "--format", "json"]);
        found.json()["kernels"].as_u64().unwrap()
    };
    assert!(kernels_of(0) > kernels_of(9) + 8);
}

/// Computes the hyperbolic tangent of its second argument until the first one has counted to ten.
const LOOP: &str = "module @loop {
  func.func public @main(%n: tensor<i32>, %x: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0:2 = stablehlo.while(%i = %n, %a = %x) : tensor<i32>, tensor<64x64xf32>
    cond {
      %c = stablehlo.constant dense<10> : tensor<i32>
      %p = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.tanh %a : tensor<64x64xf32>
      stablehlo.return %j, %b : tensor<i32>, tensor<64x64xf32>
    }
    return %0#1 : tensor<64x64xf32>
  }
}
";
