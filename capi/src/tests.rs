//! What the C programs of `tests/` cannot see: memory that is asked for, offsets in Rust, panics, and files that are
//! not what was written.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every pointer is to what the test itself holds")]

#[path = "../../tests/support/counting_allocator.rs"]
mod counting_allocator;
mod files;
mod memory;

use std::ffi::{CStr, c_char};
use std::mem::offset_of;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use autotune_lowered_lookup::cache::{CacheKey, Entry, write_snapshot};
use autotune_lowered_lookup::call::{Call, Direction};
use autotune_lowered_lookup::device::DeviceIdentity;

use crate::abi::*;
use crate::cache::Cache;
use crate::device::Device;
use crate::fault::Status;
use crate::hit::Hit;
use crate::layout::{self, *};
use crate::pointers::{Message, guarded};

const HEADER: &str = include_str!("../include/autotune_lowered.h");
const OP: &str = "flash_attention@v2";

/// A status, and the line that came with it.
type StatusLine = (i32, String);

/// Calls with a buffer for a line.
fn status_line(call: impl FnOnce(*mut c_char, usize) -> i32) -> StatusLine {
    let mut buffer = [0x55_u8; 4096];
    let status = call(buffer.as_mut_ptr().cast(), buffer.len());
    (status, CStr::from_bytes_until_nul(&buffer).unwrap().to_str().unwrap().to_owned())
}

fn text(text: &str) -> Text {
    Text { data: text.as_ptr().cast(), size: text.len() }
}

const NONE: Text = Text { data: ptr::null(), size: 0 };

fn identity() -> DeviceIdentity {
    let hardware = [("cores".to_owned(), "2".to_owned())].into();
    DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware }
}

/// Publishes a config for each key, which says in which generation that was.
fn publish(path: &Path, keys: &[&str], generation: u32) {
    publish_timed_by("host-wall", path, keys, generation);
}

fn publish_timed_by(source: &str, path: &Path, keys: &[&str], generation: u32) {
    let entry = |key: &str| {
        let text = format!(
            r#"{{"config":{{"block":{generation},"name":"{key}","nested":{{"on":true}},"ratio":0.5}},"provenance":{{"job":"{job}",
            "timer":"pjrt","source":"{source}","metric":"elapsed","environment":{{"platform_version":"cpu"}},"baseline":{{}},
            "baseline_ns":2.0,"best_ns":1.0,"ratio":0.5,"interval":{{"low":0.4,"high":0.6,"confidence":0.95}},"rounds":20,
            "measured":2,"failed":0,"tool":"a test","decided_at":7}}}}"#,
            job = "0f".repeat(32)
        );
        let call = Call::new(OP, key);
        let key = CacheKey { call, direction: Direction::Forward, device: identity() };
        (key, Arc::new(serde_json::from_str::<Entry>(&text).unwrap()))
    };
    write_snapshot(path, &keys.iter().map(|key| entry(key)).collect::<Vec<_>>()).unwrap();
}

#[test]
fn what_replayed_samples_decided_is_found_with_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best.snapshot");
    publish_timed_by("replay", &path, &["k"], 1);
    let device = Named::new();
    let (status, line) = Open::at(&path, 0).unwrap().block(&device, "k").unwrap_err();
    assert_eq!(status, Status::Miss as i32, "{line}");
    assert_eq!(Open::at(&path, layout::OPEN_REPLAYED).unwrap().block(&device, "k"), Ok(1));
}

/// An open cache, closed at the end.
struct Open(*mut Cache);

impl Open {
    fn at(path: &Path, flags: u32) -> Result<Self, StatusLine> {
        let path = path.to_str().unwrap();
        let options = OpenOptions {
            struct_size: size_of::<OpenOptions>(),
            path: text(path),
            shipped: NONE,
            pin: NONE,
            flags,
            reserved: 0,
        };
        let mut cache = ptr::dangling_mut();
        let (status, line) = status_line(|at, size| unsafe { atl_cache_open(&options, &mut cache, at, size) });
        assert_eq!(cache.is_null(), status != 0, "{line}");
        if status == 0 { Ok(Self(cache)) } else { Err((status, line)) }
    }

    fn refresh(&self) -> (i32, i32, String) {
        let mut changed = 7;
        let (status, line) = status_line(|at, size| unsafe { atl_cache_refresh(self.0, &mut changed, at, size) });
        (status, changed, line)
    }

    fn flags(&self, device: &Named, key: &str) -> u32 {
        let (mut hit, query): (*const Hit, _) = (ptr::null(), device.query(key));
        let (status, line) = status_line(|at, size| unsafe { atl_cache_lookup(self.0, &query, &mut hit, at, size) });
        assert_eq!(status, 0, "{line}");
        let mut info: HitInfo = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<HitInfo>();
        assert_eq!(status_line(|at, size| unsafe { atl_hit_describe(hit, &mut info, at, size) }).0, 0);
        unsafe { atl_hit_release(hit) };
        info.flags
    }

    /// The config's `block`, which its text must say, too.
    fn block(&self, device: &Named, key: &str) -> Result<i64, StatusLine> {
        let mut hit: *const Hit = ptr::dangling();
        let query = device.query(key);
        let (status, line) = status_line(|at, size| unsafe { atl_cache_lookup(self.0, &query, &mut hit, at, size) });
        assert_eq!(hit.is_null(), status != 0, "{line}");
        if status != 0 {
            return Err((status, line));
        }
        let mut block = 0;
        assert_eq!(unsafe { atl_hit_int64(hit, text("block"), &mut block, ptr::null_mut(), 0) }, 0);
        assert!(unsafe { &*hit }.value("name", "", |name| name.as_str()).unwrap().strip_suffix('\0') == Some(key));
        unsafe { atl_hit_release(hit) };
        Ok(block)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        unsafe { atl_cache_close(self.0) }
    }
}

/// The device of the entries.
struct Named(*mut Device);

impl Named {
    fn new() -> Self {
        let json = r#"{"identity":{"platform":"cpu","device_kind":"cpu","hardware":{"cores":"2"}},
            "environment":{"platform_version":"cpu"}}"#;
        let mut device = ptr::null_mut();
        assert_eq!(
            status_line(|at, size| unsafe { atl_device_from_json(text(json), &mut device, at, size) }),
            (0, "".into())
        );
        Self(device)
    }

    fn query(&self, key: &str) -> Query {
        Query {
            struct_size: size_of::<Query>(),
            by: 0,
            match_mode: 0,
            direction: 0,
            reserved: 0,
            device: self.0,
            operation: text(OP),
            key: text(key),
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        unsafe { atl_device_free(self.0) }
    }
}

#[test]
fn handles_may_be_used_by_many_threads() {
    fn are_shared<T: Send + Sync>() {}
    are_shared::<Cache>();
    are_shared::<Device>();
    are_shared::<Hit>();
}

/// `tests/attack.c` compares the header's structs with the same file.
#[test]
fn structs_lie_as_the_header_has_them() {
    macro_rules! lines {
        ($($rust:ident $name:literal { $($member:ident $called:literal)* })*) => {
            [$(format!("SIZE({}, {})\n", $name, size_of::<$rust>()),
               $(format!("MEMBER({}, {}, {})\n", $name, $called, offset_of!($rust, $member)),)*)*].concat()
        };
    }
    let lines = lines! {
        Text "atl_string" { data "data" size "size" }
        OpenOptions "atl_open_options" { struct_size "struct_size" path "path" shipped "shipped" pin "pin" flags "flags"
            reserved "reserved" }
        CacheInfo "atl_cache_info" { struct_size "struct_size" entries "entries" published "published" mapped "mapped"
            digest "digest" }
        Field "atl_field" { name "name" value "value" }
        DeviceParts "atl_device_parts" { struct_size "struct_size" platform "platform" kind "kind" hardware "hardware"
            hardware_count "hardware_count" environment "environment" }
        Query "atl_query" { struct_size "struct_size" by "by" match_mode "match" direction "direction"
            reserved "reserved" device "device" operation "operation" key "key" }
        HitInfo "atl_hit_info" { struct_size "struct_size" flags "flags" tier "tier" direction "direction"
            reserved "reserved" config "config" entry "entry" device "device" notes "notes" }
    };
    assert_eq!(lines, include_str!("../tests/layout.h"), "the ABI changed: that needs a new `ATL_ABI_VERSION`");
}

#[test]
fn the_header_is_short_and_says_what_is_exported() {
    assert!(HEADER.lines().count() < 200, "{} lines", HEADER.lines().count());
    let symbols: Vec<&str> = include_str!("../tests/symbols.txt").lines().collect();
    assert!(symbols.len() > 15 && symbols.is_sorted());
    let code: String = HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let declared = |line: &&str| {
        line.starts_with("atl_status atl_")
            || line.starts_with("void atl_")
            || line.contains(" *atl_")
            || line.starts_with("uint32_t atl_")
    };
    let mut names: Vec<&str> = code
        .lines()
        .filter(declared)
        .filter_map(|line| {
            let name = line.split_once('(')?.0;
            name.rsplit([' ', '*']).next()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, symbols);
}

#[test]
fn numbers_are_those_of_the_header() {
    let code: String = HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let tokens: Vec<&str> = code.split([' ', ',', '\n', '{', '}', '=']).filter(|token| !token.is_empty()).collect();
    let number = |name: &str| {
        let at = tokens.iter().position(|token| *token == name).unwrap_or_else(|| panic!("{name}"));
        tokens[at + 1].trim_end_matches('u').parse::<u32>().unwrap()
    };
    for (name, status) in [
        ("ATL_OK", Status::Ok),
        ("ATL_MISS", Status::Miss),
        ("ATL_BAD_ARGUMENT", Status::BadArgument),
        ("ATL_IO", Status::Io),
        ("ATL_DAMAGED", Status::Damaged),
        ("ATL_OTHER_VERSION", Status::OtherVersion),
        ("ATL_NOT_PINNED", Status::NotPinned),
        ("ATL_NO_MEMBER", Status::NoMember),
        ("ATL_WRONG_TYPE", Status::WrongType),
        ("ATL_INTERNAL", Status::Internal),
    ] {
        assert_eq!(number(name), status as u32, "{name}");
        let word = name.trim_start_matches("ATL_").to_lowercase().replace('_', "-");
        assert_eq!(Status::name(status as i32).trim_end_matches('\0'), word);
    }
    assert_eq!(number("ATL_ABI_VERSION"), layout::ABI_VERSION);
    assert_eq!(number("ATL_OPEN_READ"), layout::OPEN_READ);
    assert_eq!(number("ATL_OPEN_FOR_COLD_CACHES"), layout::OPEN_FOR_COLD_CACHES);
    assert_eq!(number("ATL_OPEN_REPLAYED"), layout::OPEN_REPLAYED);
    for (name, mode) in [("ATL_MATCH_EXACT", "exact"), ("ATL_MATCH_KIND", "kind"), ("ATL_MATCH_ANY", "any")] {
        assert_eq!(layout::match_mode(number(name)).unwrap().to_string(), mode);
    }
    for (name, of) in [("ATL_FORWARD", Direction::Forward), ("ATL_FORWARD_VJP", Direction::ForwardVjp)] {
        assert_eq!(layout::direction(number(name)).unwrap(), Some(of));
        assert_eq!(layout::direction_number(of), number(name));
    }
    use autotune_lowered_lookup::cache::{FlagKind, Tier};
    assert_eq!(layout::direction(number("ATL_ANY_DIRECTION")).unwrap(), None);
    assert_eq!(layout::tier_number(Tier::Snapshot), number("ATL_TIER_SNAPSHOT"));
    assert_eq!(layout::tier_number(Tier::Shipped), number("ATL_TIER_SHIPPED"));
    assert_eq!(layout::flag(FlagKind::StaleEnvironment).0, number("ATL_STALE_ENVIRONMENT"));
    assert_eq!(layout::flag(FlagKind::OtherDevice).0, number("ATL_OTHER_DEVICE"));
    assert_eq!(layout::flag(FlagKind::OtherBatch).0, number("ATL_OTHER_BATCH"));
}

#[test]
fn a_panic_becomes_a_status() {
    let (status, line) =
        status_line(|at, size| guarded(unsafe { Message::new(at, size) }, || panic!("planted, for {}", "a test")));
    assert_eq!(status, Status::Internal as i32);
    assert_eq!(line, "a bug in autotune_lowered: planted, for a test; please report it");
}
