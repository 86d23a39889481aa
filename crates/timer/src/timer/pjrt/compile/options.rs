//! Serialized compile options, and the options with which a plugin's client is created.

use std::collections::BTreeMap;

use prost::Message;

use super::options_proto::option_override::Value;
use super::options_proto::{
    CompileOptions, ComputationDevice, DeviceAssignment, ExecutableBuildOptions, OptionOverride,
};
use crate::hlo::{Program, read_program};

/// The number of partitions of a program, each on its own device, and the partitioner that its annotations are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partitions {
    pub(crate) count: u64,
    is_shardy: bool,
}

impl Partitions {
    /// Reads them from a program. An unreadable one has one partition, because the plugin will refuse it.
    pub(crate) fn of(code: &[u8]) -> Self {
        match read_program(code, "program") {
            Ok(Program { partitions: count @ 2.., is_shardy, .. }) => Self { count, is_shardy },
            _ => Self { count: 1, is_shardy: false },
        }
    }
}

/// A serialized `CompileOptionsProto`: one replica, one partition, on the device with this id or the first, with
/// compiler options by name.
pub(crate) fn compile_options(device_id: Option<i64>, overrides: &BTreeMap<String, String>) -> Vec<u8> {
    partitioned_options(Partitions { count: 1, is_shardy: false }, device_id.as_slice(), overrides)
}

/// The same for several partitions, each on the device with its id, or on the plugin's choice if there are no ids.
pub(crate) fn partitioned_options(
    partitions: Partitions,
    device_ids: &[i64],
    overrides: &BTreeMap<String, String>,
) -> Vec<u8> {
    let device_assignment = (!device_ids.is_empty()).then(|| DeviceAssignment {
        replica_count: 1,
        computation_count: i32::try_from(device_ids.len()).unwrap_or(i32::MAX),
        computation_devices: device_ids.iter().map(|&id| ComputationDevice { replica_device_ids: vec![id] }).collect(),
    });
    CompileOptions {
        executable_build_options: Some(ExecutableBuildOptions {
            num_replicas: 1,
            num_partitions: i64::try_from(partitions.count).unwrap_or(i64::MAX),
            use_spmd_partitioning: partitions.count > 1,
            device_assignment,
            use_shardy_partitioner: partitions.is_shardy,
        }),
        env_option_overrides: overrides.iter().map(|(name, value)| (name.clone(), option_override(value))).collect(),
    }
    .encode_to_vec()
}

/// Types an option's value the way XLA reads `name=value` in `XLA_FLAGS`.
fn option_override(text: &str) -> OptionOverride {
    let value = if let Ok(boolean) = text.to_ascii_lowercase().parse() {
        Value::Switch(boolean)
    } else if let Ok(integer) = text.parse() {
        Value::Integer(integer)
    } else if let Ok(real) = text.parse() {
        Value::Real(real)
    } else {
        Value::Text(text.to_owned())
    };
    OptionOverride { value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_plugins_take() {
        // found by testing three plugins: with less they abort
        let none = BTreeMap::new();
        assert_eq!(compile_options(None, &none), [0x1a, 0x04, 0x20, 0x01, 0x28, 0x01]);
        assert_eq!(
            compile_options(Some(2), &none),
            [0x1a, 0x0f, 0x20, 1, 0x28, 1, 0x4a, 0x09, 0x08, 1, 0x10, 1, 0x1a, 3, 0x0a, 1, 2]
        );
    }

    #[test]
    fn each_partition_has_its_device() {
        let none = BTreeMap::new();
        let of = |text: &str| Partitions::of(format!("module @m attributes {{{text}}} {{}}").as_bytes());
        assert_eq!(partitioned_options(of(""), &[], &none), compile_options(None, &none));
        assert_eq!(partitioned_options(of("a = \"sdy.\""), &[2], &none), compile_options(Some(2), &none));
        // two computations of one replica each; fields 6 and 19 are switches
        let gspmd = of("mhlo.num_partitions = 2 : i32");
        let assigned = [0x4a, 0x0e, 0x08, 1, 0x10, 2, 0x1a, 3, 0x0a, 1, 4, 0x1a, 3, 0x0a, 1, 5];
        let expected = [&[0x1a, 0x16, 0x20, 1, 0x28, 2, 0x30, 1][..], &assigned].concat();
        assert_eq!(partitioned_options(gspmd, &[4, 5], &none), expected);
        let shardy = of("mhlo.num_partitions = 2 : i32, sdy.mesh = 0");
        let expected = [&[0x1a, 0x19, 0x20, 1, 0x28, 2, 0x30, 1][..], &assigned, &[0x98, 1, 1]].concat();
        assert_eq!(partitioned_options(shardy, &[4, 5], &none), expected);
    }

    #[test]
    fn options_of_the_compiler_are_typed_by_their_spelling() {
        let bytes = |name: &str, value: &str| {
            compile_options(None, &BTreeMap::from([(name.to_owned(), value.to_owned())]))[6..].to_vec()
        };
        // field 7, a map's entry: key in field 1, value in field 2, whose fields 1 to 4 are the types
        assert_eq!(bytes("a", "x"), [0x3a, 8, 0x0a, 1, b'a', 0x12, 3, 0x0a, 1, b'x']);
        assert_eq!(bytes("a", "True"), [0x3a, 7, 0x0a, 1, b'a', 0x12, 2, 0x10, 1]);
        assert_eq!(bytes("a", "7"), [0x3a, 7, 0x0a, 1, b'a', 0x12, 2, 0x18, 7]);
        assert_eq!(bytes("a", "0.5")[5..9], [0x12, 9, 0x21, 0]);
    }
}
