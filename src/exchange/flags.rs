//! Compiler options of a whole program as a variable of the environment, for programs that are not started through our
//! package.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::ExchangeError;
use crate::cache::{COMPILER_OPTIONS, CacheKey, Entry, why_refused};
use crate::compiler_flags::{FlagVariable, TPU, flags_of};
use crate::config::Config;

/// These entries' compiler options as flags, in their names' order: `--a=1 --b=true`; entries of other operations and
/// of platforms that do not read the variable are left out. `None` if none is left.
///
/// # Errors
///
/// If entries have different options, since a process has one value, or if an option is not a flag or reaches files.
pub fn export_flags(
    entries: &[(CacheKey, Arc<Entry>)],
    variable: FlagVariable,
) -> Result<Option<String>, ExchangeError> {
    let is_wanted = |key: &CacheKey| {
        key.call.op_id == COMPILER_OPTIONS && (key.device.platform == TPU) == (variable == FlagVariable::LibtpuInitArgs)
    };
    let of_entries = entries.iter().filter(|(key, _)| is_wanted(key)).map(|(key, entry)| flags(key, entry, variable));
    let mut distinct = of_entries.collect::<Result<BTreeSet<_>, _>>()?;
    if distinct.len() > 1 {
        return Err(ExchangeError::Disagree { variable: variable.name(), count: distinct.len() });
    }
    Ok(distinct.pop_first())
}

/// The compiler options of these entries as one JSON object: each program's digest to its options, in the digests'
/// order, for programs that compile one by one without our package. Entries of other operations are left out. `None` if
/// none is left.
///
/// # Errors
///
/// If entries of one program have different options, such as those of two devices, or one has an option that reaches
/// files.
pub fn export_options(entries: &[(CacheKey, Arc<Entry>)]) -> Result<Option<Value>, ExchangeError> {
    let mut by_digest: BTreeMap<&str, &Config> = BTreeMap::new();
    for (key, entry) in entries.iter().filter(|(key, _)| key.call.op_id == COMPILER_OPTIONS) {
        check(&entry.config).map_err(|what| refused(key, "compilations", what))?;
        let known = by_digest.insert(&key.call.call_key, &entry.config);
        if known.is_some_and(|known| *known != entry.config) {
            return Err(ExchangeError::TwoOptions { digest: key.call.call_key.clone() });
        }
    }
    Ok((!by_digest.is_empty()).then(|| json!({"schema": 1, "compiler_options": by_digest})))
}

fn flags(key: &CacheKey, entry: &Entry, variable: FlagVariable) -> Result<String, ExchangeError> {
    let flags = check(&entry.config).and_then(|()| flags_of(&entry.config));
    flags.map_err(|what| refused(key, variable.name(), what))
}

fn check(config: &Config) -> Result<(), String> {
    why_refused(config).map_or(Ok(()), |why| Err(format!("it {why}")))
}

fn refused(key: &CacheKey, peer: &str, what: String) -> ExchangeError {
    ExchangeError::Refused { call: key.call.clone(), peer: peer.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::call::{Call, Direction};
    use crate::device::DeviceIdentity;

    fn entry(platform: &str, op_id: &str, key: char, config: &str) -> (CacheKey, Arc<Entry>) {
        let device =
            DeviceIdentity { platform: platform.into(), device_kind: platform.into(), hardware: BTreeMap::new() };
        let call = Call::new(op_id, key.to_string().repeat(64));
        let config: Config = serde_json::from_str(config).unwrap();
        (CacheKey { call, direction: Direction::Forward, device }, Arc::new(Entry::new(config)))
    }

    #[test]
    fn options_are_flags_of_the_variable_that_their_platform_reads() {
        let entries = [
            entry(
                "cuda",
                COMPILER_OPTIONS,
                'a',
                r#"{"xla_gpu_triton_gemm_any":"True","xla_cpu_prefer_vector_width":512,
                    "xla_gpu_enable_triton_gemm":false,
                    "xla_disable_hlo_passes":"cse,dce"}"#,
            ),
            entry("tpu", COMPILER_OPTIONS, 'b', r#"{"xla_tpu_scoped_vmem_limit_kib":1.5}"#),
            entry("cuda", "flash_attention@v2", 'c', r#"{"block":[1]}"#),
        ];
        let of = |variable| export_flags(&entries, variable).unwrap();
        let expected = "--xla_cpu_prefer_vector_width=512 --xla_disable_hlo_passes=cse,dce \
                        --xla_gpu_enable_triton_gemm=false --xla_gpu_triton_gemm_any=true";
        assert_eq!(of(FlagVariable::XlaFlags).as_deref(), Some(expected));
        assert_eq!(of(FlagVariable::LibtpuInitArgs).as_deref(), Some("--xla_tpu_scoped_vmem_limit_kib=1.5"));
        assert_eq!(export_flags(&entries[2..], FlagVariable::XlaFlags).unwrap(), None);
    }

    #[test]
    fn one_process_has_one_value_and_flags_no_blanks() {
        let width = |key: char, bits: u32| {
            entry("cpu", COMPILER_OPTIONS, key, &format!(r#"{{"xla_cpu_prefer_vector_width":{bits}}}"#))
        };
        let (one, same, other) = (width('a', 512), width('b', 512), width('c', 128));
        let of = |entries: &[(CacheKey, Arc<Entry>)]| {
            export_flags(entries, FlagVariable::XlaFlags).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[one.clone(), same]).unwrap().as_deref(), Some("--xla_cpu_prefer_vector_width=512"));
        assert!(of(&[one, other]).unwrap_err().contains("`--key` or `--for`"));
        for config in [
            r#"{"xla_cpu_prefer_vector_width":"1 --xla_b=2"}"#,
            r#"{"xla_disable_hlo_passes":"cse'"}"#,
            r#"{"xla_cpu_prefer_vector_width=1 --b":1}"#,
            r#"{"xla_cpu_prefer_vector_width":[1]}"#,
            r#"{"xla_dump_to":"/x"}"#,
        ] {
            let error = of(&[entry("cpu", COMPILER_OPTIONS, 'a', config)]).unwrap_err();
            assert!(error.contains("which is on no list of what an entry may set"), "{error}");
        }
        let error = export_options(&[entry("cpu", COMPILER_OPTIONS, 'a', r#"{"xla_dump_to":"/x"}"#)]).unwrap_err();
        assert!(error.to_string().contains("it sets `xla_dump_to` to `/x`, which is on no list"), "{error}");
    }
}
