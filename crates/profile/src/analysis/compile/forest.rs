//! Ranges on threads as a forest: compilations, their contents, and the workers' ranges attached where they were
//! launched.

use std::cmp::Reverse;
use std::sync::Arc;

use super::phase::is_compilation;

/// A named time range of a compiler's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileRange {
    /// Its name, such as `XlaEmitLlvmIr:#module=jit_f#` or `CpuCompiler::RunBackend`.
    pub name: Arc<str>,
    /// The module, if the profile states it beside the name.
    pub module: Option<Arc<str>>,
    /// The thread.
    pub thread: u64,
    /// Start, in picoseconds.
    pub start_ps: i64,
    /// End, likewise.
    pub end_ps: i64,
    /// The place in the list of the range around it on its thread.
    pub parent: Option<usize>,
}

impl CompileRange {
    pub(super) fn duration_ps(&self) -> u64 {
        u64::try_from(self.end_ps.saturating_sub(self.start_ps)).unwrap_or(0)
    }
}

/// A range in the forest. Places count in [`Forest::nodes`].
#[derive(Debug)]
pub(super) struct Node<'r> {
    pub(super) range: &'r CompileRange,
    /// Ranges in it on its own thread, by start.
    pub(super) children: Vec<usize>,
    /// Outermost ranges of other threads, launched while it was the innermost on its own.
    pub(super) workers: Vec<usize>,
    parent: Option<usize>,
}

/// The ranges by start, each after what surrounds it.
#[derive(Debug)]
pub(super) struct Forest<'r> {
    pub(super) nodes: Vec<Node<'r>>,
    /// Outermost compilations, by start.
    pub(super) roots: Vec<usize>,
    /// Ranges on other threads that two compilations may have launched.
    pub(super) ambiguous: u64,
}

impl<'r> Forest<'r> {
    pub(super) fn new(ranges: &'r [CompileRange]) -> Self {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&place| ranges.get(place).map(|range| (range.start_ps, Reverse(range.end_ps))));
        let mut place_of = vec![0; ranges.len()];
        for (place, &number) in order.iter().enumerate() {
            if let Some(slot) = place_of.get_mut(number) {
                *slot = place;
            }
        }
        let mut nodes: Vec<Node<'r>> = Vec::with_capacity(ranges.len());
        for range in order.iter().filter_map(|&number| ranges.get(number)) {
            let place = nodes.len();
            // a range that does not surround it is not a parent, even if the file says so; this excludes cycles
            let parent = range.parent.and_then(|parent| place_of.get(parent).copied()).filter(|&parent| {
                nodes.get(parent).is_some_and(|node| {
                    node.range.thread == range.thread
                        && node.range.start_ps <= range.start_ps
                        && node.range.end_ps >= range.end_ps
                })
            });
            if let Some(parent) = parent.and_then(|parent| nodes.get_mut(parent)) {
                parent.children.push(place);
            }
            nodes.push(Node { range, children: Vec::new(), workers: Vec::new(), parent });
        }
        let mut forest = Self { nodes, roots: Vec::new(), ambiguous: 0 };
        forest.find_roots();
        forest.hang_workers();
        forest
    }

    fn find_roots(&mut self) {
        // whether a node is, or is in, a compilation; parents come first
        let mut within = vec![false; self.nodes.len()];
        for place in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(place) else { continue };
            let inherited = node.parent.and_then(|parent| within.get(parent).copied()).unwrap_or(false);
            let is_root = !inherited && is_compilation(&node.range.name);
            if is_root {
                self.roots.push(place);
            }
            if let Some(slot) = within.get_mut(place) {
                *slot = inherited || is_root;
            }
        }
    }

    /// Attaches the outermost ranges of other threads to the compilation in progress: into the deepest range of its
    /// thread that was open from before their start to after their end.
    fn hang_workers(&mut self) {
        let tops: Vec<usize> = (0..self.nodes.len())
            .filter(|place| self.nodes.get(*place).is_some_and(|node| node.parent.is_none()))
            .collect();
        let mut open: Vec<usize> = Vec::new();
        let mut roots = self.roots.iter().copied().peekable();
        let mut hung = Vec::new();
        for top in tops {
            let Some(worker) = self.nodes.get(top).map(|node| node.range) else { continue };
            while let Some(root) = roots.next_if(|&root| self.start(root) <= worker.start_ps) {
                open.push(root);
            }
            open.retain(|&root| self.end(root) > worker.start_ps);
            let holds = |root: &&usize| self.end(**root) >= worker.end_ps && self.thread(**root) != Some(worker.thread);
            let mut holding = open.iter().filter(holds);
            let Some(&first) = holding.next() else { continue };
            // the one that began last, because the profile does not say which of several it was
            let last = holding.next_back();
            self.ambiguous += u64::from(last.is_some());
            hung.push((self.innermost(last.copied().unwrap_or(first), worker), top));
        }
        for (launcher, worker) in hung {
            if let Some(node) = self.nodes.get_mut(launcher) {
                node.workers.push(worker);
            }
        }
    }

    /// The deepest range in `root` that surrounds `worker` in time.
    fn innermost(&self, root: usize, worker: &CompileRange) -> usize {
        let mut place = root;
        while let Some(node) = self.nodes.get(place) {
            // children of one thread do not overlap: the last that began before is the one
            let after = node.children.partition_point(|&child| self.start(child) < worker.start_ps);
            match after.checked_sub(1).and_then(|last| node.children.get(last)) {
                Some(&child) if self.end(child) > worker.end_ps => place = child,
                _ => break,
            }
        }
        place
    }

    fn start(&self, place: usize) -> i64 {
        self.nodes.get(place).map_or(i64::MAX, |node| node.range.start_ps)
    }

    fn end(&self, place: usize) -> i64 {
        self.nodes.get(place).map_or(i64::MIN, |node| node.range.end_ps)
    }

    fn thread(&self, place: usize) -> Option<u64> {
        self.nodes.get(place).map(|node| node.range.thread)
    }
}
