//! A SparseCore runs parts of its device's programs, on a plane of its own: its operations count in the executions of
//! the device that ran at that time.

use std::collections::HashMap;

use super::interval::Interval;
use super::plane_view::{PlaneView, Window};

/// By view, the window of another view in which each of its own counts.
#[derive(Debug, Default)]
pub(super) struct JoinedWindows(HashMap<(usize, u32), (usize, u32)>);

impl JoinedWindows {
    pub(super) fn of(views: &[PlaneView<'_>]) -> Self {
        let mut joined = HashMap::new();
        for (number, view) in views.iter().enumerate() {
            let Some((device, _)) = &view.core else { continue };
            let of_device =
                |(_, other): &(usize, &PlaneView<'_>)| other.core.is_none() && other.plane.name() == *device;
            let Some((place, device)) = views.iter().enumerate().find(of_device) else { continue };
            let by_run: HashMap<(u32, i64), u32> = device
                .windows
                .iter()
                .zip(0..)
                .filter_map(|(window, place)| Some(((window.module, window.run?), place)))
                .collect();
            for (window, own) in view.windows.iter().zip(0..) {
                let same_run = window.run.and_then(|run| by_run.get(&(window.module, run)).copied());
                if let Some(found) = same_run.or_else(|| in_progress(&device.windows, window.time)) {
                    joined.insert((number, own), (place, found));
                }
            }
        }
        Self(joined)
    }

    /// Where a window counts: in another one, or by itself.
    pub(super) fn place(&self, view: usize, window: u32) -> (usize, u32) {
        self.0.get(&(view, window)).copied().unwrap_or((view, window))
    }
}

/// The window that was in progress in the middle of a time.
fn in_progress(windows: &[Window], time: Interval) -> Option<u32> {
    let middle_ps = time.start_ps.midpoint(time.end_ps);
    let after = windows.partition_point(|window| window.time.start_ps <= middle_ps);
    let place = after.checked_sub(1)?;
    windows.get(place).filter(|window| middle_ps < window.time.end_ps)?;
    u32::try_from(place).ok()
}
