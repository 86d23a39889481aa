//! Marks of collectives: one for each kind, group and message size.

use crate::analysis::collectives::CollectiveKind;
use crate::report::html::escape::Text;

use super::axis::Axis;
use super::picture::{Frame, Picture, STYLES, Style};

/// A kind's colour and mark.
pub(super) fn style(kind: CollectiveKind) -> Style {
    let place = match kind {
        CollectiveKind::AllGather => 0,
        CollectiveKind::AllReduce => 1,
        CollectiveKind::AllToAll => 2,
        CollectiveKind::ReduceScatter => 3,
        CollectiveKind::CollectivePermute => 4,
        CollectiveKind::CollectiveBroadcast => 5,
        CollectiveKind::DeviceToHost => 6,
        CollectiveKind::HostToDevice => 7,
    };
    STYLES.get(place).copied().unwrap_or_default()
}

/// A mark: a value, and a line from the lowest to the highest instance.
pub(super) struct Mark {
    pub(super) kind: CollectiveKind,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) label: String,
}

/// The axes of marks; `None` if there are none.
pub(super) fn axes(marks: &[Mark]) -> Option<(Axis, Axis)> {
    let x = Axis::of(marks.iter().map(|mark| mark.x), (0, 3))?;
    let y = Axis::of(marks.iter().flat_map(|mark| [mark.low, mark.y, mark.high]), (-1, 1))?;
    Some((x, y))
}

pub(super) fn draw(picture: &mut Picture, frame: &Frame, (across, up): (&Axis, &Axis), marks: &[Mark]) {
    for mark in marks {
        let (class, path) = style(mark.kind);
        let x = frame.x(across.along(mark.x));
        let [y, low, high] = [mark.y, mark.low, mark.high].map(|value| frame.y(up.along(value)));
        picture.add(format_args!("<g class=\"{class}\"><title>{}</title>", Text(&mark.label)));
        picture.add(format_args!("<path d=\"M{x:.1} {low:.1}V{high:.1}\"/>"));
        picture.add(format_args!("<path transform=\"translate({x:.1} {y:.1})\" d=\"{path}\"/></g>\n"));
    }
}
