//! What is kept while a text is read: the reader, its function, and an operation.

use std::collections::HashMap;

use super::location::Locations;
use super::values::Values;
use crate::hlo::graph::{Computation, Head, Node, NodeId, Type, Value};
use crate::hlo::text_cursor::Cursor;

/// A text in the middle of being read.
pub(super) struct Reader<'a, 'e> {
    pub(super) cursor: Cursor<'a>,
    pub(super) each: &'e mut dyn FnMut(Computation<'a>),
    pub(super) head: Head,
    pub(super) locations: Locations<'a>,
    /// The spellings behind aliases of types, such as `!t = tensor<2xf32>`.
    pub(super) aliases: HashMap<&'a [u8], &'a [u8]>,
    /// The function that is being read.
    pub(super) function: Function<'a>,
    /// The names of the modules around, without that of the outermost one, which no reference names.
    pub(super) modules: Vec<&'a [u8]>,
    /// How many regions are open.
    pub(super) depth: usize,
}

/// A function that is being read.
#[derive(Debug, Default)]
pub(super) struct Function<'a> {
    /// False outside of all functions.
    pub(super) is_function: bool,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) values: Values<'a>,
    pub(super) returns: Vec<Value>,
}

/// The node of a new argument or operation.
pub(super) fn push<'a>(function: &mut Function<'a>, node: Node<'a>) -> NodeId {
    function.nodes.push(node);
    function.nodes.len() - 1
}

/// What an operation is to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Function,
    Module,
    /// An alias of an attribute or a location, which is passed.
    Alias,
}

/// What was read of an operation.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    pub(super) kind: Kind,
    pub(super) node: Option<NodeId>,
    pub(super) is_generic: bool,
    pub(super) is_outermost: bool,
    /// The text after its name, up to its types, its first region or its location.
    pub(super) text: &'a [u8],
    pub(super) start: &'a [u8],
    pub(super) is_text_complete: bool,
    /// The symbols that it names outside of its attributes.
    pub(super) symbols: Vec<&'a [u8]>,
    /// Arguments whose types are those of the results.
    pub(super) declared: Vec<NodeId>,
    pub(super) types: Vec<Type>,
    /// The attributes of each result of a function.
    pub(super) result_attributes: Vec<&'a [u8]>,
    pub(super) has_types: bool,
    pub(super) has_region: bool,
    pub(super) has_location: bool,
    /// Whether it states a number of partitions.
    pub(super) partitions: bool,
    /// Whether it names a value that is not defined before.
    pub(super) is_unread: bool,
}

impl Operation<'_> {
    pub(super) fn new(kind: Kind, node: Option<NodeId>, is_generic: bool) -> Self {
        Self {
            kind,
            node,
            is_generic,
            is_outermost: false,
            text: &[],
            start: &[],
            is_text_complete: false,
            symbols: Vec::new(),
            declared: Vec::new(),
            types: Vec::new(),
            result_attributes: Vec::new(),
            has_types: false,
            has_region: false,
            has_location: false,
            partitions: false,
            is_unread: false,
        }
    }

    /// Whether nothing but a location may follow.
    pub(super) fn is_closed(&self) -> bool {
        self.has_region && !self.is_generic && matches!(self.kind, Kind::Function | Kind::Module)
    }
}
