//! A module's instructions with their shapes, operands and users.

use std::collections::{BTreeMap, HashMap};

use super::shape::Shape;
use crate::hlo::module::{HloInstruction, HloModule};
use crate::wire::{WireCursor, WireError, WireValue};

/// An instruction.
pub(super) struct Node<'m> {
    /// Its own index.
    pub(super) place: usize,
    pub(super) opcode: &'m str,
    pub(super) shape: Shape,
    /// The indices of its operands in [`Graph::nodes`].
    pub(super) operands: Vec<usize>,
    /// The indices of its users, each once.
    pub(super) users: Vec<usize>,
    /// The indices of the computations that it calls.
    pub(super) called: Vec<usize>,
    /// The index of a `get-tuple-element`.
    pub(super) tuple_index: u64,
    /// The whole `HloInstructionProto`.
    pub(super) message: &'m [u8],
}

/// A computation.
#[derive(Default)]
pub(super) struct Body {
    /// The range of its instructions.
    pub(super) nodes: std::ops::Range<usize>,
    pub(super) root: Option<usize>,
    /// By number.
    pub(super) parameters: BTreeMap<u64, usize>,
}

/// A module; an instruction that cannot be read, or whose operands are missing, is `None`.
pub(super) struct Graph<'m> {
    pub(super) nodes: Vec<Option<Node<'m>>>,
    pub(super) bodies: Vec<Body>,
}

impl<'m> Graph<'m> {
    pub(super) fn of(module: &'m HloModule<'_>) -> Self {
        let places: HashMap<i64, usize> =
            module.computations.iter().enumerate().map(|(place, computation)| (computation.id, place)).collect();
        let (mut nodes, mut bodies) = (Vec::with_capacity(module.instructions.len()), Vec::new());
        for computation in &module.computations {
            let range = computation.instructions.clone();
            let instructions = module.instructions.get(range.clone()).unwrap_or_default();
            let place_of: HashMap<i64, usize> = instructions.iter().map(|one| one.id).zip(range.clone()).collect();
            let mut body =
                Body { nodes: range.clone(), root: place_of.get(&computation.root).copied(), ..Body::default() };
            for (place, instruction) in range.zip(instructions) {
                let mut node = None;
                if let Ok((read, parameter)) = Node::read(instruction, place, &place_of, &places) {
                    if read.opcode == "parameter" {
                        body.parameters.insert(parameter, place);
                    }
                    node = Some(read).filter(|node| node.operands.len() == instruction.operands.len());
                }
                nodes.push(node);
            }
            bodies.push(body);
        }
        let mut graph = Self { nodes, bodies };
        graph.find_users();
        graph
    }

    fn find_users(&mut self) {
        for user in 0..self.nodes.len() {
            let operands = self.node(user).map(|node| node.operands.clone()).unwrap_or_default();
            for operand in operands {
                if let Some(Some(node)) = self.nodes.get_mut(operand)
                    && node.users.last() != Some(&user)
                {
                    node.users.push(user);
                }
            }
        }
    }

    pub(super) fn node(&self, place: usize) -> Option<&Node<'m>> {
        self.nodes.get(place).and_then(Option::as_ref)
    }

    pub(super) fn operand(&self, node: &Node<'_>, number: usize) -> Option<&Node<'m>> {
        self.node(*node.operands.get(number)?)
    }

    /// The `number`th computation that a node calls.
    pub(super) fn called(&self, node: &Node<'_>, number: usize) -> Option<&Body> {
        self.bodies.get(*node.called.get(number)?)
    }
}

impl<'m> Node<'m> {
    /// Reads an instruction, and its number if it is a parameter.
    fn read(
        instruction: &'m HloInstruction<'_>,
        place: usize,
        place_of: &HashMap<i64, usize>,
        computations: &HashMap<i64, usize>,
    ) -> Result<(Self, u64), WireError> {
        let mut node = Self {
            place,
            opcode: &instruction.opcode,
            shape: Shape::default(),
            operands: instruction.operands.iter().filter_map(|id| place_of.get(id).copied()).collect(),
            users: Vec::new(),
            called: instruction.called.iter().filter_map(|id| computations.get(id).copied()).collect(),
            tuple_index: 0,
            message: instruction.message,
        };
        let mut parameter = 0;
        for field in WireCursor::new(instruction.message) {
            match field? {
                (3, WireValue::Bytes(shape)) => node.shape = Shape::decode(shape)?,
                (9, WireValue::Varint(number)) => parameter = number,
                (13, WireValue::Varint(index)) => node.tuple_index = index,
                _ => {}
            }
        }
        Ok((node, parameter))
    }

    /// The messages or texts of a field.
    pub(super) fn bytes_of(&self, number: u32) -> impl Iterator<Item = &'m [u8]> + use<'m> {
        let fields = WireCursor::new(self.message).map_while(Result::ok);
        fields.filter_map(move |(field, value)| (field == number).then(|| value.as_bytes()).flatten())
    }

    /// The number of a field; 0 if it is missing.
    pub(super) fn number_of(&self, number: u32) -> u64 {
        let fields = WireCursor::new(self.message).map_while(Result::ok);
        let mut values = fields.filter_map(|(field, value)| (field == number).then(|| value.as_varint()).flatten());
        values.next().unwrap_or(0)
    }

    /// The numbers of a repeated field.
    pub(super) fn numbers_of(&self, number: u32) -> Result<Vec<u64>, WireError> {
        numbers(self.message, number)
    }
}

/// The numbers of a repeated field of a message.
pub(super) fn numbers(message: &[u8], number: u32) -> Result<Vec<u64>, WireError> {
    let mut found = Vec::new();
    for field in WireCursor::new(message) {
        let (field, value) = field?;
        if field == number {
            crate::wire::repeated_varints(value, &mut found)?;
        }
    }
    Ok(found)
}
