//! Compilation in captures of nsys-jax: NVTX ranges of the host.

use std::collections::HashMap;

use crate::nsys::NsysRange;

use super::forest::CompileRange;

/// Maximum number of enclosing ranges that are not XLA's: anything deeper is a cycle.
const MAX_DEPTH: usize = 64;

/// XLA's ranges. What libraries emit within them is left out, so that its time is that of the range around it.
pub(super) fn nsys_compile_ranges(ranges: &[NsysRange]) -> Vec<CompileRange> {
    let by_id: HashMap<i64, &NsysRange> = ranges.iter().map(|range| (range.id, range)).collect();
    let mut threads: HashMap<(i64, i64), u64> = HashMap::new();
    let places: HashMap<i64, usize> =
        ranges.iter().filter(|range| range.is_xla).map(|range| range.id).zip(0..).collect();
    let own = ranges.iter().filter(|range| range.is_xla);
    own.map(|range| {
        let next = threads.len() as u64;
        let mut parent = range.parent;
        for _ in 0..MAX_DEPTH {
            match parent.and_then(|parent| by_id.get(&parent)) {
                Some(around) if !around.is_xla => parent = around.parent,
                _ => break,
            }
        }
        CompileRange {
            name: range.name.clone(),
            module: None,
            thread: *threads.entry((range.pid, range.tid)).or_insert(next),
            start_ps: range.start_ns.saturating_mul(1000),
            end_ps: range.end_ns.saturating_mul(1000),
            parent: parent.and_then(|parent| places.get(&parent).copied()),
        }
    })
    .collect()
}
