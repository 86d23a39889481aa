//! The costs of a module's instructions and computations.

use super::amount::Cost;
use super::custom_call::estimated_cycles;
use super::fusion::Reads;
use super::graph::Graph;
use super::rules::{cost_of, cost_of_loop};
use crate::hlo::module::HloModule;

/// The cost of one run of each instruction of a module.
///
/// Control flow costs as much as its body: a `while` one iteration, a `conditional` its most expensive branch, as XLA
/// counts them.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    instructions: Vec<Cost>,
    computations: Vec<Cost>,
    entry: Option<usize>,
}

impl Costs {
    /// Counts a whole module, in time linear in its instructions.
    pub fn of(module: &HloModule) -> Self {
        Self::count(module, false)
    }

    fn count(module: &HloModule, with_trips: bool) -> Self {
        let graph = Graph::of(module);
        let mut costs = Self {
            entry: module.computations.iter().position(|computation| computation.id == module.entry),
            ..Self::default()
        };
        let mut reads = Reads::default();
        for body in &graph.bodies {
            let mut sum = Cost::default();
            for place in body.nodes.clone() {
                let cost = match graph.node(place) {
                    Some(node) if with_trips && node.opcode == "while" => cost_of_loop(node, &costs.computations),
                    _ => cost_of(&graph, place, &costs.computations, &reads),
                };
                let mut cost = cost.unwrap_or_else(Cost::unknown);
                cost.estimated_cycles += graph.node(place).and_then(estimated_cycles).unwrap_or(0.0);
                sum.add(&cost, 1.0);
                costs.instructions.push(cost);
            }
            costs.computations.push(sum);
            reads.add_body(&graph, body);
        }
        costs
    }

    /// The cost of the instruction at this index of [`HloModule::instructions`].
    pub fn instruction(&self, place: usize) -> Option<&Cost> {
        self.instructions.get(place)
    }

    /// The cost of the whole module, as XLA's analysis adds it up.
    pub fn entry(&self) -> Option<&Cost> {
        self.computations.get(self.entry?)
    }
}

impl Cost {
    /// The work of one run of an optimized program, an `HloModuleProto` or an `HloProto`: like [`Costs::entry`], but
    /// every loop counts by its trip count as recorded by XLA. A loop without one has an unknown cost. `None` if the
    /// bytes are not a module.
    pub fn of_run(program: &[u8]) -> Option<Self> {
        let module = HloModule::read(program, "").ok()?;
        Costs::count(&module, true).entry().cloned().filter(Self::is_plausible)
    }
}
