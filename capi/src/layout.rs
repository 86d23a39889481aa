//! The structs and numbers of the header. `tests/layout.h` has their offsets, with which both sides are compared.

use std::ffi::c_char;

use autotune_lowered_lookup::cache::{FlagKind, Tier};
use autotune_lowered_lookup::call::Direction;
use autotune_lowered_lookup::device::MatchMode;

use crate::device::Device;
use crate::fault::Fault;

/// `ATL_ABI_VERSION`.
pub(crate) const ABI_VERSION: u32 = 1;

/// `ATL_OPEN_READ`.
pub(crate) const OPEN_READ: u32 = 1;
/// `ATL_OPEN_FOR_COLD_CACHES`.
pub(crate) const OPEN_FOR_COLD_CACHES: u32 = 2;
/// `ATL_OPEN_REPLAYED`.
pub(crate) const OPEN_REPLAYED: u32 = 4;

/// A struct of the header that begins with its size.
///
/// # Safety
/// The type is `repr(C)`, its first member is the `usize` of its size, and all bytes zero are a value of it.
#[allow(unsafe_code)]
pub(crate) unsafe trait Versioned: Copy {
    /// The type's name in the header.
    const NAME: &'static str;
    /// Its size in the first version.
    const LEAST: usize;
}

/// Implements [`Versioned`] for structs that have not grown since the first version.
macro_rules! versioned {
    ($($name:ident $text:literal $bytes:literal;)*) => {$(
        // SAFETY: it is `repr(C)`, begins with `struct_size`, and holds numbers and pointers alone
        #[allow(unsafe_code)]
        unsafe impl Versioned for $name {
            const NAME: &'static str = $text;
            const LEAST: usize = $bytes;
        }
    )*};
}

versioned! {
    OpenOptions "atl_open_options" 64;
    CacheInfo "atl_cache_info" 96;
    DeviceParts "atl_device_parts" 72;
    Query "atl_query" 64;
    HitInfo "atl_hit_info" 88;
}

/// `atl_string`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Text {
    pub(crate) data: *const c_char,
    pub(crate) size: usize,
}

impl Text {
    /// A text that ends in NUL, without it.
    pub(crate) fn of(ended: &str) -> Self {
        Self { data: ended.as_ptr().cast(), size: ended.len().saturating_sub(1) }
    }
}

/// `atl_open_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct OpenOptions {
    pub(crate) struct_size: usize,
    pub(crate) path: Text,
    pub(crate) shipped: Text,
    pub(crate) pin: Text,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

/// `atl_cache_info`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CacheInfo {
    pub(crate) struct_size: usize,
    pub(crate) entries: u64,
    pub(crate) published: u32,
    pub(crate) mapped: u32,
    pub(crate) digest: [u8; 72],
}

/// `atl_field`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Field {
    pub(crate) name: Text,
    pub(crate) value: Text,
}

/// `atl_device_parts`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct DeviceParts {
    pub(crate) struct_size: usize,
    pub(crate) platform: Text,
    pub(crate) kind: Text,
    pub(crate) hardware: *const Field,
    pub(crate) hardware_count: usize,
    pub(crate) environment: Text,
}

/// `atl_query`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Query {
    pub(crate) struct_size: usize,
    pub(crate) by: u32,
    pub(crate) match_mode: u32,
    pub(crate) direction: u32,
    pub(crate) reserved: u32,
    pub(crate) device: *const Device,
    pub(crate) operation: Text,
    pub(crate) key: Text,
}

/// `atl_hit_info`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct HitInfo {
    pub(crate) struct_size: usize,
    pub(crate) flags: u32,
    pub(crate) tier: u32,
    pub(crate) direction: u32,
    pub(crate) reserved: u32,
    pub(crate) config: Text,
    pub(crate) entry: Text,
    pub(crate) device: Text,
    pub(crate) notes: Text,
}

/// `reserved` must be 0.
pub(crate) fn unreserved(number: u32) -> Result<(), Fault> {
    if number == 0 { Ok(()) } else { Err(Fault::argument("reserved", "is not 0: zero the struct before you fill it")) }
}

/// `atl_query.match`.
pub(crate) fn match_mode(number: u32) -> Result<MatchMode, Fault> {
    match number {
        0 => Ok(MatchMode::Exact),
        1 => Ok(MatchMode::Kind),
        2 => Ok(MatchMode::Any),
        _ => Err(Fault::argument("match", "is none of ATL_MATCH_EXACT, ATL_MATCH_KIND and ATL_MATCH_ANY")),
    }
}

/// `atl_query.direction`.
pub(crate) fn direction(number: u32) -> Result<Option<Direction>, Fault> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Direction::Forward)),
        2 => Ok(Some(Direction::ForwardVjp)),
        _ => Err(Fault::argument("direction", "is none of ATL_ANY_DIRECTION, ATL_FORWARD and ATL_FORWARD_VJP")),
    }
}

/// `atl_hit_info.direction`.
pub(crate) fn direction_number(direction: Direction) -> u32 {
    match direction {
        Direction::Forward => 1,
        Direction::ForwardVjp => 2,
    }
}

/// `atl_hit_info.tier`.
pub(crate) fn tier_number(tier: Tier) -> u32 {
    match tier {
        Tier::Snapshot => 1,
        Tier::Shipped => 2,
        // a cache that is opened here has no other tier
        _ => 0,
    }
}

/// `atl_hit_info.flags`, and the name of a flag.
pub(crate) fn flag(kind: FlagKind) -> (u32, &'static str) {
    match kind {
        FlagKind::StaleEnvironment => (1, "stale-environment"),
        FlagKind::OtherDevice => (2, "other-device"),
        FlagKind::OtherBatch => (4, "other-batch"),
        _ => (8, "other-caution"),
    }
}
