//! The operators, and the kinds of their operands.

use std::cmp::Ordering;

use super::value::{ConstraintValue, Kinds};

/// An operator of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Negate,
    Not,
}

/// An operator or function of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Min,
    Max,
}

/// The operators between two values, and how strongly each binds them; `||` has 1, and `&&` has 2.
const INFIX: [(&str, u8, Binary); 12] = [
    ("==", 3, Binary::Equal),
    ("!=", 3, Binary::Unequal),
    ("<", 4, Binary::Less),
    ("<=", 4, Binary::LessOrEqual),
    (">", 4, Binary::Greater),
    (">=", 4, Binary::GreaterOrEqual),
    ("+", 5, Binary::Add),
    ("-", 5, Binary::Subtract),
    ("*", 6, Binary::Multiply),
    ("/", 6, Binary::Divide),
    ("%", 6, Binary::Remainder),
    ("**", 7, Binary::Power),
];

impl Unary {
    fn symbol(self) -> &'static str {
        match self {
            Self::Negate => "-",
            Self::Not => "!",
        }
    }

    /// The kinds of its result.
    ///
    /// # Errors
    /// If it takes no value of these kinds.
    pub(super) fn kinds(self, of: Kinds) -> Result<Kinds, String> {
        let result = of.and(if self == Self::Not { Kinds::BOOL } else { Kinds::NUMBER });
        if result == Kinds::NONE { Err(self.misfit(of)) } else { Ok(result) }
    }

    /// # Errors
    /// For a value of a kind that it does not take, and for a result beyond 64 bits.
    pub(super) fn apply(self, of: ConstraintValue<'_>) -> Result<ConstraintValue<'static>, String> {
        match (self, of) {
            (Self::Not, ConstraintValue::Bool(value)) => Ok(ConstraintValue::Bool(!value)),
            (Self::Negate, ConstraintValue::Float(value)) => Ok(ConstraintValue::Float(-value)),
            (Self::Negate, ConstraintValue::Int(value)) => value
                .checked_neg()
                .map(ConstraintValue::Int)
                .ok_or_else(|| format!("`-` of `{value}` is beyond an integer of 64 bits")),
            _ => Err(self.misfit(of.kinds())),
        }
    }

    fn misfit(self, kinds: Kinds) -> String {
        format!("`{}` does not take {kinds}", self.symbol())
    }
}

impl Binary {
    /// The operator that is written between two values, and how strongly it binds them.
    pub(super) fn infix(symbol: &str) -> Option<(u8, Self)> {
        INFIX.into_iter().find(|(known, ..)| *known == symbol).map(|(_, power, operator)| (power, operator))
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            _ => INFIX.into_iter().find(|(.., operator)| *operator == self).map_or("", |(symbol, ..)| symbol),
        }
    }

    /// The kinds of its result.
    ///
    /// # Errors
    /// If it takes no values of these kinds: two that are never equal among them.
    pub(super) fn kinds(self, left: Kinds, right: Kinds) -> Result<Kinds, String> {
        let numbers = left.meets(Kinds::NUMBER) && right.meets(Kinds::NUMBER);
        let result = match self {
            Self::Equal | Self::Unequal if numbers || left.meets(right) => Kinds::BOOL,
            Self::Equal | Self::Unequal => Kinds::NONE,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual
                if numbers || left.and(right).meets(Kinds::TEXT | Kinds::BOOL) =>
            {
                Kinds::BOOL
            }
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => Kinds::NONE,
            _ if numbers => left.and(right).and(Kinds::INT) | (left | right).and(Kinds::FLOAT),
            _ => Kinds::NONE,
        };
        if result == Kinds::NONE { Err(self.misfit(left, right)) } else { Ok(result) }
    }

    /// # Errors
    /// For values of kinds that it does not take, and if there is no result: beyond 64 bits, not finite, by zero.
    pub(super) fn apply(
        self,
        left: ConstraintValue<'_>,
        right: ConstraintValue<'_>,
    ) -> Result<ConstraintValue<'static>, String> {
        match (self, left, right) {
            (Self::Equal, ..) => Ok(ConstraintValue::Bool(are_equal(left, right))),
            (Self::Unequal, ..) => Ok(ConstraintValue::Bool(!are_equal(left, right))),
            (Self::Less, ..) => self.compare(left, right, Ordering::is_lt),
            (Self::LessOrEqual, ..) => self.compare(left, right, Ordering::is_le),
            (Self::Greater, ..) => self.compare(left, right, Ordering::is_gt),
            (Self::GreaterOrEqual, ..) => self.compare(left, right, Ordering::is_ge),
            (_, ConstraintValue::Int(a), ConstraintValue::Int(b)) => {
                self.of_integers(a, b).map(ConstraintValue::Int).ok_or_else(|| self.no_integer(a, b))
            }
            _ => match (left.to_float(), right.to_float()) {
                (Some(a), Some(b)) => self.of_floats(a, b).map(ConstraintValue::Float),
                _ => Err(self.misfit(left.kinds(), right.kinds())),
            },
        }
    }

    fn compare(
        self,
        left: ConstraintValue<'_>,
        right: ConstraintValue<'_>,
        holds: fn(Ordering) -> bool,
    ) -> Result<ConstraintValue<'static>, String> {
        let order = match (left, right) {
            (ConstraintValue::Int(a), ConstraintValue::Int(b)) => Some(a.cmp(&b)),
            (ConstraintValue::Bool(a), ConstraintValue::Bool(b)) => Some(a.cmp(&b)),
            (ConstraintValue::Text(a), ConstraintValue::Text(b)) => Some(a.cmp(b)),
            _ => left.to_float().zip(right.to_float()).and_then(|(a, b)| a.partial_cmp(&b)),
        };
        order.map(|order| ConstraintValue::Bool(holds(order))).ok_or_else(|| self.misfit(left.kinds(), right.kinds()))
    }

    fn of_integers(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::Add => a.checked_add(b),
            Self::Subtract => a.checked_sub(b),
            Self::Multiply => a.checked_mul(b),
            Self::Divide => a.checked_div(b),
            // of the least integer and -1 it is 0, though their quotient is none
            Self::Remainder => (b != 0).then(|| a.wrapping_rem(b)),
            // the exponent's parity is enough
            Self::Power if (-1..=1).contains(&a) && b > 2 => a.checked_pow(2 + (b % 2) as u32),
            Self::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            Self::Min => Some(a.min(b)),
            Self::Max => Some(a.max(b)),
            _ => None,
        }
    }

    /// Why two integers have no result.
    #[cold]
    fn no_integer(self, a: i64, b: i64) -> String {
        let why = match self {
            Self::Divide | Self::Remainder if b == 0 => "divides by zero",
            Self::Power if b < 0 => "has a negative right side",
            _ => "is beyond an integer of 64 bits",
        };
        format!("`{a} {} {b}` {why}", self.symbol())
    }

    fn of_floats(self, a: f64, b: f64) -> Result<f64, String> {
        let result = match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide => a / b,
            Self::Remainder => a % b,
            Self::Power => a.powf(b),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            _ => return Err(self.misfit(Kinds::FLOAT, Kinds::FLOAT)),
        };
        if result.is_finite() { Ok(result) } else { Err(format!("`{a:?} {} {b:?}` is not finite", self.symbol())) }
    }

    fn misfit(self, left: Kinds, right: Kinds) -> String {
        format!("`{}` does not take {left} and {right}", self.symbol())
    }
}

fn are_equal(left: ConstraintValue<'_>, right: ConstraintValue<'_>) -> bool {
    match (left, right) {
        (ConstraintValue::Int(_), ConstraintValue::Float(_)) | (ConstraintValue::Float(_), ConstraintValue::Int(_)) => {
            left.to_float() == right.to_float()
        }
        _ => left == right,
    }
}
