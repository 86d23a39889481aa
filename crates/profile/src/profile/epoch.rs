//! The calendar time of a capture.

use super::event::Stat;
use super::space::XSpace;

/// Times from here on (2001) are calendar times; earlier ones are of a clock that started later.
const CALENDAR_NS: i64 = 1_000_000_000_000_000_000;

impl XSpace {
    /// The origin of its lines' times, in nanoseconds since 1970, if known: newer profilers subtract their start time
    /// and record it; older ones record it too, and subtract nothing.
    pub fn epoch_ns(&self) -> Option<i64> {
        if self.base_ns() >= CALENDAR_NS {
            return Some(0);
        }
        self.of_the_task(b"profile_start_time")
    }

    /// When the capture ended, in nanoseconds since 1970, if known.
    pub fn stop_ns(&self) -> Option<i64> {
        self.of_the_task(b"profile_stop_time")
    }

    fn of_the_task(&self, name: &[u8]) -> Option<i64> {
        let plane = self.planes().find(|plane| plane.name() == "Task Environment")?;
        let is_wanted = |stat: &Stat<'_>| plane.stat_name(stat.metadata_id) == Some(name);
        plane.stats().find(is_wanted)?.value.as_integer()
    }
}
