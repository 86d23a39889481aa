//! Bus bandwidth against message size: a mark at each mean.

use crate::analysis::collectives::{CollectiveMetrics, SizeRow};

use super::axis::{bytes, number};
use super::marks::{SizeMark, axes, draw_marks};
use super::picture::{PanelFrame, Picture};

/// Returns one mark for each row that has a size.
pub(super) fn marks(metrics: &CollectiveMetrics) -> Vec<SizeMark> {
    let mark = |row: &SizeRow| {
        let (size, bus) = (row.message_bytes.filter(|&bytes| bytes > 0)?, row.figures.bus_gb_per_s?);
        let kind = row.kind;
        Some(SizeMark {
            kind,
            x: size as f64,
            y: bus.mean,
            low: bus.low,
            high: bus.high,
            label: format!("{kind}, {size} bytes: {:.4} GB/s, from {:.4} to {:.4}", bus.mean, bus.low, bus.high),
        })
    };
    metrics.sizes.iter().filter_map(mark).collect()
}

pub(super) fn panel(picture: &mut Picture, frame: &PanelFrame, marks: &[SizeMark]) {
    let Some((across, up)) = axes(marks) else { return };
    picture.columns(frame, &across, bytes);
    picture.lines(frame, &up, number);
    picture.frame(frame, "Bus bandwidth, mean of the instances", "message size", "GB/s");
    draw_marks(picture, frame, (&across, &up), marks);
}
