//! HLO text read as a proto says what XLA's own proto of the same module says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use autotune_lowered::hlo::{Costs, HloInstruction, HloModule, ReplicaGroups};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name)).unwrap()
}

/// A name without the number with which XLA tells it from equal ones when it reads a text.
fn plain(name: &str) -> &str {
    name.trim_end_matches(|end: char| end.is_ascii_digit()).trim_end_matches('.')
}

/// What a profile reads of an instruction.
fn told(module: &HloModule, instruction: &HloInstruction) -> String {
    let message = &instruction.message;
    let operands: Vec<&str> = module.operands_of(instruction).map(|one| plain(one.name())).collect();
    // XLA puts the instructions of a computation in an order of its own
    let called: BTreeSet<&str> = module.called_by(instruction).map(|one| plain(one.name())).collect();
    let caller = module.caller(instruction).map(|one| plain(one.name()));
    let metadata = message.metadata.clone().unwrap_or_default();
    let values = (&metadata.op_name, &metadata.source_file, metadata.source_line, instruction.payload());
    let numbers = (message.parameter_number, message.tuple_index, message.use_global_device_ids);
    let texts = (instruction.opcode(), &message.custom_call_target);
    let (shape, stack, groups) = (&message.shape, module.stack(instruction), instruction.replica_groups());
    format!("{texts:?}\n{shape:?}\n{operands:?} {called:?} {caller:?}\n{values:?}\n{numbers:?} {groups:?}\n{stack:?}")
}

#[test]
fn a_text_says_what_the_proto_of_the_same_module_says() {
    let mut compared = 0;
    for (text, proto) in [
        ("grouped_matmul.hash.post.hlo.txt", "grouped_matmul.hash.post.hlo.pb"),
        ("grouped_matmul.hash.pre.hlo.txt", "grouped_matmul.hash.pre.hlo.pb"),
        ("cost/opcodes.hlo.txt", "cost/opcodes.hlo.pb"),
        ("cost/declared.hlo.txt", "cost/declared.hlo.pb"),
    ] {
        let expected = HloModule::read(&read(proto), proto).unwrap();
        let found = HloModule::of_text(&read(text), expected.id, text).unwrap();
        assert_eq!((&found.name, found.id), (&expected.name, expected.id), "{text}");
        assert_eq!(found.message.schedule.is_some(), expected.message.schedule.is_some(), "{text}");
        assert_eq!(found.instructions.len(), expected.instructions.len(), "{text}");
        let (costs, expected_costs) = (Costs::of(&found), Costs::of(&expected));
        for (place, instruction) in expected.instructions.iter().enumerate() {
            let name = instruction.name();
            let mut equal = found.instructions.iter().enumerate().filter(|(_, one)| one.name() == name);
            let (Some((own, one)), None) = (equal.next(), equal.next()) else { continue };
            assert_eq!(told(&found, one), told(&expected, instruction), "{text}: {name}");
            let config = |of: &HloInstruction| {
                let bytes = of.message.backend_config.clone();
                serde_json::from_slice::<serde_json::Value>(&bytes).map_err(|_| bytes)
            };
            assert_eq!(config(one), config(instruction), "{text}: {name}");
            let (cost, expected) = (costs.instruction(own), expected_costs.instruction(place));
            assert_eq!(format!("{cost:?}"), format!("{expected:?}"), "{text}: {name}");
            compared += 1;
        }
        assert_eq!(format!("{:?}", costs.entry()), format!("{:?}", expected_costs.entry()), "{text}");
    }
    assert!(compared > 200, "{compared}");
}

/// As XLA prints the groups of a collective, by hand.
#[test]
fn groups_of_devices_are_read_in_every_form() {
    let listed = |groups: &[&[u64]]| ReplicaGroups::Listed(groups.iter().map(|group| group.to_vec()).collect());
    for (written, expected) in [
        ("{{0,1},{2,3}}", listed(&[&[0, 1], &[2, 3]])),
        ("{}", ReplicaGroups::All),
        ("[2,2]<=[4]", listed(&[&[0, 1], &[2, 3]])),
        ("[2,2]<=[2,2]T(1,0)", listed(&[&[0, 2], &[1, 3]])),
        ("mesh['x'=2,'y'=2] {'y'}", ReplicaGroups::Unknown),
    ] {
        let text = format!(
            "HloModule m, is_scheduled=true\n%add (a: f32[], b: f32[]) -> f32[] {{\n  %a = f32[] parameter(0)\n  \
             %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}}\nENTRY %e (x: f32[4]) -> f32[4] {{\n  %x = \
             f32[4] parameter(0)\n  ROOT %r = f32[4] all-reduce(%x), channel_id=1, replica_groups={written}, \
             use_global_device_ids=true, to_apply=%add\n}}\n"
        );
        let module = HloModule::of_text(text.as_bytes(), 7, "text").unwrap();
        let reduce = module.instruction("r").unwrap();
        assert_eq!((reduce.replica_groups(), reduce.message.use_global_device_ids), (expected, true), "{written}");
        assert_eq!((module.id, module.called_by(reduce).count()), (7, 3), "{written}");
    }
}

#[test]
fn texts_that_are_cut_or_damaged_are_refused_or_read() {
    let whole = read("grouped_matmul.hash.post.hlo.txt");
    for at in (0..whole.len()).step_by(61) {
        let cut = HloModule::of_text(&whole[..at], 0, "cut");
        assert!(cut.is_err() || at + 2 >= whole.len(), "cut at {at}");
        for byte in *b"{}()[]\"=,_x\n\xff" {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            let _ = HloModule::of_text(&damaged, 0, "damaged").map(|module| Costs::of(&module));
        }
    }
}
