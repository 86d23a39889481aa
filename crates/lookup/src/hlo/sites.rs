//! Call sites: the connected groups of instructions with one label, and the operands of each.
//!
//! A label rarely belongs to one instruction. Inlined operations leave it on each of their instructions, an inner `jit`
//! on the `call` alone. So a call site is a set of instructions of one computation that carry the label and feed each
//! other. Its operands are the values from outside the set, except constants. Computations called from a labelled
//! instruction are inside the operation and have no sites of that label. A computation that is called from a transposed
//! scope is backward, even if its own relative names do not show it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Label;
use super::escape::Escapes;
use super::found::{CallSite, FoundLabel};
use super::stamp::Family;
use super::tally::{Tally, Transformations};
use super::user_label::UserLabels;
use crate::array::ArraySpec;
use crate::digest::Digest;

/// Instruction names that XLA derives from a json stamp run to thousands of characters.
const MAX_NAME_CHARS: usize = 120;

/// Maximum length of a name that is its own key.
const MAX_KEY_BYTES: usize = 1024;

/// The identity of a label within a scan.
pub(crate) type LabelId = (Label, Family);

/// The parts of an instruction that call sites need.
#[derive(Debug, Default)]
pub(crate) struct Instruction {
    /// Name of the instruction, or of the function that it calls.
    pub(crate) name: String,
    /// Its result, if that is one array.
    pub(crate) shape: Option<ArraySpec>,
    /// Constants are not operands of a call site.
    pub(crate) is_constant: bool,
    /// Indices of its operands within the computation.
    pub(crate) operands: Vec<usize>,
    /// Its scopes, as interned by [`Sites::scope`].
    pub(crate) scope: Option<usize>,
    /// Computations that it calls.
    pub(crate) called: Vec<usize>,
    /// Line, if the form has lines.
    pub(crate) line: Option<u64>,
}

/// The labels in one name.
#[derive(Debug, Default)]
struct Scope {
    labels: Vec<(usize, bool)>,
    is_transposed: bool,
}

#[derive(Debug, Default)]
struct Computation {
    sites: Vec<(usize, CallSite)>,
    calls: Vec<(usize, Vec<usize>, bool)>,
    labels: BTreeSet<usize>,
}

/// Gathers computations one at a time; the graph between them is resolved at the end.
#[derive(Default)]
pub(crate) struct Sites {
    labels: Vec<LabelId>,
    label_index: HashMap<LabelId, usize>,
    scopes: Vec<Scope>,
    scope_index: HashMap<Vec<u8>, Option<usize>>,
    computation_index: HashMap<Vec<u8>, usize>,
    computations: HashMap<usize, Computation>,
}

/// Information from the module's graph that is added to its labels.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) sites: HashMap<LabelId, Vec<CallSite>>,
    pub(crate) backward: BTreeSet<LabelId>,
}

impl Sites {
    /// The scope of a name; `None` if it carries no label and no transposition.
    pub(crate) fn scope(&mut self, name: &[u8], escapes: Escapes, user: Option<&UserLabels>) -> Option<usize> {
        // a long name is identified by its digest: thousands of them may differ only in their first letters
        let digest = (name.len() > MAX_KEY_BYTES).then(|| Digest::of(name));
        let key = digest.as_ref().map_or(name, |digest| digest.as_bytes().as_slice());
        if let Some(known) = self.scope_index.get(key) {
            return *known;
        }
        let mut found = Tally::default();
        found.add_name(name, escapes, 0);
        let mut entries = found.entries;
        entries.extend(user.map(|user| user.labels(name, escapes)).unwrap_or_default());
        let is_transposed = Transformations::of(name, Escapes::Raw).backward;
        let scope = (is_transposed || !entries.is_empty()).then(|| {
            let labels = entries
                .into_iter()
                .map(|entry| (self.label((entry.stamp.label, entry.stamp.family)), entry.transformations.backward))
                .collect();
            self.scopes.push(Scope { labels, is_transposed });
            self.scopes.len() - 1
        });
        self.scope_index.insert(key.to_vec(), scope);
        scope
    }

    fn label(&mut self, label: LabelId) -> usize {
        let next = self.labels.len();
        let index = *self.label_index.entry(label.clone()).or_insert(next);
        if index == next {
            self.labels.push(label);
        }
        index
    }

    /// The number of a computation, by its name or its id's bytes.
    pub(crate) fn computation_id(&mut self, name: &[u8]) -> usize {
        if let Some(&known) = self.computation_index.get(name) {
            return known;
        }
        let next = self.computation_index.len();
        self.computation_index.insert(name.to_vec(), next);
        next
    }

    /// Adds one computation.
    pub(crate) fn add(&mut self, id: usize, instructions: &[Instruction]) {
        let mut computation = Computation::default();
        let mut groups: BTreeMap<(usize, bool), Vec<usize>> = BTreeMap::new();
        for (index, instruction) in instructions.iter().enumerate() {
            let scope = instruction.scope.and_then(|scope| self.scopes.get(scope));
            let labels: BTreeSet<(usize, bool)> =
                scope.map(|scope| scope.labels.iter().copied().collect()).unwrap_or_default();
            let is_transposed = scope.is_some_and(|scope| scope.is_transposed);
            for &callee in &instruction.called {
                let own = labels.iter().map(|&(label, _)| label).collect();
                computation.calls.push((callee, own, is_transposed));
            }
            for label in labels {
                computation.labels.insert(label.0);
                groups.entry(label).or_default().push(index);
            }
        }
        for ((label, backward), members) in groups {
            for site in connected_sites(instructions, &members, backward) {
                computation.sites.push((label, site));
            }
        }
        self.computations.insert(id, computation);
    }

    /// Carries labels and transpositions along the calls.
    pub(crate) fn resolve(mut self) -> Resolved {
        let mut inside: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut transposed: BTreeSet<usize> = BTreeSet::new();
        let mut work: Vec<usize> = self.computations.keys().copied().collect();
        // sets only grow, so this ends after at most (labels + 1) rounds per computation
        while let Some(caller) = work.pop() {
            let Some(computation) = self.computations.get(&caller) else { continue };
            let inherited = inside.get(&caller).cloned().unwrap_or_default();
            let is_transposed = transposed.contains(&caller);
            for (callee, labels, call_is_transposed) in &computation.calls {
                let set = inside.entry(*callee).or_default();
                let before = set.len();
                set.extend(labels.iter().copied().chain(inherited.iter().copied()));
                let mut changed = set.len() > before;
                if is_transposed || *call_is_transposed {
                    changed |= transposed.insert(*callee);
                }
                if changed {
                    work.push(*callee);
                }
            }
        }
        let mut resolved = Resolved::default();
        let mut ids: Vec<usize> = self.computations.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(computation) = self.computations.remove(&id) else { continue };
            let is_transposed = transposed.contains(&id);
            if is_transposed {
                let labels = computation.labels.iter().filter_map(|&label| self.labels.get(label).cloned());
                resolved.backward.extend(labels);
            }
            for (label, mut site) in computation.sites {
                if inside.get(&id).is_some_and(|labels| labels.contains(&label)) {
                    continue;
                }
                let Some(label) = self.labels.get(label) else { continue };
                site.backward |= is_transposed;
                let sites = resolved.sites.entry(label.clone()).or_default();
                if sites.len() < FoundLabel::MAX_CALL_SITES {
                    sites.push(site);
                }
            }
        }
        for sites in resolved.sites.values_mut() {
            sites.sort_by_key(|site| site.line);
        }
        resolved
    }
}

fn connected_sites(instructions: &[Instruction], members: &[usize], backward: bool) -> Vec<CallSite> {
    let position: HashMap<usize, usize> = members.iter().enumerate().map(|(at, &member)| (member, at)).collect();
    let mut parent: Vec<usize> = (0..members.len()).collect();
    for (at, &member) in members.iter().enumerate() {
        let operands = instructions.get(member).map(|instruction| instruction.operands.as_slice()).unwrap_or_default();
        for &other in operands.iter().filter_map(|operand| position.get(operand)) {
            let (a, b) = (root(&mut parent, at), root(&mut parent, other));
            if let Some(slot) = parent.get_mut(a.max(b)) {
                *slot = a.min(b);
            }
        }
    }
    let mut sites: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, &member) in members.iter().enumerate() {
        sites.entry(root(&mut parent, at)).or_default().push(member);
    }
    sites.into_values().take(FoundLabel::MAX_CALL_SITES).map(|group| site(instructions, &group, backward)).collect()
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while let Some(&up) = parent.get(at)
        && up != at
    {
        let above = parent.get(up).copied().unwrap_or(up);
        if let Some(slot) = parent.get_mut(at) {
            *slot = above;
        }
        at = above;
    }
    at
}

fn site(instructions: &[Instruction], group: &[usize], backward: bool) -> CallSite {
    let within: BTreeSet<usize> = group.iter().copied().collect();
    let members = || group.iter().filter_map(|&member| instructions.get(member));
    let mut seen = BTreeSet::new();
    let mut operands = Vec::new();
    for &operand in members().flat_map(|instruction| &instruction.operands) {
        let Some(value) = instructions.get(operand) else { continue };
        if !within.contains(&operand) && !value.is_constant && seen.insert(operand) {
            operands.extend(value.shape.clone());
        }
    }
    // a call is identified by its callee; a group by its first instruction
    let named = members().find(|instruction| !instruction.is_constant).or_else(|| members().next());
    CallSite {
        line: named.and_then(|instruction| instruction.line),
        name: named.map(|instruction| instruction.name.chars().take(MAX_NAME_CHARS).collect()).unwrap_or_default(),
        backward,
        operands,
    }
}
