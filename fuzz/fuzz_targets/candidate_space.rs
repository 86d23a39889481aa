//! A search space's file and its first configs: whatever the constraints, both end.

#![no_main]

use autotune_lowered::candidates::CandidateSpace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match CandidateSpace::parse("fuzz.json", text) {
        Ok(space) => {
            assert!(space.contains(space.baseline()).is_ok_and(|inside| inside));
            let bound = space.count_bound();
            let mut count = 0_u128;
            for config in space.configs().take(1000) {
                let Ok(config) = config else { break };
                count += 1;
                if count <= 10 {
                    assert_eq!(space.contains(&config), Ok(true), "{config}");
                }
            }
            assert!(count <= bound);
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!((1..=lines + 1).contains(&error.line), "{error}");
            assert!(!error.message.contains('\n'), "{error}");
        }
    }
});
