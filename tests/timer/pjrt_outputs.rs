//! Large outputs and donated inputs on a real plugin. Other plugins' limits are SIMULATED: a small plugin of our own
//! (`tests/data/pjrt/limited_plugin.c`) wraps the real one and refuses what they refuse.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::pjrt::build;
use crate::support::prerequisite::plugin;
use autotune_lowered::array::Tolerance;
use autotune_lowered::call::Call;
use autotune_lowered::digest::Digest;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::protocol::{
    BeginParams, ComparedOutputs, DeviceMemory, KeptOutputs, LoadAnswer, LoadParams, MeasureAnswer, Method,
    OutputsAnswer,
};
use autotune_lowered::timer::{InputArray, Job, JobCandidate, ProgramFile, WorkerClient, WorkerCommand, WorkerLimits};
use serde_json::Value;

/// For one output: mismatches, the largest difference, elements of another class, and the first mismatch with both
/// values.
type Found = (u64, f64, u64, Option<(u64, String, String)>);

const LIMIT: Duration = Duration::from_secs(60);

struct Place {
    folder: tempfile::TempDir,
    base: PathBuf,
}

impl Place {
    /// `None`, with the reason printed, if there is no CPU plugin.
    fn new() -> Option<Self> {
        let (base, folder) = (plugin()?, tempfile::tempdir().unwrap());
        build("limited_plugin.c", &folder.path().join("limited.so"));
        Some(Self { folder, base })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn job(&self, texts: &[String], input: InputArray) -> Job {
        let candidates = texts.iter().map(|text| {
            let digest = Digest::of(text.as_bytes());
            let path = self.path().join(format!("{}.mlir", digest.to_short()));
            fs::write(&path, text).unwrap();
            let program = Program::new(ProgramFormat::StablehloText, digest, digest);
            JobCandidate::new(serde_json::from_str("{}").unwrap()).program(Some(ProgramFile::new(path, program)))
        });
        let candidates = candidates.collect();
        Job::new(Call::new("test@v1", "0123456789abcdef"), self.path()).inputs(vec![input]).candidates(candidates)
    }

    fn input(&self, values: &[f32]) -> InputArray {
        let path = self.path().join("x.bin");
        fs::write(&path, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        InputArray::new("x", format!("f32[{}]", values.len()).parse().unwrap(), path)
    }

    /// A worker with such limits, a begun job and all candidates loaded; its answers about them, and about its device's
    /// memory.
    fn loaded(&self, limits: &str, job: &Job) -> (WorkerClient, Vec<LoadAnswer>, Option<DeviceMemory>) {
        let exe = env!("CARGO_BIN_EXE_autotune-lowered");
        let (library, base) = (self.path().join("limited.so"), self.base.display());
        let command = format!(
            "LIMITED='{limits}' LIMITED_BASE='{base}' exec {exe} worker pjrt --plugin '{}' --no-profiler \
             --output-block-bytes 4096",
            library.display()
        );
        let mut client = WorkerClient::spawn(&WorkerCommand::shell(exe, &command), &WorkerLimits::default()).unwrap();
        let memory = client.hello(&WorkerLimits::default()).unwrap().memory;
        client.request::<Value>(Method::Begin(BeginParams::new(job, self.path())), LIMIT).unwrap();
        let load = |(number, candidate): (usize, &JobCandidate)| {
            client.request(Method::Load(LoadParams::new(number, candidate)), LIMIT).unwrap()
        };
        let told = job.candidates.iter().enumerate().map(load).collect();
        (client, told, memory)
    }
}

/// `x + 1`, and `x` with -1 in one place.
fn one_place(count: usize, place: usize) -> String {
    let (float, int) = (format!("tensor<{count}xf32>"), format!("tensor<{count}xi32>"));
    format!(
        "module @m {{\n  func.func public @main(%x: {float}) -> ({float}, {float}) {{
    %one = stablehlo.constant dense<1.0> : {float}
    %y = stablehlo.add %x, %one : {float}
    %minus = stablehlo.constant dense<-1.0> : {float}
    %at = stablehlo.constant dense<{place}> : {int}
    %i = stablehlo.iota dim = 0 : {int}
    %is = stablehlo.compare EQ, %i, %at : ({int}, {int}) -> tensor<{count}xi1>
    %z = stablehlo.select %is, %minus, %x : tensor<{count}xi1>, {float}
    return %y, %z : {float}, {float}\n  }}\n}}\n"
    )
}

/// Arrays of five blocks, the last one shorter; outputs are never copied to the host as a whole if parts can be copied.
#[test]
fn large_outputs_are_compared_block_by_block() {
    const COUNT: usize = 5003;
    let Some(place) = Place::new() else { return };
    let mut values: Vec<f32> = (0..COUNT).map(|index| index as f32).collect();
    values[7] = f32::NAN;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    // the first program has no difference, the second one in an element of the last block, the third in one of the
    // first
    let texts = [COUNT, COUNT - 2, 3].map(|at| one_place(COUNT, at));
    let job = place.job(&texts, place.input(&values));
    for limits in ["", "no-whole", "no-parts", "memory"] {
        let (mut client, _, memory) = place.loaded(limits, &job);
        let told = (limits == "memory").then(|| DeviceMemory::new(16 << 30, 3 << 30));
        assert_eq!(memory, told, "a CPU's plugin tells nothing of it");
        let kept: KeptOutputs = client.request(Method::KeepOutputs { candidate: 0, above: 0 }, LIMIT).unwrap();
        let kept = kept.outputs.unwrap();
        assert_eq!((kept.len(), kept[1].digest), (2, Digest::of(&bytes)), "{limits}");
        let seen = kept[1].finiteness.unwrap();
        assert_eq!((seen.elements, seen.finite, seen.nan), (COUNT as u64, COUNT as u64 - 1, 1));
        // n (n - 1) (2 n - 1) / 6 is the sum of the squares below n
        let n = COUNT as f64;
        let squares = n * (n - 1.0) * (2.0 * n - 1.0) / 6.0 - 49.0;
        assert!((seen.rms / (squares / (n - 1.0)).sqrt() - 1.0).abs() < 1e-12, "{}", seen.rms);
        let mut compare = |candidate: usize, tolerance: Tolerance| {
            let call = Method::CompareOutputs { candidate, tolerances: vec![tolerance; 2] };
            let found: ComparedOutputs = client.request(call, LIMIT).unwrap();
            let told = found.outputs.into_iter().map(|one| {
                let first = one.first.map(|first| (first.element, first.own, first.kept));
                (one.mismatches, one.max_absolute, one.other_class, first)
            });
            told.collect::<Vec<Found>>()
        };
        let none: Found = (0, 0.0, 0, None);
        let at = |element: u64| -> Found {
            let first = Some((element, "-1".to_owned(), element.to_string()));
            (1, element as f64 + 1.0, 0, first)
        };
        assert_eq!(compare(0, Tolerance::EXACT), [none.clone(), none.clone()], "{limits}");
        assert_eq!(compare(1, Tolerance::EXACT), [none.clone(), at(COUNT as u64 - 2)], "{limits}");
        assert_eq!(compare(2, Tolerance::EXACT), [none.clone(), at(3)], "{limits}");
        // half the root mean square, some 1400, is allowed, and the difference in the first block is 4
        let loose = Tolerance::EXACT.of_rms(0.5);
        assert_eq!(compare(1, loose), [none.clone(), at(COUNT as u64 - 2)], "{limits}");
        assert_eq!(compare(2, loose), [none.clone(), (0, 4.0, 0, None)], "{limits}");
        let whole = Method::Outputs { candidate: 1, folder: place.path().to_owned() };
        assert_eq!(client.request::<OutputsAnswer>(whole, LIMIT).is_err(), limits == "no-whole", "{limits}");
    }
}

/// If the device does not copy them, a note says so, and each run gets the same values from the host.
#[test]
fn donated_inputs_come_from_the_host_where_the_device_copies_none() {
    const COUNT: usize = 1 << 18;
    let Some(place) = Place::new() else { return };
    let kind = format!("tensor<{COUNT}xf32>");
    let text = format!(
        "module @m {{\n  func.func public @main(%x: {kind} {{tf.aliasing_output = 0 : i32}}) -> {kind} {{
    %c = stablehlo.constant dense<1.0> : {kind}\n    %0 = stablehlo.add %x, %c : {kind}
    return %0 : {kind}\n  }}\n}}\n"
    );
    let values: Vec<f32> = (0..COUNT).map(|index| index as f32).collect();
    let job = place.job(&[text], place.input(&values).donated(true));
    let expected: Vec<u8> = values.iter().flat_map(|value| (value + 1.0).to_le_bytes()).collect();
    for (limits, is_copied) in [("", true), ("no-copies", false)] {
        let (mut client, told, _) = place.loaded(limits, &job);
        let bytes = 4 * COUNT as u64;
        assert_eq!(told[0].restored_bytes, if is_copied { bytes } else { 0 }, "{limits}");
        let reason = format!(
            "{bytes} bytes of donated inputs come from the host before every run, because the device does not copy them: "
        );
        let from_host = told[0].from_host.as_deref();
        assert_eq!(
            from_host.is_some_and(|told| told.starts_with(&reason) && !told.contains('\n')),
            !is_copied,
            "{told:?}"
        );
        for _ in 0..2 {
            let measured = client.request(Method::Measure { candidate: 0, runs: 4, batch: 2 }, LIMIT);
            assert_eq!(measured.map(|measured: MeasureAnswer| measured.samples_ns.len()), Ok(2));
            let outputs = Method::Outputs { candidate: 0, folder: place.path().to_owned() };
            let outputs: OutputsAnswer = client.request(outputs, LIMIT).unwrap();
            assert!(fs::read(&outputs.outputs[0].path).unwrap() == expected, "{limits}");
        }
    }
}
