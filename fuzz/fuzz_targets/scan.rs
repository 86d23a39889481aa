//! A module's bytes in any form, compressed too: whatever they are, the scan ends, with the same result in blocks or as
//! a whole.

#![no_main]

use autotune_lowered::hlo::{ScanOptions, scan_bytes, scan_reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let options = ScanOptions::default();
    let whole = scan_bytes(bytes, "fuzz", &options);
    let stream = scan_reader(bytes, "fuzz", &options);
    match (whole, stream) {
        (Ok(whole), Ok(stream)) => {
            assert_eq!(whole.labels, stream.labels, "a stream shows the labels that memory shows");
            for label in &whole.labels {
                assert!(label.occurrences > 0 && !label.label.op_id.is_empty());
            }
        }
        (whole, stream) => assert_eq!(whole.is_ok(), stream.is_ok(), "a stream is refused where memory is"),
    }
});
