//! The structure of a module, in one shape for every form: computations of nodes that feed each other.
//!
//! A reader of a form hands over one [`Computation`] at a time, so that a large module is never held as a whole. The
//! texts in it are borrowed from the module. Names of scopes and payloads keep the spelling of the form, with its
//! escapes.

use std::borrow::Cow;

use super::census::Census;
use crate::array::ArraySpec;

/// What a form says about the module besides its computations.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Its name.
    pub(crate) module: Option<String>,
    /// The number of partitions, if the form states it.
    pub(crate) partitions: Option<u64>,
    /// Whether its shapes are those of one partition, if the form tells.
    pub(crate) partitioned: Option<bool>,
    /// After optimisation: calls are inlined, operations fused.
    pub(crate) is_optimized: bool,
    /// Its names.
    pub(crate) census: Census,
    /// Why it seems to be truncated.
    pub(crate) cut: Option<String>,
    /// Places that the reader does not understand, and the first of them.
    pub(crate) unread: Unread,
}

/// Operations or instructions that a reader skipped.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    pub(crate) count: u64,
    /// The line of the first, from 1.
    pub(crate) first: Option<u64>,
}

impl Unread {
    pub(crate) fn add(&mut self, line: u64) {
        self.count += 1;
        self.first.get_or_insert(line);
    }
}

/// A function or a computation. Operations within regions are nodes of the function that holds them.
#[derive(Debug, Default)]
pub(crate) struct Computation<'a> {
    /// Its name without `%` or `@`, or the bytes of its id.
    pub(crate) name: Cow<'a, [u8]>,
    /// Whether the form marks it as the one that a program begins with.
    pub(crate) is_entry: bool,
    /// Its arguments and operations. Operands may come after their users only in graph regions.
    pub(crate) nodes: Vec<Node<'a>>,
    /// The attributes of each of its results as text spells them; `None` if the form does not list them.
    pub(crate) results: Option<Vec<Cow<'a, [u8]>>>,
    /// The values that it returns.
    pub(crate) returns: Vec<Value>,
}

/// The number of a node within its computation.
pub(crate) type NodeId = usize;

/// A value that a node takes: what another node yields, or one part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    pub(crate) node: NodeId,
    /// The number of the result where a node has several, or of the element that is taken out of a tuple.
    pub(crate) part: Option<usize>,
}

impl Value {
    /// All that a node yields.
    pub(crate) fn whole(node: NodeId) -> Self {
        Self { node, part: None }
    }
}

/// What a node is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// An operation or instruction.
    #[default]
    Operation,
    /// A constant, which is no operand of a call site.
    Constant,
    /// An argument of the function, of a block of a region, or a parameter instruction.
    Argument,
}

/// An argument, operation or instruction.
#[derive(Debug, Default)]
pub(crate) struct Node<'a> {
    pub(crate) kind: NodeKind,
    /// The instruction's name; in MLIR the function that it calls, or the opcode, and of an argument what the program
    /// calls it.
    pub(crate) name: Cow<'a, str>,
    /// Its opcode as the form spells it: `dot`, `stablehlo.dot_general`.
    pub(crate) opcode: Cow<'a, str>,
    pub(crate) operands: Vec<Value>,
    pub(crate) results: Vec<Type>,
    /// Its scopes, such as `jit(f)/transpose(jvp(g))/mul`, in the form's spelling; empty if it has none.
    pub(crate) scope: Cow<'a, [u8]>,
    /// The label that a library attached to it apart from its scopes; empty if it has none.
    pub(crate) payload: Cow<'a, [u8]>,
    /// The names of the computations that it calls.
    pub(crate) called: Vec<Cow<'a, [u8]>>,
    /// Its attributes as text spells them, as far as a reader keeps them; of HLO text all behind the equal sign,
    /// because the layouts of results stand there.
    pub(crate) attributes: Cow<'a, [u8]>,
    /// The functions that its source line stands in, the innermost first, as far as a reader follows them: those of
    /// custom calls.
    pub(crate) functions: Vec<Cow<'a, str>>,
    /// The file and line of the innermost one.
    pub(crate) place: Option<(Cow<'a, str>, u64)>,
    /// The node whose region holds it.
    pub(crate) holder: Option<NodeId>,
    /// Its line from 1, if the form has lines.
    pub(crate) line: Option<u64>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// An array of known dimensions and element type.
    Array(ArraySpec),
    /// Several values in one.
    Tuple(Vec<Type>),
    /// Anything else as it is spelled, such as `tensor<?x8xf32>` or `token[]`.
    Other(Box<str>),
}

impl Node<'_> {
    /// The types of what a user takes of this node; none if they are unknown.
    pub(crate) fn types(&self, part: Option<usize>) -> &[Type] {
        let all = match (part, self.results.as_slice()) {
            (Some(_), [Type::Tuple(elements)]) => elements,
            (_, results) => results,
        };
        match part {
            Some(part) => all.get(part).map(std::slice::from_ref).unwrap_or_default(),
            None => all,
        }
    }
}

/// Appends the name of a scope after those that are fused with it.
pub(crate) fn join_scopes<'a>(scope: &mut Cow<'a, [u8]>, name: Cow<'a, [u8]>) {
    if scope.is_empty() {
        *scope = name;
    } else if !name.is_empty() {
        let scope = scope.to_mut();
        scope.push(b';');
        scope.extend_from_slice(&name);
    }
}
