//! What became faster between two profiles: synthetic captures compared with SciPy, real ones with themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::program::*;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::{DiffRow, Verdict, profile_diff};
use autotune_lowered::profile::XSpace;

/// A capture of launches, each with these operations' durations; the first is warm-up.
fn capture(program: i64, operations: &[(&str, &[i64])]) -> Vec<Capture> {
    let launches = operations[0].1.len();
    let mut ran: Vec<Ran<'_>> = vec![(operations[0].0, "jit_f", program, 0, 0, 9_000)];
    for launch in 0..launches {
        let mut at = 10_000 * (launch as i64 + 1);
        for (name, times) in operations {
            ran.push((name, "jit_f", program, launch as i64 + 1, at, times[launch]));
            at += times[launch];
        }
    }
    let space = XSpace::from_bytes(space(&[host(&[&ran])]).0).unwrap();
    vec![Capture::xspace("synthetic", "host", space)]
}

fn row<'d>(rows: &'d [DiffRow], name: &str) -> &'d DiffRow {
    rows.iter().find(|row| row.operation.as_deref() == Some(name)).unwrap()
}

#[test]
fn differences_equal_scipy_and_verdicts_are_for_all_rows_together() {
    let before = capture(
        1,
        &[
            ("dot.1", &[275, 210, 190, 236, 170, 179]),
            ("fusion.1", &[1000, 1010, 990, 1000, 1020, 980]),
            ("copy.1", &[5, 5, 5, 5, 5, 5]),
        ],
    );
    let after = capture(
        3,
        &[
            ("dot.1", &[271, 220, 208, 234, 234, 235, 258, 220]),
            ("fusion.1", &[500, 510, 490, 500, 520, 480, 500, 500]),
            ("sort.1", &[7, 7, 7, 7, 7, 7, 7, 7]),
        ],
    );
    let diff = profile_diff(&before, &after, false);
    // scipy.stats.ttest_ind(after, before, equal_var=False) of dot.1, SciPy 1.17.1
    let dot = row(&diff.operations, "dot.1");
    let [low, high] = dot.interval_ns.unwrap();
    assert!((low + 16.960_940_521_6).abs() < 1e-6 && (high - 66.960_940_521_6).abs() < 1e-6, "{low} {high}");
    assert!((dot.difference_ns.unwrap() - 25.0).abs() < 1e-9);
    // the larger of two p-values is not adjusted
    assert!((dot.p_adjusted.unwrap() - 0.201_988_677_353_455).abs() < 1e-9, "{dot:?}");
    assert_eq!((dot.verdict, dot.before.unwrap().launches, dot.after.unwrap().launches), (Verdict::NotTold, 6, 8));
    assert_eq!(row(&diff.operations, "fusion.1").verdict, Verdict::Faster);
    let (gone, new) = (row(&diff.operations, "copy.1"), row(&diff.operations, "sort.1"));
    assert_eq!((gone.verdict, gone.after, new.verdict, new.before), (Verdict::Gone, None, Verdict::New, None));
    // the largest change comes first; ids of programs may differ
    assert_eq!(diff.operations[0].operation.as_deref(), Some("fusion.1"));
    assert_eq!((diff.modules.len(), diff.modules[0].verdict), (1, Verdict::Faster));
    assert!(diff.notes[0].contains("not the same program in both (2 operations in one only)"), "{:?}", diff.notes);
    // reversed, faster is slower
    let back = profile_diff(&after, &before, false);
    assert_eq!(row(&back.operations, "fusion.1").verdict, Verdict::Slower);
}

#[test]
fn a_single_launch_proves_nothing() {
    let before = capture(1, &[("dot.1", &[100])]);
    let after = capture(1, &[("dot.1", &[10, 11, 12])]);
    let diff = profile_diff(&before, &after, false);
    let dot = row(&diff.operations, "dot.1");
    assert_eq!((dot.verdict, dot.interval_ns, dot.p_adjusted), (Verdict::TooFew, None, None));
    assert_eq!(dot.difference_ns, Some(-89.0));
}

#[test]
fn devices_of_one_launch_are_one_sample() {
    let folder = tempfile::tempdir().unwrap();
    let sample = "tests/data/xplane/multi8_shardmap.xplane.pb.gz";
    let json = run(folder.path(), &["profile", "diff", sample, sample, "--format", "json"]).json();
    // two launches on eight devices count as two
    assert_eq!(json["modules"][0]["before"]["launches"].as_u64(), Some(2));
    let rows = json["operations"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["verdict"] == "not-told" && row["p_adjusted"] == 1.0), "{rows:?}");
    let table = run(folder.path(), &["profile", "diff", sample, sample, "--top", "3"]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(table.stdout.contains("operations: 0 faster, 0 slower, 28 not significant"), "{}", table.stdout);
}
