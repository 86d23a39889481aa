//! A logarithmic axis whose ends are 1, 2 or 5 times a power of ten.

use crate::report::log_scale::LogScale;

/// Maximum number of labelled ticks.
const MOST_TICKS: i32 = 9;
/// The fraction of the axis before its low end that holds zeros, if there are any.
const ZERO_PART: f64 = 0.08;

/// Positions of values on a logarithmic axis; zero, which has none, gets a strip before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogAxis {
    /// Ends as numbers of steps: 3 k, 3 k + 1 and 3 k + 2 are 1, 2 and 5 times the k-th power of ten.
    low: i32,
    high: i32,
    has_zero: bool,
}

/// A tick: its position, first digit and power of ten. `None` is zero.
pub(super) type AxisTick = (f64, Option<(u8, i32)>);

impl LogAxis {
    /// Makes an axis that contains these values; `None` if there are none. If all are zero, its ends are the given
    /// powers of ten.
    pub(super) fn of(values: impl IntoIterator<Item = f64>, unless: (i32, i32)) -> Option<Self> {
        let (mut least, mut most, mut has_zero) = (f64::INFINITY, 0.0_f64, false);
        for value in values.into_iter().filter(|value| value.is_finite() && *value >= 0.0) {
            if value > 0.0 {
                (least, most) = (least.min(value), most.max(value));
            } else {
                has_zero = true;
            }
        }
        if most == 0.0 {
            return has_zero.then_some(Self { low: unless.0 * 3, high: unless.1 * 3, has_zero });
        }
        let near = |value: f64| (value.log10() * 3.0).round() as i32;
        // a rounded logarithm is off by at most one step
        let low = (-2..=1).rev().map(|off| near(least) + off).find(|&step| value(step) <= least).unwrap_or(near(least));
        let high = (-1..=2).map(|off| near(most) + off).find(|&step| value(step) >= most).unwrap_or(near(most));
        // a single value is in the middle
        let (low, high) = if high - low < 2 { (low - 1, high + 1) } else { (low, high) };
        Some(Self { low, high, has_zero })
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn along(&self, of: f64) -> f64 {
        if of <= 0.0 {
            return if self.has_zero { ZERO_PART / 2.0 } else { 0.0 };
        }
        let first = if self.has_zero { ZERO_PART } else { 0.0 };
        let (low, high) = self.ends();
        first + (1.0 - first) * LogScale { low, high }.part(of)
    }

    /// Says where positive values begin.
    pub(super) fn first(&self) -> f64 {
        self.along(value(self.low))
    }

    /// Returns the values at its ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (value(self.low), value(self.high))
    }

    /// Returns the ticks.
    pub(super) fn ticks(&self) -> Vec<AxisTick> {
        let decades = (self.high - self.low) / 3 + 1;
        let each = if self.high - self.low < MOST_TICKS { 1 } else { 3 * (decades.max(1) as u32).div_ceil(8) as i32 };
        let steps = (self.low..=self.high).filter(|step| step.rem_euclid(each) == 0);
        let of_step = |step: i32| {
            let digit = [1, 2, 5].get(step.rem_euclid(3) as usize).copied().unwrap_or(1);
            (self.along(value(step)), Some((digit, step.div_euclid(3))))
        };
        self.has_zero.then_some((self.along(0.0), None)).into_iter().chain(steps.map(of_step)).collect()
    }
}

fn value(step: i32) -> f64 {
    let digit = [1.0, 2.0, 5.0].get(step.rem_euclid(3) as usize).copied().unwrap_or(1.0);
    digit * 10_f64.powi(step.div_euclid(3))
}

/// Writes a number as a tick's label: `0.05`, `200`, `1e9`.
pub(super) fn number((digit, power): (u8, i32)) -> String {
    match power {
        0..=5 => format!("{digit}{}", "0".repeat(power.unsigned_abs() as usize)),
        -5..=-1 => format!("0.{}{digit}", "0".repeat(power.unsigned_abs() as usize - 1)),
        _ => format!("{digit}e{power}"),
    }
}

/// Writes a number with a unit in steps of a thousand; `one` is the index of the unit of one.
fn in_units((digit, power): (u8, i32), units: &[&str], one: i32) -> String {
    let last = i32::try_from(units.len()).unwrap_or(1) - 1;
    let place = (power.div_euclid(3) + one).clamp(0, last);
    let unit = usize::try_from(place).ok().and_then(|place| units.get(place)).copied().unwrap_or_default();
    format!("{} {unit}", number((digit, power - 3 * (place - one))))
}

/// Returns bytes as a tick's label.
pub(super) fn bytes(value: (u8, i32)) -> String {
    in_units(value, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], 0)
}

/// Returns a rate per second as a tick's label.
pub(super) fn rate(value: (u8, i32)) -> String {
    in_units(value, &["", "k", "M", "G", "T", "P", "E"], 0).trim_end().to_owned()
}

/// Returns nanoseconds as a tick's label.
pub(super) fn time(ns: (u8, i32)) -> String {
    in_units(ns, &["ps", "ns", "µs", "ms", "s"], 1)
}

/// Returns a fraction as a tick's label.
pub(super) fn part((digit, power): (u8, i32)) -> String {
    format!("{} %", number((digit, power + 2)))
}

/// Returns a multiple as a tick's label.
pub(super) fn multiple(value: (u8, i32)) -> String {
    format!("{}×", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: LogAxis, label: fn((u8, i32)) -> String) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, tick)| tick.map_or("0".to_owned(), label)).collect()
    }

    #[test]
    fn ends_hold_all_values_and_ticks_are_few() {
        let axis = LogAxis::of([3.0, 40.0], (0, 1)).unwrap();
        assert_eq!(labels(axis, number), ["2", "5", "10", "20", "50"]);
        assert_eq!((axis.along(2.0), axis.along(50.0)), (0.0, 1.0));
        // the middle of a logarithmic axis is the root of the product
        assert!((axis.along(10.0) - 0.5).abs() < 1e-12);
        let wide = LogAxis::of([1e-9, 7.0, 1e9], (0, 1)).unwrap();
        assert_eq!(labels(wide, number), ["1e-9", "1e-6", "0.001", "1", "1000", "1e6", "1e9"]);
        for (least, most) in [(1.0, 1.0), (5.0, 5.0), (f64::MIN_POSITIVE, f64::MAX), (0.999, 1.001), (2.0, 20.0)] {
            let axis = LogAxis::of([least, most], (0, 1)).unwrap();
            assert!((2..=10).contains(&axis.ticks().len()), "{least} {most}: {:?}", axis.ticks());
            assert!((0.0..=1.0).contains(&axis.along(least)) && axis.along(least) <= axis.along(most));
        }
    }

    #[test]
    fn zeros_have_a_strip_of_their_own() {
        let axis = LogAxis::of([0.0, 1.0, 100.0, f64::NAN, -1.0], (0, 1)).unwrap();
        assert_eq!(labels(axis, number), ["0", "1", "2", "5", "10", "20", "50", "100"]);
        assert!(axis.along(0.0) < axis.along(1.0) && axis.first() == axis.along(1.0));
        let only = LogAxis::of([0.0], (-3, 0)).unwrap();
        assert_eq!(labels(only, part).first().map(String::as_str), Some("0"));
        assert_eq!((LogAxis::of([], (0, 1)), LogAxis::of([f64::NAN], (0, 1))), (None, None));
    }

    #[test]
    fn labels_have_their_units() {
        assert_eq!([(5, -2), (2, 4), (1, 9), (1, -7)].map(number), ["0.05", "20000", "1e9", "1e-7"]);
        assert_eq!([(1, 0), (2, 4), (5, 6), (1, 20)].map(bytes), ["1 B", "20 kB", "5 MB", "100 EB"]);
        assert_eq!(
            [(1, -2), (1, 0), (5, 4), (2, 6), (1, 9), (1, 12)].map(time),
            ["10 ps", "1 ns", "50 µs", "2 ms", "1 s", "1000 s"]
        );
        assert_eq!([(1, -3), (5, 0), (2, -2)].map(part), ["0.1 %", "500 %", "2 %"]);
    }
}
