//! Statuses, and a line that says what failed.

use std::any::Any;
use std::borrow::Cow;

use autotune_lowered_lookup::cache::{StoreError, StoreErrorKind};

/// The result of a function; the header says what each means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    Miss = 1,
    BadArgument = 2,
    Io = 3,
    Damaged = 4,
    OtherVersion = 5,
    NotPinned = 6,
    NoMember = 7,
    WrongType = 8,
    Internal = 9,
}

impl Status {
    /// A status in one word, with the NUL that ends it.
    pub(crate) fn name(status: i32) -> &'static str {
        match status {
            0 => "ok\0",
            1 => "miss\0",
            2 => "bad-argument\0",
            3 => "io\0",
            4 => "damaged\0",
            5 => "other-version\0",
            6 => "not-pinned\0",
            7 => "no-member\0",
            8 => "wrong-type\0",
            9 => "internal\0",
            _ => "unknown\0",
        }
    }
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: Status,
    pub(crate) text: Cow<'static, str>,
}

impl Fault {
    pub(crate) fn new(status: Status, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into() }
    }

    /// An argument that cannot be used: which, and why.
    pub(crate) fn argument(name: &str, why: &str) -> Self {
        Self::new(Status::BadArgument, format!("`{name}` {why}"))
    }

    /// A panic that was caught.
    pub(crate) fn of_panic(panic: Box<dyn Any + Send>) -> Self {
        let message =
            panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = format!("a bug in autotune_lowered: {}; please report it", message.unwrap_or("a panic"));
        // a panic's payload may panic again when it is dropped
        std::mem::forget(panic);
        Self::new(Status::Internal, text)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let status = match error.kind() {
            StoreErrorKind::Io => Status::Io,
            StoreErrorKind::NewerSnapshot => Status::OtherVersion,
            _ => Status::Damaged,
        };
        Self::new(status, error.to_string())
    }
}
