//! The values of an expression, and the kinds that a name may hold.

use std::fmt;
use std::ops::BitOr;

/// One value: borrowed, so that evaluation copies no text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConstraintValue<'a> {
    /// JSON's `null`.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A finite float.
    Float(f64),
    /// A string.
    Text(&'a str),
}

impl ConstraintValue<'_> {
    /// Its kind.
    pub fn kinds(self) -> Kinds {
        match self {
            Self::Null => Kinds::NULL,
            Self::Bool(_) => Kinds::BOOL,
            Self::Int(_) => Kinds::INT,
            Self::Float(_) => Kinds::FLOAT,
            Self::Text(_) => Kinds::TEXT,
        }
    }

    /// A number as a float: an integer beyond 2^53 becomes the nearest one.
    pub(super) fn to_float(self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> TryFrom<&'a serde_json::Value> for ConstraintValue<'a> {
    type Error = String;

    /// # Errors
    /// For a list, an object, and an integer beyond 64 bits with sign.
    fn try_from(value: &'a serde_json::Value) -> Result<Self, String> {
        use serde_json::Value as Json;
        Ok(match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::String(value) => Self::Text(value),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Self::Int(whole),
                (None, Some(real)) if number.is_f64() => Self::Float(real),
                _ => return Err(format!("`{number}` is too large for an integer of an expression")),
            },
            Json::Array(_) | Json::Object(_) => return Err(format!("`{value}` is not a single value")),
        })
    }
}

/// A set of kinds of values: those of a name or an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// None at all.
    pub const NONE: Self = Self(0);
    /// [`ConstraintValue::Null`].
    pub const NULL: Self = Self(1);
    /// [`ConstraintValue::Bool`].
    pub const BOOL: Self = Self(2);
    /// [`ConstraintValue::Int`].
    pub const INT: Self = Self(4);
    /// [`ConstraintValue::Float`].
    pub const FLOAT: Self = Self(8);
    /// [`ConstraintValue::Text`].
    pub const TEXT: Self = Self(16);
    /// Any of them.
    pub const ANY: Self = Self(31);

    pub(super) const NUMBER: Self = Self(12);

    const NAMES: [(Self, &str); 5] = [
        (Self::INT, "an integer"),
        (Self::FLOAT, "a float"),
        (Self::TEXT, "a string"),
        (Self::BOOL, "a boolean"),
        (Self::NULL, "null"),
    ];

    /// Those that are in both.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether some kind is in both.
    pub(super) fn meets(self, other: Self) -> bool {
        self.and(other) != Self::NONE
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (kind, name) in Self::NAMES {
            if self.meets(kind) {
                write!(f, "{before}{name}")?;
                before = " or ";
            }
        }
        Ok(())
    }
}
