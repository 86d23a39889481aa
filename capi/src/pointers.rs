//! The only place that reads and writes through the caller's pointers. Each is NULL or what the header says: callers of
//! every exported function guarantee this, and the SAFETY lines below rely on it.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use autotune_lowered_lookup::printable::printable;

use crate::fault::{Fault, Status};
use crate::layout::{Text, Versioned};

/// No header will have a larger struct: a larger number is not a size.
const MOST_STRUCT_BYTES: usize = 4096;

/// The caller's buffer for one line of text.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    at: *mut c_char,
    size: usize,
}

impl Message {
    /// # Safety
    /// `at` is NULL, or `size` bytes can be written there until the function returns.
    pub(crate) unsafe fn new(at: *mut c_char, size: usize) -> Self {
        Self { at, size }
    }

    /// Writes a line, truncated to the buffer.
    pub(crate) fn put(self, text: &str) {
        if self.at.is_null() || self.size == 0 {
            return;
        }
        let text = printable(text);
        let end = text.floor_char_boundary(text.len().min(self.size - 1));
        // SAFETY: by `new`'s promise, and `end` is less than `size`; the text is our own, so that they do not overlap
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), self.at, end);
            self.at.add(end).write(0);
        }
    }

    /// There is no message.
    fn clear(self) {
        if !self.at.is_null() && self.size > 0 {
            // SAFETY: by `new`'s promise
            unsafe { self.at.write(0) }
        }
    }
}

/// Runs the body of an exported function: catches panics, and writes what failed.
pub(crate) fn guarded(message: Message, body: impl FnOnce() -> Result<Status, Fault>) -> i32 {
    message.clear();
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(Fault::of_panic(panic)));
    let status = outcome.unwrap_or_else(|Fault { status, text }| {
        message.put(&text);
        status
    });
    status as i32
}

/// The same for a function that returns nothing.
pub(crate) fn guarded_end(body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(panic);
    }
}

/// A handle, or another object that the caller points at.
///
/// # Safety
/// `at` is NULL, or points at a `T` that is neither written to nor freed until the function returns.
pub(crate) unsafe fn reference<'a, T>(at: *const T, name: &str) -> Result<&'a T, Fault> {
    check(at, name)?;
    // SAFETY: it is neither NULL nor misaligned, and by the caller's promise a `T`
    Ok(unsafe { &*at })
}

fn check<T>(at: *const T, name: &str) -> Result<(), Fault> {
    match () {
        () if at.is_null() => Err(Fault::argument(name, "is NULL")),
        () if !at.is_aligned() => Err(Fault::argument(name, "is not aligned as its type asks for")),
        () => Ok(()),
    }
}

/// A location for a result.
pub(crate) struct Slot<T>(NonNull<T>);

impl<T> Slot<T> {
    /// # Safety
    /// `at` is NULL, or a `T` can be written there until the function returns.
    pub(crate) unsafe fn new(at: *mut T, name: &str) -> Result<Self, Fault> {
        check(at, name)?;
        NonNull::new(at).map(Self).ok_or_else(|| Fault::argument(name, "is NULL"))
    }

    pub(crate) fn put(&self, value: T) {
        // SAFETY: by `new`'s promise; what was there has nothing to be dropped, since C put it there
        unsafe { self.0.write(value) }
    }
}

/// The bytes of a required text.
///
/// # Safety
/// `text.data` is NULL, or points at `text.size` bytes that are neither written to nor freed as long as the result
/// lives.
pub(crate) unsafe fn bytes<'a>(text: Text, name: &str) -> Result<&'a [u8], Fault> {
    if text.data.is_null() {
        return Err(Fault::argument(name, "is NULL"));
    }
    if text.size > isize::MAX as usize {
        return Err(Fault::argument(name, "has a size that no text has"));
    }
    // SAFETY: neither NULL nor beyond what a slice may have, and by the caller's promise initialized
    Ok(unsafe { slice::from_raw_parts(text.data.cast(), text.size) })
}

/// The same for an optional text, absent if `{NULL, 0}`.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional_bytes<'a>(text: Text, name: &str) -> Result<Option<&'a [u8]>, Fault> {
    if text.data.is_null() && text.size == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise
    unsafe { bytes(text, name) }.map(Some)
}

/// A text in UTF-8.
pub(crate) fn utf8<'a>(bytes: &'a [u8], name: &str) -> Result<&'a str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::argument(name, "is not UTF-8"))
}

/// The items of a list, none of which are read where the count is 0.
///
/// # Safety
/// `at` is NULL, or points at `count` items that are neither written to nor freed as long as the result lives.
pub(crate) unsafe fn list<'a, T>(at: *const T, count: usize, most: usize, name: &str) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    check(at, name)?;
    if count > most {
        return Err(Fault::argument(name, &format!("has {count} items, where at most {most} are allowed")));
    }
    // SAFETY: neither NULL nor misaligned, few enough, and by the caller's promise initialized
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// The size of the caller's struct.
///
/// # Safety
/// As [`read`].
unsafe fn stated_size<T: Versioned>(at: *const T) -> Result<usize, Fault> {
    check(at, T::NAME)?;
    // SAFETY: a `Versioned` begins with its size, and it is aligned
    let size = unsafe { at.cast::<usize>().read() };
    if (T::LEAST..=MOST_STRUCT_BYTES).contains(&size) {
        return Ok(size);
    }
    let name = T::NAME;
    Err(Fault::argument("struct_size", &format!("of `{name}` is {size}: set it to sizeof({name})")))
}

/// A struct of this header's version or another. Members that an older one lacks are zero; additional members of a
/// newer one must be zero.
///
/// # Safety
/// `at` is NULL, or points at a `usize` and, if that is a valid size of the struct, at that many bytes.
pub(crate) unsafe fn read<T: Versioned>(at: *const T) -> Result<T, Fault> {
    // SAFETY: the caller's promise
    let size = unsafe { stated_size(at) }?;
    let known = size_of::<T>();
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both are so long, and `value` is our own; zeros and what C wrote are values of a `Versioned`
    let value = unsafe {
        ptr::copy_nonoverlapping(at.cast::<u8>(), value.as_mut_ptr().cast(), size.min(known));
        value.assume_init()
    };
    if size > known {
        // SAFETY: the caller guarantees that many bytes
        let more = unsafe { slice::from_raw_parts(at.cast::<u8>().add(known), size - known) };
        if more.iter().any(|byte| *byte != 0) {
            let text = format!("`{}` has members that this library does not know: use a newer one", T::NAME);
            return Err(Fault::new(Status::BadArgument, text));
        }
    }
    Ok(value)
}

/// Fills a struct of this header's version or another, but for its size.
///
/// # Safety
/// As [`read`], and that many bytes can be written there.
pub(crate) unsafe fn fill<T: Versioned>(at: *mut T, value: &T) -> Result<(), Fault> {
    // SAFETY: the caller's promise
    let size = unsafe { stated_size(at) }?;
    let (head, known) = (size_of::<usize>(), size_of::<T>());
    // SAFETY: both are so long, and `value` is our own; what only a newer header knows becomes zero
    unsafe {
        let (to, from) = (at.cast::<u8>(), ptr::from_ref(value).cast::<u8>());
        ptr::copy_nonoverlapping(from.add(head), to.add(head), size.min(known) - head);
        if size > known {
            ptr::write_bytes(to.add(known), 0, size - known);
        }
    }
    Ok(())
}

/// Frees a handle from [`Box::into_raw`].
///
/// # Safety
/// `at` is NULL, or such a handle that is no longer used.
pub(crate) unsafe fn free<T>(at: *mut T) {
    if !at.is_null() {
        // SAFETY: the caller's promise
        drop(unsafe { Box::from_raw(at) });
    }
}

/// Adds an owner to a pointer from [`Arc::into_raw`].
///
/// # Safety
/// `at` is NULL, or is such a pointer and has an owner.
pub(crate) unsafe fn retain<T>(at: *const T) {
    if !at.is_null() {
        // SAFETY: the caller's promise
        unsafe { Arc::increment_strong_count(at) }
    }
}

/// Removes an owner.
///
/// # Safety
/// As [`retain`], and that owner no longer uses it.
pub(crate) unsafe fn release<T>(at: *const T) {
    if !at.is_null() {
        // SAFETY: the caller's promise
        unsafe { Arc::decrement_strong_count(at) }
    }
}
