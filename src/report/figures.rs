//! Figures with three significant digits and their unit.

use crate::search::ExpectedRatio;
use crate::stats::Interval;

/// Writes nanoseconds for people: `812 ns`, `31.2 µs`, `4.05 ms`, `1.20 s`.
pub fn format_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if !ns.is_finite() => return "—".to_owned(),
        _ if ns < 999.5 => (ns, "ns"),
        _ if ns < 999.5e3 => (ns / 1e3, "µs"),
        _ if ns < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Writes the same with its sign; `plus` precedes values that are not below zero.
pub(super) fn signed_ns(ns: f64, plus: &str) -> String {
    format!("{}{}", if ns < 0.0 { "−" } else { plus }, format_ns(ns.abs()))
}

/// Writes a ratio such as a speed-up: `1.57×`.
pub fn format_ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}×") } else { "—".to_owned() }
}

/// Writes a predicted ratio to the baseline's time: `expected 1.80×, 1.40–2.30`.
pub(super) fn expected_text(ExpectedRatio { ratio, low, high, .. }: ExpectedRatio) -> String {
    format!("expected {}, {low:.2}–{high:.2}", format_ratio(ratio))
}

/// Writes a fraction as per cent: `1.3 %`.
pub fn format_part(part: f64) -> String {
    if part.is_finite() { format!("{} %", three_digits(part * 100.0)) } else { "—".to_owned() }
}

/// Writes bytes in decimal units: `4 B`, `176 kB`, `7.08 MB`.
pub fn format_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    let (value, unit) = match value {
        _ if bytes < 1000 => return format!("{bytes} B"),
        _ if value < 999.5e3 => (value / 1e3, "kB"),
        _ if value < 999.5e6 => (value / 1e6, "MB"),
        _ if value < 999.5e9 => (value / 1e9, "GB"),
        _ => (value / 1e12, "TB"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Writes a rate with a decimal prefix, for the unit that follows: `12.3 G`.
pub(super) fn format_per_second(rate: f64) -> String {
    let (value, prefix) = match rate {
        _ if !rate.is_finite() => return "—".to_owned(),
        _ if rate < 999.5 => (rate, ""),
        _ if rate < 999.5e3 => (rate / 1e3, "k"),
        _ if rate < 999.5e6 => (rate / 1e6, "M"),
        _ if rate < 999.5e9 => (rate / 1e9, "G"),
        _ if rate < 999.5e12 => (rate / 1e12, "T"),
        _ => (rate / 1e15, "P"),
    };
    format!("{} {prefix}", three_digits(value))
}

/// Writes how many of one come to each of another.
pub(super) fn format_quotient(count: f64, of: f64) -> String {
    let quotient = count / of;
    if quotient.is_finite() { three_digits(quotient) } else { "—".to_owned() }
}

/// Writes the bounds of an interval with this many digits: `0.95–1.08`.
pub(super) fn format_interval(interval: Interval, digits: usize) -> String {
    format!("{:.digits$}–{:.digits$}", interval.low, interval.high)
}

/// Writes a confidence as a percentage with as many digits as set it apart from 100 %.
pub(super) fn format_confidence(confidence: f64) -> String {
    let percent = 100.0 * confidence;
    let digits = (1..9).find(|&digits| (100.0 - percent) * 10_f64.powi(digits) >= 0.5).unwrap_or_default();
    let text = format!("{percent:.0$}", usize::try_from(digits).unwrap_or_default());
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

fn three_digits(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_right_unit() {
        let cases = [(3.0, "3.00 ns"), (999.6, "1.00 µs"), (31_249.0, "31.2 µs"), (4_051_000.0, "4.05 ms")];
        for (ns, text) in cases {
            assert_eq!(format_ns(ns), text);
        }
        assert_eq!((format_ns(123e6), format_ns(1.2e9)), ("123 ms".to_owned(), "1.20 s".to_owned()));
        assert_eq!((format_ns(f64::NAN), format_ratio(1.5666)), ("—".to_owned(), "1.57×".to_owned()));
        assert_eq!(
            [4, 999, 1024, 175_632, 999_500].map(format_bytes),
            ["4 B", "999 B", "1.02 kB", "176 kB", "1.00 MB"]
        );
        assert_eq!([8.0, 12_345.0, 3.35e12, 2.25e15].map(format_per_second), ["8.00 ", "12.3 k", "3.35 T", "2.25 P"]);
        assert_eq!((format_quotient(1.0, 3.0), format_quotient(1.0, 0.0)), ("0.33".to_owned(), "—".to_owned()));
        assert_eq!(
            [0.89, 0.998, 0.99999, 0.9999999, 1.0].map(format_confidence),
            ["89 %", "99.8 %", "99.999 %", "99.99999 %", "100 %"]
        );
        assert_eq!((format_part(0.0127), format_part(0.25)), ("1.27 %".to_owned(), "25.0 %".to_owned()));
    }
}
