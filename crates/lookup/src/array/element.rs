//! One element to and from its host bytes, for every element type.

use super::DType;

/// How a floating-point format encodes non-finite values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Specials {
    /// The top exponent holds infinities and NaNs.
    Ieee,
    /// No infinities; all ones is NaN.
    OneNan,
    /// No infinities and no negative zero, whose pattern is NaN.
    NoNegativeZero,
    /// Finite numbers only.
    None,
}

/// A binary floating-point format of at most sixteen bits with a sign bit.
#[derive(Debug, Clone, Copy)]
struct Narrow {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

impl Narrow {
    const fn new(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Self {
        Self { exponent_bits, mantissa_bits, bias, specials }
    }

    /// The format of an element type; `None` for those that are not narrow signed floats.
    fn of(dtype: DType) -> Option<Self> {
        // widths and biases: the descriptions of ml_dtypes' types and of XLA's PrimitiveType
        Some(match dtype {
            DType::F16 => Self::new(5, 10, 15, Specials::Ieee),
            DType::Bf16 => Self::new(8, 7, 127, Specials::Ieee),
            DType::F8E5M2 => Self::new(5, 2, 15, Specials::Ieee),
            DType::F8E4M3 => Self::new(4, 3, 7, Specials::Ieee),
            DType::F8E3M4 => Self::new(3, 4, 3, Specials::Ieee),
            DType::F8E4M3Fn => Self::new(4, 3, 7, Specials::OneNan),
            DType::F8E4M3B11Fnuz => Self::new(4, 3, 11, Specials::NoNegativeZero),
            DType::F8E5M2Fnuz => Self::new(5, 2, 16, Specials::NoNegativeZero),
            DType::F8E4M3Fnuz => Self::new(4, 3, 8, Specials::NoNegativeZero),
            DType::F4E2M1Fn => Self::new(2, 1, 1, Specials::None),
            _ => return None,
        })
    }

    fn sign_bit(self) -> u16 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Largest pattern of a finite positive number.
    fn max_finite(self) -> u16 {
        match self.specials {
            Specials::Ieee => (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1,
            Specials::OneNan => self.sign_bit() - 2,
            Specials::NoNegativeZero | Specials::None => self.sign_bit() - 1,
        }
    }

    fn decode(self, bits: u16) -> f64 {
        let magnitude = bits & (self.sign_bit() - 1);
        let negative = bits & self.sign_bit() != 0;
        if magnitude > self.max_finite() {
            let infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits;
            let infinite = self.specials == Specials::Ieee && magnitude == infinity;
            return match (infinite, negative) {
                (false, _) => f64::NAN,
                (true, false) => f64::INFINITY,
                (true, true) => f64::NEG_INFINITY,
            };
        }
        if self.specials == Specials::NoNegativeZero && negative && magnitude == 0 {
            return f64::NAN;
        }
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = f64::from(magnitude & ((1 << self.mantissa_bits) - 1));
        let one = f64::from(1_u16 << self.mantissa_bits);
        let value = if exponent == 0 {
            mantissa / one * power_of_two(1 - self.bias)
        } else {
            (1.0 + mantissa / one) * power_of_two(exponent - self.bias)
        };
        if negative { -value } else { value }
    }

    /// Rounds to nearest, ties to even; beyond the largest finite number it is infinity, NaN or, where the format
    /// has neither, the largest finite number.
    fn encode(self, value: f64) -> u16 {
        self.encode_usual(value).unwrap_or_else(|| self.encode_any(value))
    }

    /// The same of a number whose result is neither subnormal nor beyond the largest finite number; most are not.
    fn encode_usual(self, value: f64) -> Option<u16> {
        let dropped = f64::MANTISSA_DIGITS - 1 - self.mantissa_bits;
        let bits = value.to_bits() & (u64::MAX >> 1);
        let to_even = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
        let rounded = (bits + to_even) >> dropped;
        let magnitude = rounded.checked_sub(((1023 - self.bias) as u64) << self.mantissa_bits)?;
        let is_usual = magnitude >> self.mantissa_bits > 0 && magnitude <= u64::from(self.max_finite());
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        is_usual.then_some(sign | magnitude as u16)
    }

    fn encode_any(self, value: f64) -> u16 {
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        let infinity = ((1_u16 << self.exponent_bits) - 1) << self.mantissa_bits;
        let beyond = match self.specials {
            Specials::Ieee => sign | infinity,
            Specials::OneNan => sign | (self.sign_bit() - 1),
            Specials::NoNegativeZero => self.sign_bit(),
            Specials::None => sign | self.max_finite(),
        };
        if value.is_nan() {
            return match self.specials {
                // the quiet bit, so that the pattern is not an infinity's
                Specials::Ieee => sign | infinity | (1 << (self.mantissa_bits - 1)),
                Specials::None => sign,
                Specials::OneNan | Specials::NoNegativeZero => beyond,
            };
        }
        let magnitude = value.abs();
        if magnitude.is_infinite() {
            return beyond;
        }
        let smallest = 1 - self.bias;
        let mut quantum = exponent_of(magnitude).max(smallest) - self.mantissa_bits as i32;
        // both steps are exact: the quantum is a power of two and no format here reaches f64's subnormals
        let mut steps = (magnitude / power_of_two(quantum)).round_ties_even() as u32;
        let one = 1_u32 << self.mantissa_bits;
        if steps == 2 * one {
            steps = one;
            quantum += 1;
        }
        let bits = if steps < one {
            steps
        } else {
            let exponent = (quantum + self.mantissa_bits as i32 + self.bias) as u32;
            (exponent << self.mantissa_bits) + (steps - one)
        };
        match u16::try_from(bits) {
            Ok(0) if self.specials == Specials::NoNegativeZero => 0,
            Ok(bits) if bits <= self.max_finite() => sign | bits,
            _ => beyond,
        }
    }
}

/// `2^exponent`, exactly, for exponents of normal `f64` numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023).clamp(1, 2046) as u64) << 52)
}

/// `floor(log2(magnitude))` of a normal number; zero and subnormals give an exponent below any narrow format's.
fn exponent_of(magnitude: f64) -> i32 {
    ((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// A power of two without sign, as in OCP's microscaling formats: exponent with bias 127, all ones is NaN.
fn encode_e8m0(value: f64) -> u8 {
    if value.is_nan() || value <= 0.0 || value.is_infinite() {
        return 0xff;
    }
    let exponent = exponent_of(value);
    // half-way goes up: with no mantissa bit the even neighbour is the upper one
    let rounded = if value / power_of_two(exponent) >= 1.5 { exponent + 1 } else { exponent };
    (rounded + 127).clamp(0, 0xff) as u8
}

fn decode_e8m0(bits: u8) -> f64 {
    if bits == 0xff { f64::NAN } else { power_of_two(i32::from(bits) - 127) }
}

/// Appends one real number as an element of a floating-point type, rounded to nearest even.
///
/// `false`, with nothing appended, if the type is not a real floating-point one.
pub(super) fn push_float(dtype: DType, value: f64, bytes: &mut Vec<u8>) -> bool {
    match dtype {
        DType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
        DType::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
        DType::F8E8M0Fnu => bytes.push(encode_e8m0(value)),
        _ => match Narrow::of(dtype) {
            Some(format) => {
                let bits = format.encode(value).to_le_bytes();
                bytes.extend_from_slice(bits.get(..dtype.host_bytes()).unwrap_or_default());
            }
            None => return false,
        },
    }
    true
}

/// The same of many numbers; without a branch for each element.
pub(super) fn push_floats(dtype: DType, values: impl Iterator<Item = f64>, bytes: &mut Vec<u8>) {
    match (dtype, Narrow::of(dtype)) {
        (DType::F32, _) => values.for_each(|value| bytes.extend_from_slice(&(value as f32).to_le_bytes())),
        (_, Some(format)) if dtype.host_bytes() == 2 => {
            values.for_each(|value| bytes.extend_from_slice(&format.encode(value).to_le_bytes()));
        }
        _ => values.for_each(|value| {
            push_float(dtype, value, bytes);
        }),
    }
}

/// The largest finite number of a floating-point type, and the least: its negative, or the least power for the
/// type without a sign.
pub(super) fn finite_range(dtype: DType) -> Option<(f64, f64)> {
    let most = match dtype {
        DType::F64 | DType::C128 => f64::MAX,
        DType::F32 | DType::C64 => f64::from(f32::MAX),
        DType::F8E8M0Fnu => return Some((decode_e8m0(0), decode_e8m0(0xfe))),
        _ => {
            let format = Narrow::of(dtype)?;
            format.decode(format.max_finite())
        }
    };
    Some((-most, most))
}

/// The integers that a type holds; `pred` counts as `0..=1`.
pub(super) fn integer_range(dtype: DType) -> Option<(i128, i128)> {
    let bits = dtype.bits();
    match dtype {
        DType::Pred => Some((0, 1)),
        DType::S2 | DType::S4 | DType::S8 | DType::S16 | DType::S32 | DType::S64 => {
            Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        }
        DType::U2 | DType::U4 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => Some((0, (1 << bits) - 1)),
        _ => None,
    }
}

/// Appends an integer that is inside [`integer_range`].
pub(super) fn push_integer(dtype: DType, value: i128, bytes: &mut Vec<u8>) {
    let mut word = value.to_le_bytes();
    if let (Some(first), true) = (word.first_mut(), dtype.bits() < 8) {
        // the upper bits of a narrow element are zero, as ml_dtypes stores them
        *first &= (1 << dtype.bits()) - 1;
    }
    bytes.extend_from_slice(word.get(..dtype.host_bytes()).unwrap_or_default());
}

/// One element of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Element {
    /// A real number; every narrow float is an `f64` exactly.
    Real(f64),
    /// An integer or a boolean.
    Integer(i128),
    /// Real and imaginary part.
    Complex(f64, f64),
}

/// Reads one element from exactly [`DType::host_bytes`] bytes; `None` for another length.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Option<Element> {
    Some(match dtype {
        DType::F64 => double(bytes.try_into().ok()?),
        DType::F32 => single(bytes.try_into().ok()?),
        DType::C64 => {
            let (re, im) = bytes.split_at_checked(4)?;
            let part = |part: &[u8]| Some(f64::from(f32::from_le_bytes(part.try_into().ok()?)));
            Element::Complex(part(re)?, part(im)?)
        }
        DType::C128 => {
            let (re, im) = bytes.split_at_checked(8)?;
            let part = |part: &[u8]| Some(f64::from_le_bytes(part.try_into().ok()?));
            Element::Complex(part(re)?, part(im)?)
        }
        DType::F8E8M0Fnu => Element::Real(decode_e8m0(*bytes.first()?)),
        DType::Pred => Element::Integer(i128::from(*bytes.first()? != 0)),
        _ => match Narrow::of(dtype) {
            Some(format) => Element::Real(format.decode(little_endian(bytes, dtype)? as u16)),
            None => {
                let (low, high) = integer_range(dtype)?;
                let bits = dtype.bits();
                let value = i128::from(little_endian(bytes, dtype)? & (u64::MAX >> (64 - bits)));
                Element::Integer(if low < 0 && value > high { value - (1 << bits) } else { value })
            }
        },
    })
}

/// Iterates over the elements of an array in order; common types are read without a branch for each element.
pub(super) fn for_each(dtype: DType, bytes: &[u8], mut each: impl FnMut(Element)) {
    match dtype {
        DType::F32 => bytes.as_chunks().0.iter().for_each(|&bits| each(single(bits))),
        DType::F64 => bytes.as_chunks().0.iter().for_each(|&bits| each(double(bits))),
        DType::Bf16 => bytes.as_chunks().0.iter().for_each(|&bits| each(brain(bits))),
        _ => bytes.chunks_exact(dtype.host_bytes()).filter_map(|bytes| decode(dtype, bytes)).for_each(each),
    }
}

/// The same for two arrays at once.
pub(super) fn for_each_pair(dtype: DType, a: &[u8], b: &[u8], mut each: impl FnMut(Element, Element)) {
    match dtype {
        DType::F32 => a.as_chunks().0.iter().zip(b.as_chunks().0).for_each(|(&a, &b)| each(single(a), single(b))),
        DType::F64 => a.as_chunks().0.iter().zip(b.as_chunks().0).for_each(|(&a, &b)| each(double(a), double(b))),
        DType::Bf16 => a.as_chunks().0.iter().zip(b.as_chunks().0).for_each(|(&a, &b)| each(brain(a), brain(b))),
        _ => {
            let width = dtype.host_bytes();
            for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
                if let (Some(a), Some(b)) = (decode(dtype, a), decode(dtype, b)) {
                    each(a, b);
                }
            }
        }
    }
}

fn single(bits: [u8; 4]) -> Element {
    Element::Real(f64::from(f32::from_le_bytes(bits)))
}

fn double(bits: [u8; 8]) -> Element {
    Element::Real(f64::from_le_bytes(bits))
}

/// The upper half of an `f32`.
fn brain([low, high]: [u8; 2]) -> Element {
    single([0, 0, low, high])
}

fn little_endian(bytes: &[u8], dtype: DType) -> Option<u64> {
    if bytes.len() != dtype.host_bytes() {
        return None;
    }
    Some(bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_a_narrow_float_round_trips() {
        for &dtype in DType::ALL {
            let Some(format) = Narrow::of(dtype) else { continue };
            for bits in 0..=u16::MAX >> (16 - dtype.bits()) {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), bits, "{dtype} {bits:#x} = {value}");
                }
            }
        }
        for bits in 0..0xff {
            assert_eq!(encode_e8m0(decode_e8m0(bits)), bits);
        }
    }

    #[test]
    fn conversions_equal_ml_dtypes() {
        // tests/data/array/README.md says how the table was made; dtype, then f32 bits and result bits in hex
        let table = include_str!("../../../../tests/data/array/ml_dtypes.tsv");
        let mut checked = 0;
        for line in table.lines() {
            let mut fields = line.split('\t');
            let dtype: DType = fields.next().unwrap().parse().unwrap();
            for pair in fields {
                let (input, expected) = pair.split_once(':').unwrap();
                let value = f32::from_bits(u32::from_str_radix(input, 16).unwrap());
                let expected = u16::from_str_radix(expected, 16).unwrap();
                let mut bytes = Vec::new();
                assert!(push_float(dtype, f64::from(value), &mut bytes));
                let ours = little_endian(&bytes, dtype).unwrap() as u16;
                let nan = |bits: u16| {
                    let bytes = bits.to_le_bytes();
                    matches!(decode(dtype, &bytes[..dtype.host_bytes()]), Some(Element::Real(value)) if value.is_nan())
                };
                assert!(
                    ours == expected || nan(ours) && nan(expected),
                    "{dtype}: {value} is {expected:#x} there, {ours:#x} here"
                );
                checked += 1;
            }
        }
        assert!(checked > 3000, "{checked}");
    }

    #[test]
    fn integers_round_trip_at_their_limits() {
        for &dtype in DType::ALL {
            let Some((low, high)) = integer_range(dtype) else { continue };
            for value in [low, high, 0, 1] {
                let mut bytes = Vec::new();
                push_integer(dtype, value.min(high), &mut bytes);
                assert_eq!(decode(dtype, &bytes), Some(Element::Integer(value.min(high))), "{dtype}");
            }
        }
        // numpy.array([-1, -8], ml_dtypes.int4).view(uint8) = [15, 8]
        let mut bytes = Vec::new();
        push_integer(DType::S4, -1, &mut bytes);
        push_integer(DType::S4, -8, &mut bytes);
        assert_eq!(bytes, [15, 8]);
    }
}
