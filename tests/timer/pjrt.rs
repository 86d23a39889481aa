//! The PJRT timer with real plugins: those of `AUTOTUNE_LOWERED_TEST_PLUGIN` (paths joined with `:`), else the first
//! that is found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::executable::write_executable;
use crate::support::pjrt::options;
use crate::support::prerequisite::plugins;
use autotune_lowered::array::ArraySpec;
use autotune_lowered::call::Call;
use autotune_lowered::config::Config;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::measured_by::Source;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::timer::conformance::{StepOutcome, check};
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer, probe};
use autotune_lowered::timer::{
    InputArray, Job, JobCandidate, ProgramFile, Timer, TimerExt, WorkerCommand, WorkerLimits,
};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn options(&self, plugin: &Path) -> PjrtOptions {
        options(plugin, self.folder.path())
    }

    /// With another program instead of this one.
    fn options_of(&self, exe: PathBuf, plugin: &Path) -> PjrtOptions {
        PjrtOptions::new(exe, plugin, self.folder.path().join("executables"))
    }

    fn input(&self, name: &str, spec: &str, bytes: &[u8], donated: bool) -> InputArray {
        let path = self.folder.path().join(format!("{name}.bin"));
        fs::write(&path, bytes).unwrap();
        InputArray::new(name, spec.parse().unwrap(), path).donated(donated)
    }

    fn job(&self, programs: &[&str], inputs: Vec<InputArray>) -> Job {
        let candidates = programs.iter().enumerate().map(|(index, name)| {
            let config = serde_json::from_str::<Config>(&format!("{{\"index\":{index}}}")).unwrap();
            JobCandidate::new(config).program(Some(program(name)))
        });
        Job::new(Call::new("test@v1", "0123456789abcdef"), self.folder.path())
            .inputs(inputs)
            .candidates(candidates.collect())
    }
}

fn program(name: &str) -> ProgramFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name);
    let digest = Digest::of(&fs::read(&path).unwrap());
    let format = match path.extension().unwrap().to_str().unwrap() {
        "mlir" => ProgramFormat::StablehloText,
        "mlirbc" => ProgramFormat::StablehloPortable,
        _ => ProgramFormat::HloProto,
    };
    ProgramFile::new(path, Program::new(format, digest, digest))
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn spec(text: &str) -> ArraySpec {
    text.parse().unwrap()
}

#[test]
fn a_device_is_told() {
    for plugin in plugins() {
        let place = Place::new();
        let devices = probe(&place.options(&plugin)).unwrap().devices;
        assert_eq!(devices.len(), 1, "one device unless told otherwise");
        let identity = &devices[0].identity;
        assert_eq!((identity.platform.as_str(), identity.device_kind.as_str()), ("cpu", "cpu"));
        let cores = std::thread::available_parallelism().unwrap().to_string();
        assert_eq!(identity.hardware["cores"], cores);
        let info = fs::read_to_string("/proc/cpuinfo").unwrap();
        let model = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
        if let Some((_, model)) = model {
            let model = model.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(identity.hardware["cpu_model"].starts_with(&model), "{identity}");
        }
        let environment = &devices[0].environment;
        assert_eq!(environment.plugin.as_deref(), plugin.file_name().unwrap().to_str());
        assert_eq!(environment.plugin_digest, Some(Digest::of_reader(fs::File::open(&plugin).unwrap()).unwrap()));
        assert_eq!(devices[0].to_portable(), "cpu|cpu");
        let more = place.options(&plugin).client_options(vec!["cpu_device_count=3".into()]);
        assert_eq!(probe(&more).unwrap().devices.len(), 3);
    }
}

#[test]
fn every_form_of_a_program_runs_and_is_right() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        assert_eq!(
            (timer.info().name.as_str(), &timer.info().source, timer.info().epoch),
            ("pjrt", &Source::HostWall, 1)
        );
        let inputs = vec![
            place.input("a", "f32[4]", &f32s(&[1.0, 2.0, 3.0, 4.0]), false),
            place.input("b", "f32[4]", &f32s(&[0.5, 0.5, 0.5, -4.0]), false),
        ];
        let job = place.job(&["add.mlir", "add.mlirbc", "add.hlo.pb"], inputs);
        timer.begin(&job).unwrap();
        for candidate in 0..3 {
            let prepared = timer.prepare(candidate).unwrap();
            assert!(prepared.compile_ns > 0 && !prepared.reused, "{candidate}: {prepared:?}");
            let samples = timer.run(candidate, 7).unwrap();
            assert_eq!(samples.len(), 7);
            assert!(samples.iter().all(|&sample| sample > 0), "{samples:?}");
            let outputs = timer.output_files(candidate).unwrap();
            assert_eq!(outputs.len(), 1);
            assert_eq!(outputs[0].spec, spec("f32[4]"));
            assert_eq!(fs::read(&outputs[0].path).unwrap(), f32s(&[1.5, 2.5, 3.5, 0.0]));
        }
        timer.end();
        // another timer can still load the executables, and repeat the job
        let mut again = PjrtTimer::start(&place.options(&plugin)).unwrap();
        again.begin(&job).unwrap();
        assert!(again.prepare(1).unwrap().reused);
        assert_eq!(again.run(1, 2).unwrap().len(), 2);
        again.end();
        let square = |name| place.input(name, "f32[64,64]", &f32s(&[0.5; 64 * 64]), false);
        again.begin(&place.job(&["matmul.mlir"], vec![square("c"), square("d")])).unwrap();
        // also for a kept executable: two 64³ operations, and three matrices that are read or written
        for reused in [false, true] {
            let prepared = again.prepare(0).unwrap();
            assert_eq!(prepared.reused, reused);
            let work = prepared.work.unwrap();
            assert_eq!((work.total_flops(), work.bytes, work.unknown), (524_288.0, 49_152.0, 0.0));
            assert!(prepared.temporary_bytes < Some(1 << 20), "{:?}", prepared.temporary_bytes);
        }
    }
}

#[test]
fn our_own_worker_conforms() {
    for plugin in plugins() {
        let place = Place::new();
        let exe = env!("CARGO_BIN_EXE_autotune-lowered");
        let command = WorkerCommand::shell(exe, &format!("{exe} worker pjrt --plugin '{}'", plugin.display()));
        let report = check(&command, &WorkerLimits::default(), place.folder.path()).unwrap();
        assert!(report.steps.iter().all(|step| step.outcome == StepOutcome::Passed), "{report}");
        // beyond the minimum: its clock, batches, cold caches, outputs that it compares
        assert_eq!(report.steps.len(), 22);
    }
}

#[test]
fn time_is_taken_to_completion() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        let mut times = |rounds: i32, runs: u32| {
            let inputs = vec![
                place.input("rounds", "s32[]", &rounds.to_le_bytes(), false),
                place.input("x", "f32[3]", &f32s(&[1.0, -1.0, 0.0]), false),
            ];
            timer.begin(&place.job(&["control.mlir"], inputs)).unwrap();
            timer.prepare(0).unwrap();
            let start = Instant::now();
            let samples = timer.run(0, runs).unwrap();
            let (elapsed, sum) = (start.elapsed(), Duration::from_nanos(samples.iter().sum()));
            assert!(sum <= elapsed, "the runs took {sum:?} one after the other, the call {elapsed:?}");
            samples.into_iter().min().unwrap()
        };
        // a loop with a hundred times the iterations, launched as fast. Of many short runs, one is undisturbed on any
        // machine, and disturbances only make the long ones longer
        let (short, long) = (times(10_000, 100), times(1_000_000, 5));
        assert!(long > 20 * short, "{short} ns, {long} ns");
    }
}

#[test]
fn a_flipped_byte_in_a_kept_executable_is_compiled_again() {
    for plugin in plugins() {
        let place = Place::new();
        let inputs = || {
            vec![
                place.input("a", "f32[4]", &f32s(&[1.0; 4]), false),
                place.input("b", "f32[4]", &f32s(&[2.0; 4]), false),
            ]
        };
        let job = place.job(&["add.mlir"], inputs());
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        timer.begin(&job).unwrap();
        timer.prepare(0).unwrap();
        timer.end();
        let folder = place.folder.path().join("executables/executables-v1");
        let kept = kept_in(&folder);
        assert_eq!(kept.len(), 1, "{kept:?}");
        let mut bytes = fs::read(&kept[0]).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&kept[0], &bytes).unwrap();
        timer.begin(&job).unwrap();
        assert!(!timer.prepare(0).unwrap().reused);
        let outputs = timer.output_files(0).unwrap();
        assert_eq!(fs::read(&outputs[0].path).unwrap(), f32s(&[3.0; 4]));
        timer.end();
        timer.begin(&job).unwrap();
        assert!(timer.prepare(0).unwrap().reused, "the file was made good");
    }
}

/// The executables in a store's folder.
fn kept_in(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "exe")).collect()
}

/// Two programs with one signature, kept; returns the files by candidate.
fn two_kept(place: &Place, plugin: &Path) -> (PjrtTimer, Job, Vec<PathBuf>) {
    let inputs =
        vec![place.input("a", "f32[4]", &f32s(&[5.0; 4]), false), place.input("b", "f32[4]", &f32s(&[2.0; 4]), false)];
    let mut job = place.job(&["add.mlir", "add.mlir"], inputs);
    distinct(&mut job, place.folder.path());
    let file = job.candidates[1].program.as_mut().unwrap();
    let text = fs::read_to_string(&file.path).unwrap().replace("stablehlo.add", "stablehlo.subtract");
    fs::write(&file.path, &text).unwrap();
    file.program.digest = Digest::of(text.as_bytes());
    let mut timer = PjrtTimer::start(&place.options(plugin)).unwrap();
    timer.begin(&job).unwrap();
    let folder = place.folder.path().join("executables/executables-v1");
    timer.prepare(0).unwrap();
    let mut files = kept_in(&folder);
    timer.prepare(1).unwrap();
    files.extend(kept_in(&folder).into_iter().filter(|path| !files.contains(path)).collect::<Vec<_>>());
    assert_eq!(files.len(), 2, "{files:?}");
    (timer, job, files)
}

fn output_of(timer: &mut PjrtTimer, candidate: usize) -> Vec<u8> {
    fs::read(&timer.output_files(candidate).unwrap()[0].path).unwrap()
}

#[test]
fn exchanged_executables_are_not_believed() {
    for plugin in plugins() {
        let place = Place::new();
        let (mut timer, job, files) = two_kept(&place, &plugin);
        timer.end();
        let aside = place.folder.path().join("aside");
        for (from, to) in [(&files[0], &aside), (&files[1], &files[0]), (&aside, &files[1])] {
            fs::rename(from, to).unwrap();
        }
        timer.begin(&job).unwrap();
        for (candidate, value) in [(0, 7.0), (1, 3.0)] {
            assert!(!timer.prepare(candidate).unwrap().reused, "{candidate}");
            assert_eq!(output_of(&mut timer, candidate), f32s(&[value; 4]), "{candidate}");
        }
        timer.end();
        timer.begin(&job).unwrap();
        assert!((0..2).all(|candidate| timer.prepare(candidate).unwrap().reused), "both were made good");
    }
}

#[test]
fn an_executable_that_changes_or_goes_after_it_was_found_is_not_run() {
    for plugin in plugins() {
        let place = Place::new();
        let (mut timer, _, files) = two_kept(&place, &plugin);
        // the file that a restarted worker loads was identified before
        fs::copy(&files[1], &files[0]).unwrap();
        fs::remove_file(&files[1]).unwrap();
        timer.restart(&[]).unwrap();
        assert_eq!(output_of(&mut timer, 0), f32s(&[7.0; 4]));
        assert_eq!(output_of(&mut timer, 1), f32s(&[3.0; 4]));
        assert_eq!(timer.info().epoch, 2);
    }
}

#[test]
fn an_executable_that_cannot_be_kept_is_run_all_the_same() {
    for plugin in plugins().into_iter().take(1) {
        let place = Place::new();
        let inputs = vec![place.input("x", "f32[1024]", &f32s(&[1.0; 1024]), false)];
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        fs::remove_dir_all(place.folder.path().join("executables")).unwrap();
        timer.begin(&place.job(&["idle.mlir"], inputs)).unwrap();
        assert!(!timer.prepare(0).unwrap().reused);
        timer.restart(&[]).unwrap();
        assert_eq!(timer.run(0, 2).unwrap().len(), 2);
    }
}

#[test]
fn donated_inputs_are_fresh_in_every_run() {
    for plugin in plugins() {
        let place = Place::new();
        for donated in [true, false] {
            let inputs = vec![
                place.input("state", "f32[4]", &f32s(&[1.0, 2.0, 3.0, 4.0]), donated),
                place.input("x", "f32[4]", &f32s(&[10.0; 4]), false),
            ];
            let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
            timer.begin(&place.job(&["donated.mlir"], inputs)).unwrap();
            timer.prepare(0).unwrap();
            assert_eq!(timer.run(0, 20).unwrap().len(), 20);
            let outputs = timer.output_files(0).unwrap();
            let read = |index: usize| fs::read(&outputs[index].path).unwrap();
            assert_eq!(read(0), f32s(&[11.0, 12.0, 13.0, 14.0]), "donated: {donated}");
            assert_eq!(read(1), f32s(&[20.0; 4]), "donated: {donated}");
        }
    }
}

#[test]
fn narrow_types_and_layouts_come_back_dense() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        // bf16 1.0 is 0x3f80; int4 takes a byte each; pred is 0 or 1
        let bf16 = [0x80, 0x3f, 0, 0, 0x80, 0xbf, 0, 0x40, 0, 0, 0x80, 0x3f];
        let inputs = vec![
            place.input("a", "bf16[2,3]", &bf16, false),
            place.input("b", "s8[2]", &[4, 0xff], false),
            place.input("c", "s4[3]", &[1, 2, 7], false),
            place.input("d", "pred[2]", &[1, 0], false),
        ];
        timer.begin(&place.job(&["types.mlir"], inputs)).unwrap();
        timer.prepare(0).unwrap();
        let outputs = timer.output_files(0).unwrap();
        let told: Vec<String> = outputs.iter().map(|output| output.spec.to_string()).collect();
        assert_eq!(told, ["bf16[2,3]", "s8[2]", "s4[3]", "pred[2]"]);
        let bytes: Vec<Vec<u8>> = outputs.iter().map(|output| fs::read(&output.path).unwrap()).collect();
        assert_eq!(bytes, [bf16.to_vec(), vec![5, 0], vec![1, 2, 7], vec![0, 1]]);
        timer.end();
        let inputs = vec![place.input("a", "f32[2,3]", &f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), false)];
        timer.begin(&place.job(&["transposed.mlir"], inputs)).unwrap();
        timer.prepare(0).unwrap();
        let outputs = timer.output_files(0).unwrap();
        assert_eq!(outputs[0].spec, spec("f32[3,2]"));
        assert_eq!(fs::read(&outputs[0].path).unwrap(), f32s(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    }
}

#[test]
fn other_arguments_than_the_programs_are_refused() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        let good = || place.input("a", "f32[4]", &f32s(&[1.0; 4]), false);
        for (other, expected) in [
            (
                place.input("b", "s32[4]", &[0; 16], false),
                "argument 1 `b`: the program takes f32[4], s32[4] is recorded",
            ),
            (
                place.input("b", "f32[2,2]", &[0; 16], false),
                "argument 1 `b`: the program takes f32[4], f32[2,2] is recorded",
            ),
        ] {
            for form in ["add.mlir", "add.mlirbc", "add.hlo.pb"] {
                timer.begin(&place.job(&[form], vec![good(), other.clone()])).unwrap();
                let failure = timer.prepare(0).unwrap_err();
                assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Signature, expected), "{form}");
            }
        }
        timer.begin(&place.job(&["add.mlir"], vec![good()])).unwrap();
        let failure = timer.prepare(0).unwrap_err();
        assert_eq!(failure.message, "the program takes 2 arguments, 1 are recorded");
        // a file whose length differs from its spec
        let short = place.input("b", "f32[4]", &[0; 12], false);
        let failure = timer.begin(&place.job(&["add.mlir"], vec![good(), short])).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Signature);
        assert!(failure.message.contains("12 bytes are not an array f32[4]"), "{failure}");
    }
}

/// Inputs can be made after the program is compiled, without compiling it again.
#[test]
fn what_a_program_takes_is_told_before_there_are_inputs() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        timer.begin(&place.job(&["add.mlir"], Vec::new())).unwrap();
        let specs = timer.signature(0).unwrap().unwrap().parameters;
        let inputs: Vec<InputArray> = specs
            .iter()
            .enumerate()
            .map(|(index, spec)| {
                let bytes = vec![0; spec.host_bytes().unwrap() as usize];
                place.input(&format!("input-{index}"), &spec.to_string(), &bytes, false)
            })
            .collect();
        assert_eq!(specs.len(), 2, "{specs:?}");
        timer.begin(&place.job(&["add.mlir"], inputs)).unwrap();
        assert!(timer.prepare(0).unwrap().reused);
        assert_eq!(timer.run(0, 3).unwrap().len(), 3);
        assert_eq!(timer.signature(1).unwrap_err().kind, FailureKind::Protocol, "there is no candidate 1");
    }
}

#[test]
fn a_custom_call_without_handler_is_named() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        let input = place.input("a", "f32[4]", &f32s(&[1.0; 4]), false);
        timer.begin(&place.job(&["custom_call.mlir", "custom_call_typed.mlir"], vec![input])).unwrap();
        for (candidate, target) in [(0, "`no_such_target`"), (1, "`no_such_typed`")] {
            let failure = timer.prepare(candidate).unwrap_err();
            assert_eq!(failure.kind, FailureKind::CustomCall);
            assert!(failure.message.contains(target), "{failure}");
            assert!(!failure.needs_restart());
        }
    }
}

#[test]
fn a_hang_costs_one_candidate() {
    for plugin in plugins() {
        let place = Place::new();
        let mut options = place.options(&plugin);
        // more than any answered call takes
        options.limits.measure = Duration::from_secs(3);
        let mut timer = PjrtTimer::start(&options).unwrap();
        let input = place.input("a", "f32[4]", &f32s(&[1.0; 4]), false);
        timer.begin(&place.job(&["endless.mlir", "nan.mlir"], vec![input])).unwrap();
        timer.prepare(0).unwrap();
        timer.prepare(1).unwrap();
        assert_eq!(timer.run(1, 3).unwrap().len(), 3);
        let failure = timer.run(0, 1).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        // a plugin may print anything while it hangs
        let expected = "no answer to `measure` within 3s, the time limit of a call";
        assert!(failure.message.starts_with(expected), "{failure}");
        assert!(failure.needs_restart());
        assert_eq!(timer.run(1, 1).unwrap_err().kind, FailureKind::Device, "gone until restarted");
        timer.restart(&[0]).unwrap();
        assert_eq!(timer.info().epoch, 2);
        assert_eq!(timer.run(1, 3).unwrap().len(), 3);
        assert!(timer.run(0, 1).is_err());
        // NaN is a value: its meaning is decided elsewhere
        let output = &timer.output_files(1).unwrap()[0];
        let bytes = fs::read(&output.path).unwrap();
        assert!(bytes.chunks_exact(4).all(|four| f32::from_le_bytes(four.try_into().unwrap()).is_nan()));
    }
}

#[test]
fn memory_without_end_costs_one_candidate() {
    for plugin in plugins() {
        let place = Place::new();
        let mut options = place.options(&plugin);
        options.limits.memory_bytes = Some(1 << 30);
        // a gibibyte of fresh pages takes long on a busy machine, and the memory limit must be reached first
        options.limits.measure = Duration::from_secs(300);
        let mut timer = PjrtTimer::start(&options).unwrap();
        // 4 GiB of intermediate values
        let inputs = vec![place.input("x", "f32[1024]", &f32s(&[1.0; 1024]), false)];
        timer.begin(&place.job(&["hungry.mlir", "idle.mlir"], inputs)).unwrap();
        timer.prepare(0).unwrap();
        timer.prepare(1).unwrap();
        let failure = timer.run(0, 1).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Memory, "{failure}");
        assert!(failure.message.contains("1073741824 allowed"), "{failure}");
        timer.restart(&[0]).unwrap();
        assert_eq!(timer.run(1, 3).unwrap().len(), 3);
    }
}

#[test]
fn what_the_compiler_refuses_costs_one_candidate() {
    for plugin in plugins() {
        let place = Place::new();
        let mut timer = PjrtTimer::start(&place.options(&plugin)).unwrap();
        let inputs = vec![
            place.input("a", "f32[4]", &f32s(&[1.0; 4]), false),
            place.input("b", "f32[4]", &f32s(&[2.0; 4]), false),
        ];
        // nesting of 50,000 types overflows the compiler's stack
        let deep = place.folder.path().join("deep.mlir");
        fs::write(
            &deep,
            format!("func.func @main(%a: {}i1{}) {{ return }}", "tuple<".repeat(50_000), ">".repeat(50_000)),
        )
        .unwrap();
        let garbage = place.folder.path().join("garbage.mlir");
        fs::write(&garbage, b"module { func.func @main(").unwrap();
        let mut job = place.job(&["add.mlir", "add.mlir", "add.mlir"], inputs);
        for (candidate, path) in [(0, &deep), (1, &garbage)] {
            let file = job.candidates[candidate].program.as_mut().unwrap();
            file.program.digest = Digest::of(&fs::read(path).unwrap());
            file.path.clone_from(path);
        }
        timer.begin(&job).unwrap();
        let died = timer.prepare(0).unwrap_err();
        assert_eq!(died.kind, FailureKind::Compile, "{died}");
        assert!(died.message.contains("SIGSEGV") || died.message.contains("SIGABRT"), "{died}");
        let refused = timer.prepare(1).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unreadable, "{refused}");
        assert!(!refused.message.contains('\n'));
        timer.prepare(2).unwrap();
        assert_eq!(timer.run(2, 1).unwrap().len(), 1);
        assert_eq!(timer.info().epoch, 1, "the measuring worker was never touched");
    }
}

/// The same program this many times, each with a different digest.
fn distinct(job: &mut Job, folder: &Path) {
    for (index, candidate) in job.candidates.iter_mut().enumerate() {
        let file = candidate.program.as_mut().unwrap();
        let text = format!("{}\n// {index}\n", fs::read_to_string(&file.path).unwrap());
        file.path = folder.join(format!("distinct-{index}.mlir"));
        fs::write(&file.path, &text).unwrap();
        file.program.digest = Digest::of(text.as_bytes());
    }
}

#[test]
fn one_that_kills_its_compiler_among_expected_ones_fails_alone() {
    for plugin in plugins() {
        let place = Place::new();
        let inputs = vec![
            place.input("a", "f32[4]", &f32s(&[1.0; 4]), false),
            place.input("b", "f32[4]", &f32s(&[2.0; 4]), false),
        ];
        let mut job = place.job(&["add.mlir"; 6], inputs);
        distinct(&mut job, place.folder.path());
        let file = job.candidates[2].program.as_mut().unwrap();
        let deep = format!("func.func @main(%a: {}i1{}) {{ return }}", "tuple<".repeat(50_000), ">".repeat(50_000));
        fs::write(&file.path, &deep).unwrap();
        file.program.digest = Digest::of(deep.as_bytes());
        let options = place.options(&plugin).compile_jobs(Some(2));
        let mut timer = PjrtTimer::start(&options).unwrap();
        timer.begin(&job).unwrap();
        timer.expect(&[0, 1, 2, 3, 4, 5, 99]).unwrap();
        for candidate in 0..6 {
            let prepared = timer.prepare(candidate);
            if candidate == 2 {
                let failure = prepared.unwrap_err();
                assert_eq!(failure.kind, FailureKind::Compile);
                assert!(failure.message.contains("SIGSEGV") || failure.message.contains("SIGABRT"), "{failure}");
                continue;
            }
            let prepared = prepared.unwrap();
            assert!(!prepared.reused && prepared.compile_ns > 0, "{candidate}: {prepared:?}");
            // a compilation without processor time is as impossible as one that takes a hundred times the wall time
            assert!(prepared.cpu_ns > prepared.compile_ns / 100, "{prepared:?}");
            assert!(prepared.cpu_ns < prepared.compile_ns.saturating_mul(100), "{prepared:?}");
            assert_eq!(fs::read(&timer.output_files(candidate).unwrap()[0].path).unwrap(), f32s(&[3.0; 4]));
        }
        assert_eq!(timer.info().epoch, 1, "the measuring worker was never touched");
        timer.end();
        // cancelled before most of it began
        fs::remove_dir_all(&options.executables).unwrap();
        fs::create_dir_all(options.executables.join("executables-v1")).unwrap();
        timer.begin(&job).unwrap();
        timer.expect(&[0, 1, 3, 4, 5]).unwrap();
        timer.end();
        timer.begin(&job).unwrap();
        assert!(!timer.prepare(5).unwrap().reused, "dropped with the job before");
    }
}

/// A program instead of this one that logs every line between the tuner and its workers, and passes it on.
fn overheard(folder: &Path) -> (PathBuf, PathBuf) {
    let (path, log) = (folder.join("overheard"), folder.join("lines"));
    let real = env!("CARGO_BIN_EXE_autotune-lowered");
    let hear = "while IFS= read -r line; do printf '%s\\n' \"$line\" >> \"$LOG\"; printf '%s\\n' \"$line\"; done";
    let script = format!(
        "#!/bin/sh\nif [ $2 = exec ]; then exec {real} \"$@\"; fi\nLOG='{}'\n{{ {hear}; }} | {real} \"$@\" | {{ {hear}; }}\n",
        log.display()
    );
    write_executable(&path, &script);
    (path, log)
}

#[test]
fn nothing_is_compiled_during_a_measurement_nor_what_is_kept() {
    for plugin in plugins().into_iter().take(1) {
        let place = Place::new();
        let (exe, log) = overheard(place.folder.path());
        let options = place.options_of(exe, &plugin).compile_jobs(Some(2));
        let mut timer = PjrtTimer::start(&options).unwrap();
        let inputs = vec![place.input("x", "f32[1024]", &f32s(&[1.0; 1024]), false)];
        let mut job = place.job(&["idle.mlir"; 8], inputs);
        distinct(&mut job, place.folder.path());
        timer.begin(&job).unwrap();
        let all: Vec<usize> = (0..8).collect();
        timer.expect(&all).unwrap();
        for candidate in 0..8 {
            timer.prepare(candidate).unwrap();
            // six are queued or being compiled at this first request
            assert_eq!(timer.run(candidate, 3).unwrap().len(), 3);
            timer.output_files(candidate).unwrap();
        }
        timer.end();
        timer.begin(&job).unwrap();
        timer.expect(&all).unwrap();
        assert!(all.iter().all(|&candidate| timer.prepare(candidate).unwrap().reused));
        let lines = fs::read_to_string(&log).unwrap();
        let (mut compiling, mut most, mut compiled, mut measuring) = (0, 0, 0, 0);
        for line in lines.lines() {
            if line.contains(r#""method":"compile""#) {
                (compiling, compiled) = (compiling + 1, compiled + 1);
                most = most.max(compiling);
                assert_eq!(measuring, 0, "{line}");
            } else if line.contains(r#""serialized":"#) {
                compiling -= 1;
            } else if line.contains(r#""method":"measure""#) || line.contains(r#""method":"outputs""#) {
                measuring += 1;
                assert_eq!(compiling, 0, "{line}");
            } else if line.contains(r#""samples_ns":"#) || line.contains(r#""outputs":"#) {
                measuring -= 1;
            }
        }
        assert_eq!((compiling, measuring, compiled), (0, 0, 8), "{lines}");
        assert_eq!(most, 2, "side by side");
        assert_eq!(
            lines.matches(r#""method":"hello""#).count(),
            3,
            "one that measures and two that compile, once each"
        );
    }
}

#[test]
fn a_compile_worker_that_does_not_start_leaves_its_programs_to_the_others() {
    for plugin in plugins().into_iter().take(1) {
        let place = Place::new();
        let real = env!("CARGO_BIN_EXE_autotune-lowered");
        let run = |name: &str, dies: &str| {
            let (exe, count) = (place.folder.path().join(name), place.folder.path().join(format!("{name}-starts")));
            // a folder can be created only once: the first worker is number 1, the next number 2
            let script = format!(
                "#!/bin/sh\nif [ $2 = exec ]; then exec {real} \"$@\"; fi\nn=1\nwhile ! mkdir '{}'-$n 2>/dev/null; do n=$((n + 1)); done\nif {dies}; then echo no luck >&2; exit 1; fi\nexec {real} \"$@\"\n",
                count.display()
            );
            write_executable(&exe, &script);
            let executables = place.folder.path().join(format!("{name}-executables"));
            let options = PjrtOptions::new(exe, &plugin, executables).compile_jobs(Some(2));
            let mut timer = PjrtTimer::start(&options).unwrap();
            let inputs = vec![place.input("x", "f32[1024]", &f32s(&[1.0; 1024]), false)];
            let mut job = place.job(&["idle.mlir"; 4], inputs);
            distinct(&mut job, place.folder.path());
            timer.begin(&job).unwrap();
            timer.expect(&[0, 1, 2, 3]).unwrap();
            (0..4).map(|candidate| timer.prepare(candidate).map(drop)).collect::<Vec<_>>()
        };
        // number 1 measures
        assert!(run("second", "[ $n = 2 ]").iter().all(Result::is_ok));
        for outcome in run("all", "[ $n != 1 ]") {
            let failure = outcome.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Device, "{failure}");
            assert!(failure.message.contains("no luck"), "{failure}");
        }
    }
}

/// A program instead of this one whose first `kills` workers are killed from outside: at their start, or when a line to
/// them contains `word`.
fn killed(folder: &Path, word: &str, kills: usize) -> PathBuf {
    let (path, mark) = (folder.join("killed"), folder.join("kill"));
    let real = env!("CARGO_BIN_EXE_autotune-lowered");
    let marks: Vec<String> = (0..kills).map(|kill| format!("mkdir '{}'-{kill} 2>/dev/null", mark.display())).collect();
    // a killed worker must not pass the line on before its supervisor has ended the whole group
    let kill = format!("if {}; then kill -9 $$; sleep 1000; fi", marks.join(" || "));
    let at_start = if word.is_empty() { kill.as_str() } else { "" };
    let hear = format!("case $line in *'{word}'*) {kill};; esac; printf '%s\\n' \"$line\"");
    let script = format!(
        "#!/bin/sh\nif [ $2 = exec ]; then exec {real} \"$@\"; fi\n{at_start}\n{{ while IFS= read -r line; do {hear}; done; }} | {real} \"$@\"\n"
    );
    write_executable(&path, &script);
    path
}

#[test]
fn one_kill_from_outside_costs_no_program_and_two_are_told() {
    for plugin in plugins().into_iter().take(1) {
        // the first worker to start is the measuring one; each later word belongs to one method
        for (word, kills) in [("", 1), ("\"hello\"", 1), ("\"begin\"", 1), ("\"compile\"", 1), ("\"compile\"", 2)] {
            let place = Place::new();
            let exe = killed(place.folder.path(), word, kills);
            let options = place.options_of(exe, &plugin).compile_jobs(Some(1));
            let mut timer = PjrtTimer::start(&options).unwrap();
            assert_eq!(timer.info().notes.iter().filter(|note| note.contains("broke the worker")).count(), 0, "{word}");
            let inputs = vec![place.input("x", "f32[1024]", &f32s(&[1.0; 1024]), false)];
            timer.begin(&place.job(&["idle.mlir"], inputs)).unwrap();
            let prepared = timer.prepare(0);
            if kills == 1 {
                prepared.unwrap();
                assert_eq!(timer.run(0, 2).unwrap().len(), 2, "{word}");
            } else {
                let failure = prepared.unwrap_err();
                assert_eq!(failure.kind, FailureKind::Compile);
                assert!(
                    failure.message.starts_with("crash: twice, in fresh workers: the worker died of SIGKILL"),
                    "{failure}"
                );
            }
        }
    }
}

#[test]
fn what_is_no_plugin_is_said_in_one_line() {
    let place = Place::new();
    let message = |plugin: &Path| {
        let failure = PjrtTimer::start(&place.options(plugin)).map(|_| ()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Device);
        assert!(!failure.message.contains('\n'));
        failure.message
    };
    assert!(message(Path::new("/no/such/plugin.so")).contains("/no/such/plugin.so"));
    let text = place.folder.path().join("text.so");
    fs::write(&text, b"not a library").unwrap();
    assert!(message(&text).contains("cannot be loaded"), "{}", message(&text));
    if let Some(library) = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())
    {
        assert!(message(library).contains("exports no `GetPjrtApi`"), "{}", message(library));
    }
}

#[test]
fn flags_that_a_plugin_dies_of_are_taken_away_and_told() {
    for plugin in plugins() {
        let place = Place::new();
        let good = "--xla_cpu_enable_fast_math=false";
        let flags = format!("--no_such_flag=1 {good} --xla_cpu_enable_xprof_traceme=banana --other");
        let options = place.options(&plugin).xla_flags(Some(flags));
        let mut timer = PjrtTimer::start(&options).unwrap();
        assert!(timer.info().device.environment.xla_flags.iter().any(|flag| flag == good));
        assert!(!timer.info().device.environment.xla_flags.iter().any(|flag| flag.contains("other")));
        assert!(
            timer.info().notes.iter().any(|note| note.contains("`--no_such_flag=1 --other`")),
            "{:?}",
            timer.info().notes
        );
        // the compile worker also starts without them
        let inputs = vec![place.input("a", "f32[1024]", &f32s(&[1.0; 1024]), false)];
        timer.begin(&place.job(&["idle.mlir"], inputs)).unwrap();
        timer.prepare(0).unwrap();
        timer.restart(&[]).unwrap();
        assert_eq!(timer.run(0, 2).unwrap().len(), 2);
    }
}

#[test]
fn a_file_of_flags_is_told_by_what_it_holds() {
    for plugin in plugins().into_iter().take(1) {
        let place = Place::new();
        let file = place.folder.path().join("flags");
        fs::write(&file, "--xla_cpu_enable_fast_math=true\n--xla_cpu_enable_fast_math=false").unwrap();
        let flags = Some(file.to_str().unwrap().to_owned());
        let devices = probe(&place.options(&plugin).xla_flags(flags)).unwrap().devices;
        let environment = &devices[0].environment;
        assert_eq!(environment.xla_flags, ["--xla_cpu_enable_fast_math=true", "--xla_cpu_enable_fast_math=false"]);
        assert_eq!(environment.xla_autotuning, None, "a CPU has none");
    }
}

/// A program instead of this one that alters the worker's answers: a plugin that cannot serialize.
fn cannot_serialize(folder: &Path, edit: &str) -> PathBuf {
    let path = folder.join("altered");
    let real = env!("CARGO_BIN_EXE_autotune-lowered");
    let script = format!("#!/bin/sh\nif [ $2 = exec ]; then exec {real} \"$@\"; fi\n{real} \"$@\" | sed -u '{edit}'\n");
    write_executable(&path, &script);
    path
}

#[test]
fn a_plugin_that_cannot_serialize_compiles_where_it_measures() {
    for plugin in plugins().into_iter().take(1) {
        for edit in [r#"s/"compile",//"#, r#"s/"serialized":true/"serialized":false/"#] {
            let place = Place::new();
            let exe = cannot_serialize(place.folder.path(), edit);
            let mut timer = PjrtTimer::start(&place.options_of(exe, &plugin)).unwrap();
            let inputs = || {
                vec![
                    place.input("a", "f32[4]", &f32s(&[1.0; 4]), false),
                    place.input("b", "f32[4]", &f32s(&[2.0; 4]), false),
                ]
            };
            timer.begin(&place.job(&["add.mlirbc", "custom_call.mlir"], inputs())).unwrap();
            for reused in [false, false] {
                let prepared = timer.prepare(0).unwrap();
                assert!(prepared.compile_ns > 0 && prepared.reused == reused);
            }
            assert_eq!(timer.prepare(1).unwrap_err().kind, FailureKind::CustomCall);
            timer.restart(&[]).unwrap();
            assert_eq!(fs::read(&timer.output_files(0).unwrap()[0].path).unwrap(), f32s(&[3.0; 4]));
            let folder = place.folder.path().join("executables/executables-v1");
            assert_eq!(kept_in(&folder), [] as [PathBuf; 0], "nothing to keep");
            timer.end();
            let mut wrong = inputs();
            wrong[1].spec = spec("s32[4]");
            timer.begin(&place.job(&["add.mlirbc"], wrong)).unwrap();
            assert_eq!(timer.prepare(0).unwrap_err().kind, FailureKind::Signature);
        }
    }
}

#[test]
fn a_plugin_of_another_api_is_told_from_one_of_ours() {
    let place = Place::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/fake_plugin.c");
    let failure = |defines: &[&str]| {
        let library = place.folder.path().join("fake.so");
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .args(defines)
            .arg(&source)
            .status()
            .expect("a C compiler, which Rust needs for linking too");
        assert!(built.success());
        let failure = PjrtTimer::start(&place.options(&library)).map(|_| ()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Device);
        assert!(!failure.message.contains('\n'), "{failure}");
        failure.message
    };
    for (defines, expected) in [
        (&["-DMAJOR=1", "-DMINOR=2"][..], "plugin of a newer API: 1.2, while 0.x is needed"),
        (&["-DMAJOR=-1"], "plugin of an older API: -1.0"),
        (&["-DTABLE_BYTES=40"], "plugin of an older API: its version 0.0 has no function `client_create`"),
        (&["-DTABLE_BYTES=8"], "its function table of 8 bytes is empty"),
        (&["-DNO_TABLE"], "gave no function table"),
        (&["-DABORTS"], "the worker died of SIGABRT during `hello`"),
        (&["-DSPEAKS", "-DMAJOR=7"], "plugin of a newer API: 7.0"),
    ] {
        let message = failure(defines);
        assert!(message.contains(expected), "{defines:?}: {message}");
    }
}
