//! Mutated inputs for each reader of a module, and for the reader of profiles: no panic, no hang, bounded memory.
//!
//! `cargo bench --bench mutated_inputs -- [COUNT [SEED]]` changes small files of `tests/data` at random: bits flipped,
//! parts cut, doubled and exchanged with another file's, words of the format inserted. Each of the COUNT (20 000) inputs
//! of a reader is read with everything that a scan, a digest or a summary computes from it. It prints a row for each
//! reader, and ends with code 1 after a panic. An input that takes longer than ten seconds ends it at once; its number
//! and the seed make it again. `-- --one READER NUMBER [SEED]` writes one input to stdout.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, clippy::exit)]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use autotune_lowered::analysis::{Capture, HloFiles, SummaryOptions, summarize};
use autotune_lowered::hlo::{
    Costs, HloModule, ModuleForm, ScanOptions, in_f64, read_program, scan_bytes, semantic_digest,
};
use autotune_lowered::profile::XSpace;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

const LONGEST: Duration = Duration::from_secs(10);
/// Larger files are not changed: a reader's rooms are all in small ones.
const MOST_BYTES: u64 = 16 << 10;

struct Reader {
    name: &'static str,
    folder: &'static str,
    ends: &'static [&'static str],
    /// Words that its format gives a meaning.
    words: &'static [&'static [u8]],
    read: fn(&[u8]) -> bool,
}

const READERS: [Reader; 5] = [
    Reader {
        name: "hlo-text",
        folder: "tests/data/hlo",
        ends: &[".hlo.txt"],
        words: &[
            b"{",
            b"}",
            b"(",
            b")",
            b"\"",
            b"\\'",
            b",",
            b"=",
            b"%",
            b"/*",
            b"*/",
            b"ENTRY ",
            b"metadata={op_name=\"",
            b"replica_groups=mesh['x'=2]{x}",
            b"replica_groups=[2,4]<=[8]",
            b"f32[9999999999,2]{1,0}",
            b"\r\n",
            b"to_apply=%",
            b"(((((((((((((((((((((((((",
            b"sharding={devices=[",
            b"constant({...})",
        ],
        read: module,
    },
    Reader { name: "hlo-proto", folder: "tests/data/hlo", ends: &[".pb"], words: BYTES, read: module },
    Reader {
        name: "stablehlo-text",
        folder: "tests/data/hlo",
        ends: &[".mlir"],
        words: &[
            b"{",
            b"}",
            b"(",
            b")",
            b"<",
            b">",
            b"\"",
            b"->",
            b"^bb0(",
            b"loc(#loc1)",
            b"loc(fused[",
            b"#loc1 = loc(",
            b"tensor<?x9999999999999xf32>",
            b"stablehlo.case",
            b"dense<\"0x",
            b"\\C3\\B6",
            b"({",
            b"})",
            b"%0:2 = ",
            b"<<<<<<<<<<<<<<<<<<<<<<<<<<",
            b"func.func @",
            b"!type = ",
            b"sdy.manual_computation",
        ],
        read: module,
    },
    Reader { name: "bytecode", folder: "tests/data/hlo", ends: &[".mlirbc", ".bin"], words: BYTES, read: module },
    Reader { name: "profile", folder: "tests/data/xplane", ends: &[".xplane.pb"], words: BYTES, read: profile },
];

/// Lengths and numbers at their ends.
const BYTES: &[&[u8]] = &[
    &[0],
    &[0xff],
    &[0x7f],
    &[0x80, 0],
    &[0xff; 9],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0x0a, 0xff, 0x01],
    &[0x12, 0],
    b"MLir",
    b"xMMMMMM",
    &[0x80; 12],
];

/// Whether anything reads it.
fn module(bytes: &[u8]) -> bool {
    let scan = scan_bytes(bytes, "mutated", &ScanOptions::default());
    if let Ok(scan) = &scan {
        assert!(scan.labels.iter().all(|label| label.occurrences > 0 && !label.label.op_id.is_empty()));
    }
    let program = read_program(bytes, "mutated");
    let _digest = semantic_digest(bytes, "mutated");
    let _wide = std::str::from_utf8(bytes).map(in_f64);
    if let Ok(program) = &program {
        let _arguments = (program.arguments("mutated"), program.index_ranges());
        let _results = (program.results(), program.has_results());
        let is_text = program.form == ModuleForm::HloText;
        let _costs = is_text.then(|| HloModule::of_text(bytes, 0, "mutated").map(|module| Costs::of(&module)));
    }
    scan.is_ok() || program.is_ok()
}

fn profile(bytes: &[u8]) -> bool {
    let Ok(space) = XSpace::from_bytes(bytes.to_vec()) else { return false };
    let captures = [Capture::xspace("mutated", "host", space)];
    let summary = summarize(&captures, &HloFiles::default(), SummaryOptions::default());
    assert!(summary.devices.iter().all(|device| device.executions > 0));
    true
}

fn files(reader: &Reader) -> Vec<Vec<u8>> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(reader.folder)];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if reader.ends.iter().any(|end| name.ends_with(end)) => paths.push(path),
                false => {}
            }
        }
    }
    paths.sort();
    let small = |path: &std::path::PathBuf| path.metadata().is_ok_and(|file| (1..=MOST_BYTES).contains(&file.len()));
    paths.into_iter().filter(small).map(|path| std::fs::read(path).unwrap()).collect()
}

/// A number below `count`, which is not zero.
fn below(draws: &mut ChaCha8Rng, count: usize) -> usize {
    (draws.next_u64() % count as u64) as usize
}

/// Part of some bytes.
fn part(draws: &mut ChaCha8Rng, bytes: &[u8]) -> std::ops::Range<usize> {
    let start = below(draws, bytes.len() + 1);
    let longest = [1, 4, 16, 256, 4096][below(draws, 5)];
    start..bytes.len().min(start + below(draws, longest + 1))
}

fn mutated(reader: &Reader, files: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut draws = ChaCha8Rng::seed_from_u64(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut bytes = files[below(&mut draws, files.len())].clone();
    for _ in 0..=below(&mut draws, 6) {
        let range = part(&mut draws, &bytes);
        let at = range.start;
        match below(&mut draws, 8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << below(&mut draws, 8),
            2 if at < bytes.len() => bytes[at] = draws.next_u64() as u8,
            3 => drop(bytes.drain(range)),
            4 => {
                let again = bytes[range].to_vec();
                let to = below(&mut draws, bytes.len() + 1);
                drop(bytes.splice(to..to, again));
            }
            5 => {
                let other = &files[below(&mut draws, files.len())];
                let theirs = other[part(&mut draws, other)].to_vec();
                drop(bytes.splice(range, theirs));
            }
            6 => {
                let word = reader.words[below(&mut draws, reader.words.len())];
                drop(bytes.splice(at..at, word.iter().copied()));
            }
            _ if draws.next_u64().is_multiple_of(16) => bytes.truncate(at),
            _ => {}
        }
    }
    bytes
}

/// The most memory that this process held, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Which inputs are being read, and since when.
static READING: Mutex<Vec<(u64, Instant)>> = Mutex::new(Vec::new());

fn watch(seed: u64) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let reading = READING.lock().unwrap();
            if let Some((number, since)) = reading.iter().find(|(_, since)| since.elapsed() > LONGEST) {
                eprintln!("input {number} of seed {seed} takes longer than {} s", since.elapsed().as_secs());
                std::process::exit(1);
            }
        }
    });
}

/// Reads so many inputs, and returns how many panicked.
fn run(reader: &Reader, count: u64, seed: u64) -> u64 {
    let files = files(reader);
    let (read, panics, slowest_us) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    (0..count).into_par_iter().for_each(|number| {
        let bytes = mutated(reader, &files, seed, number);
        let start = Instant::now();
        READING.lock().unwrap().push((number, start));
        match catch_unwind(AssertUnwindSafe(|| (reader.read)(&bytes))) {
            Ok(is_read) => drop(read.fetch_add(u64::from(is_read), Ordering::Relaxed)),
            Err(_) => {
                eprintln!("{}: input {number} of seed {seed} panicked", reader.name);
                panics.fetch_add(1, Ordering::Relaxed);
            }
        }
        READING.lock().unwrap().retain(|(reading, _)| *reading != number);
        slowest_us.fetch_max(start.elapsed().as_micros() as u64, Ordering::Relaxed);
    });
    let panics = panics.into_inner();
    println!(
        "| {} | {} | {count} | {} | {panics} | {:.1} ms | {} MiB | {:.0} s |",
        reader.name,
        files.len(),
        read.into_inner(),
        slowest_us.into_inner() as f64 / 1e3,
        peak_mib(),
        began.elapsed().as_secs_f64()
    );
    panics
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number = |place: usize, default: u64| words.get(place).map_or(default, |word| word.parse().unwrap());
    if words.first().is_some_and(|word| word == "--one") {
        let reader = READERS.iter().find(|reader| reader.name == words[1]).unwrap();
        let bytes = mutated(reader, &files(reader), number(3, 0), number(2, 0));
        return std::io::stdout().write_all(&bytes).unwrap();
    }
    let (count, seed) = (number(0, 20_000), number(1, 0));
    watch(seed);
    println!("| reader | files | inputs | read | panics | slowest | most memory so far | time |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let panics: u64 = READERS.iter().map(|reader| run(reader, count, seed)).sum();
    std::process::exit(i32::from(panics > 0));
}
