//! A program's bytes: its semantic digest takes time proportional to its length and does not depend on locations. Its
//! copy in `f64`, as text or bytecode, has no narrower types.

#![no_main]

use autotune_lowered::hlo::{bytecode_in_f64, in_f64};
use autotune_lowered::registry::{ProgramFormat, custom_calls, semantic_digest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in [ProgramFormat::StablehloText, ProgramFormat::StablehloPortable, ProgramFormat::HloProto] {
        let digest = semantic_digest(format, bytes);
        assert_eq!(digest, semantic_digest(format, bytes));
        for target in custom_calls(format, bytes) {
            assert!(!target.is_empty());
        }
    }
    if let Ok(copy) = bytecode_in_f64(bytes) {
        // a byte becomes eight; the padding of an aligned section is at most a mebibyte
        assert!(copy.len() <= 8 * bytes.len() + (9 << 20), "{} bytes of {}", copy.len(), bytes.len());
        assert!(bytecode_in_f64(&copy).is_err());
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if let Ok(copy) = in_f64(text) {
        // a byte of a constant becomes eight, of two digits each; a digit becomes a decimal of twenty-odd characters
        assert!(copy.len() <= 32 * text.len(), "{} bytes of {}", copy.len(), text.len());
        // if removing locations created new ones, it is another text
        assert!(copy.contains(" loc(") || in_f64(&copy).is_err());
    }
});
