//! An allocator that counts each thread's requests, which requires a program of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

struct Counting;

thread_local! {
    /// Allocations of this thread: tests run side by side.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // no destructor: it is there as long as the thread
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often memory was asked for during a call.
pub(crate) fn allocations<T>(call: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.get();
    let made = black_box(call());
    (ALLOCATIONS.get() - before, made)
}
