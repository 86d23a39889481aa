//! A loaded PJRT plugin: its function table, each call checked.
//!
//! Runs in worker processes only: a plugin may abort the process that loads it.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::error::{PjrtError, one_line};
use super::ffi::{
    Api, EmptyArgs, ErrorArgs, ErrorCodeArgs, ErrorMessageArgs, EventArgs, EventReadyArgs, Fn, RawError, RawEvent,
};

/// Major version of the API whose layouts `ffi` holds.
pub(crate) const API_MAJOR: c_int = 0;

/// Calls a function of the table by its field's name; the arguments must be of that function's type.
macro_rules! call {
    ($plugin:expr, $function:ident, $arguments:expr) => {
        $plugin.call($plugin.api.$function, stringify!($function), $arguments)
    };
}
pub(crate) use call;

/// A plugin's function table. The library is never unloaded because plugins leave threads behind.
pub(crate) struct Plugin {
    pub(crate) api: Api,
    version: String,
}

impl Plugin {
    /// Loads the library, checks the API's version and initialises the plugin.
    pub(crate) fn load(path: &Path) -> Result<Rc<Self>, PjrtError> {
        // the loader would search the system's folders for a bare name
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // SAFETY: the library's constructors run; this process exists to risk that.
        let library = unsafe { libloading::Library::new(&file) }.map_err(|error| {
            // the source holds the loader's message; the outer error only names the library
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            PjrtError::local(format!(
                "{}: cannot be loaded: {}; give a PJRT plugin's shared library, such as that of `pip install \
                 xla-cpu-pjrt`",
                path.display(),
                one_line(&reason)
            ))
        })?;
        let library = Box::leak(Box::new(library));
        type GetApi = unsafe extern "C" fn() -> *const Api;
        // SAFETY: a library that exports this name promises this type.
        let get_api = unsafe { library.get::<GetApi>(b"GetPjrtApi\0") }.map_err(|_| {
            PjrtError::local(format!("{}: not a PJRT plugin: it exports no `GetPjrtApi`", path.display()))
        })?;
        // SAFETY: as above; the function takes nothing.
        let table = unsafe { get_api() };
        if table.is_null() {
            return Err(PjrtError::local(format!("{}: `GetPjrtApi` gave no function table", path.display())));
        }
        // SAFETY: every version of the table starts with its size, an extension pointer and the version.
        let (struct_size, major, minor) =
            unsafe { ((*table).struct_size, (*table).version.major, (*table).version.minor) };
        let version = format!("{major}.{minor}");
        if major != API_MAJOR {
            let age = if major < API_MAJOR { "an older" } else { "a newer" };
            return Err(PjrtError::local(format!(
                "{}: plugin of {age} API: {version}, while {API_MAJOR}.x is needed",
                path.display()
            )));
        }
        if struct_size < std::mem::offset_of!(Api, error_destroy) {
            return Err(PjrtError::local(format!(
                "{}: plugin of an older API: its function table of {struct_size} bytes is empty",
                path.display()
            )));
        }
        let mut api = std::mem::MaybeUninit::<Api>::zeroed();
        // SAFETY: the table is `struct_size` bytes long and no more than our own are taken; a shorter table leaves
        // the functions behind its end `None`, which zero bytes mean for every field.
        let api = unsafe {
            ptr::copy_nonoverlapping(
                table.cast::<u8>(),
                api.as_mut_ptr().cast::<u8>(),
                struct_size.min(size_of::<Api>()),
            );
            api.assume_init()
        };
        let plugin = Rc::new(Self { api, version });
        // SAFETY: the argument struct is the one that this function takes, here and at each `call!` below.
        match unsafe { call!(plugin, plugin_initialize, &mut EmptyArgs::new()) } {
            Err(error) if !error.is_unimplemented() => Err(error),
            _ => Ok(plugin),
        }
    }

    /// The API's version, `major.minor`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Calls `function` and converts the error that it returns.
    ///
    /// # Safety
    /// Every pointer in `arguments` is null if the API allows it, or points to what the API says for as long as
    /// the API says.
    pub(crate) unsafe fn call<T>(
        &self,
        function: Option<Fn<T>>,
        name: &str,
        arguments: &mut T,
    ) -> Result<(), PjrtError> {
        let function = function.ok_or_else(|| PjrtError::absent(name, &self.version))?;
        // SAFETY: the caller's promise.
        let error = unsafe { function(arguments) };
        self.check(error)
    }

    /// Reads an error and frees it; null is success.
    fn check(&self, error: *mut RawError) -> Result<(), PjrtError> {
        if error.is_null() {
            return Ok(());
        }
        let mut code = ErrorCodeArgs::new();
        code.error = error;
        let mut message = ErrorMessageArgs::new();
        message.error = error;
        // SAFETY: `error` is alive until destroyed below; none of these can fail in a way that matters here.
        unsafe {
            if let Some(get_code) = self.api.error_get_code {
                let _ = get_code(&mut code);
            }
            if let Some(get_message) = self.api.error_message {
                get_message(&mut message);
            }
            let text = text_of(message.message, message.message_size);
            if let Some(destroy) = self.api.error_destroy {
                let mut destroyed = ErrorArgs::new();
                destroyed.error = error;
                destroy(&mut destroyed);
            }
            Err(PjrtError { code: code.code, message: text })
        }
    }

    /// Polls an event until it is ready or the time is up, because a sleeping thread wakes late. Not every plugin
    /// supports polling.
    pub(crate) fn watch_event(&self, event: *mut RawEvent, most: Duration) {
        if event.is_null() || self.api.event_is_ready.is_none() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < most {
            let mut arguments = EventReadyArgs::new();
            arguments.event = event;
            // SAFETY: the event is alive: who awaits it afterwards destroys it.
            if unsafe { call!(self, event_is_ready, &mut arguments) }.is_err() || arguments.is_ready != 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits for an event and frees it; null is an event that is already complete.
    pub(crate) fn await_event(&self, event: *mut RawEvent) -> Result<(), PjrtError> {
        if event.is_null() {
            return Ok(());
        }
        let mut arguments = EventArgs::new();
        arguments.event = event;
        // SAFETY: the event was handed to the caller and is destroyed once, here.
        unsafe {
            let result = call!(self, event_await, &mut arguments);
            let _ = call!(self, event_destroy, &mut arguments);
            result
        }
    }
}

/// Copies a text owned by the plugin.
///
/// # Safety
/// `text` is null or points to `size` readable bytes.
pub(crate) unsafe fn text_of(text: *const c_char, size: usize) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Copies what a plugin serialized, and gives it back to the plugin.
///
/// # Safety
///
/// `bytes` must be null or point to `size` bytes, which live until `deleter` is called with `owner`, at most once.
pub(crate) unsafe fn taken(
    bytes: *const c_char,
    size: usize,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Vec<u8> {
    // SAFETY: the caller promises it; the bytes are copied before their owner is deleted.
    unsafe {
        let copy = match bytes.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(bytes.cast::<u8>(), size).to_vec(),
        };
        if let Some(delete) = deleter {
            delete(owner);
        }
        copy
    }
}
