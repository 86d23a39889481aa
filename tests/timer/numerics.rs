//! A scan in bf16 with other chunks, on a real plugin: as good as the baseline by the program in `f64`, and refused with
//! one wrong tile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::support::pjrt::options;
use crate::support::prerequisite::plugin;
use autotune_lowered::array::ComparedBy;
use autotune_lowered::compare::{CompareOptions, CompareResult, Contestant, Outputs, compare};
use autotune_lowered::failure::Failure;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::race::{LoadPolicy, Runner};
use autotune_lowered::timer::pjrt::PjrtTimer;
use autotune_lowered::timer::{
    Job, OutputsAs, Prepared, ProgramSignature, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerInfo,
};

/// A device that can have one process only, as a GPU.
struct Alone(PjrtTimer);

impl Timer for Alone {
    fn info(&self) -> &TimerInfo {
        self.0.info()
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.0.begin(job)
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.0.signature(candidate)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.0.prepare(candidate)
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        self.0.measure(round)
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.0.outputs(candidate, taken)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.0.restart(without)
    }

    fn end(&mut self) {
        self.0.end();
    }
}

fn scans(timer: &mut dyn Timer) -> CompareResult {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer");
    let contestant = |chunk: &str| Contestant::open(&folder.join(format!("scan.{chunk}.mlirbc"))).unwrap();
    let contestants: Vec<Contestant> = ["256", "32", "8", "wrong"].map(contestant).into();
    let (scratch, ledger) = (tempfile::tempdir().unwrap(), Ledger::in_memory(Vec::new()));
    let (never, events) = (AtomicBool::new(false), Default::default());
    let mut options = CompareOptions::default().rounds(Some(6));
    options.race.load = LoadPolicy::Ignore;
    compare(&mut Runner::new(timer, &ledger, &never, &events), &contestants, &options, scratch.path()).unwrap()
}

#[test]
fn a_scan_in_other_chunks_is_as_good_in_f64_and_one_with_a_wrong_tile_is_not() {
    let Some(plugin) = plugin() else { return };
    for is_alone in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let timer = PjrtTimer::start(&options(&plugin, folder.path())).unwrap();
        let mut timer: Box<dyn Timer> = if is_alone { Box::new(Alone(timer)) } else { Box::new(timer) };
        let found = scans(&mut *timer);
        let [_, by_32, by_8, wrong] = found.contestants.as_slice() else { panic!("{found:?}") };
        for row in [by_32, by_8] {
            let Outputs::Equal { max_error, compared_by: ComparedBy::F64 } = row.outputs else { panic!("{row:?}") };
            // results are about 2, whose spacing is 1/64
            assert!(max_error >= 1.0 / 64.0 && row.rounds == 6, "{row:?}");
        }
        assert_eq!(wrong.outputs, Outputs::Different);
        // the chunk of 32 rows from row 160 on, of which 8 lack what comes before
        let said = &wrong.failure.as_ref().unwrap().message;
        assert!(said.contains("of 16384 elements, which lie together,") && said.contains("at element [160,"), "{said}");
    }
}
