//! Which options of a compiler an entry, a side file or any other file may set. They may come from anyone, so what is
//! not on a list is refused: the lists are those of the program's own option spaces, with their forms of values, and
//! what JAX itself sends. Options that only write, log or find tools are on a list of their own.

use serde_json::Value;

use super::error::StoreError;
use super::key::KeyRef;
use crate::config::Config;
use crate::known_options::{DebugOption, ListedValues};
use crate::known_options::{DebugOptionKind, SentValue};
use crate::wire::WireValue;

/// The operation of entries that hold a program's compiler options. Their key is the program's digest.
pub const COMPILER_OPTIONS: &str = "compiler_options@v1";

/// What is done with an option that a file sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionPolicy {
    /// It is on the list.
    Allowed,
    /// It only writes, logs, keeps what was compiled or finds tools: the program is the same without it.
    Aside,
    /// It is on no list, or has a value that is on none.
    Refused,
}

/// What is done with an option of this name and value.
pub fn option_policy(name: &str, value: &Value) -> OptionPolicy {
    if ListedValues::named(name).is_some_and(|values| values.have(value)) {
        OptionPolicy::Allowed
    } else if DebugOption::named(name).is_some_and(|field| field.aside) {
        OptionPolicy::Aside
    } else {
        OptionPolicy::Refused
    }
}

/// The same of a field of `DebugOptions`, with the name of what is not allowed: what JAX sends of itself is.
pub fn field_policy(number: u32, value: &WireValue<'_>) -> (OptionPolicy, String) {
    let Some(field) = DebugOption::numbered(number) else {
        return (OptionPolicy::Refused, format!("field {number} of DebugOptions"));
    };
    let sent = match value {
        WireValue::Varint(number) | WireValue::Fixed64(number) => SentValue::Number(*number),
        WireValue::Fixed32(number) => SentValue::Number((*number).into()),
        WireValue::Bytes(bytes) => SentValue::Bytes(bytes.to_vec()),
    };
    let is_listed =
        field.names.iter().filter_map(|name| ListedValues::named(name)).any(|values| match (&sent, field.kind) {
            // a switch, a number, or enumerators, which may be packed
            (_, DebugOptionKind::Number) => true,
            (SentValue::Bytes(bytes), DebugOptionKind::Text) => {
                std::str::from_utf8(bytes).is_ok_and(|text| values.have_text(text))
            }
            (SentValue::Number(_), DebugOptionKind::Text) | (_, DebugOptionKind::Message) => false,
        });
    let policy = if is_listed || field.defaults.contains(&sent) {
        OptionPolicy::Allowed
    } else if field.aside {
        OptionPolicy::Aside
    } else {
        OptionPolicy::Refused
    };
    (policy, field.name().to_owned())
}

/// Why an entry with these compiler options is refused, if it is: a phrase that follows the entry's name.
pub fn why_refused(config: &Config) -> Option<String> {
    let is_refused = |(name, value): &(&String, &Value)| option_policy(name, value) != OptionPolicy::Allowed;
    let (name, value) = config.as_map().iter().find(is_refused)?;
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let value: String = value.chars().take(64).collect();
    Some(format!(
        "sets `{}` to `{}`, which is on no list of what an entry may set (docs/options.md)",
        name.escape_debug(),
        value.escape_debug()
    ))
}

/// Refuses an entry of compiler options that sets what no entry may.
///
/// # Errors
/// If it does.
pub fn refuse(key: KeyRef<'_>, config: &Config) -> Result<(), StoreError> {
    let why = (key.op_id == COMPILER_OPTIONS).then(|| why_refused(config)).flatten();
    why.map_or(Ok(()), |why| Err(StoreError::refused(key.op_id, key.call_key, &why)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_listed_options_with_listed_forms_of_values_are_allowed() {
        for (name, value) in [
            ("xla_cpu_prefer_vector_width", json!(512)),
            ("xla_cpu_prefer_vector_width", json!("256")),
            ("xla_cpu_enable_fast_math", json!(true)),
            ("xla_cpu_enable_fast_math", json!("False")),
            ("xla_cpu_enable_fast_math", json!(1)),
            ("xla_cpu_fast_math_honor_nans", json!(false)),
            ("xla_disable_hlo_passes", json!("cse,dce")),
            ("xla_cpu_experimental_ynn_fusion_type", json!("")),
            ("xla_tpu_scoped_vmem_limit_kib", json!(100_000)),
            ("xla_memory_scheduler", json!("DFS")),
        ] {
            assert_eq!(option_policy(name, &value), OptionPolicy::Allowed, "{name}={value}");
            let config = Config::new([(name.to_owned(), value)].into_iter().collect());
            assert_eq!(why_refused(&config), None);
        }
        for (name, value) in [
            // a known compiler's, a newer one's, and one of nobody
            ("xla_gpu_ptx_compiler_extra_flags", json!("-o,/etc/passwd")),
            ("xla_gpu_load_autotune_results_from", json!("/x")),
            ("xla_candidate_configs_file", json!("/x")),
            ("xla_backend_extra_options", json!("-debug-only=x")),
            ("xla_cpu_mock_custom_calls", json!(true)),
            ("xla_next_version_reads", json!("x")),
            ("xla_tpu_profile_path", json!("/x")),
            // forms that the list does not have
            ("xla_cpu_enable_fast_math", json!("/x")),
            ("xla_cpu_enable_fast_math", json!(2)),
            ("xla_cpu_prefer_vector_width", json!(true)),
            ("xla_cpu_prefer_vector_width", json!("nan")),
            ("xla_disable_hlo_passes", json!("cse,/x")),
            ("xla_disable_hlo_passes", json!("")),
            ("xla_memory_scheduler", json!("LIST\0")),
            ("xla_memory_scheduler", json!(["LIST"])),
            ("xla_cpu_max_isa", json!("../x")),
        ] {
            assert_eq!(option_policy(name, &value), OptionPolicy::Refused, "{name}={value}");
            let config = serde_json::from_value(json!({"xla_cpu_prefer_vector_width": 512, name: value})).unwrap();
            assert!(why_refused(&config).unwrap().starts_with(&format!("sets `{name}` to `")), "{name}");
        }
        for name in ["xla_dump_to", "xla_gpu_dump_cost_model_top_k_candidates_to", "xla_gpu_kernel_cache_file"] {
            assert_eq!(option_policy(name, &json!("/x")), OptionPolicy::Aside, "{name}");
            let config = serde_json::from_value(json!({name: "/x"})).unwrap();
            assert!(why_refused(&config).is_some(), "no entry has a use for `{name}`");
        }
    }

    #[test]
    fn fields_are_allowed_as_jax_sends_them_or_by_the_list() {
        use OptionPolicy::{Allowed, Aside, Refused};
        for (number, value, expected) in [
            (61, WireValue::Bytes(b"./cuda_sdk_lib"), Allowed),
            (61, WireValue::Bytes(b"/home/ann/cuda"), Aside),
            (99, WireValue::Varint(1), Allowed),
            (31, WireValue::Varint(3), Allowed),
            (30, WireValue::Bytes(b"cse,dce"), Allowed),
            (30, WireValue::Bytes(b"x"), Refused),
            (109, WireValue::Bytes(b"/tmp/dump"), Aside),
            (540, WireValue::Bytes(b"/tmp/dump"), Aside),
            (498, WireValue::Varint(1), Aside),
            (491, WireValue::Bytes(b"-o"), Refused),
            (544, WireValue::Bytes(b""), Allowed),
            (544, WireValue::Bytes(b"/x"), Refused),
            (548, WireValue::Varint(1), Refused),
            (422, WireValue::Bytes(&[4, 5]), Allowed),
            (500, WireValue::Bytes(b"x"), Refused),
            (357, WireValue::Bytes(b"\n\rchunk_prep_us\x12\x02-1"), Allowed),
            (357, WireValue::Bytes(b"\n\rchunk_prep_us\x12\x02-2"), Refused),
            (1, WireValue::Varint(1), Refused),
            (9999, WireValue::Bytes(b"/x"), Refused),
        ] {
            assert_eq!(field_policy(number, &value).0, expected, "{number}: {value:?}");
        }
        assert_eq!(field_policy(9999, &WireValue::Varint(1)).1, "field 9999 of DebugOptions");
        assert_eq!(field_policy(491, &WireValue::Varint(1)).1, "xla_gpu_ptx_compiler_extra_flags");
    }
}
