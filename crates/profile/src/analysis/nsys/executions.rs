//! Executions of modules among NVTX ranges, and the devices that ran them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::nsys::{NsysCapture, NsysRange};

/// Maximum number of enclosing ranges: anything deeper is a cycle.
const MAX_DEPTH: usize = 64;

/// An execution of a module, with the innermost thunks in it.
pub(super) struct Execution<'r> {
    pub(super) module: &'r str,
    /// `None` for runs of XLA's autotuner.
    pub(super) program_id: Option<i64>,
    pub(super) range: &'r NsysRange,
    pub(super) thunks: Vec<&'r NsysRange>,
}

/// Thunks by the innermost module around them. Thunks may be nested; the innermost are the work. Also returns how many
/// have no module around them.
pub(super) fn executions(ranges: &[NsysRange]) -> (Vec<Execution<'_>>, u64) {
    let by_id: HashMap<i64, &NsysRange> = ranges.iter().map(|range| (range.id, range)).collect();
    let is = |range: &NsysRange, what: &str| range.is_xla && range.name.starts_with(what);
    let (mut outer, mut modules): (HashSet<i64>, HashMap<i64, i64>) = (HashSet::new(), HashMap::new());
    let mut loose = 0;
    for thunk in ranges.iter().filter(|range| is(range, "Thunk:#")) {
        let mut parent = thunk.parent;
        let mut module = None;
        for _ in 0..MAX_DEPTH {
            let Some(range) = parent.and_then(|parent| by_id.get(&parent)) else { break };
            if is(range, "XlaModule:#") {
                module = Some(range.id);
                break;
            }
            if is(range, "Thunk:#") {
                outer.insert(range.id);
            }
            parent = range.parent;
        }
        match module {
            Some(module) => drop(modules.insert(thunk.id, module)),
            None => loose += 1,
        }
    }
    let mut found: BTreeMap<(i64, i64), Execution<'_>> = BTreeMap::new();
    for thunk in ranges.iter().filter(|range| !outer.contains(&range.id)) {
        let Some(range) = modules.get(&thunk.id).and_then(|module| by_id.get(module)) else { continue };
        let execution = found.entry((range.start_ns, range.id)).or_insert_with(|| Execution {
            module: attribute(&range.name, "hlo_module=").unwrap_or_default(),
            program_id: attribute(&range.name, "program_id=").and_then(|id| id.parse().ok()),
            range,
            thunks: Vec::new(),
        });
        execution.thunks.push(thunk);
    }
    (found.into_values().collect(), loose)
}

/// The value of a key in `XlaModule:#hlo_module=f,program_id=3#`. The last occurrence counts, since a preceding name
/// may contain anything.
pub(super) fn attribute<'n>(name: &'n str, key: &str) -> Option<&'n str> {
    let (_, rest) = name.rsplit_once(key)?;
    rest.split([',', '#']).next()
}

/// The instruction that a thunk runs.
pub(super) fn operation(thunk: &NsysRange) -> &str {
    attribute(&thunk.name, "hlo_op=").unwrap_or_default()
}

/// The programs whose compilation was captured: `XlaCompileBackend:#module=f,program_id=3#`.
pub(super) fn compiled_programs(capture: &NsysCapture) -> impl Iterator<Item = (&str, i64)> {
    capture.host_ranges.iter().flatten().filter_map(|range| {
        let name: &str = &range.name;
        let backend = name.strip_prefix("XlaCompileBackend:#module=");
        let rest = backend.or_else(|| name.strip_prefix("XlaCompile:#module="))?;
        Some((rest.split([',', '#']).next()?, attribute(rest, "program_id=")?.parse().ok()?))
    })
}

/// Processes and threads.
type Threads = BTreeSet<(i64, i64)>;

/// Devices by the threads that drive them.
pub(super) struct Devices<'c> {
    capture: &'c NsysCapture,
    /// For each program, the threads that launched it, if no launcher has a name: they represent devices in this order.
    threads: BTreeMap<(&'c str, Option<i64>), Threads>,
    before: i64,
}

impl<'c> Devices<'c> {
    pub(super) fn new(capture: &'c NsysCapture, executions: &[Execution<'c>], before: i64) -> Self {
        let mut threads: BTreeMap<_, Threads> = BTreeMap::new();
        for execution in executions {
            threads.entry((execution.module, execution.program_id)).or_default().insert(thread(execution));
        }
        Self { capture, threads, before }
    }

    pub(super) fn count(&self) -> i64 {
        match self.capture.launchers.len() {
            0 => self.threads.values().map(|threads| threads.len() as i64).max().unwrap_or(0),
            launchers => launchers as i64,
        }
    }

    pub(super) fn ordinal(&self, execution: &Execution<'_>) -> i64 {
        let (pid, tid) = thread(execution);
        let launchers = &self.capture.launchers;
        // a single-device module runs on the main thread, which has no launcher's name: it belongs to the first device
        let of_process = || launchers.iter().filter(|((of, _), _)| *of == pid).map(|(_, device)| *device);
        let named = launchers.get(&(pid, tid)).copied().or_else(|| of_process().min());
        named.unwrap_or_else(|| {
            let threads = self.threads.get(&(execution.module, execution.program_id));
            let rank = threads.and_then(|threads| threads.iter().position(|one| *one == (pid, tid)));
            self.before + rank.unwrap_or(0) as i64
        })
    }
}

fn thread(execution: &Execution<'_>) -> (i64, i64) {
    (execution.range.pid, execution.range.tid)
}
