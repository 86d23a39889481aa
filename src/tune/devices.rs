//! Several tuners at once, on devices of one kind or side by side on one device. One tuner handles each invocation.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::failure::FailureKind;
use crate::ledger::Ledger;
use crate::race::DeviceSlot;
use crate::timer::events::Slice;

use super::run::{TunedStep, note_unpublished};
use super::tuner::{Autotuner, Tuned};
use super::{AutotuningResult, PlannedInvocation, Status, TuneError};

/// What remains to be done and what is in progress.
struct Work {
    waiting: VecDeque<usize>,
    under_way: usize,
    /// Devices that are not lost.
    devices: usize,
    steps: Vec<Option<TunedStep>>,
    is_stopped: bool,
    /// Operations with a call in progress, if their calls run one after another.
    busy: Option<BTreeSet<Tuned>>,
}

struct SharedWork {
    work: Mutex<Work>,
    changed: Condvar,
}

/// Tunes planned invocations, each on the next device that is free, and adds their results to a result. The tuners'
/// devices must have one identity, since a result is for all of that identity, and they share one ledger.
///
/// On one device the calls of an operation run one after another, since each starts from the outcomes of the previous
/// one.
///
/// The result has the plan's order, whichever device finished first. A lost device leaves its invocation to the others.
/// After an error of the ledger all devices finish what they have started.
pub(super) fn run_on_devices(
    mut result: AutotuningResult,
    ledger: &Ledger,
    tuners: &mut [Autotuner<'_>],
    plan: &[PlannedInvocation],
    is_one_device: bool,
) -> (AutotuningResult, Option<TuneError>) {
    let work = Work {
        busy: is_one_device.then(BTreeSet::new),
        waiting: (0..plan.len()).collect(),
        under_way: 0,
        devices: tuners.len(),
        steps: plan.iter().map(|_| None).collect(),
        is_stopped: false,
    };
    let shared = SharedWork { work: Mutex::new(work), changed: Condvar::new() };
    let are_left: Vec<bool> = std::thread::scope(|scope| {
        let mut serving = Vec::new();
        for (place, tuner) in tuners.iter_mut().enumerate() {
            let shared = &shared;
            serving.push(scope.spawn(move || {
                let track = format!("tuner {}", place + 1);
                tuner.events = tuner.events.on_track(&track);
                let events = tuner.events.clone();
                let _serving = events.open(Slice::Step(&track));
                shared.serve(tuner, plan)
            }));
        }
        serving.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
    });
    let work = shared.work.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut steps: Vec<TunedStep> = work.steps.into_iter().flatten().collect();
    // one device confirms for all: a process of it serves every call
    let mut left = tuners.iter_mut().zip(&are_left).filter(|(_, is_left)| **is_left);
    if let Some((tuner, _)) = left.next() {
        tuner.confirm(&mut steps);
    }
    let mut stopped_by = None;
    for step in steps {
        result.take(step.operation, step.entry);
        note_unpublished(step.published, &mut result.notes);
        stopped_by = stopped_by.or(step.error);
    }
    note_unpublished(ledger.publish().map(drop), &mut result.notes);
    (result, stopped_by)
}

impl SharedWork {
    /// One device's work, until there is no more or the device is lost. Returns whether it is left.
    fn serve(&self, tuner: &mut Autotuner<'_>, plan: &[PlannedInvocation]) -> bool {
        while let Some((index, is_stopped)) = self.next(plan, &mut tuner.slot) {
            let step = tuner.step(index, plan, is_stopped);
            let mut work = self.lock();
            work.under_way -= 1;
            if let (Some(busy), Some(planned)) = (&mut work.busy, plan.get(index)) {
                busy.remove(&planned.tuned());
            }
            let is_lost = step.operation.as_ref().is_some_and(|operation| {
                operation.status == Status::Failed
                    && operation.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Device)
            });
            let leaves = is_lost && work.devices > 1;
            if leaves {
                work.devices -= 1;
                work.waiting.push_front(index);
            } else {
                work.is_stopped |= step.error.is_some();
                if let Some(place) = work.steps.get_mut(index) {
                    *place = Some(step);
                }
            }
            drop(work);
            self.changed.notify_all();
            if leaves {
                return false;
            }
        }
        true
    }

    /// The next invocation. Waits while another device may still return one, and while an earlier call of its operation
    /// is in progress.
    fn next(&self, plan: &[PlannedInvocation], slot: &mut Option<DeviceSlot>) -> Option<(usize, bool)> {
        let tuned = |index: &usize| plan.get(*index).map(PlannedInvocation::tuned);
        let mut work = self.lock();
        loop {
            let is_free = |index: &usize| {
                work.busy.as_ref().is_none_or(|busy| tuned(index).is_none_or(|tuned| !busy.contains(&tuned)))
            };
            let place = work.waiting.iter().position(is_free);
            if let Some(index) = place.and_then(|place| work.waiting.remove(place)) {
                work.under_way += 1;
                if let Some(busy) = &mut work.busy {
                    busy.extend(tuned(&index));
                }
                return Some((index, work.is_stopped));
            }
            // the others measure meanwhile
            slot.iter_mut().for_each(DeviceSlot::rest);
            if work.under_way == 0 {
                return None;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
