//! Waits for stragglers: against message size, and how they are distributed.

use std::collections::BTreeMap;

use crate::analysis::collectives::{Collectives, InstanceWait, Kind};
use crate::report::format_ns;

use super::axis::{Axis, bytes, multiple, time};
use super::marks::{Mark, axes, draw, style};
use super::picture::{Frame, Picture};

/// Steps of a distribution in a power of ten.
const STEPS: f64 = 5.0;

/// Sums of waits, and the ends of their ratios to the fastest device.
#[derive(Default)]
struct Sums {
    count: u64,
    wait_ps: u128,
    fastest_ps: u128,
    low: f64,
    high: f64,
}

/// One mark for each kind, group and message size: all waits over all of the fastest durations.
pub(super) fn marks(found: &Collectives, waits: &[InstanceWait]) -> Vec<Mark> {
    let mut sums: BTreeMap<(Kind, Option<u64>, u64), Sums> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| wait.fastest_ps > 0) {
        let Some(operation) = found.operations.get(wait.operation as usize) else { continue };
        let of = &operation.communication;
        let Some(size) = of.message_bytes.filter(|&bytes| bytes > 0) else { continue };
        let sum = sums.entry((of.kind, of.group_size, size)).or_default();
        let ratio = wait.wait_ps as f64 / wait.fastest_ps as f64;
        (sum.low, sum.high) = if sum.count == 0 { (ratio, ratio) } else { (sum.low.min(ratio), sum.high.max(ratio)) };
        sum.count += 1;
        sum.wait_ps += u128::from(wait.wait_ps);
        sum.fastest_ps += u128::from(wait.fastest_ps);
    }
    let mark = |((kind, _, size), sum): ((Kind, Option<u64>, u64), Sums)| {
        let Sums { count, low, high, .. } = sum;
        let of_fastest = sum.wait_ps as f64 / sum.fastest_ps as f64;
        let mean = format_ns(sum.wait_ps as f64 / count as f64 / 1e3);
        Mark {
            kind,
            x: size as f64,
            y: of_fastest,
            low,
            high,
            said: format!(
                "{kind}, {size} bytes: {of_fastest:.3} times the fastest, from {low:.3} to {high:.3}; {mean} in the mean of {count}"
            ),
        }
    };
    sums.into_iter().map(mark).collect()
}

pub(super) fn panel(picture: &mut Picture, frame: &Frame, marks: &[Mark]) {
    let Some((across, up)) = axes(marks) else { return };
    picture.columns(frame, &across, bytes);
    picture.lines(frame, &up, multiple);
    picture.frame(frame, "Wait for stragglers", "message size", "of the fastest device’s time");
    draw(picture, frame, (&across, &up), marks);
}

/// How many instances of each kind wait so long: a row for each kind, its bars as parts of its highest one.
pub(super) fn distribution(picture: &mut Picture, frame: &Frame, found: &Collectives, waits: &[InstanceWait]) {
    let ns = |wait: &InstanceWait| wait.wait_ps as f64 / 1e3;
    let Some(across) = Axis::of(waits.iter().map(ns), (0, 3)) else { return };
    // by the step in which a wait falls; none for no wait
    let mut kinds: BTreeMap<Kind, BTreeMap<Option<i32>, u64>> = BTreeMap::new();
    for wait in waits {
        let Some(operation) = found.operations.get(wait.operation as usize) else { continue };
        let step = (wait.wait_ps > 0).then(|| (ns(wait).log10() * STEPS).floor() as i32);
        *kinds.entry(operation.communication.kind).or_default().entry(step).or_default() += 1;
    }
    picture.columns(frame, &across, time);
    picture.frame(
        frame,
        "How long each instance waits",
        "last end − first start − shortest duration",
        "instances of a kind, its tallest bar as high as all",
    );
    let high = (frame.bottom - frame.top) / kinds.len().max(1) as f64;
    for (row, (kind, steps)) in kinds.iter().enumerate() {
        let (base, (class, _)) = (frame.top + high * (row as f64 + 1.0), style(*kind));
        let (all, most) = (steps.values().sum::<u64>(), steps.values().max().copied().unwrap_or(1));
        let tallest = high * 0.8;
        picture.add(format_args!("<path class=\"grid\" d=\"M{} {base:.1}H{}\"/>", frame.left, frame.right));
        for (step, count) in steps {
            let ends = step.map_or([0.0, 0.0], |step| [step, step + 1].map(|end| 10_f64.powf(f64::from(end) / STEPS)));
            let (from, to) = match step {
                Some(_) => (frame.x(across.along(ends[0])), frame.x(across.along(ends[1]))),
                None => (frame.left, frame.x(across.first())),
            };
            let said = match step {
                Some(_) => format!("{} to {}", format_ns(ends[0]), format_ns(ends[1])),
                None => "not at all".to_owned(),
            };
            let tall = tallest * *count as f64 / most as f64;
            picture.add(format_args!(
                "<rect class=\"{class}\" stroke-width=\"0\" x=\"{from:.1}\" y=\"{:.1}\"",
                base - tall
            ));
            picture.add(format_args!(" width=\"{:.1}\" height=\"{tall:.1}\">", (to - from - 0.5).max(1.0)));
            picture.add(format_args!("<title>{kind}: {count} of {all} wait {said}</title></rect>\n"));
        }
        let (x, y) = (frame.left - 8.0, base - high / 2.0 + 4.5);
        picture.add(format_args!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{all}</text>\n"));
    }
}
