//! A dump of a Mosaic GPU kernel and its names: the trace has as many events as are counted. After seven bytes for
//! grid, block, scope, clock and the length of the names come JSON of the names and the `.npy`.

#![no_main]

use autotune_lowered::analysis::mosaic::{Clock, Dump, Extent, Scope, draw, read_names, read_npy};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<7>() else { return };
    let [x, y, threads, warps, scope, clock, names] = *head;
    let (names, dump) = rest.split_at(rest.len().min(usize::from(names)));
    let folder = tempfile::tempdir().unwrap();
    let (names_path, dump_path) = (folder.path().join("names.json"), folder.path().join("dump.npy"));
    std::fs::write(&names_path, names).unwrap();
    std::fs::write(&dump_path, dump).unwrap();
    let names = match read_names(&names_path) {
        Ok(names) => names,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            Default::default()
        }
    };
    let words = match read_npy(&dump_path) {
        Ok(words) => words,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let scope = if scope & 1 == 0 { Scope::Warpgroup } else { Scope::Warp };
    let clock = if clock == 0 { Clock::Unknown } else { Clock::Megahertz(f64::from(clock) * 10.0) };
    let grid = Extent([u32::from(x), u32::from(y), 1]);
    let block = Extent([u32::from(threads) * 32, u32::from(warps), 1]);
    let Ok(dump) = Dump::new(&words, grid, block, scope) else { return };
    let mut out = Vec::new();
    let drawn = draw(&dump, &names, clock, &mut out).unwrap();
    assert!(drawn.traces + drawn.empty + drawn.dropped <= dump.traces());
    assert!(drawn.events <= words.len() && drawn.steps_back <= drawn.clamped);
    let trace: Value = serde_json::from_slice(&out).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let ranges = events.iter().filter(|event| event["ph"] == "B" || event["ph"] == "E");
    let events = ranges.inspect(|event| assert!(event["ts"].is_f64())).count() as u64;
    assert_eq!(events, drawn.events + drawn.open, "ranges that were left open end as well");
    assert!(drawn.notes(clock).iter().all(|note| !note.contains('\n')));
});
