//! Clock, batches and caches of the PJRT timer on real plugins: those of `AUTOTUNE_LOWERED_TEST_PLUGIN` (paths joined with
//! `:`), else the first that discovery finds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

use autotune_lowered::digest::Digest;
use autotune_lowered::registry::{Direction, Program, ProgramFormat};
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer, discover};
use autotune_lowered::timer::{
    CacheState, FailureKind, InputArray, Job, JobCandidate, Limits, ProgramFile, Source, Timer,
};

fn plugins() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("AUTOTUNE_LOWERED_TEST_PLUGIN") {
        return std::env::split_paths(&paths).collect();
    }
    match discover(None, None) {
        Ok(found) => found.into_iter().take(1).map(|plugin| plugin.path).collect(),
        Err(failure) => {
            eprintln!("skipped: {failure}");
            Vec::new()
        }
    }
}

fn start(folder: &Path, plugin: &Path) -> PjrtTimer {
    let options = PjrtOptions {
        exe: env!("CARGO_BIN_EXE_autotune-lowered").into(),
        plugin: plugin.to_owned(),
        device: 0,
        client_options: Vec::new(),
        xla_flags: None,
        metric: None,
        executables: folder.join("executables"),
        limits: Limits::default(),
    };
    PjrtTimer::start(&options).unwrap()
}

/// `x + 1` of as many `f32`; the program may destroy a donated `x`.
fn job(folder: &Path, count: usize, donated: bool, cache_state: CacheState) -> Job {
    let (kind, alias) = (format!("tensor<{count}xf32>"), if donated { " {tf.aliasing_output = 0 : i32}" } else { "" });
    let text = format!(
        "module @m {{\n  func.func public @main(%x: {kind}{alias}) -> {kind} {{\n    %c = stablehlo.constant dense<1.0> : \
         {kind}\n    %0 = stablehlo.add %x, %c : {kind}\n    return %0 : {kind}\n  }}\n}}\n"
    );
    let path = folder.join(format!("add-one-{count}-{donated}.mlir"));
    fs::write(&path, &text).unwrap();
    let digest = Digest::of(text.as_bytes());
    let program = Program {
        format: ProgramFormat::StablehloText,
        digest,
        semantic_digest: digest,
        custom_calls: Vec::new(),
    };
    let input = folder.join("x.bin");
    fs::write(&input, 1.0_f32.to_le_bytes().repeat(count)).unwrap();
    let x = InputArray { name: "x".into(), spec: format!("f32[{count}]").parse().unwrap(), path: input, donated };
    Job {
        op_id: "add-one@v1".into(),
        call_key: "0123456789abcdef".into(),
        direction: Direction::Forward,
        inputs: vec![x],
        candidates: vec![JobCandidate {
            config: serde_json::from_str("{}").unwrap(),
            program: Some(ProgramFile { path, program }),
        }],
        recipe: None,
        cache_state,
        scratch: folder.to_owned(),
    }
}

fn median(mut samples: Vec<u64>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2] as f64
}

#[test]
fn try_sizes() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = start(folder.path(), &plugin);
        eprintln!("clock {:?}", timer.clock_resolution_ns());
        for kib in [4, 64, 256, 512, 1024, 2048, 4096, 8192] {
            let mut medians = Vec::new();
            for _ in 0..3 {
            for state in [CacheState::Warm, CacheState::Cold] {
                timer.begin(&job(folder.path(), kib << 8, false, state)).unwrap();
                timer.prepare(0).unwrap();
                timer.measure(0, 5).unwrap();
                let t = std::time::Instant::now();
                medians.push((median(timer.measure(0, 15).unwrap()), t.elapsed().as_millis()));
            }
            }
            eprintln!("{kib} KiB: {medians:?}");
        }
    }
}
