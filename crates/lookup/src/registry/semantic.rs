//! A program's identity, independent of source locations.

use super::ProgramFormat;
use crate::digest::Digest;
use crate::hlo;

/// The digest that is equal for equal programs recorded in different places: [`crate::hlo::semantic_digest`].
///
/// Unparseable bytes are digested as they are: equal bytes are the same program, others are assumed to differ.
pub fn semantic_digest(format: ProgramFormat, bytes: &[u8]) -> Digest {
    hlo::semantic_digest(bytes, format.extension()).unwrap_or_else(|_| Digest::of(bytes))
}

/// Targets of the custom calls in a StableHLO text, sorted, each once; none for the other formats.
pub fn custom_calls(format: ProgramFormat, bytes: &[u8]) -> Vec<String> {
    let text = match format {
        ProgramFormat::StablehloText => std::str::from_utf8(bytes).unwrap_or_default(),
        ProgramFormat::StablehloPortable | ProgramFormat::HloProto => return Vec::new(),
    };
    let calls = text.split("custom_call @").skip(1).map(|rest| hlo::symbol(rest).trim_matches('"').to_owned());
    let mut calls: Vec<String> = calls.filter(|name| !name.is_empty()).collect();
    calls.sort_unstable();
    calls.dedup();
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_and_the_modules_name_do_not_count() {
        let plain = "module @module {\n  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n    \
                     return %arg0 : tensor<2xf32>\n  }\n}";
        let debug = "#loc = loc(unknown)\n#loc1 = loc(\"x)\\\"\")\nmodule @jit_f {\n  \
                     func.func public @main(%arg0: tensor<2xf32> loc(\"a (b\")) -> tensor<2xf32> {\n    \
                     return %arg0 : tensor<2xf32> loc(fused[\"q\"(#loc1), \"r\"])\n  } loc(#loc)\n} loc(#loc)\n\
                     #loc2 = loc(\"é\")\n";
        let digest = |text: &str| semantic_digest(ProgramFormat::StablehloText, text.as_bytes());
        assert_eq!(digest(plain), Digest::of(plain.as_bytes()));
        assert_eq!(digest(debug), digest(plain));
        assert_eq!(digest(&debug.replace("#loc", "#by_hand")), digest(plain), "an alias may have any name");
        assert_ne!(digest(&debug.replace("2xf32", "3xf32")), digest(plain));
        let quoted = "module @module {\n %0 = stablehlo.custom_call @foo() {backend_config = \" loc(x)\"}\n}";
        assert_eq!(digest(quoted), Digest::of(quoted.as_bytes()), "a string is no location");
    }

    #[test]
    fn hostile_text_ends() {
        for text in ["", "\"", " loc(", " loc((((", "module @", "module @\"", "#loc", "é loc(é", "\n#loc\n#loc"] {
            semantic_digest(ProgramFormat::StablehloText, text.as_bytes());
        }
    }

    #[test]
    fn custom_calls_are_listed_once() {
        let text = b"%1 = stablehlo.custom_call @Sharding(%0)\n%2 = stablehlo.custom_call @\"a$b\"(%1)\n\
                     %3 = stablehlo.custom_call @Sharding(%2) {x}";
        assert_eq!(custom_calls(ProgramFormat::StablehloText, text), ["Sharding", "a$b"]);
        assert!(custom_calls(ProgramFormat::HloProto, text).is_empty());
    }
}
