//! Options of the compiling process, on real plugins: the measured code is the code compiled with them.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::Path;

use autotune_lowered::call::Call;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::pjrt::PjrtTimer;
use autotune_lowered::timer::{Build, InputArray, Job, JobCandidate, ProgramFile, Timer, TimerExt};

use crate::support::pjrt::options;
use crate::support::prerequisite::plugins;

const COUNT: usize = 4096;

/// `x * y + z`, which newer instructions round once and older ones twice.
fn module() -> String {
    let kind = format!("tensor<{COUNT}xf32>");
    format!(
        "module @m {{\n  func.func public @main(%x: {kind}, %y: {kind}, %z: {kind}) -> {kind} {{\n    %0 = \
         stablehlo.multiply %x, %y : {kind}\n    %1 = stablehlo.add %0, %z : {kind}\n    return %1 : {kind}\n  }}\n}}\n"
    )
}

/// Values whose products need more bits than a float has, by input.
fn values(input: usize) -> Vec<f32> {
    (0..COUNT).map(|place| 1.0 + ((place * 7919 + input * 104_729) % 8191) as f32 / 8192.0).collect()
}

fn bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The program with each of these flags; the first candidate has none.
fn job(folder: &Path, flags: &[(&str, &str)]) -> Job {
    let (text, path) = (module(), folder.join("m.mlir"));
    fs::write(&path, &text).unwrap();
    let digest = Digest::of(text.as_bytes());
    let program = ProgramFile::new(path, Program::new(ProgramFormat::StablehloText, digest, digest));
    let flag = |(name, value): &(&str, &str)| Build::default().process([(name.to_string(), value.to_string())].into());
    let builds = std::iter::once(Build::default()).chain(flags.iter().map(flag));
    let candidates = builds.enumerate().map(|(number, build)| {
        let config = serde_json::from_str(&format!(r#"{{"n": {number}}}"#)).unwrap();
        JobCandidate::new(config).program(Some(program.clone())).build(build)
    });
    let input = |number: usize| {
        let path = folder.join(format!("{number}.bin"));
        fs::write(&path, bytes(values(number))).unwrap();
        InputArray::new(format!("{number}"), format!("f32[{COUNT}]").parse().unwrap(), path)
    };
    Job::new(Call::new("test@v1", "0123456789abcdef"), folder)
        .inputs((0..3).map(input).collect())
        .candidates(candidates.collect())
}

fn outputs(timer: &mut PjrtTimer, candidate: usize) -> Vec<u8> {
    timer.run(candidate, 2).unwrap();
    fs::read(&timer.output_files(candidate).unwrap()[0].path).unwrap()
}

#[test]
fn what_is_measured_is_what_was_compiled_under_the_flags() {
    if !is_x86_feature_detected!("fma") {
        return;
    }
    let [x, y, z] = [0, 1, 2].map(values);
    let of = |compute: fn(f32, f32, f32) -> f32| bytes((0..COUNT).map(|place| compute(x[place], y[place], z[place])));
    let (once, twice) = (of(f32::mul_add), of(|x, y, z| x * y + z));
    assert_ne!(once, twice);
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let asked = [
            ("xla_cpu_max_isa", "SSE4_2"),
            ("xla_cpu_max_isa", "AVX2"),
            // this device's compiler does not read it
            ("xla_gpu_autotune_level", "0"),
            ("xla_none", "1"),
            // code that XNNPACK computes cannot be serialized
            ("xla_cpu_experimental_xnn_fusion_type", "LIBRARY_FUSION_TYPE_ELTWISE"),
        ];
        let job = job(folder.path(), &asked);
        let mut timer = PjrtTimer::start(&options(&plugin, folder.path())).unwrap();
        assert!(timer.info().can.set_process_options);
        timer.begin(&job).unwrap();
        timer.expect(&[0, 1, 2, 3, 4, 5]).unwrap();
        let executables = [0, 1, 2, 3].map(|candidate| timer.prepare(candidate).unwrap().executable.unwrap());
        let [usual, older, _, same] = executables;
        assert_ne!(usual, older);
        assert_eq!(usual, same, "what runs is the same");
        assert_eq!(usual != executables[2], is_x86_feature_detected!("avx512f"), "newer than AVX2");
        let unknown = timer.prepare(4).unwrap_err();
        assert_eq!(unknown.kind, FailureKind::Compile);
        assert_eq!(unknown.message, "this plugin does not accept `--xla_none=1` in XLA_FLAGS");
        // plugins of other versions compute it without XNNPACK
        match timer.prepare(5) {
            Err(failure) => {
                let said = "the plugin does not serialize this executable";
                assert!(failure.kind == FailureKind::Compile && failure.message.ends_with(said), "{failure}");
            }
            Ok(prepared) => assert!(!plugin.ends_with("xla_cpu_pjrt.so"), "{}: {prepared:?}", plugin.display()),
        }
        for (candidate, expected) in [(0, &once), (1, &twice), (2, &once), (3, &once)] {
            assert!(outputs(&mut timer, candidate) == *expected, "candidate {candidate}");
        }
        drop(timer);

        // the refusal is known without a worker: the kept message is one that no plugin gives
        let kept = folder.path().join("executables/executables-v1/refused-options.json");
        fs::write(&kept, fs::read_to_string(&kept).unwrap().replace("this plugin does", "kept: does")).unwrap();
        // a process that its user started with the flag compiles the same, and keeps it separate from other flags
        let own = tempfile::tempdir().unwrap();
        let own_flags = options(&plugin, own.path()).xla_flags(Some("--xla_cpu_max_isa=SSE4_2".to_owned()));
        let mut others = PjrtTimer::start(&own_flags).unwrap();
        others.begin(&self::job(own.path(), &[("xla_gpu_autotune_level", "0")])).unwrap();
        for candidate in [0, 1] {
            assert_eq!(others.prepare(candidate).unwrap().executable, Some(older));
            assert!(outputs(&mut others, candidate) == twice, "candidate {candidate}");
        }
        let mut again = PjrtTimer::start(&options(&plugin, folder.path())).unwrap();
        again.begin(&job).unwrap();
        assert!(again.prepare(1).unwrap().reused);
        assert!(again.prepare(4).unwrap_err().message.starts_with("kept: does not accept `--xla_none=1`"));
    }
}
