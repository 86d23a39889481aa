//! Look-ups through the C ABI, as an engine in C makes them: with the functions of a shared library.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

#[derive(Clone, Copy)]
#[repr(C)]
struct Text {
    data: *const u8,
    size: usize,
}

impl Text {
    const NONE: Self = Self { data: ptr::null(), size: 0 };

    fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), size: text.len() }
    }
}

#[repr(C)]
struct OpenOptions {
    struct_size: usize,
    path: Text,
    shipped: Text,
    pin: Text,
    flags: [u32; 2],
}

/// `atl_query`.
#[repr(C)]
pub(crate) struct Query {
    struct_size: usize,
    by: u32,
    match_mode: u32,
    direction: u32,
    reserved: u32,
    device: *mut c_void,
    operation: Text,
    key: Text,
}

type Lookup = unsafe extern "C" fn(*mut c_void, *const Query, *mut *const c_void, *mut c_char, usize) -> i32;

/// An open cache of the library.
pub(crate) struct CAbi {
    lookup: Lookup,
    int64: unsafe extern "C" fn(*const c_void, Text, *mut i64, *mut c_char, usize) -> i32,
    release: unsafe extern "C" fn(*const c_void),
    cache: *mut c_void,
    device: *mut c_void,
    /// Loaded as long as its functions are in use.
    _library: Library,
}

impl CAbi {
    pub(crate) fn open(library: &str, snapshot: &Path, device: &str) -> Self {
        type Open = unsafe extern "C" fn(*const OpenOptions, *mut *mut c_void, *mut c_char, usize) -> i32;
        type Device = unsafe extern "C" fn(Text, *mut *mut c_void, *mut c_char, usize) -> i32;
        let path = Text::of(snapshot.to_str().unwrap());
        let options = OpenOptions {
            struct_size: size_of::<OpenOptions>(),
            path,
            shipped: Text::NONE,
            pin: Text::NONE,
            flags: [0; 2],
        };
        let (mut cache, mut handle, mut said) = (ptr::null_mut(), ptr::null_mut(), [0_u8; 512]);
        // SAFETY: the library is built from capi/, whose header declares these types
        let (library, statuses, lookup, int64, release) = unsafe {
            let library = Library::new(library).unwrap();
            let open = library.get::<Open>("atl_cache_open").unwrap();
            let from_json = library.get::<Device>("atl_device_from_json").unwrap();
            let (at, size) = (said.as_mut_ptr().cast(), said.len());
            let statuses = [from_json(Text::of(device), &mut handle, at, size), open(&options, &mut cache, at, size)];
            let lookup = *library.get::<Lookup>("atl_cache_lookup").unwrap();
            let int64 = *library.get("atl_hit_int64").unwrap();
            let release = *library.get("atl_hit_release").unwrap();
            (library, statuses, lookup, int64, release)
        };
        assert_eq!(statuses, [0, 0], "{:?}", CStr::from_bytes_until_nul(&said));
        Self { lookup, int64, release, cache, device: handle, _library: library }
    }

    /// A query, prepared in advance as an engine does. Direction 1 is forward, 2 forward with its product.
    pub(crate) fn query(&self, op: &'static str, key: &str, direction: u32) -> Query {
        // the caller's keys live as long as the process
        let key = Text::of(Box::leak(key.into()));
        let operation = Text::of(op);
        let device = self.device;
        Query { struct_size: size_of::<Query>(), by: 0, match_mode: 0, direction, reserved: 0, device, operation, key }
    }

    /// Looks up and releases a hit; with a path, also reads a number at it.
    pub(crate) fn hit(&self, query: &Query, path: Option<&str>) -> i64 {
        let (mut hit, mut number) = (ptr::null(), 0);
        // SAFETY: the handles are open, and the query's texts are alive
        unsafe {
            assert_eq!((self.lookup)(self.cache, query, &mut hit, ptr::null_mut(), 0), 0);
            if let Some(path) = path {
                assert_eq!((self.int64)(hit, Text::of(path), &mut number, ptr::null_mut(), 0), 0);
            }
            (self.release)(hit);
        }
        number
    }
}
