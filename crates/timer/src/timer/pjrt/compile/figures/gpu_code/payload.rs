//! Finds the `GpuExecutableProto` in a serialized executable.

use super::fields::the_bytes;
use super::split_proto::{MessagePart, is_split, split};
use super::thunks::Kernels;
use crate::timer::protocol::KernelUse;
use crate::wire::WireCursor;

// openxla/xla, xla/pjrt/proto/compile_options.proto, ExecutableAndOptionsProto
const PAYLOAD: &[u8] = b"xla.ExecutableAndOptionsProto";
const SERIALIZED_EXECUTABLE: u32 = 1;
// xla/service/gpu/gpu_executable.proto, GpuExecutableProto
const GPU_EXECUTABLE: &[u8] = b"xla.gpu.GpuExecutableProto";
const THUNKS: u32 = 13;

/// Why the kernels of an executable are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownKernels {
    /// It is not CUDA's, is not in a form that XLA wrote up to 2026, has more than 1024 kernels, or is damaged.
    Form,
    /// It runs code that does not lie in it as a cubin: a custom call's, such as Mosaic GPU's, or a collective's.
    Opaque,
}

impl UnknownKernels {
    /// One line for the user.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Form => "this version does not read this form of executable",
            Self::Opaque => "the executable has code that cannot be inspected, such as a custom call's",
        }
    }
}

/// The kernels whose machine code is contained in a serialized CUDA executable (`PJRT_Executable_Serialize`), each
/// once, in the order of their first launch. Kernels of the plugin and of NVIDIA's libraries are not included.
///
/// # Errors
/// Why not all of them are known. Formats: openxla/xla, `xla/util/split_proto/split_gpu_executable_writer.cc` and the
/// `.proto` files that are named beside the fields' numbers. Plugins up to 0.10 write the payload as a message, those
/// from 0.11 on as a split one.
pub fn kernels_of(serialized: &[u8]) -> Result<Vec<KernelUse>, UnknownKernels> {
    let mut kernels = Kernels::default();
    match read(serialized, &mut kernels) {
        Some(()) => Ok(kernels.found),
        None if kernels.is_opaque() => Err(UnknownKernels::Opaque),
        None => Err(UnknownKernels::Form),
    }
}

fn read(serialized: &[u8], kernels: &mut Kernels) -> Option<()> {
    if !is_split(serialized) {
        return read_executable(the_bytes(serialized, SERIALIZED_EXECUTABLE)?, kernels);
    }
    let mut executables = split(serialized, PAYLOAD)?.into_iter().filter_map(|part| match part {
        MessagePart::Field { path, bytes } if path == [SERIALIZED_EXECUTABLE] => Some(bytes),
        // beside other options; a part that has none is none of ours
        MessagePart::Message(part) => the_bytes(&part, SERIALIZED_EXECUTABLE).map(<[u8]>::to_vec),
        MessagePart::Field { .. } => None,
    });
    let executable = executables.next()?;
    executables.next().is_none().then_some(())?;
    read_executable(&executable, kernels)
}

/// Reads the parts of the message; its fields are those of all parts together.
fn read_executable(executable: &[u8], kernels: &mut Kernels) -> Option<()> {
    for part in split(executable, GPU_EXECUTABLE)? {
        // a field apart is one text or one constant
        let MessagePart::Message(part) = part else { continue };
        for field in WireCursor::new(&part) {
            let (number, value) = field.ok()?;
            if number == THUNKS {
                kernels.read_thunk(value.as_bytes()?)?;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::super::records::records;
    use super::super::split_proto::{PROTO_MERGE_RECORD, RECORDS, RESULT_PROTO_TYPE};
    use super::*;
    use crate::wire::Message;

    /// The plugins' versions: from 0.11 on, the payload is a split message.
    const VERSIONS: [&str; 2] = ["0.10.2", "0.11.2"];

    /// An executable made by `tests/data/targets/kernels.py`.
    fn data(name: &str) -> Vec<u8> {
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/targets/kernels").join(name)).unwrap()
    }

    fn pieces(name: &str) -> Vec<Vec<u8>> {
        records(the_bytes(&data(&format!("{}/{name}", VERSIONS[0])), SERIALIZED_EXECUTABLE).unwrap()).unwrap()
    }

    /// The kernels, or nothing.
    fn kernels_of(executable: &[u8]) -> Option<Vec<KernelUse>> {
        super::kernels_of(executable).ok()
    }

    fn chunk(kind: u8, count: u64, decoded: usize, data: &[u8]) -> Vec<u8> {
        let hash = if kind == b's' { *b"\x91\xba\xc2\x3c\x92\x87\xe1\xa9" } else { [0; 8] };
        let kind_and_count = u64::from(kind) | count << 8;
        let header = [hash, (data.len() as u64).to_le_bytes(), [0; 8], kind_and_count.to_le_bytes()];
        [&*header.concat(), &(decoded as u64).to_le_bytes(), data].concat()
    }

    /// Chunks after the signature, with the block headers in between.
    fn file_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        let chunks = [chunk(b's', 0, 0, &[]), chunks.concat()].concat();
        chunks.chunks((1 << 16) - 24).flat_map(|block| [&[0; 24], block].concat()).collect()
    }

    fn executable_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut executable = Message::default();
        executable.bytes(SERIALIZED_EXECUTABLE, &file_of(chunks));
        executable.0
    }

    fn varint(mut number: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    /// A chunk of uncompressed records.
    fn plain_chunk(records: &[Vec<u8>]) -> Vec<u8> {
        let (sizes, values) =
            (records.iter().flat_map(|record| varint(record.len())).collect::<Vec<_>>(), records.concat());
        let data = [vec![0], varint(sizes.len()), sizes, values.clone()].concat();
        chunk(b'r', records.len() as u64, values.len(), &data)
    }

    fn repacked(records: &[Vec<u8>]) -> Option<Vec<KernelUse>> {
        kernels_of(&executable_of(&[plain_chunk(records)]))
    }

    fn kernels_of_thunks(thunks: &[Message]) -> Option<Vec<KernelUse>> {
        unknown_of_thunks(thunks).ok()
    }

    /// The kernels reported for an executable that has only these thunks, or why there are none.
    fn unknown_of_thunks(thunks: &[Message]) -> Result<Vec<KernelUse>, UnknownKernels> {
        let mut manifest = Message::default();
        manifest.bytes(RESULT_PROTO_TYPE, b"xla.gpu.GpuExecutableProto");
        manifest.message(RECORDS, |record| {
            record.message(PROTO_MERGE_RECORD, |_| {});
        });
        let mut part = Message::default();
        for thunk in thunks {
            part.bytes(THUNKS, &thunk.0);
        }
        super::kernels_of(&executable_of(&[plain_chunk(&[manifest.0, part.0])]))
    }

    fn thunk(kind: u32, fill: impl FnOnce(&mut Message)) -> Message {
        let mut thunk = Message::default();
        thunk.bytes(1, b"").message(kind, fill);
        thunk
    }

    fn sequence(within: &Message) -> Message {
        thunk(2, |thunks| {
            thunks.bytes(1, &within.0);
        })
    }

    #[test]
    fn figures_are_those_of_ptxas_and_of_xlas_own_dump() {
        for version in VERSIONS {
            let expected = data(&format!("{version}/kernels.json"));
            let expected: BTreeMap<String, Vec<KernelUse>> = serde_json::from_slice(&expected).unwrap();
            assert_eq!(expected.len(), 3);
            for (name, expected) in expected {
                let executable = data(&format!("{version}/{name}.executable"));
                assert_eq!(kernels_of(&executable), Some(expected), "{version} {name}");
            }
        }
    }

    #[test]
    fn headers_of_blocks_may_interrupt_anything() {
        let (records, expected) = (pieces("loop.executable"), kernels_of(&data("0.10.2/loop.executable")));
        let usable = (1 << 16) - 24;
        // the bytes before the records' chunk are the signature's header and the padding's own. The cases range from
        // records that fill the first block to records that begin in the second
        for padding in (0..usable).step_by(977).chain(usable - 130..usable - 70) {
            let chunks = [chunk(b'p', 0, 0, &vec![0; padding]), plain_chunk(&records)];
            assert_eq!(kernels_of(&executable_of(&chunks)), expected, "{padding}");
        }
        // and between chunks
        let (first, rest) = records.split_at(2);
        assert_eq!(kernels_of(&executable_of(&[plain_chunk(first), plain_chunk(rest)])), expected);
    }

    #[test]
    fn what_is_cut_off_gives_nothing_else() {
        for (name, step) in [("add.executable", 1), ("loop.executable", 31)] {
            let (whole, mut records) = (data(&format!("{}/{name}", VERSIONS[0])), pieces(name));
            let expected = kernels_of(&whole);
            // compile options follow the executable
            let end = whole.len() - at_end(&whole);
            for cut in 0..end {
                assert_eq!(kernels_of(&whole[..cut]), None, "{name} {cut}");
            }
            let part = records.pop().unwrap();
            for cut in (0..part.len()).step_by(step) {
                records.push(part[..cut].to_vec());
                let found = repacked(&records);
                assert!(found.is_none() || found == expected || found == Some(Vec::new()), "{name} {cut}");
                records.pop();
            }
            assert_eq!(repacked(&records), None, "a record is missing");
            records.extend([part, Vec::new()]);
            assert_eq!(repacked(&records), None, "one that the manifest does not have");
        }
    }

    #[test]
    fn a_split_payload_that_is_cut_off_gives_nothing_else() {
        let whole = data("0.11.2/add.executable");
        let expected = kernels_of(&whole);
        assert!(expected.is_some());
        for cut in 0..whole.len() {
            let found = kernels_of(&whole[..cut]);
            assert!(found.is_none() || found == expected, "{cut}");
        }
    }

    /// A split payload of these records after its manifest.
    fn split_payload(manifest: impl FnOnce(&mut Message), parts: &[Vec<u8>]) -> Result<Vec<KernelUse>, UnknownKernels> {
        let mut first = Message::default();
        first.bytes(RESULT_PROTO_TYPE, PAYLOAD);
        manifest(&mut first);
        super::kernels_of(&file_of(&[plain_chunk(&[&[first.0], parts].concat())]))
    }

    #[test]
    fn the_executable_is_found_apart_or_within_a_part() {
        let plain = data("0.10.2/add.executable");
        let executable = the_bytes(&plain, SERIALIZED_EXECUTABLE).unwrap().to_vec();
        let expected = super::kernels_of(&plain);
        assert!(expected.is_ok());
        let path = |numbers: &'static [u64]| {
            move |record: &mut Message| {
                record.message(3, |field| {
                    for number in numbers {
                        field.message(1, |element| {
                            element.number(1, *number);
                        });
                    }
                });
            }
        };
        let apart = |numbers: &'static [u64]| {
            let manifest = move |manifest: &mut Message| {
                manifest.message(RECORDS, path(numbers));
            };
            split_payload(manifest, std::slice::from_ref(&executable))
        };
        assert_eq!(apart(&[1]), expected);
        for other in [&[2][..], &[1, 1], &[]] {
            assert_eq!(apart(other), Err(UnknownKernels::Form), "{other:?}");
        }
        let mut part = Message::default();
        part.bytes(SERIALIZED_EXECUTABLE, &executable);
        let merged = |manifest: &mut Message| {
            manifest.message(RECORDS, |record| {
                record.message(PROTO_MERGE_RECORD, |_| {});
            });
        };
        assert_eq!(split_payload(merged, std::slice::from_ref(&part.0)), expected);
        // two of them
        let both = |manifest: &mut Message| {
            merged(manifest);
            manifest.message(RECORDS, path(&[1]));
        };
        assert_eq!(split_payload(both, &[part.0, executable.clone()]), Err(UnknownKernels::Form));
    }

    /// The bytes after the first field.
    fn at_end(executable: &[u8]) -> usize {
        let mut fields = WireCursor::new(executable);
        fields.next();
        executable.len() - fields.position()
    }

    #[test]
    fn no_flipped_bit_ends_in_a_panic() {
        for version in VERSIONS {
            let whole = data(&format!("{version}/add.executable"));
            for at in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << (at % 8);
                kernels_of(&flipped);
            }
        }
        let mut records = pieces("add.executable");
        let last = records.len() - 1;
        for at in 0..records[last].len() {
            records[last][at] ^= 1 << (at % 8);
            let found = repacked(&records).unwrap_or_default();
            assert!(found.iter().all(|kernel| kernel.registers < 256 && kernel.name.is_ascii()), "{found:?}");
            records[last][at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn what_expands_beyond_all_bounds_is_not_expanded() {
        let kernels_in = |sizes: &[u8], values: &[u8]| {
            let data = [b"s", &*varint(sizes.len()), sizes, values].concat();
            kernels_of(&executable_of(&[chunk(b'r', 1, 1 << 25, &data)]))
        };
        // 20 bytes that claim to expand to 32 MiB, and sizes that claim the same
        let bomb = [varint(1 << 25), varint(1 << 25), vec![0xfe; 20]].concat();
        assert_eq!(kernels_in(&[1, 1, 0, 9], &bomb), None);
        assert_eq!(kernels_in(&bomb, &[1, 1, 0, 9]), None);
    }

    #[test]
    fn what_cannot_be_looked_into_leaves_nothing_known() {
        assert_eq!(kernels_of_thunks(&[]), Some(Vec::new()));
        // a copy, and a matrix product of cuBLAS
        assert_eq!(kernels_of_thunks(&[thunk(3, |_| {}), thunk(9, |_| {})]), Some(Vec::new()));
        // a kernel in the executable's own cubin, a custom call, a collective, an unknown kind
        for kind in [8, 30, 39, 99] {
            assert_eq!(unknown_of_thunks(&[thunk(kind, |_| {})]), Err(UnknownKernels::Opaque), "{kind}");
            assert_eq!(kernels_of_thunks(&[sequence(&thunk(kind, |_| {}))]), None, "{kind}");
        }
        // the plugin's own kernel; PTX
        let with_spec = |payload: u32| {
            thunk(36, |launch| {
                launch.message(3, |kernel| {
                    kernel.message(2, |spec| {
                        spec.bytes(payload, b"").bytes(4, b"kernel");
                    });
                });
            })
        };
        assert_eq!(kernels_of_thunks(&[with_spec(6)]), Some(Vec::new()));
        assert_eq!(kernels_of_thunks(&[with_spec(1)]), None);
        assert_eq!(kernels_of_thunks(&[with_spec(2)]), None);
    }

    #[test]
    fn sequences_within_sequences_have_a_bound() {
        let nested = |depth: usize| (0..depth).fold(thunk(3, |_| {}), |inner, _| sequence(&inner));
        assert_eq!(kernels_of_thunks(&[nested(32), nested(32)]), Some(Vec::new()));
        assert_eq!(kernels_of_thunks(&[nested(33)]), None);
        assert_eq!(kernels_of_thunks(&[nested(5000)]), None);
    }
}
