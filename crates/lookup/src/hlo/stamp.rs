//! Parses a stamp: from the bytes at a label's prefix to the label, as far as it was kept.
//!
//! Families and spellings (ejkernel: `ops/execution/executor.py`, `_stamp_hash` and `_stamp_json`; tokamax: the JSON
//! of a bound operation):
//!
//! ```text
//! ejkernel_ops#NAME@vN:KEY             whole: exact
//! ejkernel_ops#NAME.vN:KEY             patched to hold no `@`: exact
//! ejkernel_ops#NAME.vN:KEY~VARIANT     of a call under `vmap`, see `batch`: exact
//! ejkernel_ops#NAME                    cut at `@`: by name
//! ejkernel_ops:{"args":[…],"cfg":…,"kwargs":{…},"op_id":"NAME@vN"}   whole or cut at `@`: key recomputed
//! tokamax:{"op":{"__type":"PATH",…},"arguments":{…}}                  exact
//! ```

use sha2::{Digest as _, Sha256};

use super::escape::{Escapes, Unescaper};
use super::{Evidence, Label};
use crate::batch::{VariantLength, variant_length};
use crate::config::canonical_json;

/// Maximum length of a stamp in the file's spelling: a longer one is counted as broken.
pub(crate) const MAX_STAMP_BYTES: usize = 1 << 16;

const MAX_NAME_BYTES: usize = 512;
const MAX_DEPTH: usize = 64;
const KEY_DIGITS: usize = 16;

/// The label's family, by its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    Hash,
    Json,
    Tokamax,
    User,
}

impl Family {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hash => "ejkernel-hash",
            Self::Json => "ejkernel-json",
            Self::Tokamax => "tokamax",
            Self::User => "user",
        }
    }
}

/// A label read from a name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stamp {
    pub(crate) family: Family,
    pub(crate) label: Label,
    pub(crate) evidence: Evidence,
    pub(crate) arguments: Option<serde_json::Value>,
}

/// The stamp at a prefix.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The label; `None` if even the operation's name is lost.
    pub(crate) stamp: Option<Stamp>,
    /// Bytes of the stamp as the file spells it.
    pub(crate) length: usize,
    /// Whether the available bytes ended before the stamp did, so that more bytes might complete it.
    pub(crate) open: bool,
}

/// A byte that may occur in an operation's name.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'@')
}

pub(crate) const EJKERNEL: &[u8] = b"ejkernel_ops";
pub(crate) const TOKAMAX: &[u8] = b"tokamax:{";

/// Reads the stamp at the start of `bytes`; `None` if there is none.
pub(crate) fn parse(bytes: &[u8], escapes: Escapes) -> Option<Parsed> {
    if bytes.starts_with(TOKAMAX) {
        return Some(parse_tokamax(bytes, escapes));
    }
    match bytes.strip_prefix(EJKERNEL)? {
        [b'#', ..] => Some(parse_hash(bytes)),
        [b':', b'{', ..] => Some(parse_json(bytes, escapes)),
        _ => None,
    }
}

/// Extent of a hash stamp, found without allocating.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashExtent {
    name: usize,
    /// Bytes of the key with its variant; `None` if it is truncated.
    key: usize,
    /// Bytes of the stamp.
    pub(crate) length: usize,
    /// Whether the available bytes ended before the stamp did.
    pub(crate) open: bool,
}

const HASH_PREFIX_BYTES: usize = EJKERNEL.len() + 1;

/// Measures the hash stamp at the start of `bytes`, which begin with `ejkernel_ops#`.
pub(crate) fn measure_hash(bytes: &[u8]) -> HashExtent {
    let rest = bytes.get(HASH_PREFIX_BYTES..).unwrap_or_default();
    let window = rest.get(..MAX_NAME_BYTES).unwrap_or(rest);
    let name = window.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(window.len());
    let tail = rest.get(name..).unwrap_or_default();
    let digits = tail.strip_prefix(b":").unwrap_or_default();
    let key = digits.iter().take(KEY_DIGITS).take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
    let whole = key == KEY_DIGITS;
    let (variant, cut) = if whole { variant_after(digits.get(KEY_DIGITS..).unwrap_or_default()) } else { (0, false) };
    let key_length = if whole { KEY_DIGITS + variant } else { 0 };
    HashExtent {
        name,
        key: key_length,
        length: HASH_PREFIX_BYTES + name + if whole { 1 + key_length } else { 0 },
        open: cut || tail.is_empty() || (tail.first() == Some(&b':') && key == digits.len() && !whole),
    }
}

/// Bytes of the variant of the key that ends before `rest`, with its `~`, and whether more of it may follow the
/// available bytes.
fn variant_after(rest: &[u8]) -> (usize, bool) {
    match rest.split_first() {
        None => (0, true),
        Some((b'~', variant)) => {
            let VariantLength { length, open } = variant_length(variant);
            (length.map_or(0, |length| 1 + length), open)
        }
        Some(_) => (0, false),
    }
}

fn parse_hash(bytes: &[u8]) -> Parsed {
    let HashExtent { name, key, length, open } = measure_hash(bytes);
    let text = |from: usize, length: usize| {
        String::from_utf8_lossy(bytes.get(from..from + length).unwrap_or_default()).into_owned()
    };
    let key = (key > 0).then(|| text(length - key, key));
    let name = text(HASH_PREFIX_BYTES, name);
    let stamp = (!name.is_empty()).then(|| Stamp {
        family: Family::Hash,
        evidence: if key.is_some() { Evidence::Exact } else { Evidence::ByName },
        label: Label::new(versioned(&name), key),
        arguments: None,
    });
    Parsed { stamp, length, open }
}

/// `name.vN`, the spelling that survives conversion to HLO, as `name@vN`.
fn versioned(name: &str) -> String {
    match name.rsplit_once(".v") {
        Some((base, version))
            if !base.is_empty() && !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            format!("{base}@v{version}")
        }
        _ => name.trim_end_matches('@').to_owned(),
    }
}

/// The members of a JSON object read from an escaped name, up to where the name was cut.
struct Members<'a> {
    source: Unescaper<'a>,
    text: Vec<u8>,
}

/// A byte that may occur outside strings in the output of Python's `json`: punctuation, numbers, `true`, `false`,
/// `null`, `NaN`, `Infinity`.
fn is_json_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || b"{}[],:-+.eE truefalsnNaIiy".contains(&byte)
}

/// How reading a JSON value ended.
#[derive(PartialEq)]
enum End {
    Whole,
    Cut,
}

impl<'a> Members<'a> {
    fn new(bytes: &'a [u8], escapes: Escapes) -> Self {
        let bounded = bytes.get(..MAX_STAMP_BYTES).unwrap_or(bytes);
        Self { source: Unescaper::new(bounded, escapes), text: Vec::new() }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.source.next()?;
        self.text.push(byte);
        Some(byte)
    }

    /// Reads on until the value that begins with `first` is complete.
    fn finish_value(&mut self, first: u8) -> End {
        let mut depth = usize::from(matches!(first, b'{' | b'['));
        let mut in_string = first == b'"';
        while depth > 0 || in_string {
            match (self.next(), in_string) {
                (None, _) => return End::Cut,
                // an escaped character never ends a string
                (Some(b'\\'), true) if self.next().is_none() => return End::Cut,
                (Some(b'"'), _) => in_string = !in_string,
                (Some(b'{' | b'['), false) if depth < MAX_DEPTH => depth += 1,
                (Some(b'}' | b']'), false) => depth = depth.saturating_sub(1),
                (Some(_), true) => {}
                // anything that is not JSON ends here, so that hostile bytes are not read to the end from each prefix
                (Some(byte), false) if !is_json_byte(byte) => return End::Cut,
                (Some(b'{' | b'['), false) => return End::Cut,
                _ => {}
            }
        }
        End::Whole
    }

    fn span(&self, start: usize) -> &[u8] {
        self.text.get(start..).unwrap_or_default()
    }

    fn parsed(&self, stamp: Option<Stamp>, prefix: usize) -> Parsed {
        let length = prefix + self.source.position();
        Parsed { stamp, length, open: self.source.is_open() }
    }
}

fn parse_json(bytes: &[u8], escapes: Escapes) -> Parsed {
    let prefix = EJKERNEL.len() + 1;
    let mut members = Members::new(bytes.get(prefix..).unwrap_or_default(), escapes);
    let (mut args, mut kwargs) = (None, None);
    members.next();
    loop {
        // a member: its key, a colon, its value
        let Some(b'"') = members.next() else { return members.parsed(None, prefix) };
        let key_start = members.text.len();
        if members.finish_value(b'"') == End::Cut || members.next() != Some(b':') {
            return members.parsed(None, prefix);
        }
        let key = members.span(key_start).to_vec();
        if key == b"op_id\":" {
            return finish_json(members, args, kwargs, prefix);
        }
        let value_start = members.text.len();
        let Some(first) = members.next() else { return members.parsed(None, prefix) };
        let after = if matches!(first, b'{' | b'[' | b'"') {
            if members.finish_value(first) == End::Cut {
                return members.parsed(None, prefix);
            }
            let value = members.span(value_start).to_vec();
            match key.as_slice() {
                b"args\":" => args = Some(value),
                b"kwargs\":" => kwargs = Some(value),
                _ => {}
            }
            members.next()
        } else {
            // a number or a word: it ends at the comma
            loop {
                match members.next() {
                    Some(b',') => break Some(b','),
                    None | Some(b'}') => break None,
                    _ => {}
                }
            }
        };
        if after != Some(b',') {
            return members.parsed(None, prefix);
        }
    }
}

fn finish_json(mut members: Members<'_>, args: Option<Vec<u8>>, kwargs: Option<Vec<u8>>, prefix: usize) -> Parsed {
    if members.next() != Some(b'"') {
        return members.parsed(None, prefix);
    }
    let mut name = Vec::new();
    let mut ended = true;
    loop {
        let before = members.source.clone();
        match members.next() {
            Some(byte) if is_name_byte(byte) && name.len() < MAX_NAME_BYTES => name.push(byte),
            Some(b'"') => {
                let at_brace = members.source.clone();
                if members.next() != Some(b'}') {
                    members.source = at_brace;
                }
                break;
            }
            Some(_) => {
                // the name was cut and another part follows: `;`, or `/` where a call was inlined
                members.source = before;
                break;
            }
            None => {
                ended = !members.source.is_open();
                break;
            }
        }
    }
    let stamp = args.zip(kwargs).filter(|_| !name.is_empty()).map(|(args, kwargs)| Stamp {
        family: Family::Json,
        label: Label::new(versioned(&String::from_utf8_lossy(&name)), Some(call_key(&args, &kwargs))),
        evidence: Evidence::Recomputed,
        arguments: json_arguments(&args, &kwargs),
    });
    Parsed { open: !ended, ..members.parsed(stamp, prefix) }
}

/// ejkernel's call key: the first 16 hexadecimal digits of the SHA-256 of `{"args_spec":…,"batch_axes":null,
/// "kwargs_spec":…,"method":null}` as Python's `json.dumps` writes it with sorted keys and no blanks.
///
/// The stamp was written by that same `json.dumps`, so its own spelling of the two values is copied verbatim; no float
/// or escape is reformatted.
fn call_key(args: &[u8], kwargs: &[u8]) -> String {
    let mut hasher = Sha256::new();
    for part in [&b"{\"args_spec\":"[..], args, b",\"batch_axes\":null,\"kwargs_spec\":", kwargs, b",\"method\":null}"]
    {
        hasher.update(part);
    }
    short_hex(hasher)
}

fn short_hex(hasher: Sha256) -> String {
    hasher.finalize().iter().take(KEY_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

fn json_arguments(args: &[u8], kwargs: &[u8]) -> Option<serde_json::Value> {
    // Python writes NaN and Infinity, which are not JSON: such arguments are left out, and the key stays
    Some(serde_json::json!({
        "args": serde_json::from_slice::<serde_json::Value>(args).ok()?,
        "kwargs": serde_json::from_slice::<serde_json::Value>(kwargs).ok()?,
    }))
}

fn parse_tokamax(bytes: &[u8], escapes: Escapes) -> Parsed {
    let prefix = TOKAMAX.len() - 1;
    let mut members = Members::new(bytes.get(prefix..).unwrap_or_default(), escapes);
    members.next();
    let whole = members.finish_value(b'{') == End::Whole;
    let stamp = if whole { whole_tokamax(&members.text) } else { None }.or_else(|| cut_tokamax(&members.text));
    let open = !whole && members.source.is_open();
    Parsed { open, ..members.parsed(stamp, prefix) }
}

fn whole_tokamax(text: &[u8]) -> Option<Stamp> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let class = value.get("op")?.get("__type")?.as_str()?;
    let arguments = value.get("arguments")?;
    let key = short_hex(Sha256::new_with_prefix(canonical_json(arguments)));
    Some(Stamp {
        family: Family::Tokamax,
        label: Label::new(class, Some(key)),
        evidence: Evidence::Exact,
        arguments: Some(arguments.clone()),
    })
}

/// The label of a whole Tokamax stamp, `{"op":{"__type":…},"arguments":{…}}`, as a scan finds it in a module.
pub fn tokamax_label(stamp: &str) -> Option<Label> {
    whole_tokamax(stamp.as_bytes()).map(|stamp| stamp.label)
}

fn cut_tokamax(text: &[u8]) -> Option<Stamp> {
    const KEY: &[u8] = b"{\"op\":{\"__type\":\"";
    let class = text.strip_prefix(KEY)?;
    let class = class.get(..class.iter().position(|&byte| byte == b'"')?)?;
    let class = std::str::from_utf8(class).ok().filter(|class| !class.is_empty() && class.len() <= MAX_NAME_BYTES)?;
    Some(Stamp { family: Family::Tokamax, label: Label::new(class, None), evidence: Evidence::ByName, arguments: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, escapes: Escapes) -> (Option<Label>, Option<Evidence>, usize) {
        let parsed = parse(text.as_bytes(), escapes).unwrap();
        let (label, evidence) = parsed.stamp.map(|stamp| (stamp.label, stamp.evidence)).unzip();
        (label, evidence, parsed.length)
    }

    fn label(op_id: &str, key: Option<&str>) -> Option<Label> {
        Some(Label::new(op_id, key.map(str::to_owned)))
    }

    const MAPPED: &str = "020151af84a38253~8x4-1a2b3c4d";

    #[test]
    fn a_stamp_is_open_until_what_comes_after_its_key_is_seen() {
        let text = format!("ejkernel_ops#a.v1:{MAPPED}");
        for end in 14..text.len() {
            assert!(measure_hash(&text.as_bytes()[..end]).open, "{}", &text[..end]);
        }
        assert!(!measure_hash(text.as_bytes()).open);
        assert!(!measure_hash(b"ejkernel_ops#a.v1:020151af84a38253/").open);
    }

    #[test]
    fn hash_stamps_whole_and_cut() {
        let cases = [
            ("ejkernel_ops#rms_norm@v1:020151af84a38253)/mul", label("rms_norm@v1", Some("020151af84a38253")), 41),
            ("ejkernel_ops#rms_norm.v1:020151af84a38253\"", label("rms_norm@v1", Some("020151af84a38253")), 41),
            ("ejkernel_ops#rms_norm\" rest", label("rms_norm", None), 21),
            ("ejkernel_ops#rms_norm;jit(f)/mul", label("rms_norm", None), 21),
            ("ejkernel_ops#rms_norm/while/body", label("rms_norm", None), 21),
            ("ejkernel_ops#rms_norm@v1:0201 ", label("rms_norm@v1", None), 24),
            ("ejkernel_ops#a.vx:0201", label("a.vx", None), 17),
            ("ejkernel_ops#/mul", None, 13),
            // with the variant under `vmap`, and with a text that is no variant
            ("ejkernel_ops#a.v1:020151af84a38253~8x4-1a2b3c4d)/mul", label("a@v1", Some(MAPPED)), 47),
            ("ejkernel_ops#a.v1:020151af84a38253~8x4-1a2b/mul", label("a@v1", Some("020151af84a38253")), 34),
            ("ejkernel_ops#a.v1:020151af84a38253~/mul", label("a@v1", Some("020151af84a38253")), 34),
        ];
        for (text, expected, length) in cases {
            let (found, evidence, measured) = read(text, Escapes::C);
            assert_eq!(found, expected, "{text}");
            assert_eq!(measured, length, "{text}");
            let whole = expected.as_ref().is_some_and(|label| label.call_key.is_some());
            assert_eq!(evidence == Some(Evidence::Exact), whole, "{text}");
        }
        assert!(parse(b"ejkernel_ops/modules/flash.py", Escapes::C).is_none());
        assert!(parse(b"ejkernel_ops_rms_norm.3", Escapes::C).is_none());
    }

    // Keys from Python 3.11:
    // hashlib.sha256(json.dumps({"args_spec": args, "batch_axes": None, "kwargs_spec": kwargs, "method": None},
    //                           sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
    // with args = [1e-06, 1e16, "\u00e9\"\\"], kwargs = {"a": {"b": [None, True, -0.0]}}
    #[test]
    fn json_stamps_keep_pythons_spelling() {
        let json = r#"{"args":[1e-06,1e+16,"\u00e9\"\\"],"cfg":7,"kwargs":{"a":{"b":[null,true,-0.0]}},"op_id":"op"#;
        let expected = label("op", Some("9d5f284d9855ce3d"));
        let raw = format!("ejkernel_ops:{json}");
        let c = format!("ejkernel_ops:{}", json.replace('\\', "\\\\").replace('"', "\\\""));
        let mlir = format!("ejkernel_ops:{}", json.replace('\\', "\\5C").replace('"', "\\22"));
        for (text, escapes) in [(raw, Escapes::Raw), (c, Escapes::C), (mlir, Escapes::Mlir)] {
            let ends = if escapes == Escapes::Raw { ["\0", ";jit(f)"] } else { ["\"", "/while"] };
            for end in ends {
                let (found, evidence, length) = read(&format!("{text}{end}"), escapes);
                assert_eq!(found, expected, "{text}{end}");
                assert_eq!(evidence, Some(Evidence::Recomputed));
                assert_eq!(length, text.len(), "{text}{end}");
            }
        }
    }

    #[test]
    fn stamps_cut_inside_their_arguments_are_broken_not_guessed() {
        let whole = r#"ejkernel_ops:{"args":[1],"cfg":{},"kwargs":{"x":"a"},"op_id":"op@v2"}"#;
        assert_eq!(read(whole, Escapes::Raw).0.unwrap().op_id, "op@v2");
        let name = whole.find("op@v2").unwrap();
        for end in "ejkernel_ops:{".len()..=name {
            assert_eq!(read(&format!("{}\0", &whole[..end]), Escapes::Raw).0, None, "{}", &whole[..end]);
        }
        assert_eq!(read(&format!("{}\0", &whole[..name + 2]), Escapes::Raw).0.unwrap().op_id, "op");
    }

    #[test]
    fn tokamax_braces_inside_strings_do_not_count() {
        let text = r#"tokamax:{"op":{"__type":"a.B","note":"}}{"},"arguments":{"b":1,"a":"f32[2]"}}/mul"#;
        let parsed = parse(text.as_bytes(), Escapes::Raw).unwrap();
        let stamp = parsed.stamp.unwrap();
        // printf '{"a":"f32[2]","b":1}' | sha256sum
        assert_eq!(stamp.label, Label::new("a.B", Some("9812f8a05b6be59f".to_owned())));
        assert_eq!(parsed.length, text.len() - "/mul".len());
        let cut = read("tokamax:{\"op\":{\"__type\":\"a.B\",\"no\0", Escapes::Raw);
        assert_eq!((cut.0, cut.1), (label("a.B", None), Some(Evidence::ByName)));
    }

    #[test]
    fn hostile_stamps_end() {
        let deep = format!("tokamax:{{{}", "[".repeat(200_000));
        assert!(parse(deep.as_bytes(), Escapes::Raw).unwrap().stamp.is_none());
        let closed = format!("tokamax:{{\"op\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(parse(closed.as_bytes(), Escapes::Raw).unwrap().stamp.is_none());
        let long = format!("ejkernel_ops#{}", "a".repeat(100_000));
        assert!(parse(long.as_bytes(), Escapes::Raw).unwrap().length < 1000);
    }
}
