//! Marks of collectives: one for each kind, group and message size.

use crate::analysis::collectives::CollectiveKind;

use super::axis::LogAxis;
use super::picture::{MarkStyle, PanelFrame, Picture, STYLES, draw, escaped};

/// Returns a kind's colour and mark; kinds that are alike share one, and their titles name them.
pub(super) fn style(kind: CollectiveKind) -> MarkStyle {
    let place = match kind {
        CollectiveKind::AllGather => 0,
        CollectiveKind::AllReduce => 1,
        CollectiveKind::AllToAll | CollectiveKind::RaggedAllToAll => 2,
        CollectiveKind::ReduceScatter => 3,
        CollectiveKind::CollectivePermute | CollectiveKind::Send | CollectiveKind::Recv | CollectiveKind::SendRecv => 4,
        CollectiveKind::CollectiveBroadcast | CollectiveKind::Unknown => 5,
        CollectiveKind::DeviceToHost => 6,
        CollectiveKind::HostToDevice => 7,
    };
    STYLES.get(place).copied().unwrap_or_default()
}

/// A mark: a value, and a line from the lowest to the highest instance.
pub(super) struct SizeMark {
    pub(super) kind: CollectiveKind,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) label: String,
}

/// Returns the axes of marks; `None` if there are none.
pub(super) fn axes(marks: &[SizeMark]) -> Option<(LogAxis, LogAxis)> {
    let x = LogAxis::of(marks.iter().map(|mark| mark.x), (0, 3))?;
    let y = LogAxis::of(marks.iter().flat_map(|mark| [mark.low, mark.y, mark.high]), (-1, 1))?;
    Some((x, y))
}

pub(super) fn draw_marks(
    picture: &mut Picture,
    frame: &PanelFrame,
    (across, up): (&LogAxis, &LogAxis),
    marks: &[SizeMark],
) {
    for mark in marks {
        let (class, path) = style(mark.kind);
        let x = frame.x(across.along(mark.x));
        let [y, low, high] = [mark.y, mark.low, mark.high].map(|value| frame.y(up.along(value)));
        draw!(picture, "<g class=\"{class}\"><title>{}</title>", escaped(&mark.label));
        draw!(picture, "<path d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
        draw!(picture, "<path transform=\"translate({x:.1} {y:.1})\" d=\"{path}\"/></g>\n");
    }
}
