//! Parses a range's name into its phase and module.

use std::borrow::Cow;

/// Phases that combine several names.
pub(super) const XLA_PASSES: &str = "XlaPass";
const HLO_PASSES: &str = "HLO passes";
const MLIR_PASSES: &str = "MLIR passes";

/// XLA's autotuner, whose parts count only as a whole.
pub(super) const AUTOTUNER_COMPILATION: &str = "XlaAutotunerCompilation";
pub(super) const AUTOTUNER_MEASUREMENT: &str = "XlaAutotunerMeasurement";

/// The part before the attributes of `Name:#key=value,key=value#`.
pub(super) fn stem(name: &str) -> &str {
    name.split_once(":#").map_or(name, |(stem, _)| stem)
}

/// An attribute of `Name:#key=value,key=value#`.
pub(super) fn attribute<'n>(name: &'n str, key: &str) -> Option<&'n str> {
    let (_, attributes) = name.split_once(":#")?;
    attributes.trim_end_matches('#').split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
}

/// Whether a range is the compilation of a module as a whole: XLA's on a GPU, or a client's.
pub(super) fn is_compilation(name: &str) -> bool {
    let stem = stem(name);
    stem == "XlaCompile" || stem.ends_with("Client::Compile")
}

/// A pipeline of HLO passes is called after its module: `simplification (jit_f)`.
fn pipeline(name: &str) -> Option<&str> {
    name.strip_suffix(')')?.rsplit_once(" (").map(|(pipeline, _)| pipeline)
}

/// The phase of a range. Names of modules and operations are removed; passes are combined, unless `by_pass`. `around`
/// is the phase and name of the range around it.
pub(super) fn phase<'n>(name: &'n str, around: Option<(&str, &str)>, by_pass: bool) -> Cow<'n, str> {
    let stem = stem(name);
    if matches!(stem, "XlaPass" | "XlaPassPipeline") {
        return match attribute(name, "name").filter(|_| by_pass) {
            Some(pass) => Cow::Owned(format!("{stem} {pass}")),
            None => Cow::Borrowed(XLA_PASSES),
        };
    }
    if by_pass {
        return Cow::Borrowed(pipeline(name).unwrap_or(stem));
    }
    let is_qualified = stem.contains("::") && !stem.starts_with("mlir::");
    match around {
        _ if pipeline(name).is_some() => Cow::Borrowed(HLO_PASSES),
        _ if (stem.ends_with("Pass") || stem.starts_with("mlir::")) && !is_qualified => Cow::Borrowed(MLIR_PASSES),
        // ranges within a pass belong to it
        Some((HLO_PASSES, _)) if !is_qualified => Cow::Borrowed(HLO_PASSES),
        Some((MLIR_PASSES, _) | (_, "FusionCompiler::Compile")) if !is_qualified => Cow::Borrowed(MLIR_PASSES),
        _ => Cow::Borrowed(stem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_phases() {
        for (name, around, folded, by_pass) in [
            ("XlaPass:#name=cse,module=jit_f,program_id=3#", None, "XlaPass", "XlaPass cse"),
            ("XlaPassPipeline:#name=simplification,module=f#", None, "XlaPass", "XlaPassPipeline simplification"),
            ("XlaOptimizeLlvmIr:#module=split_module#", None, "XlaOptimizeLlvmIr", "XlaOptimizeLlvmIr"),
            (
                "XlaAutotunerMeasurement:#hlo_op=custom-call.3#",
                None,
                "XlaAutotunerMeasurement",
                "XlaAutotunerMeasurement",
            ),
            ("fusion pipeline (jit_f)", None, "HLO passes", "fusion pipeline"),
            ("dce", Some(("HLO passes", "x (jit_f)")), "HLO passes", "dce"),
            ("CSEPass", None, "MLIR passes", "CSEPass"),
            ("Inliner", Some(("FusionCompiler::Compile", "FusionCompiler::Compile")), "MLIR passes", "Inliner"),
            ("mlir::detail::OpToOpPassAdaptor", None, "MLIR passes", "mlir::detail::OpToOpPassAdaptor"),
            (
                "CpuCompiler::RunBackend",
                Some(("HLO passes", "x (f)")),
                "CpuCompiler::RunBackend",
                "CpuCompiler::RunBackend",
            ),
        ] {
            assert_eq!((&*phase(name, around, false), &*phase(name, around, true)), (folded, by_pass), "{name}");
        }
        assert_eq!(attribute("XlaCompile:#module=jit_f,program_id=3#", "program_id"), Some("3"));
        assert!(is_compilation("XlaCompile:#module=f#") && is_compilation("PjRtCpuClient::Compile"));
        assert!(!is_compilation("XlaCompileBackend:#module=f#"));
    }
}
