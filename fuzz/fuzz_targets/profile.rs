//! An XSpace: whatever the bytes, reading ends, and busy time is no longer than the span around it.

#![no_main]

use autotune_lowered::profile::{Layout, Profiler, Semantics, XSpace, executions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(space) = XSpace::from_bytes(bytes.to_vec()) else { return };
    let time = executions(&space);
    for execution in &time.executions {
        assert!(execution.start_ps <= execution.end_ps);
        if execution.layout != Layout::ModuleLines {
            assert!(execution.busy_ps <= execution.span_ps);
            let total: u64 =
                execution.operations.iter().map(|operation| operation.total_ps).fold(0, u64::saturating_add);
            assert!(execution.busy_ps <= total);
        }
    }
    for plane in space.planes() {
        for semantics in [Semantics::Ejkernel, Semantics::PerExecution] {
            let regex = regex::bytes::Regex::new("e").ok();
            let mut profiler = Profiler::new(semantics);
            profiler.prefix_filter.clear();
            profiler.event_filter_regex = regex;
            let timings = profiler.timings(plane, &time);
            assert!(timings.samples.values().flatten().all(|seconds| *seconds >= 0.0));
        }
    }
});
