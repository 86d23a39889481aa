//! A capture of nsys-jax: depending on the first byte a zip, or one of the files of a folder. Tables are Parquet, or
//! text that is compressed here, since no fuzzer guesses a checksum.

#![no_main]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, Once};

use autotune_lowered::analysis::collectives::{Clocks, collective_metrics, collectives};
use autotune_lowered::analysis::compile::{CompileOptions, compile_ranges, compile_report};
use autotune_lowered::analysis::{HloFiles, nsys_captures};
use autotune_lowered::nsys::NsysCapture;
use libfuzzer_sys::fuzz_target;

/// An intact table, so that the one beside it is read.
const HOST_TRACE: &[u8] = include_bytes!("../../tests/data/nsys/synthetic_old/report_nvtx_pushpop_trace.csv.xz");

/// The last panic's message: the reader catches those of the Parquet crate, and they are no failure.
static LAST: Mutex<String> = Mutex::new(String::new());

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn look(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().unwrap();
    let zip = folder.path().join("a.zip");
    let unpacked = folder.path().join("a");
    let put = |name: &str, bytes: &[u8]| {
        let path = unpacked.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    match kind % 6 {
        0 => std::fs::write(&zip, bytes).unwrap(),
        1 => put("nvtx_gpu_proj_trace/trace.parquet", bytes),
        2 => put("report_nvtx_pushpop_trace.parquet", bytes),
        3 => put("report_nvtx_pushpop_trace.csv.xz", &compressed(bytes)),
        4 => put("report_nvtx_pushpop_trace.csv.xz", bytes),
        _ => {
            put("thread-metadata.parquet", bytes);
            put("report_nvtx_pushpop_trace.csv.xz", HOST_TRACE);
        }
    }
    let captures = match NsysCapture::open(if kind % 6 == 0 { &zip } else { &unpacked }) {
        Ok(captures) => captures,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    for capture in &captures {
        assert!(capture.notes.iter().all(|note| !note.contains('\n')), "{:?}", capture.notes);
    }
    let files = HloFiles::default();
    let captures = nsys_captures(captures, &files).unwrap();
    for capture in &captures {
        let ranges = compile_ranges(capture).unwrap_or_default();
        for by_pass in [false, true] {
            compile_report(&ranges, CompileOptions::default().by_pass(by_pass).autotuner_detail(by_pass));
        }
    }
    let found = collectives(&captures, &files, kind & 128 != 0);
    for clocks in [Clocks::Recorded, Clocks::Host, Clocks::Device] {
        let metrics = collective_metrics(&found, clocks);
        assert!(metrics.sizes.iter().all(|row| (0.0..=1.0).contains(&row.figures.hidden)));
    }
}

fuzz_target!(|bytes: &[u8]| {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| *LAST.lock().unwrap() = panic.to_string()));
    });
    if let Err(escaped) = catch_unwind(AssertUnwindSafe(|| look(bytes))) {
        eprintln!("{}", LAST.lock().unwrap());
        resume_unwind(escaped);
    }
});
