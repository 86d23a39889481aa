//! Options of XLA with which a compilation writes files, or reads files whose paths the option names. Entries and side files may
//! come from anyone, so neither sets one.

use crate::config::Config;

/// The fields of `DebugOptions` that are such options, by number and name (openxla/xla, xla/xla.proto).
const FIELDS: [(u32, &str); 48] = [
    (61, "xla_gpu_cuda_data_dir"),
    (109, "xla_dump_to"),
    (110, "xla_dump_hlo_module_re"),
    (111, "xla_dump_hlo_pass_re"),
    (112, "xla_dump_hlo_as_text"),
    (113, "xla_dump_hlo_as_proto"),
    (114, "xla_dump_hlo_as_dot"),
    (115, "xla_dump_hlo_as_url"),
    (116, "xla_dump_hlo_as_html"),
    (118, "xla_dump_hlo_snapshots"),
    (127, "xla_gpu_ptx_file"),
    (128, "xla_gpu_algorithm_denylist_path"),
    (131, "xla_dump_include_timestamp"),
    (132, "xla_dump_max_hlo_modules"),
    (144, "xla_dump_module_metadata"),
    (149, "xla_dump_fusion_visualization"),
    (150, "xla_gpu_llvm_ir_file"),
    (151, "xla_dump_compress_protos"),
    (153, "xla_dump_disable_metadata"),
    (154, "xla_dump_hlo_pipeline_re"),
    (155, "xla_gpu_dump_llvmir"),
    (164, "xla_dump_hlo_as_long_text"),
    (182, "xla_dump_latency_hiding_schedule"),
    (185, "xla_dump_enable_mlir_pretty_form"),
    (210, "xla_gpu_pgle_profile_file_or_directory_path"),
    (222, "xla_gpu_dump_autotune_results_to"),
    (223, "xla_gpu_load_autotune_results_from"),
    (232, "xla_gpu_dump_autotuned_gemm_fusions"),
    (253, "xla_enable_dumping"),
    (261, "xla_gpu_target_config_filename"),
    (290, "xla_dump_large_constants"),
    (292, "xla_gpu_dump_autotune_logs_to"),
    (306, "xla_gpu_kernel_cache_file"),
    (310, "xla_gpu_per_fusion_autotune_cache_dir"),
    (338, "xla_gpu_experimental_dump_fdo_profiles"),
    (377, "xla_gpu_experimental_collective_perf_table_path"),
    (381, "xla_dump_full_hlo_config"),
    (383, "xla_gpu_experimental_matmul_perf_table_path"),
    (405, "xla_dump_hlo_unoptimized_snapshots"),
    (407, "xla_gpu_experimental_autotuner_cache_dir"),
    (427, "xla_gpu_experimental_dump_gpu_executable"),
    (431, "xla_gpu_experimental_enable_buffer_saver_on_thunks"),
    (433, "xla_dump_emitter_re"),
    (434, "xla_gpu_gemm_autotuner_override_file"),
    (445, "xla_gpu_dump_autotuned_instructions"),
    (466, "xla_dump_buffer_assignment_analysis"),
    // options of LLVM, some of which name files to write
    (500, "xla_backend_extra_options"),
    (502, "xla_dump_hlo_to_subfolder"),
];
/// Those of earlier versions, whose names are gone.
#[cfg(feature = "tuner")]
const EARLIER_FIELDS: [u32; 4] = [5, 7, 117, 139];

/// Words in the names of others: of later versions, and of compilers that have options of their own.
const WORDS: [&str; 13] = [
    "directory",
    "dir",
    "dirs",
    "dump",
    "dumping",
    "dumps",
    "file",
    "filename",
    "files",
    "folder",
    "path",
    "paths",
    "saver",
];
/// The path that JAX sends of itself.
#[cfg(feature = "tuner")]
const DEFAULT_PATH: &str = "xla_gpu_cuda_data_dir";
/// Has such a word, and names no file.
const FAST_PATH: &str = "xla_hlo_evaluator_use_fast_path";

/// Whether a compilation with this option writes files, or reads files whose paths the option names.
pub fn reaches_files(name: &str) -> bool {
    let is_field = FIELDS.iter().any(|(_, field)| *field == name);
    is_field || (name != FAST_PATH && name.split('_').any(|word| WORDS.contains(&word)))
}

/// The same of a field of `DebugOptions`.
#[cfg(feature = "tuner")]
pub(crate) fn is_field_of_files(number: u32) -> bool {
    FIELDS.iter().any(|(field, _)| *field == number) || EARLIER_FIELDS.contains(&number)
}

/// The name of a field of `DebugOptions` that holds a path which the user sets: JAX sends the others by default.
#[cfg(feature = "tuner")]
pub(crate) fn path_option(number: u32) -> Option<&'static str> {
    const PATHS: [&str; 6] = ["_to", "_file", "_path", "_dir", "_from", "_filename"];
    let (_, name) = FIELDS.iter().find(|(field, _)| *field == number)?;
    let is_path = *name != DEFAULT_PATH && PATHS.iter().any(|end| name.ends_with(end));
    is_path.then_some(*name)
}

/// Why an entry with these compiler options is refused, if it is: a phrase that follows the entry's name.
pub fn why_refused(config: &Config) -> Option<String> {
    let name = config.as_map().keys().find(|name| reaches_files(name))?;
    Some(format!("sets `{}`, with which a compilation writes or reads files: no entry may", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_files_is_known_by_its_name() {
        // of libtpu and of no version at all
        let of_others = ["xla_jf_dump_to", "xla_tpu_profile_path", "xla_next_cache_dir", "xla_enable_dumping"];
        for name in FIELDS.iter().map(|(_, name)| *name).chain(of_others) {
            assert!(reaches_files(name), "{name}");
            let config = serde_json::from_str(&format!(r#"{{"xla_a": 1, "{name}": "/x"}}"#)).unwrap();
            assert!(why_refused(&config).unwrap().starts_with(&format!("sets `{name}`, ")));
        }
        let harmless = ["xla_gpu_enable_split_k_autotuning", "xla_disable_hlo_passes", "xla_cpu_max_isa", FAST_PATH];
        assert!(harmless.iter().all(|name| !reaches_files(name)));
        assert!(FIELDS.is_sorted() && FIELDS.iter().all(|(_, name)| name.starts_with("xla_")));
    }

    #[cfg(feature = "tuner")]
    #[test]
    fn no_list_of_options_has_one() {
        use crate::candidates::{OptionClass, OptionSpace};

        for space in OptionSpace::all_built_in() {
            assert!(space.options().iter().all(|option| !reaches_files(&option.name)));
            let choices = space.choices(OptionClass::FastMath);
            assert!(choices.iter().all(|choice| why_refused(&choice.set.to_config()).is_none()), "and with them");
        }
    }
}
