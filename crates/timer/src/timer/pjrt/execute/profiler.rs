//! The plugin's profiler extension: a session records some launches and yields an XSpace.
//!
//! Layouts: openxla/xla, `xla/pjrt/c/pjrt_c_api_profiler_extension.h` and
//! `xla/backends/profiler/plugin/profiler_c_api.h`. The table is a small API of its own with its own errors; newer
//! plugins have further functions after the ones used here.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;

use crate::timer::pjrt::plugin::{PjrtError, Plugin, text_of};
use crate::wire::WireCursor;

/// `PJRT_Extension_Type_Profiler`.
const PROFILER_TYPE: c_int = 1;
/// Maximum number of extensions in a chain: real ones have a dozen, a cyclic one never ends.
const MAX_EXTENSIONS: usize = 256;
/// Largest profile that is accepted from a plugin.
const MAX_PROFILE_BYTES: usize = 2 << 30;

/// A serialized `ProfileOptions`: `version` (5) 1 and `device_tracer_level` (3) 1. Omitted fields are zero: no host
/// events (2), any type of device (6), no programs in the profile (7).
const PROFILE_OPTIONS: [u8; 4] = [5 << 3, 1, 3 << 3, 1];

/// The start of every extension.
#[repr(C)]
struct ExtensionBase {
    struct_size: usize,
    kind: c_int,
    next: *const ExtensionBase,
}

#[repr(C)]
struct ProfilerExtension {
    base: ExtensionBase,
    api: *const ProfilerApi,
}

#[repr(C)]
struct RawProfiler {
    _private: [u8; 0],
}

#[repr(C)]
struct RawProfilerError {
    _private: [u8; 0],
}

type ProfilerFn<T> = unsafe extern "C" fn(*mut T) -> *mut RawProfilerError;

/// `PLUGIN_Profiler_Api` up to the last function in use.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProfilerApi {
    struct_size: usize,
    private: *mut c_void,
    error_destroy: Option<unsafe extern "C" fn(*mut ErrorArgs)>,
    error_message: Option<unsafe extern "C" fn(*mut ErrorMessageArgs)>,
    error_get_code: Option<ProfilerFn<ErrorCodeArgs>>,
    create: Option<ProfilerFn<CreateArgs>>,
    destroy: Option<ProfilerFn<SessionArgs>>,
    start: Option<ProfilerFn<SessionArgs>>,
    stop: Option<ProfilerFn<SessionArgs>>,
    collect_data: Option<ProfilerFn<CollectArgs>>,
}

#[repr(C)]
struct ErrorArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *mut RawProfilerError,
}

#[repr(C)]
struct ErrorMessageArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *const RawProfilerError,
    message: *const c_char,
    message_size: usize,
}

#[repr(C)]
struct ErrorCodeArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *const RawProfilerError,
    code: c_int,
}

#[repr(C)]
struct CreateArgs {
    struct_size: usize,
    options: *const c_char,
    options_size: usize,
    profiler: *mut RawProfiler,
}

#[repr(C)]
struct SessionArgs {
    struct_size: usize,
    profiler: *mut RawProfiler,
}

#[repr(C)]
struct CollectArgs {
    struct_size: usize,
    profiler: *mut RawProfiler,
    buffer: *mut u8,
    buffer_size: usize,
}

/// A plugin's profiler.
pub(crate) struct Profiler {
    api: ProfilerApi,
    // the table lives as long as the library, which is never unloaded
    _plugin: Rc<Plugin>,
}

impl Profiler {
    /// Finds the plugin's profiler; `None` if it has no such extension.
    pub(crate) fn of(plugin: &Rc<Plugin>) -> Result<Option<Self>, PjrtError> {
        let mut extension: *const ExtensionBase = plugin.api.extension_start.cast_const().cast();
        for _ in 0..MAX_EXTENSIONS {
            if extension.is_null() {
                return Ok(None);
            }
            // SAFETY: by PJRT's contract each extension starts with the base and lives as long as the plugin.
            let (struct_size, kind, next) = unsafe { ((*extension).struct_size, (*extension).kind, (*extension).next) };
            if kind == PROFILER_TYPE {
                return Self::read(plugin, extension.cast(), struct_size).map(Some);
            }
            extension = next;
        }
        Err(PjrtError::local(format!("the plugin's chain of extensions has no end after {MAX_EXTENSIONS}")))
    }

    fn read(plugin: &Rc<Plugin>, extension: *const ProfilerExtension, size: usize) -> Result<Self, PjrtError> {
        if size < size_of::<ProfilerExtension>() {
            return Err(PjrtError::local(format!(
                "the plugin's profiler extension has {size} bytes, fewer than the {} needed",
                size_of::<ProfilerExtension>()
            )));
        }
        // SAFETY: by its `struct_size` the extension is long enough to hold the pointer.
        let api = unsafe { (*extension).api };
        if api.is_null() {
            return Err(PjrtError::local("the plugin's profiler extension has no function table"));
        }
        // SAFETY: every version of the table starts with its size.
        let size = unsafe { (*api).struct_size };
        if size < size_of::<ProfilerApi>() {
            return Err(PjrtError::local(format!(
                "the plugin's profiler has a function table of {size} bytes, fewer than the {} needed",
                size_of::<ProfilerApi>()
            )));
        }
        // SAFETY: by its `struct_size` the table is at least as long as ours.
        Ok(Self { api: unsafe { *api }, _plugin: Rc::clone(plugin) })
    }

    /// Starts recording the devices' activity.
    pub(crate) fn start(&self) -> Result<ProfilerSession<'_>, PjrtError> {
        let mut arguments = CreateArgs {
            struct_size: size_of::<CreateArgs>(),
            options: PROFILE_OPTIONS.as_ptr().cast(),
            options_size: PROFILE_OPTIONS.len(),
            profiler: ptr::null_mut(),
        };
        // SAFETY: these are the arguments of `create`; the options are a constant, so they outlive the call.
        unsafe { self.call(self.api.create, "create", &mut arguments) }?;
        if arguments.profiler.is_null() {
            return Err(PjrtError::local("the plugin's profiler gave no session"));
        }
        let mut session = ProfilerSession { profiler: self, raw: arguments.profiler, running: false };
        session.call(self.api.start, "start")?;
        session.running = true;
        Ok(session)
    }

    /// Calls a function of the table and converts the error that it returns.
    ///
    /// # Safety
    /// `arguments` are those of the function, and what they point to is alive during the call.
    unsafe fn call<T>(&self, function: Option<ProfilerFn<T>>, name: &str, arguments: &mut T) -> Result<(), PjrtError> {
        let function =
            function.ok_or_else(|| PjrtError::local(format!("the plugin's profiler has no function `{name}`")))?;
        // SAFETY: the caller passes this function's arguments, alive during the call.
        let error = unsafe { function(arguments) };
        self.check(error)
    }

    /// Reads an error and frees it; null is success.
    fn check(&self, error: *mut RawProfilerError) -> Result<(), PjrtError> {
        if error.is_null() {
            return Ok(());
        }
        let private = self.api.private;
        let mut code = ErrorCodeArgs { struct_size: SIZE_TO_CODE, private, error, code: PjrtError::LOCAL };
        let mut message = ErrorMessageArgs {
            struct_size: size_of::<ErrorMessageArgs>(),
            private,
            error,
            message: ptr::null(),
            message_size: 0,
        };
        // SAFETY: `error` and its message are alive until `destroy`, and the message is copied before that. An error
        // from `get_code` is ignored.
        unsafe {
            if let Some(get_code) = self.api.error_get_code {
                let _ = get_code(&mut code);
            }
            if let Some(get_message) = self.api.error_message {
                get_message(&mut message);
            }
            let text = text_of(message.message, message.message_size);
            if let Some(destroy) = self.api.error_destroy {
                destroy(&mut ErrorArgs { struct_size: size_of::<ErrorArgs>(), private, error });
            }
            Err(PjrtError { code: code.code, message: text })
        }
    }
}

/// C counts up to the end of the last field, without the padding after it.
const SIZE_TO_CODE: usize = std::mem::offset_of!(ErrorCodeArgs, code) + size_of::<c_int>();

/// A recording in progress; if dropped unfinished, it ends without a profile.
pub(crate) struct ProfilerSession<'p> {
    profiler: &'p Profiler,
    raw: *mut RawProfiler,
    running: bool,
}

impl ProfilerSession<'_> {
    fn call(&self, function: Option<ProfilerFn<SessionArgs>>, name: &str) -> Result<(), PjrtError> {
        let mut arguments = SessionArgs { struct_size: size_of::<SessionArgs>(), profiler: self.raw };
        // SAFETY: these are the arguments of a session's functions, and the session is alive until it is dropped.
        unsafe { self.profiler.call(function, name, &mut arguments) }
    }

    /// Stops, and returns the serialized XSpace.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, PjrtError> {
        self.running = false;
        self.call(self.profiler.api.stop, "stop")?;
        let collect = self.profiler.api.collect_data;
        let mut arguments = CollectArgs {
            struct_size: size_of::<CollectArgs>(),
            profiler: self.raw,
            buffer: ptr::null_mut(),
            buffer_size: 0,
        };
        // SAFETY: the session is alive. The buffer is null, so the plugin only gives the size, or a buffer of its own.
        unsafe { self.profiler.call(collect, "collect_data", &mut arguments) }?;
        let size = arguments.buffer_size;
        if size > MAX_PROFILE_BYTES {
            return Err(PjrtError::local(format!("the plugin's profiler claims a profile of {size} bytes")));
        }
        if !arguments.buffer.is_null() {
            // XLA's plugins have put the profile here, and a second call would give another one or none
            // SAFETY: the plugin gave a buffer of `size` bytes, which lives until the session is destroyed.
            let bytes = unsafe { std::slice::from_raw_parts(arguments.buffer, size) };
            return Ok(message_of(bytes).to_vec());
        }
        let mut bytes = vec![0_u8; size];
        arguments.buffer = bytes.as_mut_ptr();
        // SAFETY: the session is alive, and the buffer has the `size` bytes that the plugin asked for.
        unsafe { self.profiler.call(collect, "collect_data", &mut arguments) }?;
        if arguments.buffer_size != size {
            let now = arguments.buffer_size;
            return Err(PjrtError::local(format!("the plugin's profile had {size} bytes, then {now}")));
        }
        Ok(message_of(&bytes).to_vec())
    }
}

/// The message without the NUL that many plugins count: it is removed if the last byte would start a field 0, which no
/// message has. A message itself may end in a zero byte.
fn message_of(bytes: &[u8]) -> &[u8] {
    let Some((&0, message)) = bytes.split_last() else { return bytes };
    let mut fields = WireCursor::new(bytes);
    while fields.position() < message.len() {
        if !matches!(fields.next(), Some(Ok(_))) {
            return bytes;
        }
    }
    if fields.position() == message.len() { message } else { bytes }
}

impl Drop for ProfilerSession<'_> {
    fn drop(&mut self) {
        // an error here would only hide the one that led here
        if self.running {
            let _ = self.call(self.profiler.api.stop, "stop");
        }
        let _ = self.call(self.profiler.api.destroy, "destroy");
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Sizes and offsets that a C compiler computes from the header named in the module's documentation.
    #[test]
    fn structs_are_as_in_c() {
        assert_eq!((size_of::<ExtensionBase>(), offset_of!(ExtensionBase, next)), (24, 16));
        assert_eq!((size_of::<ProfilerExtension>(), offset_of!(ProfilerExtension, api)), (32, 24));
        assert_eq!((size_of::<ProfilerApi>(), offset_of!(ProfilerApi, create)), (80, 40));
        assert_eq!((offset_of!(ProfilerApi, error_get_code), offset_of!(ProfilerApi, collect_data)), (32, 72));
        assert_eq!((size_of::<ErrorArgs>(), size_of::<ErrorMessageArgs>(), SIZE_TO_CODE), (24, 40, 28));
        assert_eq!((size_of::<CreateArgs>(), size_of::<SessionArgs>(), size_of::<CollectArgs>()), (32, 16, 32));
    }

    #[test]
    fn one_nul_behind_the_message_is_none_of_it() {
        // field 4 is "h", then field 1 is a message that ends in a zero
        for message in [&[0x22, 1, b'h'][..], &[0x0a, 2, 0x18, 0], &[]] {
            assert_eq!(message_of(message), message);
            assert_eq!(message_of(&[message, &[0]].concat()), message);
            let two = [message, &[0, 0]].concat();
            assert_eq!(message_of(&two), two, "what is wrong is left to the decoder");
        }
    }

    #[test]
    fn options_say_what_they_should() {
        assert_eq!(PROFILE_OPTIONS, [0x28, 0x01, 0x18, 0x01]);
    }
}
