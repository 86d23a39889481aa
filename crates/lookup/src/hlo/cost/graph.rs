//! A module's instructions with their shapes, operands and users.

use std::collections::{BTreeMap, HashMap};

use crate::hlo::module::{HloInstruction, HloModule};
use crate::hlo::schema::hlo::HloInstructionProto;
use crate::hlo::schema::xla_data::ShapeProto;

/// An instruction.
pub(super) struct Node<'m> {
    /// Its own index.
    pub(super) place: usize,
    pub(super) opcode: &'m str,
    pub(super) shape: &'m ShapeProto,
    /// The indices of its operands in [`Graph::nodes`].
    pub(super) operands: Vec<usize>,
    /// The indices of its users, each once.
    pub(super) users: Vec<usize>,
    /// The indices of the computations that it calls.
    pub(super) called: Vec<usize>,
    /// Everything else.
    pub(super) message: &'m HloInstructionProto,
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

/// A module; an instruction whose operands are missing is `None`.
pub(super) struct Graph<'m> {
    pub(super) nodes: Vec<Option<Node<'m>>>,
    pub(super) bodies: Vec<Body>,
}

impl<'m> Graph<'m> {
    pub(super) fn of(module: &'m HloModule) -> Self {
        let places: HashMap<i64, usize> =
            module.computations.iter().enumerate().map(|(place, computation)| (computation.id, place)).collect();
        let (mut nodes, mut bodies) = (Vec::with_capacity(module.instructions.len()), Vec::new());
        for computation in &module.computations {
            let range = computation.instructions.clone();
            let instructions = module.instructions.get(range.clone()).unwrap_or_default();
            let place_of: HashMap<i64, usize> =
                instructions.iter().map(HloInstruction::id).zip(range.clone()).collect();
            let mut body =
                Body { nodes: range.clone(), root: place_of.get(&computation.root).copied(), ..Body::default() };
            for (place, instruction) in range.zip(instructions) {
                if instruction.opcode() == "parameter" {
                    body.parameters.insert(instruction.message.parameter_number, place);
                }
                let node = Node::new(instruction, place, &place_of, &places);
                nodes.push(Some(node).filter(|node| node.operands.len() == instruction.operands().len()));
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
    fn new(
        instruction: &'m HloInstruction,
        place: usize,
        place_of: &HashMap<i64, usize>,
        computations: &HashMap<i64, usize>,
    ) -> Self {
        Self {
            place,
            opcode: instruction.opcode(),
            shape: instruction.shape(),
            operands: instruction.operands().iter().filter_map(|id| place_of.get(id).copied()).collect(),
            users: Vec::new(),
            called: instruction.called().iter().filter_map(|id| computations.get(id).copied()).collect(),
            message: &instruction.message,
        }
    }
}
