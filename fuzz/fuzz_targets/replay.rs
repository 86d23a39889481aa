//! A recording of samples and one job with all its candidates; or the index of a folder of profiles, read and written.

#![no_main]

use std::sync::LazyLock;

use autotune_lowered::timer::replay::{ProfileIndex, Recording};
use autotune_lowered::timer::{Job, JobCandidate, ReplayTimer, Timer, TimerExt};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    if let Ok(index) = serde_json::from_slice::<ProfileIndex>(bytes) {
        let written = serde_json::to_vec(&index).expect("an index is written");
        assert_eq!(serde_json::from_slice::<ProfileIndex>(&written).expect("and read again"), index);
    }
    let Ok(recording) = serde_json::from_slice::<Recording>(bytes) else { return };
    let jobs: Vec<Job> = recording
        .invocations
        .iter()
        .take(4)
        .map(|invocation| {
            let candidates = invocation.candidates.iter().take(8);
            let candidates = candidates.map(|candidate| JobCandidate::new(candidate.config.clone())).collect();
            Job::new(invocation.call.clone(), FOLDER.path()).candidates(candidates)
        })
        .collect();
    let Ok(mut timer) = ReplayTimer::new(recording) else { return };
    for job in jobs {
        timer.begin(&job).expect("a recording begins any job");
        // one index beyond the last: a mistake of the tuner must not panic either
        for candidate in 0..=job.candidates.len() {
            let _ = timer.prepare(candidate);
            for _ in 0..3 {
                match timer.run(candidate, 5) {
                    Ok(samples) => assert_eq!(samples.len(), 5),
                    Err(failure) if failure.needs_restart() => timer.restart(&[candidate]).expect("restarts"),
                    Err(_) => {}
                }
            }
            if let Ok(outputs) = timer.output_files(candidate) {
                for output in outputs {
                    let bytes = std::fs::metadata(&output.path).expect("written").len();
                    assert_eq!(output.spec.host_bytes(), Some(bytes));
                }
            }
        }
        timer.end();
    }
});
