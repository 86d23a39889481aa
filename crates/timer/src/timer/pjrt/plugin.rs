//! A loaded PJRT plugin and its client: owners of what the C API hands out, each call checked.
//!
//! Runs in worker processes only: a plugin may abort the process that loads it.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::ffi::{
    Api, BufferArgs, ClientArgs, ClientCreateArgs, ClientDevicesArgs, ClientTextArgs, DescriptionAttributesArgs,
    DescriptionIdArgs, DescriptionTextArgs, DeviceDescriptionArgs, DeviceMemoryArgs, EmptyArgs, ErrorArgs,
    ErrorCodeArgs, ErrorMessageArgs, EventArgs, EventReadyArgs, Fn, LocalIdArgs, NamedValue, NamedValueUnion,
    RawBuffer, RawClient, RawDescription, RawDevice, RawError, RawEvent, named_value_kind,
};
use crate::timer::protocol::DeviceMemory;

/// Major version of the API whose layouts `ffi` holds.
pub(super) const API_MAJOR: c_int = 0;

/// Why a call to a plugin failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct PjrtError {
    /// `PJRT_Error_Code`, or [`PjrtError::LOCAL`] if the error does not come from a plugin.
    pub(super) code: c_int,
    /// The plugin's message.
    pub(super) message: String,
}

impl PjrtError {
    /// The error does not come from a plugin.
    pub(super) const LOCAL: c_int = -1;
    const UNIMPLEMENTED: c_int = 12;

    pub(super) fn local(message: impl Into<String>) -> Self {
        Self { code: Self::LOCAL, message: message.into() }
    }

    fn absent(function: &str, version: &str) -> Self {
        Self {
            code: Self::UNIMPLEMENTED,
            message: format!(
                "plugin of an older API: its version {version} has no function `{function}`; give a newer plugin"
            ),
        }
    }

    /// Whether the plugin lacks the function, as opposed to having failed in it.
    pub(super) fn is_unimplemented(&self) -> bool {
        self.code == Self::UNIMPLEMENTED
    }
}

/// Calls a function of the table by its field's name; the arguments must be of that function's type.
macro_rules! call {
    ($plugin:expr, $function:ident, $arguments:expr) => {
        $plugin.call($plugin.api.$function, stringify!($function), $arguments)
    };
}
pub(super) use call;

/// A plugin's function table. The library is never unloaded because plugins leave threads behind.
pub(super) struct Plugin {
    pub(super) api: Api,
    version: String,
}

impl Plugin {
    /// Loads the library, checks the API's version and initialises the plugin.
    pub(super) fn load(path: &Path) -> Result<Rc<Self>, PjrtError> {
        // the loader would search the system's folders for a bare name
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // SAFETY: the library's constructors run; this process exists to risk that.
        let library = unsafe { libloading::Library::new(&file) }.map_err(|error| {
            // the source holds the loader's message; the outer error only names the library
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            PjrtError::local(format!(
                "{}: cannot be loaded: {}; give a PJRT plugin's shared library, such as that of `pip install xla-cpu-pjrt`",
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
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Calls `function` and converts the error that it returns.
    ///
    /// # Safety
    /// Every pointer in `arguments` is null if the API allows it, or points to what the API says for as long as
    /// the API says.
    pub(super) unsafe fn call<T>(
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

    /// Polls an event until it is ready or the time is up, because a sleeping thread wakes late. Not every plugin supports
    /// polling.
    pub(super) fn watch_event(&self, event: *mut RawEvent, most: Duration) {
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
    pub(super) fn await_event(&self, event: *mut RawEvent) -> Result<(), PjrtError> {
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
pub(super) unsafe fn text_of(text: *const c_char, size: usize) -> String {
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
pub(super) unsafe fn taken(
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

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An option of `PJRT_Client_Create`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OptionValue {
    Text(String),
    Int(i64),
    Bool(bool),
    Float(f32),
}

/// A client: a plugin's devices, opened.
pub(super) struct Client {
    pub(super) plugin: Rc<Plugin>,
    pub(super) raw: *mut RawClient,
    devices: Vec<*mut RawDevice>,
}

/// A plugin's description of one device.
pub(super) struct DeviceDescription {
    pub(super) id: i64,
    pub(super) kind: String,
    pub(super) attributes: Vec<(String, String)>,
}

impl Client {
    pub(super) fn create(plugin: &Rc<Plugin>, options: &[(String, OptionValue)]) -> Result<Self, PjrtError> {
        let values: Vec<NamedValue> = options.iter().map(|(name, value)| named_value(name, value)).collect();
        let mut arguments = ClientCreateArgs::new();
        arguments.create_options = values.as_ptr();
        arguments.num_options = values.len();
        // SAFETY: the options and the texts that they point to outlive the call.
        unsafe { call!(plugin, client_create, &mut arguments) }?;
        let mut client = Self { plugin: Rc::clone(plugin), raw: arguments.client, devices: Vec::new() };
        let mut devices = ClientDevicesArgs::new();
        devices.client = client.raw;
        // SAFETY: the client is alive; the list belongs to it and is copied at once.
        unsafe {
            call!(plugin, client_addressable_devices, &mut devices)?;
            if !devices.devices.is_null() {
                client.devices = std::slice::from_raw_parts(devices.devices, devices.num_devices).to_vec();
            }
        }
        Ok(client)
    }

    pub(super) fn platform_name(&self) -> Result<String, PjrtError> {
        let mut arguments = ClientTextArgs::new();
        arguments.client = self.raw;
        // SAFETY: the client is alive and owns the text, which is copied.
        unsafe {
            call!(self.plugin, client_platform_name, &mut arguments)?;
            Ok(text_of(arguments.text, arguments.text_size))
        }
    }

    pub(super) fn platform_version(&self) -> Result<String, PjrtError> {
        let mut arguments = ClientTextArgs::new();
        arguments.client = self.raw;
        // SAFETY: the client is alive and owns the text, which is copied.
        unsafe {
            call!(self.plugin, client_platform_version, &mut arguments)?;
            Ok(text_of(arguments.text, arguments.text_size))
        }
    }

    pub(super) fn device_count(&self) -> usize {
        self.devices.len()
    }

    pub(super) fn device(&self, index: usize) -> Result<*mut RawDevice, PjrtError> {
        self.devices.get(index).copied().ok_or_else(|| {
            PjrtError::local(format!("there is no device {index}: the plugin shows {}", self.devices.len()))
        })
    }

    /// The local hardware id of a device: its driver's number for it in this process.
    pub(super) fn local_id(&self, index: usize) -> Result<usize, PjrtError> {
        let mut arguments = LocalIdArgs::new();
        arguments.device = self.device(index)?;
        // SAFETY: the device lives as long as the client.
        unsafe { call!(self.plugin, device_local_hardware_id, &mut arguments) }?;
        usize::try_from(arguments.id).map_err(|_| PjrtError::local(format!("device {index} has no number of its own")))
    }

    /// Used and total memory of a device. Some plugins do not report it, among them those of CPUs.
    pub(super) fn memory(&self, index: usize) -> Result<DeviceMemory, PjrtError> {
        let mut arguments = DeviceMemoryArgs::new();
        arguments.device = self.device(index)?;
        // SAFETY: the device lives as long as the client; numbers are written, no pointers.
        unsafe { call!(self.plugin, device_memory_stats, &mut arguments) }?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        match arguments.has_bytes_limit {
            0 => Err(PjrtError::local("the plugin does not tell how much memory its device has")),
            _ => Ok(DeviceMemory::new(bytes(arguments.bytes_limit), bytes(arguments.bytes_in_use))),
        }
    }

    pub(super) fn describe(&self, index: usize) -> Result<DeviceDescription, PjrtError> {
        let plugin = &self.plugin;
        let mut device = DeviceDescriptionArgs::new();
        device.device = self.device(index)?;
        // SAFETY: device and description live as long as the client.
        unsafe {
            call!(plugin, device_get_description, &mut device)?;
            DeviceDescription::read(plugin, device.description)
        }
    }
}

impl DeviceDescription {
    /// Reads a plugin's description of a device, present or not.
    ///
    /// # Safety
    /// The description is alive.
    pub(super) unsafe fn read(plugin: &Plugin, description: *mut RawDescription) -> Result<Self, PjrtError> {
        let mut id = DescriptionIdArgs::new();
        let mut kind = DescriptionTextArgs::new();
        let mut attributes = DescriptionAttributesArgs::new();
        id.description = description;
        kind.description = description;
        attributes.description = description;
        // SAFETY: the caller's promise; what the description owns is copied.
        unsafe {
            call!(plugin, device_description_id, &mut id)?;
            call!(plugin, device_description_kind, &mut kind)?;
            let mut pairs = Vec::new();
            if call!(plugin, device_description_attributes, &mut attributes).is_ok() && !attributes.attributes.is_null()
            {
                for value in std::slice::from_raw_parts(attributes.attributes, attributes.num_attributes) {
                    let text = text_of_value(value);
                    pairs.extend(text.map(|text| (text_of(value.name, value.name_size), text)));
                }
            }
            Ok(Self { id: i64::from(id.id), kind: text_of(kind.text, kind.text_size), attributes: pairs })
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut arguments = ClientArgs::new();
        arguments.client = self.raw;
        // SAFETY: everything that lives in the client holds an `Rc` of it, thus is gone.
        let _ = unsafe { call!(self.plugin, client_destroy, &mut arguments) };
    }
}

/// An attribute's value as text; `None` if its kind is unknown.
///
/// # Safety
/// The arm that `kind` names was written, and a text is as long as `value_size` says.
unsafe fn text_of_value(value: &NamedValue) -> Option<String> {
    // SAFETY: each arm is read where the kind says that it was written.
    unsafe {
        match value.kind {
            named_value_kind::STRING => Some(text_of(value.value.string, value.value_size)),
            named_value_kind::INT64 => Some(value.value.int64.to_string()),
            named_value_kind::FLOAT => Some(value.value.float.to_string()),
            named_value_kind::BOOL => Some((value.value.boolean != 0).to_string()),
            _ => None,
        }
    }
}

/// A numeric attribute's name and value; `None` if it is not a number.
///
/// # Safety
/// As for [`text_of_value`], and the name is as long as `name_size` says.
pub(super) unsafe fn number_of_value(value: &NamedValue) -> Option<(String, f64)> {
    // SAFETY: each arm is read where the kind says that it was written.
    unsafe {
        let number = match value.kind {
            named_value_kind::INT64 => value.value.int64 as f64,
            named_value_kind::FLOAT => f64::from(value.value.float),
            _ => return None,
        };
        Some((text_of(value.name, value.name_size), number))
    }
}

pub(super) fn named_value(name: &str, value: &OptionValue) -> NamedValue {
    let mut named = NamedValue::new();
    named.name = name.as_ptr().cast();
    named.name_size = name.len();
    named.value_size = 1;
    match value {
        OptionValue::Text(text) => {
            named.kind = named_value_kind::STRING;
            named.value = NamedValueUnion { string: text.as_ptr().cast() };
            named.value_size = text.len();
        }
        OptionValue::Int(int64) => {
            named.kind = named_value_kind::INT64;
            named.value = NamedValueUnion { int64: *int64 };
        }
        OptionValue::Float(float) => {
            named.kind = named_value_kind::FLOAT;
            named.value = NamedValueUnion { float: *float };
        }
        OptionValue::Bool(boolean) => {
            named.kind = named_value_kind::BOOL;
            named.value = NamedValueUnion { boolean: u8::from(*boolean) };
        }
    }
    named
}

/// A device array.
pub(super) struct Buffer {
    pub(super) client: Rc<Client>,
    pub(super) raw: *mut RawBuffer,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut arguments = BufferArgs::new();
        arguments.buffer = self.raw;
        // SAFETY: the buffer was handed to this owner alone.
        let _ = unsafe { call!(self.client.plugin, buffer_destroy, &mut arguments) };
    }
}

/// An untyped pointer to a slice's first element.
pub(super) fn data_of(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_byte_a_plugin_writes_is_a_boolean() {
        for (byte, expected) in [(0, "false"), (1, "true"), (2, "true"), (255, "true")] {
            let mut value = named_value("coherent", &OptionValue::Bool(false));
            value.value = NamedValueUnion { boolean: byte };
            // SAFETY: the kind is that of the arm.
            assert_eq!(unsafe { text_of_value(&value) }.as_deref(), Some(expected), "{byte}");
        }
        let value = named_value("coherent", &OptionValue::Bool(true));
        // SAFETY: the kind is that of the arm.
        assert_eq!(unsafe { text_of_value(&value) }.as_deref(), Some("true"));
    }
}
