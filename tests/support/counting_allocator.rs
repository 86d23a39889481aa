//! An allocator that counts each thread's requests. It requires a separate test binary.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

struct Counting;

thread_local! {
    /// Allocations of this thread: tests run in parallel.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // without a destructor, it lives as long as the thread
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is forwarded unchanged to the system's allocator
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the memory requests during a call.
pub(crate) fn allocations<T>(call: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.get();
    let made = black_box(call());
    (ALLOCATIONS.get() - before, made)
}
