//! The memory of programs compared with XLA's own analysis, and the peak of the heap compared with another reading of
//! its trace: `tests/data/hlo/memory/make.py`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autotune_lowered::analysis::{HloFiles, Programs};
use autotune_lowered::hlo::{HloModule, ProgramMemory, read_plain};
use autotune_lowered::profile::XSpace;

#[derive(serde::Deserialize)]
struct Oracle {
    donating: BTreeMap<String, u64>,
    heaps: BTreeMap<String, Heap>,
}

#[derive(serde::Deserialize)]
struct Heap {
    peak: u64,
    alive: Vec<u64>,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn oracle() -> Oracle {
    serde_json::from_slice(&std::fs::read(data().join("hlo/memory/oracle.json")).unwrap()).unwrap()
}

fn donating() -> Vec<u8> {
    let bytes = std::fs::read(data().join("hlo/memory/donating.hlo.pb.gz")).unwrap();
    read_plain(bytes, 1 << 24, "donating").unwrap()
}

#[test]
fn sums_are_those_of_memory_analysis() {
    let bytes = donating();
    let memory = ProgramMemory::of(&HloModule::read(&bytes, "donating").unwrap()).unwrap();
    let expected = oracle().donating;
    let found = [memory.argument_bytes, memory.output_bytes, memory.alias_bytes, memory.temporary_bytes];
    assert_eq!(found, ["argument", "output", "alias", "temp"].map(|kind| expected[kind]));
    // 256² floats are donated
    assert_eq!(memory.alias_bytes, 4 * 256 * 256);
    let parts = memory.argument_bytes + memory.output_bytes - memory.alias_bytes;
    assert_eq!(memory.total_bytes, parts + memory.temporary_bytes + memory.constant_bytes);
}

#[test]
fn heaps_peak_where_another_reading_finds_it() {
    let space = XSpace::open(&data().join("xplane/tf2_step.xplane.pb.gz")).unwrap();
    let files = HloFiles::default();
    let programs = Programs::new(&space, &files);
    let heaps = oracle().heaps;
    assert!(heaps.len() >= 5, "{}", heaps.len());
    for (program, expected) in heaps {
        let (name, id) = program.trim_end_matches(')').split_once('(').unwrap();
        let module = programs.find(name, Some(id.parse().unwrap())).unwrap();
        let memory = ProgramMemory::of(module).unwrap();
        let alive: Vec<u64> = memory.live.iter().map(|buffer| buffer.bytes).collect();
        assert_eq!((memory.heap_peak_bytes, &alive), (expected.peak, &expected.alive), "{program}");
        assert_eq!(alive.iter().sum::<u64>(), expected.peak, "{program}");
        assert!(memory.live.iter().all(|buffer| module.instruction(&buffer.instruction).is_some()), "{program}");
    }
}

#[test]
fn damaged_assignments_end() {
    let whole = donating();
    for at in (0..whole.len()).step_by(whole.len() / 300) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        if let Ok(module) = HloModule::read(&bytes, "damaged") {
            ProgramMemory::of(&module);
        }
        if let Ok(module) = HloModule::read(&whole[..at], "cut") {
            ProgramMemory::of(&module);
        }
    }
}
