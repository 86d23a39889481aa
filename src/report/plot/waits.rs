//! Waits for stragglers: against message size, and how they are distributed.

use crate::analysis::collectives::{CollectiveKind, STEPS, SizeWaits, Waits};
use crate::report::format_ns;

use super::axis::{LogAxis, bytes, multiple, time};
use super::marks::{SizeMark, axes, draw_marks, style};
use super::picture::{PanelFrame, Picture, draw};

/// Returns one mark for each kind, group and message size: all waits over all of the fastest durations.
pub(super) fn marks(waits: &Waits) -> Vec<SizeMark> {
    let mark = |(&(kind, _, size), sum): (&(CollectiveKind, Option<u64>, u64), &SizeWaits)| {
        let SizeWaits { count, low, high, .. } = *sum;
        let of_fastest = sum.wait_ps as f64 / sum.fastest_ps as f64;
        let mean = format_ns(sum.wait_ps as f64 / count as f64 / 1e3);
        SizeMark {
            kind,
            x: size as f64,
            y: of_fastest,
            low,
            high,
            label: format!(
                "{kind}, {size} bytes: {of_fastest:.3} times the fastest, from {low:.3} to {high:.3}; {mean} in the \
                 mean of {count}"
            ),
        }
    };
    waits.sizes.iter().map(mark).collect()
}

pub(super) fn panel(picture: &mut Picture, frame: &PanelFrame, marks: &[SizeMark]) {
    let Some((across, up)) = axes(marks) else { return };
    picture.columns(frame, &across, bytes);
    picture.lines(frame, &up, multiple);
    picture.frame(frame, "Wait for stragglers", "message size", "of the fastest device’s time");
    draw_marks(picture, frame, (&across, &up), marks);
}

/// Draws the histogram of waits: a row for each kind, its bars relative to its highest one.
pub(super) fn distribution(picture: &mut Picture, frame: &PanelFrame, waits: &Waits) {
    let kinds = &waits.kinds;
    let ends = waits.ends_ps.into_iter().flat_map(|(least, most)| [least, most]).map(|ps| ps as f64 / 1e3);
    let none = kinds.values().any(|steps| steps.contains_key(&None)).then_some(0.0);
    let Some(across) = LogAxis::of(ends.chain(none), (0, 3)) else { return };
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
        draw!(picture, "<path class=\"grid\" d=\"M{} {base:.1}H{}\"/>", frame.left, frame.right);
        for (step, count) in steps {
            let ends = step.map_or([0.0, 0.0], |step| [step, step + 1].map(|end| 10_f64.powf(f64::from(end) / STEPS)));
            let (from, to) = match step {
                Some(_) => (frame.x(across.along(ends[0])), frame.x(across.along(ends[1]))),
                None => (frame.left, frame.x(across.first())),
            };
            let label = match step {
                Some(_) => format!("{} to {}", format_ns(ends[0]), format_ns(ends[1])),
                None => "not at all".to_owned(),
            };
            let tall = tallest * *count as f64 / most as f64;
            draw!(picture, "<rect class=\"{class}\" stroke-width=\"0\" x=\"{from:.1}\" y=\"{:.1}\"", base - tall);
            draw!(picture, " width=\"{:.1}\" height=\"{tall:.1}\">", (to - from - 0.5).max(1.0));
            draw!(picture, "<title>{kind}: {count} of {all} wait {label}</title></rect>\n");
        }
        let (x, y) = (frame.left - 8.0, base - high / 2.0 + 4.5);
        draw!(picture, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{all}</text>\n");
    }
}
