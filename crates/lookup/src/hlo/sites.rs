//! Call sites: the connected groups of nodes with one label, and the operands of each.
//!
//! A label rarely belongs to one node. Inlined operations leave it on each of their instructions, an inner `jit` on the
//! `call` alone. So a call site is a set of nodes of one computation that carry the label and feed each other. A node
//! within a region also has the labels of the node that holds the region, and belongs to its site. The operands of a
//! site are the values from outside the set, except constants. Computations called from a labelled node are inside the
//! operation and have no sites of that label. A computation that is called from a transposed scope is backward, even if
//! its own relative names do not show it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Label;
use super::escape::Escapes;
use super::found::{CallSite, FoundLabel};
use super::graph::{Computation, Node, NodeId, NodeKind, Type};
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

/// A label by its number, and whether it is under a `transpose(…)`.
type Directed = (usize, bool);

/// The labels in one name.
#[derive(Debug, Default)]
struct Scope {
    labels: Vec<Directed>,
    is_transposed: bool,
}

/// What a node has by itself and from the nodes around it.
#[derive(Debug, Default, Clone)]
struct Standing {
    labels: BTreeSet<Directed>,
    is_transposed: bool,
}

/// What one computation holds.
#[derive(Debug, Default)]
struct Found {
    sites: Vec<(Directed, SiteList)>,
    calls: Vec<(usize, Vec<usize>, bool)>,
    labels: BTreeSet<usize>,
}

/// Gathers computations one at a time; the calls between them are resolved at the end.
pub(crate) struct Sites<'u> {
    escapes: Escapes,
    user: Option<&'u UserLabels>,
    labels: Vec<LabelId>,
    label_index: HashMap<LabelId, usize>,
    scopes: Vec<Scope>,
    scope_index: HashMap<Vec<u8>, Option<usize>>,
    computation_index: HashMap<Vec<u8>, usize>,
    found: HashMap<usize, Found>,
    /// By label and by where its payload is in memory, whether every scope beside that payload has the label as well.
    payloads: HashMap<(usize, usize), bool>,
    untyped: Untyped,
}

/// Operands of call sites that are left out because their types are no arrays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Untyped {
    pub(crate) count: u64,
    /// Some of their types.
    pub(crate) types: BTreeSet<String>,
}

impl Untyped {
    /// Most types that are named.
    const MAX_TYPES: usize = 4;

    fn add(&mut self, spelling: &str) {
        self.count += 1;
        if self.types.len() < Self::MAX_TYPES {
            self.types.insert(spelling.chars().take(MAX_NAME_CHARS).collect());
        }
    }
}

/// The call sites of a label: all are counted, and the first are listed.
#[derive(Debug, Default)]
pub(crate) struct SiteList {
    pub(crate) listed: Vec<CallSite>,
    pub(crate) forward: u64,
    pub(crate) backward: u64,
}

/// Information from the module's graph that is added to its labels.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) sites: HashMap<LabelId, SiteList>,
    pub(crate) backward: BTreeSet<LabelId>,
    /// How many payloads say no more of a label than the scopes beside them.
    pub(crate) repeated: HashMap<LabelId, u64>,
    pub(crate) untyped: Untyped,
}

impl SiteList {
    fn turn_backward(&mut self) {
        self.backward += std::mem::take(&mut self.forward);
        self.listed.iter_mut().for_each(|site| site.backward = true);
    }

    fn append(&mut self, other: Self) {
        self.forward += other.forward;
        self.backward += other.backward;
        let room = FoundLabel::MAX_CALL_SITES.saturating_sub(self.listed.len());
        self.listed.extend(other.listed.into_iter().take(room));
    }
}

impl<'u> Sites<'u> {
    /// For modules whose names are spelled with these escapes.
    pub(crate) fn new(escapes: Escapes, user: Option<&'u UserLabels>) -> Self {
        Self {
            escapes,
            user,
            labels: Vec::new(),
            label_index: HashMap::new(),
            scopes: Vec::new(),
            scope_index: HashMap::new(),
            computation_index: HashMap::new(),
            found: HashMap::new(),
            payloads: HashMap::new(),
            untyped: Untyped::default(),
        }
    }

    /// The scope of a name; `None` if it carries no label and no transposition.
    fn scope(&mut self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        // a long name is identified by its digest: thousands of them may differ only in their first letters
        let digest = (name.len() > MAX_KEY_BYTES).then(|| Digest::of(name));
        let key = digest.as_ref().map_or(name, |digest| digest.as_bytes().as_slice());
        if let Some(known) = self.scope_index.get(key) {
            return *known;
        }
        let mut found = Tally::default();
        found.add_name(name, self.escapes, 0);
        let mut entries = found.entries;
        entries.extend(self.user.map(|user| user.labels(name, self.escapes)).unwrap_or_default());
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

    fn computation_id(&mut self, name: &[u8]) -> usize {
        if let Some(&known) = self.computation_index.get(name) {
            return known;
        }
        let next = self.computation_index.len();
        self.computation_index.insert(name.to_vec(), next);
        next
    }

    /// The labels and the direction of a node; a payload's labels have the direction of the scopes beside it.
    fn standing(&mut self, node: &Node<'_>, around: Option<&Standing>) -> Standing {
        let mut standing = around.cloned().unwrap_or_default();
        let is_inside = standing.is_transposed;
        let (scope, payload) = (self.scope(&node.scope), self.scope(&node.payload));
        self.compare(scope, payload, node.payload.as_ptr() as usize);
        if let Some(scope) = scope.and_then(|scope| self.scopes.get(scope)) {
            standing.labels.extend(scope.labels.iter().map(|&(label, own)| (label, own || is_inside)));
            standing.is_transposed |= scope.is_transposed;
        }
        if let Some(payload) = payload.and_then(|payload| self.scopes.get(payload)) {
            let backward = standing.is_transposed;
            standing.labels.extend(payload.labels.iter().map(|&(label, own)| (label, own || backward)));
        }
        standing
    }

    /// Notes which labels of a payload the scope beside it has as well.
    fn compare(&mut self, scope: Option<usize>, payload: Option<usize>, place: usize) {
        let labels = |name: Option<usize>| name.and_then(|name| self.scopes.get(name)).map(|scope| &scope.labels[..]);
        for &(label, _) in labels(payload).unwrap_or_default() {
            let is_repeated = labels(scope).is_some_and(|labels| labels.iter().any(|&(other, _)| other == label));
            *self.payloads.entry((label, place)).or_insert(true) &= is_repeated;
        }
    }

    /// Adds one computation.
    pub(crate) fn add(&mut self, computation: &Computation<'_>) {
        let id = self.computation_id(&computation.name);
        let mut found = Found::default();
        let mut groups: BTreeMap<Directed, Vec<NodeId>> = BTreeMap::new();
        // only of nodes that have any
        let mut standings: HashMap<NodeId, Standing> = HashMap::new();
        for (place, node) in computation.nodes.iter().enumerate() {
            let around = node.holder.and_then(|holder| standings.get(&holder));
            let around = around.cloned();
            let standing = self.standing(node, around.as_ref());
            for callee in &node.called {
                let own = standing.labels.iter().map(|&(label, _)| label).collect();
                found.calls.push((self.computation_id(callee), own, standing.is_transposed));
            }
            if standing.labels.is_empty() && !standing.is_transposed {
                continue;
            }
            // an argument of a labelled node's region is within the site, and no part of it by itself
            if node.kind != NodeKind::Argument || around.is_none_or(|around| around.labels.is_empty()) {
                for &label in &standing.labels {
                    found.labels.insert(label.0);
                    groups.entry(label).or_default().push(place);
                }
            }
            standings.insert(place, standing);
        }
        for (label, members) in groups {
            let mut group = Group { nodes: &computation.nodes, backward: label.1, untyped: &mut self.untyped };
            found.sites.push((label, group.sites(&members)));
        }
        self.found.insert(id, found);
    }

    /// Carries labels and transpositions along the calls.
    pub(crate) fn resolve(mut self) -> Resolved {
        let (inside, transposed) = self.along_calls();
        let mut resolved = Resolved { untyped: std::mem::take(&mut self.untyped), ..Resolved::default() };
        for (label, _) in self.payloads.iter().filter(|(_, is_repeated)| **is_repeated).map(|(key, _)| key) {
            if let Some(label) = self.labels.get(*label) {
                *resolved.repeated.entry(label.clone()).or_default() += 1;
            }
        }
        let mut ids: Vec<usize> = self.found.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(found) = self.found.remove(&id) else { continue };
            let is_transposed = transposed.contains(&id);
            if is_transposed {
                let labels = found.labels.iter().filter_map(|&label| self.labels.get(label).cloned());
                resolved.backward.extend(labels);
            }
            for ((label, backward), mut sites) in found.sites {
                if inside.get(&id).is_some_and(|labels| labels.contains(&label)) {
                    continue;
                }
                let Some(label) = self.labels.get(label) else { continue };
                if is_transposed {
                    sites.turn_backward();
                }
                if backward || is_transposed {
                    resolved.backward.insert(label.clone());
                }
                resolved.sites.entry(label.clone()).or_default().append(sites);
            }
        }
        for sites in resolved.sites.values_mut() {
            sites.listed.sort_by_key(|site| site.line);
        }
        resolved
    }

    /// By computation, the labels that it is inside of; and the computations called from a transposed scope.
    fn along_calls(&self) -> (HashMap<usize, BTreeSet<usize>>, BTreeSet<usize>) {
        let mut inside: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut transposed: BTreeSet<usize> = BTreeSet::new();
        let mut work: Vec<usize> = self.found.keys().copied().collect();
        // sets only grow, so this ends after at most (labels + 1) rounds per computation
        while let Some(caller) = work.pop() {
            let Some(found) = self.found.get(&caller) else { continue };
            let inherited = inside.get(&caller).cloned().unwrap_or_default();
            let is_transposed = transposed.contains(&caller);
            for (callee, labels, call_is_transposed) in &found.calls {
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
        (inside, transposed)
    }
}

/// The nodes of one computation with one label.
struct Group<'g, 'a> {
    nodes: &'g [Node<'a>],
    backward: bool,
    untyped: &'g mut Untyped,
}

impl Group<'_, '_> {
    /// The sites of these members, in the order of their first nodes.
    fn sites(&mut self, members: &[NodeId]) -> SiteList {
        let position: HashMap<NodeId, usize> = members.iter().enumerate().map(|(at, &member)| (member, at)).collect();
        let mut parent: Vec<usize> = (0..members.len()).collect();
        for (at, &member) in members.iter().enumerate() {
            let Some(node) = self.nodes.get(member) else { continue };
            let fed = node.operands.iter().map(|operand| operand.node).chain(node.holder);
            for &other in fed.filter_map(|other| position.get(&other)) {
                let (a, b) = (root(&mut parent, at), root(&mut parent, other));
                if let Some(slot) = parent.get_mut(a.max(b)) {
                    *slot = a.min(b);
                }
            }
        }
        let mut sites: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
        for (at, &member) in members.iter().enumerate() {
            sites.entry(root(&mut parent, at)).or_default().push(member);
        }
        let count = sites.len() as u64;
        let (forward, backward) = if self.backward { (0, count) } else { (count, 0) };
        let listed = sites.into_values().take(FoundLabel::MAX_CALL_SITES).map(|site| self.site(&site)).collect();
        SiteList { listed, forward, backward }
    }

    fn site(&mut self, members: &[NodeId]) -> CallSite {
        let within: BTreeSet<NodeId> = members.iter().copied().collect();
        let nodes = self.nodes;
        let members = || members.iter().filter_map(|&member| nodes.get(member));
        let mut seen = BTreeSet::new();
        let mut operands = Vec::new();
        for &value in members().flat_map(|node| &node.operands) {
            let Some(of) = nodes.get(value.node) else { continue };
            let is_inner = within.contains(&value.node)
                || of.kind == NodeKind::Argument && of.holder.is_some_and(|holder| within.contains(&holder));
            if !is_inner && of.kind != NodeKind::Constant && seen.insert(value) {
                let types = of.types(value.part);
                if types.is_empty() {
                    self.untyped.add("a type that is not shown");
                }
                types.iter().for_each(|one| push_arrays(one, &mut operands, self.untyped));
            }
        }
        // a call is identified by its callee; a group by its first operation
        let named = members().find(|node| node.kind != NodeKind::Constant).or_else(|| members().next());
        CallSite {
            line: named.and_then(|node| node.line),
            name: named.map(|node| node.name.chars().take(MAX_NAME_CHARS).collect()).unwrap_or_default(),
            backward: self.backward,
            operands,
        }
    }
}

/// The arrays of a type. Tuples come from the reader, which bounds their depth.
fn push_arrays(one: &Type, arrays: &mut Vec<ArraySpec>, untyped: &mut Untyped) {
    match one {
        Type::Array(array) => arrays.push(array.clone()),
        Type::Tuple(parts) => parts.iter().for_each(|part| push_arrays(part, arrays, untyped)),
        // tokens order effects and carry no data
        Type::Other(spelling) if !spelling.contains("token") => untyped.add(spelling),
        Type::Other(_) => {}
    }
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
