//! Tests the pool with fake compilers that are not processes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// What a fake compiler does with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FakeOutcome {
    Fine,
    Refused,
    Dies,
    /// Dies of the programs before it.
    DiesWhenUsed,
    /// Is killed by someone else, the first time.
    KilledOnce,
    /// Lives on while what it runs is killed, the first time.
    HelperKilledOnce,
    /// Waits for the gate.
    Waits,
    /// Waits for its end.
    Hangs,
    Panics,
    /// Waits until this many compile at once.
    Meets(usize),
    /// Needs a compiler of its own kind; those of [`NO_DEVICE`] hold nothing of the device.
    Own(u8),
    /// Needs the device for itself, and waits for the gate.
    Alone,
}

const NO_DEVICE: u8 = 9;

#[derive(Default)]
struct FakeCompilers {
    begun: Mutex<Vec<FakeOutcome>>,
    starts: AtomicUsize,
    /// The numbers of those that are killed before they are ready.
    killed_early: Vec<usize>,
    at_once: Mutex<usize>,
    gate: Mutex<bool>,
    changed: Condvar,
}

impl FakeCompilers {
    fn open(&self) {
        *self.gate.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn starts(&self) -> usize {
        self.starts.load(Ordering::Relaxed)
    }

    fn begun(&self) -> Vec<FakeOutcome> {
        self.begun.lock().unwrap().clone()
    }
}

struct Fake {
    world: Arc<FakeCompilers>,
    number: usize,
    kind: Option<u8>,
    compiled: usize,
    gone: bool,
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Compiler for Fake {
    type Task = FakeOutcome;
    type Output = ();

    fn greet(&mut self, _task: &FakeOutcome) -> Result<(), Failure> {
        self.gone = self.world.killed_early.contains(&self.number);
        if self.gone { Err(Failure::new(FailureKind::Device, "died of SIGKILL")) } else { Ok(()) }
    }

    fn suits(&self, task: &FakeOutcome) -> bool {
        self.kind == kind(*task)
    }

    fn as_own(task: &FakeOutcome, failure: &Failure) -> Option<Failure> {
        kind(*task).map(|_| Failure::new(FailureKind::Compile, failure.message.clone()))
    }

    fn is_alone(task: &FakeOutcome) -> bool {
        *task == FakeOutcome::Alone
    }

    fn holds_device(&self) -> bool {
        self.kind != Some(NO_DEVICE)
    }

    fn compile(&mut self, task: &FakeOutcome) -> Result<(), Failure> {
        assert!(self.suits(task));
        let world = Arc::clone(&self.world);
        world.begun.lock().unwrap().push(*task);
        self.compiled += 1;
        let crash = |fake: &mut Self| {
            fake.gone = true;
            Err(Failure::new(FailureKind::Crash, "died"))
        };
        match task {
            FakeOutcome::Fine | FakeOutcome::Own(_) => Ok(()),
            FakeOutcome::Refused => Err(Failure::new(FailureKind::Compile, "refused")),
            FakeOutcome::Panics => panic!("as a test has it"),
            FakeOutcome::Dies => crash(self),
            FakeOutcome::KilledOnce if world.begun().iter().filter(|begun| *begun == task).count() == 1 => crash(self),
            FakeOutcome::HelperKilledOnce if world.begun().iter().filter(|begun| *begun == task).count() == 1 => {
                Err(Failure::new(FailureKind::Crash, "ptxas exited with non-zero error code 9"))
            }
            FakeOutcome::KilledOnce | FakeOutcome::HelperKilledOnce => Ok(()),
            FakeOutcome::DiesWhenUsed if self.compiled > 1 => crash(self),
            FakeOutcome::DiesWhenUsed => Ok(()),
            FakeOutcome::Waits | FakeOutcome::Alone => {
                let open = world.gate.lock().unwrap();
                drop(world.changed.wait_while(open, |open| !*open).unwrap());
                Ok(())
            }
            FakeOutcome::Hangs => {
                let (ended, changed) = &*Arc::clone(&self.ended);
                drop(changed.wait_while(ended.lock().unwrap(), |ended| !*ended).unwrap());
                crash(self)
            }
            FakeOutcome::Meets(count) => {
                let mut at_once = world.at_once.lock().unwrap();
                *at_once += 1;
                world.changed.notify_all();
                drop(world.changed.wait_while(at_once, |at_once| *at_once < *count).unwrap());
                Ok(())
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn was_killed(&self) -> bool {
        self.gone
    }

    fn stop(&self) -> Option<Stop> {
        let ended = Arc::clone(&self.ended);
        Some(Box::new(move || {
            *ended.0.lock().unwrap() = true;
            ended.1.notify_all();
        }))
    }
}

fn kind(task: FakeOutcome) -> Option<u8> {
    if let FakeOutcome::Own(kind) = task { Some(kind) } else { None }
}

/// A pool whose compilers start, except those with the given numbers.
fn pool(jobs: usize, unstartable: &'static [usize]) -> (Arc<FakeCompilers>, Compilers<Fake>) {
    pool_in(FakeCompilers::default(), jobs, unstartable)
}

fn pool_in(world: FakeCompilers, jobs: usize, unstartable: &'static [usize]) -> (Arc<FakeCompilers>, Compilers<Fake>) {
    let world = Arc::new(world);
    let inside = Arc::clone(&world);
    let compilers = Compilers::new(jobs, move |task: &FakeOutcome| {
        let number = inside.starts.fetch_add(1, Ordering::Relaxed);
        if unstartable.contains(&number) {
            return Err(Failure::new(FailureKind::Device, format!("no start {number}")));
        }
        let (world, kind) = (Arc::clone(&inside), kind(*task));
        Ok(Fake { world, number, kind, compiled: 0, gone: false, ended: Arc::default() })
    });
    (world, compilers)
}

/// Waits, without a clock, until another thread has reached a state.
fn until(compilers: &SharedPool<Fake>, so_far: impl Fn(&PoolState<Fake>) -> bool) {
    while !so_far(&compilers.lock()) {
        std::thread::yield_now();
    }
}

#[test]
fn one_compiler_takes_programs_in_order_and_the_one_waited_for_next() {
    let (world, pool) = pool(1, &[]);
    pool.submit([(0, FakeOutcome::Waits), (1, FakeOutcome::Fine), (2, FakeOutcome::Refused), (3, FakeOutcome::Fine)])
        .unwrap();
    let shared = Arc::clone(&pool.pool.shared);
    until(&shared, |state| state.running.len() == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until(&shared, |state| state.queue.front().is_some_and(|((_, candidate), _)| *candidate == 2));
            world.open();
        });
        assert_eq!(pool.take(2).unwrap().unwrap_err().message, "refused");
    });
    for candidate in [3, 1, 0] {
        pool.take(candidate).unwrap().unwrap();
        assert!(pool.take(candidate).is_none(), "taken already");
    }
    assert_eq!(world.begun(), [FakeOutcome::Waits, FakeOutcome::Refused, FakeOutcome::Fine, FakeOutcome::Fine]);
    assert_eq!(world.starts(), 1, "a refused program costs no compiler");
}

#[test]
fn as_many_compile_at_once_as_there_are_jobs() {
    let (world, pool) = pool(3, &[]);
    // each waits for the other two
    pool.submit((0..3).map(|candidate| (candidate, FakeOutcome::Meets(3)))).unwrap();
    for candidate in 0..3 {
        pool.take(candidate).unwrap().unwrap();
    }
    assert_eq!(world.starts(), 3);
}

#[test]
fn one_that_needs_the_device_for_itself_waits_and_others_pass_it() {
    let (world, pool) = pool(3, &[]);
    pool.submit([(0, FakeOutcome::Alone), (1, FakeOutcome::Alone), (2, FakeOutcome::Fine)]).unwrap();
    pool.take(2).unwrap().unwrap();
    // the second one is not begun while the first one waits for the gate
    let shared = Arc::clone(&pool.pool.shared);
    let alone = || world.begun().iter().filter(|task| **task == FakeOutcome::Alone).count();
    until(&shared, |state| state.running.len() == 1 && state.queue.len() == 1 && alone() > 0);
    assert_eq!(alone(), 1);
    world.open();
    pool.take(1).unwrap().unwrap();
    pool.take(0).unwrap().unwrap();
}

#[test]
fn the_device_is_freed_by_those_that_hold_it() {
    let (world, pool) = pool(1, &[]);
    let (with, without) = (FakeOutcome::Fine, FakeOutcome::Own(NO_DEVICE));
    pool.submit([(0, without)]).unwrap();
    pool.take(0).unwrap().unwrap();
    pool.free_device();
    pool.submit([(0, without), (1, with)]).unwrap();
    pool.take(0).unwrap().unwrap();
    pool.take(1).unwrap().unwrap();
    assert_eq!(world.starts(), 2, "the first one stayed");
    pool.free_device();
    pool.submit([(0, with)]).unwrap();
    pool.take(0).unwrap().unwrap();
    assert_eq!(world.starts(), 3);
}

#[test]
fn a_program_that_kills_its_compiler_fails_alone() {
    let (world, pool) = pool(1, &[]);
    let tasks = [FakeOutcome::Fine, FakeOutcome::Dies, FakeOutcome::Fine, FakeOutcome::DiesWhenUsed, FakeOutcome::Fine];
    pool.submit(tasks.into_iter().enumerate()).unwrap();
    let failures: Vec<(usize, Failure)> =
        (0..tasks.len()).filter_map(|candidate| Some((candidate, pool.take(candidate).unwrap().err()?))).collect();
    assert_eq!(failures, [(1, Failure::new(FailureKind::Crash, format!("{TWICE}died")))]);
    // the first; two more that died of the second program; one that died of use; the last
    assert_eq!(world.starts(), 5);
    assert_eq!(world.begun().iter().filter(|task| **task == FakeOutcome::Dies).count(), 3, "blamed by two fresh ones");
}

#[test]
fn one_kill_is_no_programs_fault() {
    let (world, pool) = pool(1, &[]);
    pool.submit([(0, FakeOutcome::KilledOnce), (1, FakeOutcome::Fine)]).unwrap();
    pool.take(0).unwrap().unwrap();
    pool.take(1).unwrap().unwrap();
    assert_eq!(world.starts(), 2);
    assert_eq!(world.begun(), [FakeOutcome::KilledOnce, FakeOutcome::KilledOnce, FakeOutcome::Fine]);
}

#[test]
fn one_whose_helper_is_killed_has_a_second_try() {
    let (world, pool) = pool(1, &[]);
    pool.submit([(0, FakeOutcome::HelperKilledOnce)]).unwrap();
    assert!(pool.take(0).unwrap().is_ok());
    assert_eq!((world.begun().len(), world.starts()), (2, 2));
}

#[test]
fn one_that_is_killed_before_it_is_ready_is_started_once_more() {
    let (world, pool) = pool_in(FakeCompilers { killed_early: vec![0], ..FakeCompilers::default() }, 1, &[]);
    pool.submit([(0, FakeOutcome::Fine)]).unwrap();
    pool.take(0).unwrap().unwrap();
    assert_eq!(world.starts(), 2);
    let (world, pool) = pool_in(FakeCompilers { killed_early: vec![0, 1], ..FakeCompilers::default() }, 1, &[]);
    pool.submit([(0, FakeOutcome::Fine)]).unwrap();
    assert_eq!(pool.take(0).unwrap().unwrap_err().kind, FailureKind::Device);
    assert_eq!(world.starts(), 2);
}

#[test]
fn nothing_is_begun_while_the_pool_is_held() {
    let (world, pool) = pool(2, &[]);
    pool.submit([(0, FakeOutcome::Waits), (1, FakeOutcome::Waits), (2, FakeOutcome::Fine), (3, FakeOutcome::Fine)])
        .unwrap();
    let shared = Arc::clone(&pool.pool.shared);
    until(&shared, |state| state.running.len() == 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until(&shared, |state| state.held);
            world.open();
        });
        pool.hold();
    });
    // both threads have found it held, or will
    assert!(shared.lock().running.is_empty());
    assert_eq!(world.begun(), [FakeOutcome::Waits, FakeOutcome::Waits]);
    pool.take(0).unwrap().unwrap();
    assert_eq!(world.begun().len(), 2, "what is done already begins nothing");
    pool.take(3).unwrap().unwrap();
    pool.take(2).unwrap().unwrap();
    assert_eq!(world.starts(), 2);
    pool.hold();
    pool.retire();
    pool.submit([(4, FakeOutcome::DiesWhenUsed)]).unwrap();
    pool.take(4).unwrap().unwrap();
    assert_eq!(world.starts(), 3, "the others were retired");
}

#[test]
fn who_shares_a_pool_sees_and_drops_its_own_programs_alone() {
    let (world, pool) = pool(2, &[]);
    let other = pool.share();
    pool.submit([(0, FakeOutcome::Hangs), (1, FakeOutcome::Fine)]).unwrap();
    other.submit([(0, FakeOutcome::Refused), (1, FakeOutcome::Fine)]).unwrap();
    assert_eq!(other.take(0).unwrap().unwrap_err().message, "refused");
    assert!(other.take(2).is_none());
    // otherwise one of the two could compile the dropped program and be ended with it
    until(&pool.pool.shared, |state| state.running.len() == 1 && state.queue.is_empty());
    // the hanging one is ended, and the one that the other sharer waits for is not
    pool.clear();
    assert!(pool.take(1).is_none() && pool.take(0).is_none());
    other.take(1).unwrap().unwrap();
    drop(pool);
    other.submit([(3, FakeOutcome::Fine)]).unwrap();
    other.take(3).unwrap().unwrap();
    assert_eq!(world.starts(), 2, "both use the same compilers");
}

#[test]
fn one_that_cannot_be_started_leaves_its_program_to_the_others() {
    let (world, pool) = pool(2, &[0]);
    pool.submit((0..6).map(|candidate| (candidate, FakeOutcome::Fine))).unwrap();
    for candidate in 0..6 {
        pool.take(candidate).unwrap().unwrap();
    }
    assert_eq!(world.begun().len(), 6);
    until(&pool.pool.shared, |state| state.hands <= 1 || world.starts() < 2);
}

#[test]
fn where_none_can_be_started_each_program_tells_why_and_the_next_try_is_another_one() {
    let (world, pool) = pool(2, &[0, 1]);
    pool.submit((0..3).map(|candidate| (candidate, FakeOutcome::Fine))).unwrap();
    for candidate in 0..3 {
        let failure = pool.take(candidate).unwrap().unwrap_err();
        assert_eq!(failure.kind, FailureKind::Device);
        assert!(failure.message.starts_with("no start"), "{failure}");
    }
    pool.submit([(7, FakeOutcome::Fine)]).unwrap();
    pool.take(7).unwrap().unwrap();
    assert_eq!(world.starts(), 3);
    pool.submit([(8, FakeOutcome::Panics)]).unwrap();
    assert_eq!(pool.take(8).unwrap().unwrap_err().kind, FailureKind::Device);
    pool.hold();
}

#[test]
fn a_compiler_of_a_tasks_own_kind_takes_the_place_of_another_and_fails_alone() {
    let (world, pool) = pool(1, &[1]);
    let tasks = [FakeOutcome::Fine, FakeOutcome::Own(1), FakeOutcome::Own(2), FakeOutcome::Own(2), FakeOutcome::Fine];
    pool.submit(tasks.into_iter().enumerate()).unwrap();
    for candidate in [0, 2, 3, 4] {
        pool.take(candidate).unwrap().unwrap();
        pool.hold();
        // none if the last one did not start
        assert!(pool.pool.shared.lock().idle.len() <= 1, "one process at a time");
    }
    let failure = pool.take(1).unwrap().unwrap_err();
    assert_eq!((failure.kind, &*failure.message), (FailureKind::Compile, "no start 1"));
    // the two of one kind share a compiler
    assert_eq!(world.starts(), 4);
}

#[test]
fn what_nobody_wants_any_more_is_ended_and_the_others_stay() {
    let (world, pool) = pool(1, &[]);
    pool.submit([(0, FakeOutcome::Fine)]).unwrap();
    pool.take(0).unwrap().unwrap();
    pool.clear();
    pool.submit([(0, FakeOutcome::Fine)]).unwrap();
    pool.take(0).unwrap().unwrap();
    assert_eq!(world.starts(), 1, "it stayed from job to job");
    pool.submit([(1, FakeOutcome::Hangs), (2, FakeOutcome::Fine)]).unwrap();
    until(&pool.pool.shared, |state| state.running.len() == 1);
    pool.clear();
    assert!(pool.take(1).is_none() && pool.take(2).is_none());
    pool.submit([(2, FakeOutcome::DiesWhenUsed)]).unwrap();
    pool.take(2).unwrap().unwrap();
    assert_eq!(world.starts(), 2);
    // if dropped while one hangs, the pool ends all the same
    pool.submit([(3, FakeOutcome::Hangs)]).unwrap();
    until(&pool.pool.shared, |state| state.running.len() == 1);
    drop(pool);
}
