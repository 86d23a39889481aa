//! Captures of nsys-jax: the synthetic ones by hand, the real one compared with nsys-jax's own library, and damaged
//! ones.

#![cfg(feature = "nsys")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::prerequisite::shared_data;
use crate::support::program::*;
use autotune_lowered::analysis::collectives::{Clocks, Collectives, collective_metrics};
use autotune_lowered::analysis::compile::{CompileOptions, CompileReport, compile_ranges, compile_report};
use autotune_lowered::analysis::{Capture, HloFiles, SummaryOptions, nsys_captures, summarize};
use autotune_lowered::nsys::{NsysCapture, NsysErrorKind};
use parquet::data_type::Int64Type;
use parquet::file::writer::SerializedFileWriter;
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsys")
}

/// The real capture, if present: `AUTOTUNE_LOWERED_TEST_NSYS` may name it.
fn real() -> Option<PathBuf> {
    let elsewhere = std::env::var_os("AUTOTUNE_LOWERED_TEST_NSYS").map(PathBuf::from);
    elsewhere.filter(|path| path.is_file()).or_else(|| shared_data("nsys/pax_fsdp4_4proc_proc0.zip"))
}

fn oracle() -> Value {
    let text = fs::read_to_string(data().join("pax_fsdp4_4proc_proc0.oracle.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

static NO_FILES: std::sync::LazyLock<HloFiles> = std::sync::LazyLock::new(HloFiles::default);

fn captures(path: &Path) -> Vec<Capture> {
    nsys_captures(NsysCapture::open(path).unwrap(), &NO_FILES).unwrap()
}

fn collectives(captures: &[Capture], with_warm_up: bool) -> Collectives<'_> {
    autotune_lowered::analysis::collectives::collectives(captures, &NO_FILES, with_warm_up)
}

fn compiled(path: &Path, options: CompileOptions) -> CompileReport {
    compile_report(&compile_ranges(&captures(path)[0]).unwrap(), options)
}

#[test]
fn both_versions_of_the_synthetic_capture_give_what_was_put_into_them() {
    for name in ["synthetic.zip", "synthetic_old"] {
        let captures = captures(&data().join(name));
        let found = collectives(&captures, false);
        let devices: Vec<i64> = found.devices.iter().map(|device| device.ordinal).collect();
        // three executions on two devices; each device's first one was compiled in the capture
        assert_eq!((devices, found.skipped, found.parts.to_vec().len()), (vec![0, 1], 2, 4), "{name}");
        let metrics = collective_metrics(&found, Clocks::Recorded);
        let [row] = &metrics.operations[..] else { panic!("{:?}", metrics.operations) };
        let of = &row.figures;
        assert_eq!(
            (row.name.as_str(), row.module.as_str(), row.program_id),
            ("all-reduce-start.1", "jit_step", Some(7))
        );
        assert_eq!((row.group_size, row.message_bytes, of.instances), (Some(2), Some(4000), 2));
        // 4000 bytes in 100 ns, and 2 (n - 1) / n of it
        assert_eq!((of.algorithm_gb_per_s.unwrap().mean, of.bus_gb_per_s.unwrap().mean), (40.0, 40.0));
        // 100 of 200 on one device and 50 of 100 on the other; 250 - 50 - 100
        assert_eq!((of.hidden, of.hidden_by_sum, of.wait.unwrap().mean_ns, of.total_ns), (0.5, None, 100.0, 600.0));
        assert_eq!(collectives(&captures, true).parts.to_vec().len(), 6);
        assert!(
            found.notes.iter().any(|note| note.contains("outside of any module are not counted: 1")),
            "{:?}",
            found.notes
        );
    }
}

#[test]
fn workers_of_the_synthetic_compilation_share_the_time_in_which_they_ran() {
    for name in ["synthetic.zip", "synthetic_old"] {
        let report = compiled(&data().join(name), CompileOptions::default());
        let phases: Vec<(&str, f64)> = report
            .phases
            .iter()
            .map(|phase| (phase.phase.as_str(), (phase.exclusive_ns * 10.0).round() / 10.0))
            .collect();
        // 400 of the backend's 700, shared as 300 : 100 : 200; cuBLAS's time belongs to the backend
        let expected = [
            ("XlaCompileBackend", 300.0),
            ("XlaEmitLlvmIr", 200.0),
            ("XlaPass", 200.0),
            ("XlaEmitGpuAsm", 133.3),
            ("first compilation itself (library loading)", 100.0),
            ("XlaOptimizeLlvmIr", 66.7),
        ];
        assert_eq!(phases, expected, "{name}");
        assert_eq!((report.total_ns, report.parallel_ns, report.worker_ns), (1000.0, 400.0, 600.0));
        let of = &report.compilations[0];
        assert_eq!((of.module.as_deref(), of.program_id, of.workers), (Some("jit_step"), Some(7), 2));
    }
}

#[test]
fn the_real_capture_has_the_collectives_of_the_notebook() {
    let Some(path) = real() else { return };
    let (oracle, captures) = (oracle(), captures(&path));
    let found = collectives(&captures, false);
    assert_eq!(found.parts.to_vec().len() as u64, oracle["communication_thunks"].as_u64().unwrap());
    let metrics = collective_metrics(&found, Clocks::Recorded);
    let rows = oracle["collectives"].as_array().unwrap();
    assert_eq!(metrics.sizes.len(), rows.len());
    for (row, of) in metrics.sizes.iter().zip(rows) {
        assert_eq!((row.kind.name(), row.group_size), (of["kind"].as_str().unwrap(), of["group_size"].as_u64()));
        assert_eq!(
            (row.message_bytes, Some(row.figures.instances)),
            (of["message_bytes"].as_u64(), of["instances"].as_u64())
        );
        let (bus, algorithm) = (row.figures.bus_gb_per_s.unwrap(), row.figures.algorithm_gb_per_s.unwrap());
        let hidden_ns = row.figures.hidden * row.figures.total_ns;
        for (name, value) in [
            ("bus_mean", bus.mean),
            ("bus_error", bus.error.unwrap()),
            ("algorithm_mean", algorithm.mean),
            ("duration_ns", row.figures.total_ns),
            ("hidden_ns", hidden_ns),
        ] {
            let expected = of[name].as_f64().unwrap();
            assert!((value - expected).abs() <= 1e-9 * expected, "{of}: {name} {value}");
        }
        // the computations of this capture do not overlap each other, as nsys-jax assumes
        assert_eq!(row.figures.hidden_by_sum, None);
    }
}

#[test]
fn the_real_capture_has_the_compilation_of_the_notebook() {
    let Some(path) = real() else { return };
    let oracle = oracle();
    for (autotuner_detail, name) in [(false, "compile_phases_ns"), (true, "compile_detail_phases_ns")] {
        let report = compiled(&path, CompileOptions::default().autotuner_detail(autotuner_detail));
        let expected = oracle[name].as_object().unwrap();
        assert_eq!(report.phases.len(), expected.len());
        for phase in &report.phases {
            let of = match phase.phase.as_str() {
                "first compilation itself (library loading)" => "[non-leaf time in 0th XlaCompile range]",
                name => name,
            };
            let expected = expected[of].as_f64().unwrap();
            assert!(
                (phase.exclusive_ns - expected).abs() <= 1e-9 * expected,
                "{of}: {} {expected}",
                phase.exclusive_ns
            );
        }
        assert_eq!(report.total_ns, oracle["compile_total_ns"].as_f64().unwrap());
        let of = |number: usize| (report.compilations[number].module.clone(), report.compilations[number].duration_ns);
        for (number, compilation) in oracle["compilations"].as_array().unwrap().iter().enumerate() {
            let expected = (compilation[0].as_str().map(str::to_owned), compilation[1].as_f64().unwrap());
            assert_eq!(of(number), expected);
        }
    }
}

#[test]
fn processes_of_one_program_are_brought_together() {
    let folder = tempfile::tempdir().unwrap();
    // the same capture as two processes: the same devices under two names
    let (one, two) = (folder.path().join("proc0.zip"), folder.path().join("proc1.zip"));
    for path in [&one, &two] {
        fs::copy(data().join("synthetic.zip"), path).unwrap();
    }
    let captures = [&one, &two].into_iter().flat_map(|path| NsysCapture::open(path).unwrap()).collect();
    let captures = nsys_captures(captures, &NO_FILES).unwrap();
    let found = collectives(&captures, false);
    let hosts: Vec<&str> = found.devices.iter().map(|device| device.host.as_str()).collect();
    assert_eq!(hosts, ["proc0", "proc0", "proc1", "proc1"]);
    let metrics = collective_metrics(&found, Clocks::Host);
    // one operation, whose instances have four parts; no collective of two devices spans four, so clocks are not
    // compared
    assert_eq!((metrics.operations.len(), metrics.operations[0].figures.instances), (1, 2));
    assert_eq!((metrics.alignment.collectives, metrics.operations[0].figures.wait), (0, None));
}

#[test]
fn a_combined_capture_is_one_of_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let old = data().join("synthetic_old");
    for process in ["rank0", "rank1"] {
        for name in ["nvtx_gpu_proj_trace/trace.parquet", "thread-metadata.parquet", "report_nvtx_pushpop_trace.csv.xz"]
        {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            fs::copy(old.join(name), folder.path().join(name).join(process)).unwrap();
        }
    }
    let program = "dump/module_0007.jit_step.sm_8.0_gpu_after_optimizations.hlo.pb.xz";
    fs::create_dir(folder.path().join("dump")).unwrap();
    fs::copy(old.join(program), folder.path().join(program)).unwrap();
    let captures = NsysCapture::open(folder.path()).unwrap();
    assert_eq!(captures.len(), 2);
    for (capture, process) in captures.iter().zip(["rank0", "rank1"]) {
        assert!(capture.name.ends_with(process), "{}", capture.name);
        assert_eq!((capture.launchers.len(), capture.modules.len(), capture.notes.len()), (2, 1, 0));
        assert_eq!(capture.host_ranges.as_ref().unwrap().len(), 7);
    }
}

#[test]
fn damage_is_an_error_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).unwrap();
        NsysCapture::open(&folder.path().join(name)).unwrap_err()
    };
    let whole = fs::read(data().join("synthetic.zip")).unwrap();
    assert!(matches!(kind("cut.zip", &whole[..whole.len() - 30]).kind, NsysErrorKind::Zip(_)));
    let mut empty = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    empty.start_file("readme", zip::write::SimpleFileOptions::default()).unwrap();
    empty.write_all(b"nothing").unwrap();
    assert!(matches!(kind("other.zip", &empty.finish().unwrap().into_inner()).kind, NsysErrorKind::NoCapture));
    let before: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    fs::write(folder.path().join("hostile.zip"), &whole).unwrap();
    assert!(NsysCapture::open(&folder.path().join("hostile.zip")).is_ok(), "a name that leads out is not looked at");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before.len() + 1);
    assert!(!folder.path().join("../../escaped").exists());
}

#[test]
fn a_page_that_claims_two_gigabytes_gets_none() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("nvtx_gpu_proj_trace/trace.parquet");
    fs::create_dir(trace.parent().unwrap()).unwrap();
    let whole = fs::read(data().join("synthetic_old/nvtx_gpu_proj_trace/trace.parquet")).unwrap();
    // the first page's header: its kind, then its uncompressed size
    assert_eq!((&whole[..5], whole[6]), (&b"PAR1\x15"[..], 0x15));
    let size = whole[7..].iter().position(|byte| *byte < 0x80).unwrap() + 8;
    let claims = [&whole[..7], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &whole[size..]].concat();
    fs::write(&trace, claims).unwrap();
    let error = NsysCapture::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("larger than its data can become"), "{error}");
}

#[test]
fn a_few_bytes_do_not_become_millions_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("nvtx_gpu_proj_trace/trace.parquet");
    fs::create_dir(trace.parent().unwrap()).unwrap();
    let schema = "message schema { required int64 RangeId; }".to_owned();
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(&schema).unwrap());
    let file = fs::File::create(&trace).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&vec![7; 1_000_000], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert!(fs::metadata(&trace).unwrap().len() < 20_000);
    let error = NsysCapture::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("do not hold 1000000 ranges"), "{error}");
}

#[test]
fn flipped_bytes_never_end_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let old = data().join("synthetic_old");
    let trace = folder.path().join("nvtx_gpu_proj_trace/trace.parquet");
    fs::create_dir(folder.path().join("nvtx_gpu_proj_trace")).unwrap();
    let whole = fs::read(old.join("nvtx_gpu_proj_trace/trace.parquet")).unwrap();
    let (mut refused, mut seen) = (0, 0);
    for at in (0..whole.len()).step_by(13) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&trace, &bytes).unwrap();
        seen += 1;
        match NsysCapture::open(folder.path()) {
            Ok(captures) => {
                let made = nsys_captures(captures, &HloFiles::default()).unwrap();
                let of = summarize(&made, &HloFiles::default(), SummaryOptions::default());
                // damage may change a time or a name, but adds no time
                for device in &of.devices {
                    assert!(device.operations_ns <= device.modules_ns && device.idle_between_ns <= device.wall_ns);
                }
            }
            Err(_) => refused += 1,
        }
    }
    // pages have no checksum: a flip in a value gives another value
    assert!(refused > 20 && refused < seen, "{refused} of {seen}");
    for cut in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&trace, &whole[..cut]).unwrap();
        let error = NsysCapture::open(folder.path()).unwrap_err();
        assert!(
            matches!(error.kind, NsysErrorKind::Parquet(_)) && error.to_string().contains("trace.parquet"),
            "{error}"
        );
    }
    fs::remove_file(&trace).unwrap();
    let text = folder.path().join("report_nvtx_pushpop_trace.csv.xz");
    let whole = fs::read(old.join("report_nvtx_pushpop_trace.csv.xz")).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&text, &bytes).unwrap();
        // xz has checksums: no flip passes
        assert!(NsysCapture::open(folder.path()).is_err(), "byte {at}");
    }
}

#[test]
fn the_commands_read_captures() {
    let folder = tempfile::tempdir().unwrap();
    let zip = "tests/data/nsys/synthetic.zip";
    let table = run(folder.path(), &["profile", "collectives", zip]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(
        table.stdout.contains("all-reduce      2  4.00 kB          2   100 ns       40.0      40.0"),
        "{}",
        table.stdout
    );
    let json = run(folder.path(), &["profile", "compile", "tests/data/nsys/synthetic_old", "--format", "json"]).json();
    assert_eq!(json["profiles"][0]["library_loading_ns"].as_f64(), Some(100.0));
    let mixed = run(folder.path(), &["profile", "compile", zip, "tests/data/xplane/trivial.xplane.pb"]);
    assert_eq!(mixed.code, 2, "{}", mixed.stderr);
}
