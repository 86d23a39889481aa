//! Compiler options of a whole program as flags, in the environment variable that its platform's compiler reads.
//!
//! ```
//! use autotune_lowered_lookup::compiler_flags::{FlagVariable, flags_of};
//! use autotune_lowered_lookup::config::Config;
//!
//! let options: Config = serde_json::from_str(r#"{"xla_cpu_enable_fast_math": true}"#)?;
//! assert_eq!(flags_of(&options)?, "--xla_cpu_enable_fast_math=true");
//! assert_eq!(FlagVariable::of_platform("cpu").name(), "XLA_FLAGS");
//! assert_eq!(FlagVariable::of_platform("tpu").name(), "LIBTPU_INIT_ARGS");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::Config;

/// The platform whose compiler reads a variable of its own.
pub const TPU: &str = "tpu";

/// An environment variable from which a compiler reads its flags at process start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A variable's own value with these flags at its end, without its flags of the same names. `None` if the value names a
/// file of flags, as one does that begins with no dash.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_no_flag_is_refused() {
        for (config, expected) in [
            (r#"{"xla_a":"1 --xla_b=2"}"#, "blanks or quotes"),
            (r#"{"xla_a":"1'"}"#, "blanks or quotes"),
            (r#"{"xla_a=1 --b":1}"#, "is not the name of a flag"),
            (r#"{"xla_a":[1]}"#, "neither a string nor a number"),
        ] {
            let error = flags_of(&serde_json::from_str(config).unwrap()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
