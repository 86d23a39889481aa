//! A copy of a module that computes in `f64`, as a reference for the module's rounding errors.
//!
//! StableHLO text is read token by token. The element types of tensors of narrower floats become `f64`, and
//! `complex<f32>` becomes `complex<f64>`. Constants keep their values: a decimal that is exact in its type stays as it
//! is, and any other becomes the number that its type holds, because the module computes with that number. Bits and raw
//! bytes are converted. As a result, conversions between floats round nothing. A module with an operation whose result
//! depends on the width of its type has no such copy.

use super::plain_text::{string_length, symbol, without_locations};
use crate::array::{DType, widened};
use crate::printable::printable;

/// Maximum size of a text; the copy may be eight times as large.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Maximum characters of a word in a message.
const WORD_SHOWN: usize = 60;

/// Operations that round to, produce or expect one type, or whose code is not in the module.
const OF_ONE_TYPE: [&str; 12] = [
    "custom_call",
    "reduce_precision",
    "rng",
    "rng_uniform",
    "rng_normal",
    "infeed",
    "outfeed",
    "send",
    "recv",
    "uniform_quantize",
    "uniform_dequantize",
    "next_after",
];
/// Operations that depend on the width too, unless their types are integers.
const OF_BITS: [&str; 2] = ["bitcast_convert", "rng_bit_generator"];
/// Operations whose attributes are `f32` whatever the types of their operands.
const WITH_SINGLE_ATTRIBUTES: &str = "batch_norm";

/// Why a module has no copy in `f64`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInF64 {
    /// An operation depends on the width of its type.
    #[error("`{0}` depends on the width of its type")]
    Operation(String),
    /// `f64` cannot replace a type.
    #[error("`{0}` cannot become `f64`")]
    Type(String),
    /// An attribute, not a tensor, has this type.
    #[error("an attribute has the type `{0}`")]
    Attribute(String),
    /// A constant cannot be read.
    #[error("the constant `{0}` cannot be converted")]
    Constant(String),
    /// The bytecode cannot be read.
    #[error("its bytecode cannot be read: {0}")]
    Unreadable(String),
    /// The text is too long.
    #[error("it takes {0} bytes, more than 64 MiB")]
    Size(usize),
    /// No type is narrower than `f64`.
    #[error("it has no floating-point type narrower than `f64`")]
    Nothing,
}

/// The portable artifact with every floating-point tensor in `f64`. What depends on the width of its type, though only
/// if that is a float, has no copy: the operations are looked at by name alone.
///
/// # Errors
/// If it would not compute the same function, no tensor changes, or it is no bytecode that is understood.
pub fn bytecode_in_f64(bytes: &[u8]) -> Result<Vec<u8>, NotInF64> {
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(NotInF64::Size(bytes.len()));
    }
    super::bytecode::in_f64(bytes)
}

/// Whether a StableHLO operation, or one of its versions, may compute something else in `f64`.
pub(super) fn depends_on_width(name: &str) -> bool {
    OF_ONE_TYPE.contains(&name) || OF_BITS.contains(&name) || name.contains(WITH_SINGLE_ATTRIBUTES)
}

/// The module with every floating-point tensor in `f64`, from StableHLO text; without source locations.
///
/// # Errors
/// If it would not compute the same function, or no tensor changes.
pub fn in_f64(text: &str) -> Result<String, NotInF64> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(NotInF64::Size(text.len()));
    }
    let text = without_locations(text);
    let mut copier = Copier { rest: &text, copy: String::with_capacity(text.len()), ..Copier::default() };
    while !copier.rest.is_empty() {
        copier.token()?;
    }
    if copier.has_changed { Ok(copier.copy) } else { Err(NotInF64::Nothing) }
}

#[derive(Default)]
struct Copier<'a> {
    rest: &'a str,
    copy: String,
    /// The last name of an operation, or of an attribute with a dialect.
    name: &'a str,
    /// An operation on bits whose types have not all been read, and whether one of them was.
    bits: Option<(&'static str, bool)>,
    /// Whether this line has only blanks so far.
    is_line_start: bool,
    has_changed: bool,
}

impl<'a> Copier<'a> {
    /// Copies this many bytes unchanged. A length that ends inside a character, which no caller passes, copies the
    /// rest.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.copy.push_str(taken);
        self.rest = rest;
        taken
    }

    fn token(&mut self) -> Result<(), NotInF64> {
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        if !first.is_ascii_whitespace() && std::mem::take(&mut self.is_line_start) {
            // an operation's types are at its end, on whichever line
            let begins = first.is_ascii_alphabetic() || "%}^".contains(first);
            self.bits = self.bits.filter(|(_, has_types)| !(*has_types && begins));
        }
        match first {
            '"' => {
                let text = self.take(string_length(self.rest));
                // an operation in its general form
                self.named(text.trim_matches('"'))?;
            }
            '/' if self.rest.starts_with("//") => {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            _ if first.is_ascii_whitespace() => {
                self.take(1);
                self.is_line_start |= first == '\n';
            }
            '@' => {
                self.take(1);
                self.take(symbol(self.rest).len());
            }
            '%' | '^' | '#' | '!' => {
                self.take(1);
                let word = self.take(word_length(self.rest));
                if first == '!' && word.starts_with("quant") {
                    return Err(NotInF64::Type(shown(word)));
                }
            }
            _ if first.is_ascii_alphabetic() || first == '_' => self.word()?,
            _ if first.is_ascii_digit() => {
                // not the `x` between dimensions, which are read with their tensor
                self.take(word_length(self.rest));
            }
            _ => {
                self.take(first.len_utf8());
            }
        }
        Ok(())
    }

    fn word(&mut self) -> Result<(), NotInF64> {
        let word = self.take(word_length(self.rest));
        let opens = self.rest.starts_with('<');
        match word {
            "tensor" | "vector" if opens => self.shaped(),
            "dense" if opens => self.constant(),
            "dense_resource" | "sparse" if opens => Err(NotInF64::Constant(word.to_owned())),
            _ if self.name.contains(WITH_SINGLE_ATTRIBUTES) && is_float(word) => Ok(()),
            "f64" => Ok(()),
            _ if is_float(word) => Err(NotInF64::Attribute(shown(word))),
            _ => self.named(word),
        }
    }

    /// Handles an operation's name.
    fn named(&mut self, word: &'a str) -> Result<(), NotInF64> {
        let Some((dialect, name)) = word.split_once('.') else { return Ok(()) };
        if !["stablehlo", "mhlo", "chlo", "vhlo"].contains(&dialect) {
            return Ok(());
        }
        self.name = name;
        if OF_ONE_TYPE.contains(&name) {
            return Err(NotInF64::Operation(shown(word)));
        }
        if let Some(name) = OF_BITS.into_iter().find(|one| *one == name) {
            self.bits = Some((name, false));
        }
        Ok(())
    }

    /// `<4x?xf32, …`, up to its element type.
    fn shaped(&mut self) -> Result<(), NotInF64> {
        let (before, element) = element_type(self.rest).ok_or_else(|| NotInF64::Type(shown(self.rest)))?;
        self.take(before);
        let narrow = match element.strip_prefix("complex<") {
            Some(part) => {
                self.take("complex<".len());
                part
            }
            None => element,
        };
        let is_integer = narrow == "index" || {
            let digits = narrow.trim_start_matches(['s', 'u']).strip_prefix('i');
            digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_narrow = !is_integer && narrow != "f64";
        if is_narrow && float(narrow).is_none() {
            return Err(NotInF64::Type(shown(if narrow.is_empty() { self.rest } else { narrow })));
        }
        if let Some((name, _)) = self.bits {
            if is_narrow {
                return Err(NotInF64::Operation(format!("stablehlo.{name}")));
            }
            self.bits = Some((name, true));
        }
        if is_narrow {
            self.copy.push_str("f64");
            self.rest = self.rest.get(narrow.len()..).unwrap_or_default();
            self.has_changed = true;
        } else {
            self.take(narrow.len());
        }
        Ok(())
    }

    /// `<…> : tensor<…>` after `dense`, without the type.
    fn constant(&mut self) -> Result<(), NotInF64> {
        self.take(1);
        let is_text = self.rest.starts_with('"');
        let length = if is_text { string_length(self.rest) } else { self.rest.find('>').unwrap_or(self.rest.len()) };
        let (values, behind) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        let unreadable = || NotInF64::Constant(shown(values));
        let of = behind.strip_prefix('>').map(str::trim_start).and_then(|behind| behind.strip_prefix(':'));
        let of = of.map(str::trim_start).and_then(|of| of.strip_prefix("tensor").or_else(|| of.strip_prefix("vector")));
        let (_, element) = of.and_then(element_type).ok_or_else(unreadable)?;
        match float(element.strip_prefix("complex<").unwrap_or(element)) {
            Some(dtype) if dtype != DType::F64 => {
                let wide = if is_text { bytes(values, dtype) } else { numbers(values, dtype) };
                self.copy.push_str(&wide.ok_or_else(unreadable)?);
                self.rest = behind;
            }
            _ => {
                self.take(length);
            }
        }
        Ok(())
    }
}

/// Bytes of a word: letters, digits and the signs that join them in a name.
fn word_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$'))).unwrap_or(text.len())
}

pub(super) fn shown(word: &str) -> String {
    printable(&word.chars().take(WORD_SHOWN).collect::<String>())
}

/// The floating-point type of this name in StableHLO.
fn float(name: &str) -> Option<DType> {
    DType::ALL.iter().copied().find(|dtype| dtype.is_float() && dtype.stablehlo_name() == name)
}

/// Whether a word is a floating-point type, including types without tensors here.
fn is_float(word: &str) -> bool {
    let is_other = || {
        let digits = word.strip_prefix("tf").or_else(|| word.strip_prefix('f'));
        digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
    };
    float(word).is_some() || is_other()
}

/// The start of the element type in `<4x?xf32…`, and that type; for a complex one `complex<f32`.
fn element_type(text: &str) -> Option<(usize, &str)> {
    let mut rest = text.strip_prefix('<')?;
    loop {
        let dimension = match rest.bytes().next()? {
            b'?' | b'*' => 1,
            _ => rest.bytes().take_while(u8::is_ascii_digit).count(),
        };
        let Some(after) = rest.get(dimension..).filter(|_| dimension > 0) else { break };
        rest = after.strip_prefix('x')?;
    }
    let part = rest.strip_prefix("complex<").unwrap_or(rest);
    let length = rest.len() - part.len() + word_length(part);
    Some((text.len() - rest.len(), rest.get(..length)?))
}

/// Little-endian bytes in hexadecimal digits: `"0x0000803F"`.
fn bytes(text: &str, dtype: DType) -> Option<String> {
    let digits = text.strip_prefix("\"0x")?.strip_suffix('"')?;
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    let narrow: Vec<u8> = digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>()?;
    // MLIR's packing of narrower elements is not supported
    if dtype.bits() < 8 || !narrow.len().is_multiple_of(dtype.host_bytes()) {
        return None;
    }
    let mut wide = String::with_capacity(narrow.len() / dtype.host_bytes() * 16 + 4);
    wide.push_str("\"0x");
    for byte in widened(dtype, &narrow) {
        let digits = [byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16));
        wide.extend(digits.map(|digit| digit.to_ascii_uppercase()));
    }
    wide.push('"');
    Some(wide)
}

/// Numbers and the text between them.
fn numbers(text: &str, dtype: DType) -> Option<String> {
    let mut wide = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit() || first == '-';
        let length = if is_number { number_length(rest) } else { first.len_utf8() };
        let (taken, after) = rest.split_at_checked(length)?;
        if is_number {
            wide.push_str(&number(taken, dtype)?);
        } else {
            wide.push_str(taken);
        }
        rest = after;
    }
    Some(wide)
}

/// `-1.5e-07` or `0x7F800000`.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    let is_hexadecimal = text.starts_with("0x");
    let ends = |c: char| {
        let is_sign = matches!(c, '+' | '-') && !is_hexadecimal && matches!(before, 'e' | 'E' | ' ');
        before = c;
        !(c.is_ascii_alphanumeric() || c == '.' || is_sign)
    };
    text.find(ends).unwrap_or(text.len())
}

fn number(text: &str, dtype: DType) -> Option<String> {
    if let Some(digits) = text.strip_prefix("0x") {
        let bits =
            u64::from_str_radix(digits, 16).ok().filter(|bits| bits.checked_shr(dtype.bits()).unwrap_or(0) == 0)?;
        let wide = widened(dtype, bits.to_le_bytes().get(..dtype.host_bytes())?);
        return Some(written(f64::from_le_bytes(wide.try_into().ok()?)));
    }
    let value: f64 = text.parse().ok()?;
    let held = dtype.nearest(value)?;
    Some(if held == value { text.to_owned() } else { written(held) })
}

/// A number in MLIR's spelling: a decimal has a point, and a non-finite value is written as its bits.
fn written(value: f64) -> String {
    if !value.is_finite() {
        return format!("0x{:016X}", value.to_bits());
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_keep_their_values() {
        let of = |values: &str, narrow: &str| {
            let wide = in_f64(&format!("%c = stablehlo.constant dense<{values}> : tensor<2x{narrow}>")).unwrap();
            let wide = wide.strip_prefix("%c = stablehlo.constant dense<").unwrap();
            let (values, element) = wide.split_once("> : tensor<2x").unwrap();
            assert!(["f64>", "complex<f64>>"].contains(&element), "{element}");
            values.to_owned()
        };
        // exact in their types, so unchanged
        assert_eq!(of("[1.000000e+00, -0.5]", "f32"), "[1.000000e+00, -0.5]");
        // numpy: float(np.float32(0.1)), float(ml_dtypes.bfloat16(0.1)), float(np.float32(1e-6))
        assert_eq!(of("1.000000e-01", "f32"), "1.0000000149011612e-1");
        assert_eq!(of("1.000980e-01", "bf16"), "1.0009765625e-1");
        assert_eq!(of("1.000000e-06", "f32"), "9.999999974752427e-7");
        // infinities, NaN and the smallest denormal by their bits: 2^-149 is 1.401298464324817e-45
        assert_eq!(of("[0x7F800000, 0xFF800000]", "f32"), "[0x7FF0000000000000, 0xFFF0000000000000]");
        assert_eq!(of("0x7FC00000", "f32"), "0x7FF8000000000000");
        assert_eq!(of("0x00000001", "f32"), "1.401298464324817e-45");
        assert_eq!(of("[0x7F80, 0x3F80]", "bf16"), "[0x7FF0000000000000, 1.0e0]");
        assert_eq!(of("0x38", "f8E4M3FN"), "1.0e0");
        assert_eq!(of("(0x7F800000,1.0)", "complex<f32>"), "(0x7FF0000000000000,1.0)");
        // raw bytes, little-endian: one and -2
        let (one, two) = ("000000000000F03F", "00000000000000C0");
        assert_eq!(of("\"0x0000803F000000C0\"", "f32"), format!("\"0x{one}{two}\""));
        assert_eq!(of("\"0x803F00C0\"", "bf16"), format!("\"0x{one}{two}\""));
        assert_eq!(of("\"0x0000803F000000C0\"", "complex<f32>"), format!("\"0x{one}{two}\""));
        for wrong in ["\"0x0000803F00\"", "\"0x0000803\"", "\"1.0\"", "0x7F8000000", "1.0.0", "1e", "--1"] {
            let text = format!("stablehlo.constant dense<{wrong}> : tensor<2xf32>");
            assert!(matches!(in_f64(&text), Err(NotInF64::Constant(_))), "{wrong}");
        }
        // integers stay, whatever their digits look like
        let integers = "stablehlo.constant dense<\"0x0000803F\"> : tensor<1xi32>";
        let line = format!("{integers}\nstablehlo.abs %x : tensor<f32>");
        assert_eq!(in_f64(&line).unwrap(), format!("{integers}\nstablehlo.abs %x : tensor<f64>"));
    }

    /// tests/data/hlo/in_f64/make.py: what JAX 0.10.2 lowers in `f32`, and the same functions lowered in `f64`.
    #[test]
    fn the_copy_is_what_jax_lowers_in_f64() {
        let text = |name: &str| {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hlo/in_f64");
            std::fs::read_to_string(folder.join(name)).unwrap()
        };
        assert_eq!(in_f64(&text("parts.f32.mlir")).unwrap(), text("parts.f64.mlir"));
        // JAX's x64 mode also counts a loop's iterations in i64
        let steps = in_f64(&text("steps.f32.mlir")).unwrap().replace("<i32>", "<i64>");
        assert_eq!(steps, text("steps.f64.mlir"));
    }

    #[test]
    fn types_of_tensors_change_and_nothing_else() {
        let text = "%f32 = \"stablehlo.f32\"(%bf16, @f32, @\"tensor<f32>\") {name = \"tensor<4xf32>\"} \
                    // tensor<4xf32>\n\
                    : (tensor<4x?xf32>, tensor<bf16>, tensor<*xf16>) -> (tensor<2xcomplex<f32>>, tensor<i32>, \
                    tensor<3xf64>) loc(\"tensor<f32>\")";
        let wide = "%f32 = \"stablehlo.f32\"(%bf16, @f32, @\"tensor<f32>\") {name = \"tensor<4xf32>\"} \
                    // tensor<4xf32>\n\
                    : (tensor<4x?xf64>, tensor<f64>, tensor<*xf64>) -> (tensor<2xcomplex<f64>>, tensor<i32>, \
                    tensor<3xf64>)";
        assert_eq!(in_f64(text).unwrap(), wide);
        // XLA expects this attribute in f32 whatever the operands' type
        let norm =
            "\"stablehlo.batch_norm_inference\"(%0) <{epsilon = 1.0e-3 : f32}> : (tensor<2xf32>) -> tensor<2xf32>";
        assert_eq!(in_f64(norm).unwrap(), norm.replace("2xf32", "2xf64"));
    }

    #[test]
    fn what_depends_on_the_width_has_no_copy() {
        let message_of = |text: &str| in_f64(text).unwrap_err().to_string();
        let random = "%1 = stablehlo.bitcast_convert %0 : (tensor<4xui32>) -> tensor<4xf32>";
        assert_eq!(message_of(random), "`stablehlo.bitcast_convert` depends on the width of its type");
        assert_eq!(
            message_of("stablehlo.custom_call @f(%0) : (tensor<i32>) -> tensor<i32>"),
            "`stablehlo.custom_call` depends on the width of its type"
        );
        for text in [
            "\"stablehlo.custom_call\"(%0) : (tensor<f32>) -> tensor<f32>",
            "stablehlo.reduce_precision %0, format = e8m7 : tensor<4xf32>",
            "\"stablehlo.rng\"(%a, %b, %s) : (tensor<f32>) -> tensor<4xf32>",
            "stablehlo.rng_bit_generator %0, algorithm = DEFAULT\
             \n      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xf32>)",
        ] {
            assert!(matches!(in_f64(text), Err(NotInF64::Operation(_))), "{text}");
        }
        // between integers it stays, and what follows has its own types
        let bits = "%1 = stablehlo.bitcast_convert %0 : (tensor<ui64>) -> tensor<2xui32>\
                    \n    %2 = stablehlo.abs %x : tensor<f32>";
        assert_eq!(in_f64(bits).unwrap(), bits.replace("f32", "f64"));
        let dot =
            "stablehlo.dot_general %0, %1, algorithm = <lhs_precision_type = tf32> : (tensor<f32>) -> tensor<f32>";
        assert_eq!(message_of(dot), "an attribute has the type `tf32`");
        assert_eq!(
            message_of("stablehlo.composite \"a.b\" %0 {composite_attributes = {eps = 1.0 : f32}} : (tensor<f32>)"),
            "an attribute has the type `f32`"
        );
        assert_eq!(
            message_of("tensor<4x!quant.uniform<i8:f32, 1.0>>"),
            "`!quant.uniform<i8:f32, 1.0>>` cannot become `f64`"
        );
        assert_eq!(message_of("tensor<4xf6E2M3FN>"), "`f6E2M3FN` cannot become `f64`");
        assert_eq!(
            message_of("dense_resource<a> : tensor<4xf32>"),
            "the constant `dense_resource` cannot be converted"
        );
        assert_eq!(message_of("stablehlo.abs %x : tensor<4xi32>"), "it has no floating-point type narrower than `f64`");
    }

    #[test]
    fn a_cut_text_is_an_error_or_a_copy() {
        let text = "module @m {\n  func.func public @main(%x: tensor<4xcomplex<f32>> loc(\"x\")) -> tensor<4xf32> {\
                    \n    %c = stablehlo.constant dense<[1.0, 0x7F800000]> : tensor<2xf32>\
                    \n    %d = stablehlo.constant dense<\"0x0000803F\"> : tensor<1xf32> // é\n  }\n}\n";
        for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
            let _ = in_f64(&text[..end]);
        }
        let wide = in_f64(text).unwrap();
        assert_eq!(in_f64(&wide), Err(NotInF64::Nothing));
        assert!(matches!(in_f64(&" ".repeat(MAX_TEXT_BYTES + 1)), Err(NotInF64::Size(_))));
    }
}
