//! Calls that are tuned side by side on one device: the call that measures has the machine to itself.
//!
//! Each call has a [`DeviceSlot`]. All of them compile at the same time, which keeps the cores busy at the end of a
//! wave too. When all have compiled, they measure one at a time and then compile again, so the two phases rarely
//! alternate.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which call compiles or measures on the device.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceSlots(Arc<SharedSlots>);

#[derive(Debug, Default)]
struct SharedSlots {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    slots: usize,
    working: usize,
    /// Seats that want to measure.
    waiting: usize,
    is_measuring: bool,
    /// Seats that worked since the last measurement.
    worked: usize,
    /// The same when the current measurement began.
    worked_together: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    Nothing,
    Work,
    Measure,
}

/// One call's slot among those of a device.
#[derive(Debug)]
pub(crate) struct DeviceSlot {
    shared: Arc<SharedSlots>,
    activity: Activity,
}

impl DeviceSlots {
    /// A slot for one more call. It [works](DeviceSlot::work) from the start, so that none measures before all
    /// that begin together have compiled; take all slots before any is used.
    pub(crate) fn slot(&self) -> DeviceSlot {
        let mut state = self.0.lock();
        state.slots += 1;
        state.working += 1;
        state.worked += 1;
        DeviceSlot { shared: Arc::clone(&self.0), activity: Activity::Work }
    }
}

impl SharedSlots {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, SlotState>) -> MutexGuard<'a, SlotState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceSlot {
    /// Waits until no call measures or wants to. Then the call may use the cores, to compile and to decide.
    pub(crate) fn work(&mut self) {
        if self.activity == Activity::Work {
            return;
        }
        self.rest();
        let mut state = self.shared.lock();
        while state.is_measuring || state.waiting > 0 {
            state = self.shared.wait(state);
        }
        state.working += 1;
        state.worked += 1;
        self.activity = Activity::Work;
    }

    /// Waits until no call works or measures. Then the call has the machine to itself. Returns how many worked at the
    /// same time before.
    pub(crate) fn measure(&mut self) -> usize {
        if self.activity == Activity::Measure {
            return self.shared.lock().worked_together;
        }
        self.rest();
        let mut state = self.shared.lock();
        state.waiting += 1;
        while state.is_measuring || state.working > 0 {
            state = self.shared.wait(state);
        }
        state.waiting -= 1;
        state.is_measuring = true;
        if state.worked > 0 {
            state.worked_together = std::mem::take(&mut state.worked);
        }
        self.activity = Activity::Measure;
        state.worked_together
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.shared.lock().slots
    }

    /// Uses no cores until it works or measures again.
    pub(crate) fn rest(&mut self) {
        let mut state = self.shared.lock();
        match std::mem::replace(&mut self.activity, Activity::Nothing) {
            Activity::Nothing => {}
            Activity::Work => state.working -= 1,
            Activity::Measure => state.is_measuring = false,
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for DeviceSlot {
    fn drop(&mut self) {
        self.rest();
        self.shared.lock().slots -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn who_measures_is_alone_and_all_work_before_anyone_measures() {
        let device = DeviceSlots::default();
        let (working, measuring, turns) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let slots: Vec<DeviceSlot> = (0..4).map(|_| device.slot()).collect();
        std::thread::scope(|scope| {
            for (call, mut slot) in slots.into_iter().enumerate() {
                let (working, measuring, turns) = (&working, &measuring, &turns);
                scope.spawn(move || {
                    for _ in 0..200 {
                        slot.work();
                        working.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(measuring.load(Ordering::SeqCst), 0, "nothing is measured while anyone works");
                        turns.lock().unwrap().push(('w', call));
                        working.fetch_sub(1, Ordering::SeqCst);
                        slot.measure();
                        assert_eq!(measuring.fetch_add(1, Ordering::SeqCst), 0, "one measures at a time");
                        assert_eq!(working.load(Ordering::SeqCst), 0);
                        turns.lock().unwrap().push(('m', call));
                        measuring.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let turns = turns.into_inner().unwrap();
        assert_eq!(turns.len(), 1600, "nobody waits for ever");
        // once one call measures, all that worked do so before any works again
        let mut worked = std::collections::BTreeSet::new();
        for (what, call) in turns {
            match what {
                'w' => assert!(worked.insert(call), "{call} works twice without measuring"),
                _ => assert!(worked.remove(&call)),
            }
        }
    }

    #[test]
    fn a_call_that_ends_lets_the_others_go_on() {
        let device = DeviceSlots::default();
        let (mut first, mut second) = (device.slot(), device.slot());
        first.work();
        drop(first);
        assert_eq!(second.measure(), 2);
        second.work();
        assert_eq!(second.measure(), 1);
    }
}
