//! Chrome's JSON (the Trace Event Format): complete events, `ph` `X`. Times are microseconds after the capture's first line,
//! with nanoseconds as decimals, both ends rounded down: Perfetto reads no finer, and drops a slice that does not nest
//! after it has rounded start and duration by themselves.

use super::plane_names::{Argument, PlaneNames, Value};
use super::sink::{Sink, Track};

/// Beyond this, a reader that has only doubles reads a different integer.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Writes events as JSON.
#[derive(Debug, Default)]
pub(super) struct Chrome {
    out: Vec<u8>,
    process: u32,
    /// Names and stat names of the plane, in JSON.
    names: Vec<Vec<u8>>,
    stat_names: Vec<Vec<u8>>,
    has_events: bool,
}

impl Chrome {
    fn next(&mut self) {
        self.out.extend_from_slice(if self.has_events { b",\n" } else { b"\n" });
        self.has_events = true;
    }

    /// Names a process or thread, and puts it where the capture has it.
    fn describe(&mut self, what: &str, process: u32, track: u32, name: &str) {
        let sort = u64::from(if track == 0 { process } else { track });
        for (metadata, argument, value) in
            [("name", "name", json(name)), ("sort_index", "sort_index", sort.to_string().into_bytes())]
        {
            self.next();
            let head = format!(
                r#"{{"ph":"M","pid":{process},"tid":{track},"name":"{what}_{metadata}","args":{{"{argument}":"#
            );
            self.out.extend_from_slice(head.as_bytes());
            self.out.extend_from_slice(&value);
            self.out.extend_from_slice(b"}}");
        }
    }

    fn integer(&mut self, magnitude: u64, is_negative: bool) {
        let quote: &[u8] = if magnitude > MAX_SAFE_INTEGER { b"\"" } else { b"" };
        self.out.extend_from_slice(quote);
        if is_negative {
            self.out.push(b'-');
        }
        number(&mut self.out, magnitude);
        self.out.extend_from_slice(quote);
    }

    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Double(value) if value.is_finite() => self.out.extend_from_slice(&json(value)),
            // JSON has no such number
            Value::Double(value) => self.out.extend_from_slice(&json(&value.to_string())),
            Value::Uint(value) => self.integer(*value, false),
            Value::Int(value) => self.integer(value.unsigned_abs(), *value < 0),
            Value::Name(place) => {
                self.out.extend_from_slice(self.stat_names.get(*place as usize).map_or(b"null", Vec::as_slice));
            }
            Value::Text(text) => self.out.extend_from_slice(&json(&text)),
        }
    }
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec())
}

/// Digits of a whole number.
#[inline]
fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    while first > 0 {
        first -= 1;
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0' + (value % 10) as u8;
        }
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Nanoseconds as microseconds, without zeros at the end.
#[inline]
fn microseconds(out: &mut Vec<u8>, ns: u64) {
    number(out, ns / 1000);
    let mut rest = ns % 1000;
    if rest > 0 {
        out.push(b'.');
        let mut unit = 100;
        while rest > 0 {
            out.push(b'0' + (rest / unit) as u8);
            rest %= unit;
            unit /= 10;
        }
    }
}

impl Sink for Chrome {
    fn start(&mut self, real_ns: Option<u64>) {
        // as text: a double has no room for so many digits
        let real = real_ns.map_or(String::new(), |real_ns| format!(r#""otherData":{{"start_ns":"{real_ns}"}},"#));
        let head = format!(r#"{{"displayTimeUnit":"ns",{real}"traceEvents":["#);
        self.out.extend_from_slice(head.as_bytes());
    }

    fn plane(&mut self, process: u32, name: &str, names: &PlaneNames<'_>) {
        self.process = process;
        self.names = names.names().iter().map(json).collect();
        self.stat_names = names.stat_names().iter().map(json).collect();
        self.describe("process", process, 0, name);
    }

    fn line(&mut self, process: u32, track: Track, name: &str) {
        self.describe("thread", process, track.id, name);
    }

    fn extra_track(&mut self, process: u32, _: Track, track: Track, name: &str) {
        self.describe("thread", process, track.id, name);
    }

    #[inline]
    fn slice(
        &mut self,
        _: &PlaneNames<'_>,
        track: Track,
        place: u32,
        (start_ns, end_ns): (u64, u64),
        arguments: &[Argument<'_>],
    ) {
        self.next();
        self.out.extend_from_slice(br#"{"ph":"X","pid":"#);
        number(&mut self.out, u64::from(self.process));
        self.out.extend_from_slice(br#","tid":"#);
        number(&mut self.out, u64::from(track.id));
        self.out.extend_from_slice(br#","ts":"#);
        microseconds(&mut self.out, start_ns);
        self.out.extend_from_slice(br#","dur":"#);
        microseconds(&mut self.out, end_ns - start_ns);
        self.out.extend_from_slice(br#","name":"#);
        self.out.extend_from_slice(self.names.get(place as usize).map_or(b"\"\"", Vec::as_slice));
        for (at, argument) in arguments.iter().enumerate() {
            self.out.extend_from_slice(if at == 0 { br#","args":{"# } else { b"," });
            self.out.extend_from_slice(self.stat_names.get(argument.name as usize).map_or(b"\"\"", Vec::as_slice));
            self.out.push(b':');
            self.value(&argument.value);
        }
        self.out.extend_from_slice(if arguments.is_empty() { b"}" } else { b"}}" });
    }

    #[inline]
    fn slice_end(&mut self, _: Track, _: u64) {}

    fn finish(&mut self) {
        self.out.extend_from_slice(b"\n]}\n");
    }

    fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        let of = |ns| {
            let mut out = Vec::new();
            microseconds(&mut out, ns);
            String::from_utf8(out).unwrap()
        };
        let times = [0, 1, 500, 1000, 12_034_050, u64::MAX];
        let expected = ["0", "0.001", "0.5", "1", "12034.05", "18446744073709551.615"];
        assert_eq!(times.map(of), expected);
    }

    #[test]
    fn large_integers_stay_themselves() {
        let mut chrome = Chrome::default();
        let values = [Value::Uint(u64::MAX), Value::Int(i64::MIN), Value::Int(-5), Value::Uint(MAX_SAFE_INTEGER)];
        for value in values.iter().chain([&Value::Double(f64::NAN), &Value::Double(0.1), &Value::Text("<\"".into())]) {
            chrome.value(value);
            chrome.out.push(b' ');
        }
        let expected = r#""18446744073709551615" "-9223372036854775808" -5 9007199254740991 "NaN" 0.1 "<\"" "#;
        assert_eq!(String::from_utf8(chrome.out).unwrap(), expected);
    }
}
