//! When the times of a capture were.

use super::event::Stat;
use super::space::XSpace;

/// Times from here on (2001) are of the calendar, times before it of a clock that began later.
const CALENDAR_NS: i64 = 1_000_000_000_000_000_000;

impl XSpace {
    /// What the times of its lines count from, in nanoseconds since 1970, if it says so: newer profilers subtract the time at
    /// which they were started, and keep it beside; older ones keep it too, and subtract nothing.
    pub fn epoch_ns(&self) -> Option<i64> {
        if self.base_ns() >= CALENDAR_NS {
            return Some(0);
        }
        self.of_the_task(b"profile_start_time")
    }

    /// When it was taken to its end, in nanoseconds since 1970, if it says so.
    pub fn stop_ns(&self) -> Option<i64> {
        self.of_the_task(b"profile_stop_time")
    }

    fn of_the_task(&self, name: &[u8]) -> Option<i64> {
        let plane = self.planes().find(|plane| plane.name() == "Task Environment")?;
        let is_wanted = |stat: &Stat<'_>| plane.stat_name(stat.metadata_id) == Some(name);
        plane.stats().find(is_wanted)?.value.as_integer()
    }
}
