//! Compiler options of a whole program as a variable of the environment, for programs that are not started through our
//! package.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::ExchangeError;
use crate::cache::option_policy::{COMPILER_OPTIONS, why_refused};
use crate::cache::{CacheKey, Entry};
use crate::config::Config;

/// The platform whose compiler reads a variable of its own.
const TPU: &str = "tpu";

/// An environment variable from which a compiler reads its flags at process start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlagVariable {
    /// `XLA_FLAGS`: for every platform but TPUs, whose flags it does not know.
    XlaFlags,
    /// `LIBTPU_INIT_ARGS`: for TPUs.
    LibtpuInitArgs,
}

impl FlagVariable {
    /// The variable that a platform's compiler reads.
    pub fn of_platform(platform: &str) -> Self {
        if platform == TPU { Self::LibtpuInitArgs } else { Self::XlaFlags }
    }

    /// The variable's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::XlaFlags => "XLA_FLAGS",
            Self::LibtpuInitArgs => "LIBTPU_INIT_ARGS",
        }
    }
}

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

/// A variable's own value with these flags at its end, without its flags of the same names. `None` if the value names a file
/// of flags, as one does that begins with no dash.
pub fn flags_after(own: &str, flags: &str) -> Option<String> {
    let own = own.trim_start();
    if !own.is_empty() && !own.starts_with('-') {
        return None;
    }
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = flags.split_whitespace().map(name).collect();
    let kept = words(own).into_iter().filter(|word| !ours.contains(&name(word)));
    let all: Vec<&str> = kept.chain(flags.split_whitespace()).collect();
    Some(all.join(" "))
}

/// The words of a variable as XLA splits it: at blanks, except in quotes.
fn words(text: &str) -> Vec<&str> {
    let (mut quote, mut is_escaped) = (None, false);
    let is_between = |char: char| {
        match (quote, char) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), _) if open == char => quote = None,
            (None, '"' | '\'') => quote = Some(char),
            _ => {}
        }
        quote.is_none() && char.is_whitespace()
    };
    text.split(is_between).filter(|word| !word.is_empty()).collect()
}

/// The compiler options of these entries as one JSON object: each program's digest to its options, in the digests'
/// order, for programs that compile one by one without our package. Entries of other operations are left out. `None` if
/// none is left.
///
/// # Errors
///
/// If entries of one program have different options, such as those of two devices, or one has an option that reaches files.
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

/// Compiler options as the value of a variable: `--a=1 --b=true`.
///
/// # Errors
///
/// If an option is not a flag, in words.
pub fn flags_of(config: &Config) -> Result<String, String> {
    let refused = |name: &str, why: &str| format!("`{}` {why}", name.escape_debug());
    let flag = |(name, value): (&String, &Value)| {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(refused(name, "is not the name of a flag"));
        }
        let text = match value {
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            // as options of one compilation, bools are written like this
            Value::String(text) if text == "True" || text == "False" => text.to_ascii_lowercase(),
            Value::String(text) => text.clone(),
            _ => return Err(refused(name, "is neither a string nor a number")),
        };
        // the variable is split at blanks, and quotes are special in it
        if text.chars().any(|char| char.is_whitespace() || char.is_control() || matches!(char, '"' | '\'' | '\\')) {
            return Err(refused(name, "has a value with blanks or quotes"));
        }
        Ok(format!("--{name}={text}"))
    };
    Ok(config.as_map().iter().map(flag).collect::<Result<Vec<_>, _>>()?.join(" "))
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
    fn flags_of_the_same_names_are_replaced_and_others_stay() {
        let after = |own: &str| flags_after(own, "--xla_a=1 --xla_b=true");
        assert_eq!(after("").as_deref(), Some("--xla_a=1 --xla_b=true"));
        let own = " --xla_b --xla_ab=2\n--xla_c='x --xla_a=3' --xla_a=4 ";
        assert_eq!(after(own).as_deref(), Some("--xla_ab=2 --xla_c='x --xla_a=3' --xla_a=1 --xla_b=true"));
        assert_eq!(flags_after("--xla_b", "").as_deref(), Some("--xla_b"));
        assert_eq!(after("flags.txt"), None);
    }

    #[test]
    fn options_are_flags_of_the_variable_that_their_platform_reads() {
        let entries = [
            entry(
                "cuda",
                COMPILER_OPTIONS,
                'a',
                r#"{"xla_gpu_triton_gemm_any":"True","xla_cpu_prefer_vector_width":512,"xla_gpu_enable_triton_gemm":false,
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
        for (config, expected) in [
            (r#"{"xla_a":"1 --xla_b=2"}"#, "blanks or quotes"),
            (r#"{"xla_a":"1'"}"#, "blanks or quotes"),
            (r#"{"xla_a=1 --b":1}"#, "is not the name of a flag"),
            (r#"{"xla_a":[1]}"#, "neither a string nor a number"),
        ] {
            let error = flags_of(&serde_json::from_str(config).unwrap()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = export_options(&[entry("cpu", COMPILER_OPTIONS, 'a', r#"{"xla_dump_to":"/x"}"#)]).unwrap_err();
        assert!(error.to_string().contains("it sets `xla_dump_to` to `/x`, which is on no list"), "{error}");
    }
}
