//! A digest of what an executable does, whatever it was compiled with: the serialized form also holds the compiler's
//! options.

use std::path::Path;

use crate::digest::{Digest, FieldHasher};
use crate::timer::pjrt::plugin::read_bounded;
use crate::wire::{WireCursor, WireValue};

/// Largest executable that is read.
const MAX_BYTES: u64 = 1 << 30;

/// Fields of `ExecutableAndOptionsProto` (xla/pjrt/proto/compile_options.proto): the executable and the options.
const EXECUTABLE: u32 = 1;
const OPTIONS: u32 = 2;
/// Fields of XLA:CPU's `CompilationResultProto` (xla/service/cpu/executable.proto): the module with its options, which
/// is not executed; the thunks, which contain the number of their module in the compiling process; symbols and object
/// files, in the order in which threads finished.
const MODULE: u32 = 1;
const THUNKS: u32 = 6;
const SYMBOL: u32 = 7;
const OBJECT_FILE: u32 = 8;
/// Fields of a thunk's `InfoProto`: its module's name and number.
const MODULE_NAME: u32 = 2;
const MODULE_ID: u32 = 3;
/// The kernel in a thunk, and its set of read-only arguments' numbers, in arbitrary order.
const READ_ONLY: (u32, u32) = (11, 3);
/// Maximum depth of nested thunks.
const MAX_DEPTH: u32 = 32;

/// Digest of what a CPU executable runs: its object files, thunks and buffers. `None` if it has another form; then all
/// of its bytes count.
pub(crate) fn work_digest(path: &Path, offset: u64) -> Option<Digest> {
    let bytes = read_bounded(path, MAX_BYTES).ok()?;
    of_payload(bytes.get(usize::try_from(offset).ok()?..)?)
}

fn of_payload(payload: &[u8]) -> Option<Digest> {
    let (mut executable, mut has_options) = (None, false);
    for field in WireCursor::new(payload) {
        match field.ok()? {
            (EXECUTABLE, WireValue::Bytes(bytes)) if executable.is_none() => executable = Some(bytes),
            (OPTIONS, WireValue::Bytes(_)) => has_options = true,
            _ => return None,
        }
    }
    let mut hasher = FieldHasher::new("what a CPU's executable runs, 1");
    let (mut name, mut modules) = (None, 0);
    let (mut symbols, mut object_files) = (Vec::new(), Vec::new());
    for field in WireCursor::new(executable.filter(|_| has_options)?) {
        match field.ok()? {
            (MODULE, value) => {
                modules += 1;
                name = value.as_bytes().and_then(|module| first(first(module)?));
            }
            (THUNKS, WireValue::Bytes(thunks)) => take(thunks, (name?, THUNKS), MAX_DEPTH, &mut hasher),
            (SYMBOL, WireValue::Bytes(symbol)) => symbols.push(symbol),
            (OBJECT_FILE, WireValue::Bytes(file)) => object_files.push(file),
            (number, value) => take_value(number, value, &mut hasher),
        }
    }
    let has_code = !object_files.is_empty();
    for mut unordered in [symbols, object_files] {
        unordered.sort_unstable();
        hasher.field(&unordered.len().to_le_bytes());
        for bytes in unordered {
            hasher.field(bytes);
        }
    }
    (modules == 1 && has_code).then(|| hasher.finish())
}

/// The first field of a message, if it is field 1 and holds bytes.
fn first(message: &[u8]) -> Option<&[u8]> {
    match WireCursor::new(message).next()?.ok()? {
        (1, value) => value.as_bytes(),
        _ => None,
    }
}

/// Hashes a message recursively, except the number of the module with this name.
fn take(message: &[u8], (name, of): (&[u8], u32), depth: u32, hasher: &mut FieldHasher) {
    let fields: Result<Vec<_>, _> = WireCursor::new(message).collect();
    let Some(fields) = fields.ok().filter(|fields| depth > 0 && !fields.is_empty()) else {
        hasher.field(message);
        return;
    };
    let is_info = fields.contains(&(MODULE_NAME, WireValue::Bytes(name)));
    for (number, value) in fields {
        match value {
            WireValue::Varint(_) if is_info && number == MODULE_ID => {}
            WireValue::Bytes(set) if (of, number) == READ_ONLY => {
                let mut set = set.to_vec();
                set.sort_unstable();
                hasher.field(&number.to_le_bytes()).field(&set);
            }
            WireValue::Bytes(bytes) => {
                hasher.field(&number.to_le_bytes());
                take(bytes, (name, number), depth - 1, hasher);
            }
            value => take_value(number, value, hasher),
        }
    }
}

fn take_value(number: u32, value: WireValue<'_>, hasher: &mut FieldHasher) {
    hasher.field(&number.to_le_bytes());
    match value {
        WireValue::Bytes(bytes) => hasher.field(bytes),
        WireValue::Varint(value) | WireValue::Fixed64(value) => hasher.field(&value.to_le_bytes()),
        WireValue::Fixed32(value) => hasher.field(&value.to_le_bytes()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    #[test]
    fn options_and_the_modules_number_do_not_count_and_code_does() {
        let payload = |number: u8, codes: [&[u8]; 2], options: &[u8]| {
            let module = bytes(1, &[bytes(1, &bytes(1, b"jit_f")), bytes(2, options)].concat());
            let info = [bytes(1, b"dot.1"), bytes(2, b"jit_f"), vec![3 << 3, number]].concat();
            let read_only = if number == 7 { [0, 1] } else { [1, 0] };
            let kernel = bytes(11, &bytes(3, &read_only));
            let thunks = bytes(6, &bytes(1, &[bytes(1, b"dot"), bytes(2, &info), kernel].concat()));
            let code = codes.map(|code| bytes(8, code)).concat();
            let executable = [module, bytes(2, b"buffers"), vec![5 << 3, 2], thunks, bytes(7, b"f"), code].concat();
            [bytes(1, &executable), bytes(2, options)].concat()
        };
        let one = of_payload(&payload(7, [b"code", b"more"], b"options"));
        assert!(one.is_some());
        assert_eq!(one, of_payload(&payload(25, [b"more", b"code"], b"others")));
        assert_ne!(one, of_payload(&payload(7, [b"code", b"less"], b"options")));
        // other forms are hashed as a whole
        let cut = payload(7, [b"code", b"more"], b"options")[1..].to_vec();
        for other in [b"ELF".to_vec(), Vec::new(), bytes(1, b"x"), cut] {
            assert_eq!(of_payload(&other), None, "{other:?}");
        }
        let without_code = [bytes(1, &bytes(1, b"module")), bytes(2, b"o")].concat();
        assert_eq!(of_payload(&without_code), None);
    }
}
