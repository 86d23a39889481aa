//! What other processes do on the cores of a measurement, or on its device.
//!
//! A round beside a busy process is evidence about a busy machine only. The kernel tells: how long the cores that this
//! process may use were not idle, how long its own threads and those of its workers ran, and how long they waited for a
//! core. The first less the second is what others used. It disturbs only if threads of ours waited meanwhile; a worker
//! with more threads than cores waits for itself, so waiting alone means nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Cores that others use from which on a round is contended, or the part of the device's time.
pub(super) const CONTENDED: f64 = 0.25;
/// The part of the time that threads of ours must wait, all together.
const WAITING: f64 = 0.05;
/// The kernel's idle times come in steps of ten milliseconds, so shorter windows tell nothing.
const WINDOW: Duration = Duration::from_millis(100);
/// No two observations are closer, because each reads a file per thread.
const STEP: Duration = Duration::from_millis(10);
/// How often a quiet machine is looked for.
const POLL: Duration = Duration::from_millis(150);
/// After how long a GPU's driver reports anew what others use of it.
const REPORTED: Duration = Duration::from_millis(600);
/// The kernel's ticks in a second, in what it prints.
const TICKS: f64 = 100.0;
/// What a core's idle time may lack of the truth between two observations, in ticks: two standard deviations, √(2/3), of the
/// difference of two that are rounded down. It adds up over cores like noise.
const ROUNDING: f64 = 0.816_5;

/// What a race does about other processes on its cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoadPolicy {
    /// It waits for a quiet machine, within limits, and prefers quiet rounds.
    #[default]
    Wait,
    /// It measures for the load that there is, and waits for nothing.
    UnderLoad,
    /// It does not look.
    Ignore,
}

/// The time that all races of a run together may wait for a quiet machine.
#[derive(Debug, Clone)]
pub struct QuietWait {
    allowed: Duration,
    used_ms: Arc<AtomicU64>,
}

impl PartialEq for QuietWait {
    fn eq(&self, other: &Self) -> bool {
        self.allowed == other.allowed
    }
}

impl QuietWait {
    /// So much in all.
    pub fn new(allowed: Duration) -> Self {
        Self { allowed, used_ms: Arc::default() }
    }

    /// Whether a run has not waited yet.
    pub(super) fn is_unused(&self) -> bool {
        self.used_ms.load(Ordering::Relaxed) == 0
    }

    /// Whether a run may wait any longer.
    pub(super) fn is_left(&self) -> bool {
        Duration::from_millis(self.used_ms.load(Ordering::Relaxed)) < self.allowed
    }

    /// Waits until a GPU's driver reports anew.
    pub(super) fn pause(&self, is_cancelled: impl Fn() -> bool) {
        let until = Instant::now() + REPORTED;
        while Instant::now() < until && self.is_left() && !is_cancelled() {
            self.sleep();
        }
    }

    fn sleep(&self) {
        std::thread::sleep(POLL);
        self.used_ms.fetch_add(POLL.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Default for QuietWait {
    /// Twenty seconds: a compiler or an update that passes by is worth waiting for, a busy machine is not.
    fn default() -> Self {
        Self::new(Duration::from_secs(20))
    }
}

/// Sums since the machine's or a thread's start, in seconds.
#[derive(Debug, Clone, Copy)]
struct Observed {
    at: Instant,
    /// The cores' idle time.
    idle: f64,
    /// How many cores.
    cores: f64,
    /// Our threads' time on a core.
    own: f64,
    /// Our threads' time waiting for one.
    waited: f64,
}

impl Observed {
    /// Whether threads of ours waited for a core since an earlier observation.
    fn has_waited_since(&self, earlier: &Self) -> bool {
        self.waited - earlier.waited >= WAITING * (self.at - earlier.at).as_secs_f64()
    }

    /// Cores that others used at least, as far as the kernel's ticks tell.
    fn others_since(&self, earlier: &Self) -> f64 {
        let seconds = (self.at - earlier.at).as_secs_f64().max(1e-3);
        let idle = self.idle - earlier.idle + ROUNDING * self.cores.sqrt() / TICKS;
        (self.cores - (idle + self.own - earlier.own) / seconds).max(0.0)
    }
}

/// Observes the cores during a race.
#[derive(Debug, Default)]
pub(super) struct ContentionWatch {
    /// The processes whose threads are ours: this one, the workers' parent, and all that descend from them.
    ours: Vec<u32>,
    /// The cores that they may use.
    cores: Vec<String>,
    recent: VecDeque<Observed>,
    /// Whether threads of ours waited for others that have not left the cores since.
    is_beside_others: bool,
}

impl ContentionWatch {
    /// Begins to observe; the workers are running, perhaps as another process's children. Observes nothing where the kernel
    /// does not tell.
    pub(super) fn begin(policy: LoadPolicy, other_parent: Option<u32>) -> Self {
        let mut watch = Self::default();
        if policy != LoadPolicy::Ignore {
            watch.ours = descendants(other_parent);
            watch.cores = allowed_cores();
            watch.observe();
        }
        watch
    }

    fn observe(&mut self) {
        let Some(observed) = self.observed() else { return };
        self.recent.push_back(observed);
        // the last one before the window, and all in it
        while self.recent.get(1).is_some_and(|second| observed.at - second.at >= 2 * WINDOW) {
            self.recent.pop_front();
        }
    }

    fn observed(&self) -> Option<Observed> {
        if self.ours.is_empty() || self.cores.is_empty() {
            return None;
        }
        let (at, idle) = (Instant::now(), idle_seconds(&fs::read_to_string("/proc/stat").ok()?, &self.cores)?);
        let (own, waited) = self
            .ours
            .iter()
            .map(|pid| thread_seconds(*pid))
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Some(Observed { at, idle, cores: self.cores.len() as f64, own, waited })
    }

    /// Cores that others used while threads of ours waited, since a round began, or over the least time that tells;
    /// `None` where that is unknown.
    pub(super) fn since(&mut self, begin: Instant) -> Option<f64> {
        // the first round may be shorter than what tells
        let known = self.recent.front()?.at.elapsed();
        if known < WINDOW / 2 {
            std::thread::sleep(WINDOW / 2 - known);
        }
        if self.recent.back().is_none_or(|last| last.at.elapsed() >= STEP) {
            self.observe();
        }
        let last = *self.recent.back()?;
        let is_before = |one: &&Observed| one.at <= begin && last.at - one.at >= WINDOW;
        let earlier = *self.recent.iter().rev().find(is_before).or(self.recent.front())?;
        (last.at - earlier.at >= WINDOW / 2).then(|| self.contention(&last, &earlier))
    }

    /// Cores that others used between two observations, if they disturb: threads of ours waited for them then, or
    /// before, and they have not left since. A thread may be lucky for a moment.
    fn contention(&mut self, last: &Observed, earlier: &Observed) -> f64 {
        let (others, has_waited) = (last.others_since(earlier), last.has_waited_since(earlier));
        self.is_beside_others = others >= CONTENDED && (has_waited || self.is_beside_others);
        if has_waited || self.is_beside_others { others } else { 0.0 }
    }

    /// Waits until others leave the cores alone, as long as a run may wait. Returns whether it is quiet.
    pub(super) fn wait_for_quiet(&mut self, quiet: &QuietWait, is_cancelled: impl Fn() -> bool) -> bool {
        while quiet.is_left() && !is_cancelled() {
            let Some(before) = self.observed() else { return true };
            quiet.sleep();
            let Some(after) = self.observed() else { return true };
            if after.others_since(&before) < CONTENDED {
                self.recent.clear();
                self.is_beside_others = false;
                self.observe();
                return true;
            }
        }
        false
    }
}

/// This process, another one that is running, and all that descend from them.
fn descendants(other: Option<u32>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let parent = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| parent_of(&stat));
        parent.into_iter().for_each(|parent| children.entry(parent).or_default().push(pid));
    }
    let mut waiting = vec![std::process::id()];
    waiting.extend(other);
    let mut ours = BTreeSet::new();
    while let Some(pid) = waiting.pop() {
        waiting.extend(children.remove(&pid).unwrap_or_default());
        ours.insert(pid);
    }
    ours.into_iter().collect()
}

/// The parent in a process's `stat`: the second word after its name, which stands in parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Time on a core and time waiting for one, of all threads of a process; zero for one that is gone.
fn thread_seconds(pid: u32) -> (f64, f64) {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.filter_map(|text| run_and_wait(&text)).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// The first two numbers of a thread's `schedstat`, which are nanoseconds.
fn run_and_wait(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok().map(|ns| ns as f64 / 1e9));
    Some((numbers.next()??, numbers.next()??))
}

/// The idle time of these cores, including that in which they waited for a disk. Time that a hypervisor stole was not
/// idle. `None` unless all of them are listed.
fn idle_seconds(stat: &str, cores: &[String]) -> Option<f64> {
    let mut idle = Vec::with_capacity(cores.len());
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|name| cores.iter().any(|core| core == name)) {
            let ticks = |word: Option<&str>| word?.parse::<u64>().ok();
            // user, nice, system, idle, waiting for a disk
            idle.push(ticks(words.nth(3))? + ticks(words.next())?);
        }
    }
    let all = idle.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    (idle.len() == cores.len()).then_some(all as f64 / TICKS)
}

/// The cores that this process may use, as `/proc/stat` names them.
fn allowed_cores() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(cores_of).unwrap_or_default()
}

/// `0-2,7` as `cpu0`, `cpu1`, `cpu2`, `cpu7`.
fn cores_of(list: &str) -> Vec<String> {
    const MOST: u32 = 8192;
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(MOST))
    };
    list.split(',').filter_map(range).flatten().map(|core| format!("cpu{core}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_is_read() {
        let stat = "cpu  10 0 5 300 20 0 0 7 0 0\ncpu0 5 0 2 100 10 0 0 3 0 0\ncpu1 5 0 3 200 10 0 0 4 0 0\nintr 7\n";
        assert_eq!(idle_seconds(stat, &cores_of("0-1")), Some(3.2));
        assert_eq!(idle_seconds(stat, &cores_of(" 1")), Some(2.1));
        assert_eq!(idle_seconds(stat, &cores_of("0-2")), None, "a core is missing");
        assert_eq!(idle_seconds("cpu0 1 2", &cores_of("0")), None);
        assert_eq!(cores_of("0-2,7\n"), ["cpu0", "cpu1", "cpu2", "cpu7"]);
        assert!(cores_of("").is_empty() && cores_of("x-3,-").is_empty() && cores_of("0-99999999999").is_empty());
        assert_eq!(parent_of("17 (a) b) (c) S 4 17 17"), Some(4));
        assert_eq!(run_and_wait("2000000000 500000000 12\n"), Some((2.0, 0.5)));
        assert_eq!(run_and_wait("2000000000"), None);
    }

    #[test]
    fn ours_are_our_own_and_those_of_a_parent_that_is_another() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = descendants(None);
        assert!(own.contains(&std::process::id()) && own.contains(&child.id()));
        // whoever started this one
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs();
        assert!(!own.contains(&parent));
        let of_both = descendants(Some(parent));
        assert!(of_both.contains(&parent) && of_both.contains(&child.id()));
        let ours = of_both.iter().filter(|&&pid| pid == std::process::id()).count();
        assert_eq!(ours, 1, "its time counts once, although it descends from both");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn others_disturb_only_while_ours_wait() {
        let at = Instant::now();
        let observed = |ms: u64, idle: f64, own: f64, waited: f64| Observed {
            at: at + Duration::from_millis(ms),
            idle,
            cores: 2.0,
            own,
            waited,
        };
        let begin = observed(0, 10.0, 5.0, 1.0);
        // two cores for a second: half a second idle, half of the rest ours
        let beside_others = observed(1000, 10.5, 5.75, 1.4);
        let contention = |of: &Observed| ContentionWatch::default().contention(of, &begin);
        // two idle times in ticks of ten milliseconds
        let rounding = 0.008_165 * 2.0_f64.sqrt();
        assert!((contention(&beside_others) - (0.75 - rounding)).abs() < 1e-9);
        let beside_nobody = observed(1000, 10.5, 6.5, 1.4);
        assert!(contention(&beside_nobody) < 1e-9, "they wait for each other");
        let on_other_cores = observed(1000, 10.5, 5.75, 1.01);
        assert_eq!(contention(&on_other_cores), 0.0);
        let after_a_thread_ended = observed(1000, 12.0, 4.0, 0.5);
        assert!(contention(&after_a_thread_ended) >= 0.0);
        // 15 ms more than a program of ours used: of so short a window the ticks tell nothing, and of a longer one they do
        assert!(contention(&observed(60, 10.04, 5.065, 1.02)) < 0.1, "a quarter of a core");
        assert!(contention(&observed(200, 10.1, 5.2, 1.05)) > CONTENDED, "half a core");
    }

    #[test]
    fn who_disturbed_and_stays_disturbs() {
        let at = Instant::now();
        let observed = |seconds: u64, idle: f64, own: f64, waited: f64| Observed {
            at: at + Duration::from_secs(seconds),
            idle,
            cores: 2.0,
            own,
            waited,
        };
        let mut watch = ContentionWatch::default();
        // two busy cores, of which ours use one, but in the third second one alone; ours wait in the first
        let seconds = [(0.0, 0.0, 0.0), (0.0, 1.0, 0.4), (0.0, 2.0, 0.4), (1.0, 3.0, 0.4), (1.0, 4.0, 0.4)];
        let all: Vec<Observed> =
            seconds.into_iter().zip(0..).map(|((idle, own, waited), at)| observed(at, idle, own, waited)).collect();
        let said: Vec<f64> = all.windows(2).map(|pair| watch.contention(&pair[1], &pair[0])).collect();
        let said: Vec<bool> = said.into_iter().map(|used| used >= CONTENDED).collect();
        assert_eq!(said, [true, true, false, false], "lucky, then alone, then beside others that have not disturbed");
    }

    #[test]
    fn a_machine_that_tells_nothing_is_not_waited_for() {
        let mut watch = ContentionWatch::begin(LoadPolicy::Ignore, None);
        assert_eq!(watch.since(Instant::now()), None);
        assert!(watch.wait_for_quiet(&QuietWait::new(Duration::from_secs(60)), || false));
        let used_up = QuietWait::new(Duration::ZERO);
        assert!(!used_up.is_left() && used_up == QuietWait::new(Duration::ZERO));
    }
}
