//! HLO text as an `HloModuleProto`, so that whatever reads instructions of protos reads those of text: profiles with
//! the text that XLA dumps. Only fields that are read of protos are filled.

mod attributes;
mod instruction;
mod shape;
mod tables;

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use self::instruction::instruction;
use super::error::ScanErrorKind;
use super::graph::Computation;
use super::hlo_text;
use super::schema::hlo::{HloComputationProto, HloModuleProto};

/// The bytes of an `HloModuleProto` with this id of what HLO text says.
pub(super) fn proto_of_text(text: &[u8], id: i64) -> Result<Vec<u8>, ScanErrorKind> {
    let mut module = HloModuleProto { id, ..HloModuleProto::default() };
    let (mut ids, mut first_id) = (HashMap::new(), 0);
    let head = hlo_text::read(text, &mut |computation| {
        let mut id_of = |name: &[u8]| {
            let next = ids.len() as i64 + 1;
            *ids.entry(name.to_vec()).or_insert(next)
        };
        let id = id_of(&computation.name);
        if computation.is_entry {
            module.entry_computation_id = id;
        }
        let read = of_computation(&computation, id, first_id, &mut id_of);
        first_id += computation.nodes.len() as i64;
        module.computations.push(read.encode_to_vec().into());
    });
    let Some(name) = head.module.filter(|_| !module.computations.is_empty()) else {
        return Err(ScanErrorKind::NotAModule { seen: "HLO text without a computation".to_owned() });
    };
    if let Some(what) = head.cut {
        return Err(ScanErrorKind::Truncated { what, offset: text.len() as u64 });
    }
    module.name = name.into();
    module.schedule = head.is_optimized.then(Bytes::new);
    module.stack_frame_index = tables::of_text(text);
    Ok(module.encode_to_vec())
}

/// A computation whose instructions are numbered from `first_id` on.
fn of_computation(
    computation: &Computation<'_>,
    id: i64,
    first_id: i64,
    id_of: &mut dyn FnMut(&[u8]) -> i64,
) -> HloComputationProto {
    let id_of_node = |node: usize| first_id + node as i64;
    let encoded = |(place, node)| Bytes::from(instruction(node, place, &id_of_node, id_of).encode_to_vec());
    let instructions: Vec<Bytes> = computation.nodes.iter().enumerate().map(encoded).collect();
    // a text without the word has its result last
    let last = computation.nodes.len().saturating_sub(1);
    let root = computation.returns.first().map_or(last, |root| root.node);
    let name = computation.name.to_vec().into();
    HloComputationProto { name, instructions, id, root_id: id_of_node(root) }
}
