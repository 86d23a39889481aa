//! Named values, as the API takes options and gives attributes.

use std::path::Path;

use super::ffi::{NamedValue, NamedValueUnion, named_value_kind};
use super::library::text_of;

/// An option of `PJRT_Client_Create`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OptionValue {
    Text(String),
    Int(i64),
    Bool(bool),
    Float(f32),
}

/// An attribute's value as text; `None` if its kind is unknown.
///
/// # Safety
/// The arm that `kind` names was written, and a text is as long as `value_size` says.
pub(crate) unsafe fn text_of_value(value: &NamedValue) -> Option<String> {
    // SAFETY: each arm is read where the kind says that it was written.
    unsafe {
        match value.kind {
            named_value_kind::STRING => Some(text_of(value.value.string, value.value_size)),
            named_value_kind::INT64 => Some(value.value.int64.to_string()),
            named_value_kind::FLOAT => Some(value.value.float.to_string()),
            named_value_kind::BOOL => Some((value.value.boolean != 0).to_string()),
            _ => None,
        }
    }
}

/// A numeric attribute's name and value; `None` if it is not a number.
///
/// # Safety
/// As for [`text_of_value`], and the name is as long as `name_size` says.
pub(crate) unsafe fn number_of_value(value: &NamedValue) -> Option<(String, f64)> {
    // SAFETY: each arm is read where the kind says that it was written.
    unsafe {
        let number = match value.kind {
            named_value_kind::INT64 => value.value.int64 as f64,
            named_value_kind::FLOAT => f64::from(value.value.float),
            _ => return None,
        };
        Some((text_of(value.name, value.name_size), number))
    }
}

pub(crate) fn named_value(name: &str, value: &OptionValue) -> NamedValue {
    let mut named = NamedValue::new();
    named.name = name.as_ptr().cast();
    named.name_size = name.len();
    named.value_size = 1;
    match value {
        OptionValue::Text(text) => {
            named.kind = named_value_kind::STRING;
            named.value = NamedValueUnion { string: text.as_ptr().cast() };
            named.value_size = text.len();
        }
        OptionValue::Int(int64) => {
            named.kind = named_value_kind::INT64;
            named.value = NamedValueUnion { int64: *int64 };
        }
        OptionValue::Float(float) => {
            named.kind = named_value_kind::FLOAT;
            named.value = NamedValueUnion { float: *float };
        }
        OptionValue::Bool(boolean) => {
            named.kind = named_value_kind::BOOL;
            named.value = NamedValueUnion { boolean: u8::from(*boolean) };
        }
    }
    named
}

/// The best options for creating a client of this plugin. A plugin does not report its platform before that, but its
/// file name shows it. If a plugin does not know an option, it is asked again without.
pub(crate) fn default_client_options(plugin: &Path) -> Vec<(String, OptionValue)> {
    let name = plugin.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if ["cuda", "rocm", "gpu"].iter().any(|platform| name.contains(platform)) {
        // the compile workers and the measuring worker share the device
        vec![("preallocate".to_owned(), OptionValue::Bool(false))]
    } else if name.contains("cpu") {
        vec![("cpu_device_count".to_owned(), OptionValue::Int(1))]
    } else {
        Vec::new()
    }
}

/// Reads `name=value`: a boolean, an integer, a real number, or else text.
pub(crate) fn parse_client_option(text: &str) -> Result<(String, OptionValue), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not of the form `name=value`"))?;
    let value = if let Ok(boolean) = value.parse() {
        OptionValue::Bool(boolean)
    } else if let Ok(integer) = value.parse() {
        OptionValue::Int(integer)
    } else if let Ok(real) = value.parse() {
        OptionValue::Float(real)
    } else {
        OptionValue::Text(value.to_owned())
    };
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_byte_a_plugin_writes_is_a_boolean() {
        for (byte, expected) in [(0, "false"), (1, "true"), (2, "true"), (255, "true")] {
            let mut value = named_value("coherent", &OptionValue::Bool(false));
            value.value = NamedValueUnion { boolean: byte };
            // SAFETY: the kind is that of the arm.
            assert_eq!(unsafe { text_of_value(&value) }.as_deref(), Some(expected), "{byte}");
        }
        let value = named_value("coherent", &OptionValue::Bool(true));
        // SAFETY: the kind is that of the arm.
        assert_eq!(unsafe { text_of_value(&value) }.as_deref(), Some("true"));
    }

    #[test]
    fn client_options_by_their_spelling() {
        let parsed = |text| parse_client_option(text).unwrap().1;
        assert_eq!(parsed("a=4"), OptionValue::Int(4));
        assert_eq!(parsed("a=true"), OptionValue::Bool(true));
        assert_eq!(parsed("a=0.5"), OptionValue::Float(0.5));
        assert_eq!(parsed("a=bfc"), OptionValue::Text("bfc".into()));
        assert!(parse_client_option("=4").is_err());
        assert!(parse_client_option("a").is_err());
    }
}
