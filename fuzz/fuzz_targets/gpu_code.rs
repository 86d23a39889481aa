//! A serialized executable for a GPU: whatever the bytes, reading ends, and no kernel takes more than a GPU has.
//!
//! After a first byte of `+`, the bytes are the part of the executable that holds its kernels, which is packed here
//! without compression.

#![no_main]

use autotune_lowered::timer::pjrt::kernels_of;
use libfuzzer_sys::fuzz_target;

/// The manifest of an executable in one part.
const MANIFEST: &[u8] = b"\x0a\x1axla.gpu.GpuExecutableProto\x12\x02\x12\x00";
const SIGNATURE: &[u8] = b"\x91\xba\xc2\x3c\x92\x87\xe1\xa9";

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn packed(part: &[u8]) -> Vec<u8> {
    let sizes = [varint(MANIFEST.len()), varint(part.len())].concat();
    let data = [&[0], &*varint(sizes.len()), &sizes, MANIFEST, part].concat();
    let mut chunks = [SIGNATURE, &[0; 16], b"s", &[0; 15]].concat();
    chunks.extend_from_slice(&[0; 8]);
    chunks.extend_from_slice(&(data.len() as u64).to_le_bytes());
    chunks.extend_from_slice(b"\0\0\0\0\0\0\0\0r\x02\0\0\0\0\0\0");
    chunks.extend_from_slice(&((MANIFEST.len() + part.len()) as u64).to_le_bytes());
    chunks.extend_from_slice(&data);
    let blocks: Vec<u8> = chunks.chunks((1 << 16) - 24).flat_map(|block| [&[0; 24], block].concat()).collect();
    [&[0x0a], &*varint(blocks.len()), &blocks].concat()
}

fuzz_target!(|input: &[u8]| {
    let told = match input.strip_prefix(b"+") {
        Some(part) => kernels_of(&packed(part)),
        None => kernels_of(input),
    };
    for kernel in told.unwrap_or_default() {
        assert!(
            kernel.registers <= 255 && kernel.stack_bytes <= 512 << 10 && kernel.shared_bytes <= 1 << 20,
            "{kernel:?}"
        );
        // compressed twice
        assert!(kernel.code_bytes <= input.len() as u64 * 22 * 22, "{kernel:?}");
        assert!(kernel.name.bytes().all(|byte| byte.is_ascii_graphic()), "{kernel:?}");
    }
});
