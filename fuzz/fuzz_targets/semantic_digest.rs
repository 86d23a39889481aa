//! A program's bytes: its semantic digest takes time in proportion to its length and does not depend on locations.

#![no_main]

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
});
