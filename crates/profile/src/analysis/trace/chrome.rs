//! Chrome's JSON (the Trace Event Format): complete events, `ph` `X`. Times are microseconds after the capture's first
//! line, with nanoseconds as decimals, both ends rounded down: Perfetto reads no finer, and drops a slice that does not
//! nest after it has rounded start and duration by themselves.

use super::plane_names::{Argument, PlaneNames, Value};
use super::sink::{Sink, Track};

/// Beyond this, a reader that has only doubles reads a different integer.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The frame of a trace, and what every trace has in it.
#[derive(Debug, Default)]
pub(in crate::analysis) struct ChromeFrame {
    out: Vec<u8>,
    has_events: bool,
}

impl ChromeFrame {
    /// Begins a trace with what is known about all of it, in JSON.
    pub(in crate::analysis) fn start(&mut self, other_data: Option<&str>) {
        let other = other_data.map_or(String::new(), |data| format!(r#""otherData":{data},"#));
        self.out.extend_from_slice(format!(r#"{{"displayTimeUnit":"ns",{other}"traceEvents":["#).as_bytes());
    }

    /// Begins an event: its JSON is to be appended.
    #[inline]
    pub(in crate::analysis) fn event(&mut self) -> &mut Vec<u8> {
        self.out.extend_from_slice(if self.has_events { b",\n" } else { b"\n" });
        self.has_events = true;
        &mut self.out
    }

    /// A property of a process or thread, with its value in JSON.
    pub(in crate::analysis) fn describe(&mut self, event: &str, (process, track): (u64, u64), value: (&str, &[u8])) {
        let head = format!(r#"{{"ph":"M","pid":{process},"tid":{track},"name":"{event}","args":{{"{}":"#, value.0);
        let out = self.event();
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(value.1);
        out.extend_from_slice(b"}}");
    }

    pub(in crate::analysis) fn finish(&mut self) {
        self.out.extend_from_slice(b"\n]}\n");
    }

    /// The bytes so far, which the caller may take.
    pub(in crate::analysis) fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

/// Writes events as JSON.
#[derive(Debug, Default)]
pub(super) struct Chrome {
    frame: ChromeFrame,
    process: u32,
    /// Names and stat names of the plane, in JSON.
    names: Vec<Vec<u8>>,
    stat_names: Vec<Vec<u8>>,
}

impl Chrome {
    /// Names a process or thread, and puts it where the capture has it.
    fn describe(&mut self, what: &str, process: u32, track: u32, name: &str) {
        let sort = if track == 0 { process } else { track }.to_string();
        let place = (u64::from(process), u64::from(track));
        self.frame.describe(&format!("{what}_name"), place, ("name", &json(name)));
        self.frame.describe(&format!("{what}_sort_index"), place, ("sort_index", sort.as_bytes()));
    }
}

fn put_integer(out: &mut Vec<u8>, magnitude: u64, is_negative: bool) {
    let quote: &[u8] = if magnitude > MAX_SAFE_INTEGER { b"\"" } else { b"" };
    out.extend_from_slice(quote);
    if is_negative {
        out.push(b'-');
    }
    number(out, magnitude);
    out.extend_from_slice(quote);
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>, stat_names: &[Vec<u8>]) {
    match value {
        Value::Double(value) if value.is_finite() => out.extend_from_slice(&json(value)),
        // JSON has no such number
        Value::Double(value) => out.extend_from_slice(&json(&value.to_string())),
        Value::Uint(value) => put_integer(out, *value, false),
        Value::Int(value) => put_integer(out, value.unsigned_abs(), *value < 0),
        Value::Name(place) => out.extend_from_slice(stat_names.get(*place as usize).map_or(b"null", Vec::as_slice)),
        Value::Text(text) => out.extend_from_slice(&json(&text)),
    }
}

pub(in crate::analysis) fn json(value: &(impl serde::Serialize + ?Sized)) -> Vec<u8> {
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
        let real = real_ns.map(|real_ns| format!(r#"{{"start_ns":"{real_ns}"}}"#));
        self.frame.start(real.as_deref());
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
        let out = self.frame.event();
        out.extend_from_slice(br#"{"ph":"X","pid":"#);
        number(out, u64::from(self.process));
        out.extend_from_slice(br#","tid":"#);
        number(out, u64::from(track.id));
        out.extend_from_slice(br#","ts":"#);
        microseconds(out, start_ns);
        out.extend_from_slice(br#","dur":"#);
        microseconds(out, end_ns - start_ns);
        out.extend_from_slice(br#","name":"#);
        out.extend_from_slice(self.names.get(place as usize).map_or(b"\"\"", Vec::as_slice));
        for (at, argument) in arguments.iter().enumerate() {
            out.extend_from_slice(if at == 0 { br#","args":{"# } else { b"," });
            out.extend_from_slice(self.stat_names.get(argument.name as usize).map_or(b"\"\"", Vec::as_slice));
            out.push(b':');
            put_value(out, &argument.value, &self.stat_names);
        }
        out.extend_from_slice(if arguments.is_empty() { b"}" } else { b"}}" });
    }

    #[inline]
    fn slice_end(&mut self, _: Track, _: u64) {}

    fn finish(&mut self) {
        self.frame.finish();
    }

    fn written(&mut self) -> &mut Vec<u8> {
        self.frame.written()
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
        let mut out = Vec::new();
        let values = [Value::Uint(u64::MAX), Value::Int(i64::MIN), Value::Int(-5), Value::Uint(MAX_SAFE_INTEGER)];
        for value in values.iter().chain([&Value::Double(f64::NAN), &Value::Double(0.1), &Value::Text("<\"".into())]) {
            put_value(&mut out, value, &[]);
            out.push(b' ');
        }
        let expected = r#""18446744073709551615" "-9223372036854775808" -5 9007199254740991 "NaN" 0.1 "<\"" "#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
