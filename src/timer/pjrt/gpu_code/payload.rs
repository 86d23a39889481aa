//! Splits a serialized executable into the pieces of its `GpuExecutableProto`.

use super::fields::the_bytes;
use super::records::records;
use super::thunks::Kernels;
use crate::timer::protocol::KernelUse;
use crate::wire::WireCursor;

// fields of openxla/xla, xla/pjrt/proto/compile_options.proto, ExecutableAndOptionsProto
const SERIALIZED_EXECUTABLE: u32 = 1;
// xla/util/split_proto/split_proto.proto, SplitProtoManifest and Record
const RESULT_PROTO_TYPE: u32 = 1;
const RECORDS: u32 = 2;
const PROTO_MERGE_RECORD: u32 = 2;
const FIELD_OVERRIDE_RECORD: u32 = 3;
// xla/service/gpu/gpu_executable.proto, GpuExecutableProto
const THUNKS: u32 = 13;

/// The kernels whose machine code is contained in a serialized CUDA executable (`PJRT_Executable_Serialize`), each once, in the
/// order of their first launch. Kernels of the plugin and of NVIDIA's libraries are not included.
///
/// `None` if not all of them are known: the executable is not CUDA's, is not in the format that XLA wrote in 2026, has opaque
/// code of a custom call, has more than 1024 kernels, or is damaged. Formats: openxla/xla,
/// `xla/util/split_proto/split_gpu_executable_writer.cc` and the `.proto` files that are named beside the fields' numbers.
pub fn kernels_of(serialized: &[u8]) -> Option<Vec<KernelUse>> {
    let records = records(the_bytes(serialized, SERIALIZED_EXECUTABLE)?)?;
    // the first record describes the others
    let (manifest, records) = records.split_first()?;
    if the_bytes(manifest, RESULT_PROTO_TYPE)? != b"xla.gpu.GpuExecutableProto" {
        return None;
    }
    let mut kernels = Kernels::default();
    let mut records = records.iter();
    for field in WireCursor::new(manifest) {
        let (number, value) = field.ok()?;
        if number != RECORDS {
            continue;
        }
        let record = records.next()?;
        match WireCursor::new(value.as_bytes()?).next()?.ok()?.0 {
            PROTO_MERGE_RECORD => read_part(record, &mut kernels)?,
            // one whole field of text or bytes
            FIELD_OVERRIDE_RECORD => {}
            _ => return None,
        }
    }
    records.next().is_none().then(|| kernels.into_vec())
}

/// Reads a part of the message; its fields are those of all parts together.
fn read_part(part: &[u8], kernels: &mut Kernels) -> Option<()> {
    for field in WireCursor::new(part) {
        let (number, value) = field.ok()?;
        if number == THUNKS {
            kernels.read_thunk(value.as_bytes()?)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::wire::Message;

    /// An executable made by `tests/data/targets/kernels.py`.
    fn data(name: &str) -> Vec<u8> {
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/targets/kernels").join(name)).unwrap()
    }

    fn pieces(name: &str) -> Vec<Vec<u8>> {
        records(the_bytes(&data(name), SERIALIZED_EXECUTABLE).unwrap()).unwrap()
    }

    fn chunk(kind: u8, count: u64, decoded: usize, data: &[u8]) -> Vec<u8> {
        let hash = if kind == b's' { *b"\x91\xba\xc2\x3c\x92\x87\xe1\xa9" } else { [0; 8] };
        let kind_and_count = u64::from(kind) | count << 8;
        let header = [hash, (data.len() as u64).to_le_bytes(), [0; 8], kind_and_count.to_le_bytes()];
        [&*header.concat(), &(decoded as u64).to_le_bytes(), data].concat()
    }

    /// Chunks after the signature, with the block headers in between.
    fn executable_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        let chunks = [chunk(b's', 0, 0, &[]), chunks.concat()].concat();
        let blocks = chunks.chunks((1 << 16) - 24).map(|block| [&[0; 24], block].concat());
        let mut executable = Message::default();
        executable.bytes(SERIALIZED_EXECUTABLE, &blocks.collect::<Vec<_>>().concat());
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

    /// The kernels reported for an executable that has only these thunks.
    fn kernels_of_thunks(thunks: &[Message]) -> Option<Vec<KernelUse>> {
        let mut manifest = Message::default();
        manifest.bytes(RESULT_PROTO_TYPE, b"xla.gpu.GpuExecutableProto");
        manifest.message(RECORDS, |record| {
            record.message(PROTO_MERGE_RECORD, |_| {});
        });
        let mut part = Message::default();
        for thunk in thunks {
            part.bytes(THUNKS, &thunk.0);
        }
        repacked(&[manifest.0, part.0])
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
        let kernels: BTreeMap<String, Vec<KernelUse>> = serde_json::from_slice(&data("kernels.json")).unwrap();
        assert_eq!(kernels.len(), 3);
        for (name, expected) in kernels {
            assert_eq!(kernels_of(&data(&format!("{name}.executable"))), Some(expected), "{name}");
        }
    }

    #[test]
    fn headers_of_blocks_may_interrupt_anything() {
        let (records, expected) = (pieces("loop.executable"), kernels_of(&data("loop.executable")));
        let usable = (1 << 16) - 24;
        // the bytes before the records' chunk are the signature's header and the padding's own. The cases range from records
        // that fill the first block to records that begin in the second
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
            let (whole, mut records) = (data(name), pieces(name));
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

    /// The bytes after the first field.
    fn at_end(executable: &[u8]) -> usize {
        let mut fields = WireCursor::new(executable);
        fields.next();
        executable.len() - fields.position()
    }

    #[test]
    fn no_flipped_bit_ends_in_a_panic() {
        let whole = data("add.executable");
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            kernels_of(&flipped);
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
            assert_eq!(kernels_of_thunks(&[thunk(kind, |_| {})]), None, "{kind}");
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
