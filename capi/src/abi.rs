//! The exported functions; the header describes them. All require the same of their caller: a pointer is NULL or what
//! the header says, and no other thread uses a handle while it is closed, freed or released for the last time.

#![allow(unsafe_code, reason = "pointers of the caller, and names without mangling")]
#![allow(clippy::missing_safety_doc, reason = "the module's first lines say it of all")]

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use autotune_lowered_lookup::cache::{Mapping, Snapshot};
use autotune_lowered_lookup::device::DeviceIdentity;
use autotune_lowered_lookup::digest::Digest;
use autotune_lowered_lookup::measured_by::CacheState;
use serde_json::{Number, Value};

use crate::cache::{Cache, Question};
use crate::device::Device;
use crate::fault::{Fault, Status};
use crate::hit::Hit;
use crate::layout::{self, CacheInfo, DeviceParts, HitInfo, OpenOptions, Query, Text};
use crate::pointers::{self, Message, Slot, guarded, guarded_end, utf8};

/// No device has more.
const MOST_HARDWARE: usize = 1 << 10;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn atl_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn atl_abi_version() -> u32 {
    layout::ABI_VERSION
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn atl_status_name(status: i32) -> *const c_char {
    Status::name(status).as_ptr().cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_open(
    options: *const OpenOptions,
    cache: *mut *mut Cache,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let cache = unsafe { Slot::new(cache, "cache") }?;
        cache.put(ptr::null_mut());
        // SAFETY: the caller's promise
        let options: OpenOptions = unsafe { pointers::read(options) }?;
        layout::unreserved(options.reserved)?;
        if options.flags & !(layout::OPEN_READ | layout::OPEN_FOR_COLD_CACHES | layout::OPEN_REPLAYED) != 0 {
            return Err(Fault::argument("flags", "has bits that this library does not know"));
        }
        let is_set = |flag| options.flags & flag != 0;
        let mapping = if is_set(layout::OPEN_READ) { Mapping::Never } else { Mapping::WhereLocal };
        let cache_state = if is_set(layout::OPEN_FOR_COLD_CACHES) { CacheState::Cold } else { CacheState::Warm };
        // SAFETY: the caller's promise
        let (path, shipped, pin) = unsafe {
            (
                pointers::bytes(options.path, "path")?,
                pointers::optional_bytes(options.shipped, "shipped")?,
                pointers::optional_bytes(options.pin, "pin")?,
            )
        };
        let pin = pin.map(|pin| {
            let digest = utf8(pin, "pin")?.parse::<Digest>();
            digest.map_err(|_| Fault::argument("pin", "is no digest: 64 hexadecimal digits"))
        });
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        let (opened, note) = Cache::open(
            as_path(path),
            shipped.map(as_path),
            pin.transpose()?,
            (mapping, cache_state, is_set(layout::OPEN_REPLAYED)),
        )?;
        cache.put(Box::into_raw(Box::new(opened)));
        message.put(&note);
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_close(cache: *mut Cache) {
    // SAFETY: the caller's promise
    guarded_end(|| unsafe { pointers::free(cache) });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_refresh(
    cache: *mut Cache,
    changed: *mut i32,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let cache = unsafe { pointers::reference(cache, "cache") }?;
        let changed = if changed.is_null() {
            None
        } else {
            // SAFETY: the caller's promise
            Some(unsafe { Slot::new(changed, "changed") }?)
        };
        changed.iter().for_each(|changed| changed.put(0));
        let is_new = cache.refresh()?;
        changed.iter().for_each(|changed| changed.put(is_new.into()));
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_describe(
    cache: *const Cache,
    info: *mut CacheInfo,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let cache = unsafe { pointers::reference(cache, "cache") }?;
        let filled = cache.with_snapshot(|snapshot| {
            let mut digest = [0; 72];
            let text = snapshot.map(|snapshot| snapshot.digest().to_string()).unwrap_or_default();
            digest.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
            CacheInfo {
                struct_size: 0,
                entries: snapshot.map_or(0, Snapshot::len),
                published: snapshot.is_some().into(),
                mapped: snapshot.is_some_and(Snapshot::is_mapped).into(),
                digest,
            }
        });
        // SAFETY: the caller's promise
        unsafe { pointers::fill(info, &filled) }?;
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_device_from_json(
    json: Text,
    device: *mut *mut Device,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let device = unsafe { Slot::new(device, "device") }?;
        device.put(ptr::null_mut());
        // SAFETY: the caller's promise
        let json = unsafe { pointers::bytes(json, "json") }?;
        device.put(Box::into_raw(Box::new(Device::from_json(utf8(json, "json")?)?)));
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_device_from_parts(
    parts: *const DeviceParts,
    device: *mut *mut Device,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let device = unsafe { Slot::new(device, "device") }?;
        device.put(ptr::null_mut());
        let text = |text: Text, name: &'static str| {
            // SAFETY: the caller's promise
            Ok::<_, Fault>(utf8(unsafe { pointers::bytes(text, name) }?, name)?.to_owned())
        };
        // SAFETY: the caller's promise
        let parts: DeviceParts = unsafe { pointers::read(parts) }?;
        // SAFETY: the caller's promise
        let hardware =
            unsafe { pointers::list(parts.hardware, parts.hardware_count, MOST_HARDWARE, "hardware") }?.iter().map(
                |field| Ok::<_, Fault>((text(field.name, "hardware's name")?, text(field.value, "hardware's value")?)),
            );
        let identity = DeviceIdentity {
            platform: text(parts.platform, "platform")?,
            device_kind: text(parts.kind, "kind")?,
            hardware: hardware.collect::<Result<_, _>>()?,
        };
        // SAFETY: the caller's promise
        let environment = unsafe { pointers::optional_bytes(parts.environment, "environment") }?;
        let environment = environment.map(|json| utf8(json, "environment")).transpose()?;
        device.put(Box::into_raw(Box::new(Device::from_parts(identity, environment)?)));
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_device_free(device: *mut Device) {
    // SAFETY: the caller's promise
    guarded_end(|| unsafe { pointers::free(device) });
}

/// The parts of a query.
///
/// # Safety
/// As for an exported function; the result lives as long as that runs.
unsafe fn question<'a>(query: *const Query) -> Result<Question<'a>, Fault> {
    // SAFETY: the caller's promise
    let query = unsafe { pointers::read(query) }?;
    layout::unreserved(query.reserved)?;
    if query.by != 0 {
        return Err(Fault::argument("by", "is not ATL_BY_KEY, the one way that this library looks up by"));
    }
    // SAFETY: the caller's promise
    unsafe {
        Ok(Question {
            device: pointers::reference(query.device, "device")?,
            operation: pointers::bytes(query.operation, "operation")?,
            key: pointers::bytes(query.key, "key")?,
            direction: layout::direction(query.direction)?,
            mode: layout::match_mode(query.match_mode)?,
        })
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_lookup(
    cache: *mut Cache,
    query: *const Query,
    hit: *mut *const Hit,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let hit = unsafe { Slot::new(hit, "hit") }?;
        hit.put(ptr::null());
        // SAFETY: the caller's promise
        let (cache, question) = unsafe { (pointers::reference(cache, "cache")?, question(query)?) };
        match cache.lookup(&question)? {
            Some(found) => hit.put(Arc::into_raw(found)),
            None => return Ok(Status::Miss),
        }
        Ok(Status::Ok)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_cache_explain(
    cache: *mut Cache,
    query: *const Query,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let (cache, question) = unsafe { (pointers::reference(cache, "cache")?, question(query)?) };
        let (status, text) = match cache.explain(&question)? {
            Ok(reason) => (Status::Miss, reason),
            Err(found) => (Status::Ok, found),
        };
        message.put(&text);
        Ok(status)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_retain(hit: *const Hit) -> *const Hit {
    // SAFETY: the caller's promise
    guarded_end(|| unsafe { pointers::retain(hit) });
    hit
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_release(hit: *const Hit) {
    // SAFETY: the caller's promise
    guarded_end(|| unsafe { pointers::release(hit) });
}

/// Writes a value of the config that has a wanted type.
///
/// # Safety
/// As for an exported function.
unsafe fn value<'a, T>(
    (hit, path, slot): (*const Hit, Text, *mut T),
    wanted: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Status, Fault> {
    // SAFETY: the caller's promise
    let (hit, path, slot) =
        unsafe { (pointers::reference(hit, "hit")?, pointers::bytes(path, "path")?, Slot::new(slot, "value")?) };
    slot.put(hit.value(utf8(path, "path")?, wanted, read)?);
    Ok(Status::Ok)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_int64(
    hit: *const Hit,
    path: Text,
    number: *mut i64,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    // SAFETY: the caller's promise
    guarded(message, || unsafe { value((hit, path, number), "an integer of 64 bits", Value::as_i64) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_double(
    hit: *const Hit,
    path: Text,
    number: *mut f64,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    let read = |value: &Value| value.as_number().and_then(Number::as_f64);
    // SAFETY: the caller's promise
    guarded(message, || unsafe { value((hit, path, number), "a number", read) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_bool(
    hit: *const Hit,
    path: Text,
    truth: *mut i32,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    let read = |value: &Value| value.as_bool().map(i32::from);
    // SAFETY: the caller's promise
    guarded(message, || unsafe { value((hit, path, truth), "true or false", read) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_string(
    hit: *const Hit,
    path: Text,
    text: *mut Text,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    // every text of a hit's config ends in NUL
    let read = |value: &Value| value.as_str().map(Text::of);
    // SAFETY: the caller's promise
    guarded(message, || unsafe { value((hit, path, text), "a text", read) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn atl_hit_describe(
    hit: *const Hit,
    info: *mut HitInfo,
    message: *mut c_char,
    message_size: usize,
) -> i32 {
    // SAFETY: the caller's promise
    let message = unsafe { Message::new(message, message_size) };
    guarded(message, || {
        // SAFETY: the caller's promise
        let hit = unsafe { pointers::reference(hit, "hit") }?;
        // SAFETY: the caller's promise
        unsafe { pointers::fill(info, &hit.info()) }?;
        Ok(Status::Ok)
    })
}
