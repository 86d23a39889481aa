//! Collectives from literals instead of a capture.

use autotune_lowered::analysis::collectives::{Collectives, Communication, Device, Operation, Part};

/// One operation on devices of these hosts; parts are `(device, execution, start, end, hidden, overlaps)` in
/// nanoseconds.
pub fn one_operation(
    name: &str,
    hosts: &[&str],
    communication: Communication,
    parts: &[(u32, u64, i64, i64, u64, u64)],
) -> Collectives<'static> {
    let device = |(ordinal, host): (usize, &&str)| Device { host: (*host).to_owned(), ordinal: ordinal as i64 };
    let part = |&(device, execution, start, end, hidden, overlaps): &(u32, u64, i64, i64, u64, u64)| Part {
        operation: 0,
        device,
        execution,
        occurrence: 0,
        start_ps: start * 1000,
        end_ps: end * 1000,
        hidden_ps: hidden * 1000,
        overlaps_ps: overlaps * 1000,
    };
    let operation = Operation { module: "jit_f".to_owned(), program_id: Some(1), name: name.to_owned(), communication };
    Collectives {
        devices: hosts.iter().enumerate().map(device).collect(),
        operations: vec![operation],
        parts: parts.iter().map(part).collect::<Vec<Part>>().into(),
        ..Collectives::default()
    }
}
