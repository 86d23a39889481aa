//! A plugin's client: its devices, opened.

use std::rc::Rc;

use super::error::PjrtError;
use super::ffi::{
    ClientArgs, ClientCreateArgs, ClientDevicesArgs, ClientTextArgs, DescriptionAttributesArgs, DescriptionIdArgs,
    DescriptionTextArgs, DeviceDescriptionArgs, DeviceMemoryArgs, Fn, LocalIdArgs, NamedValue, RawClient,
    RawDescription, RawDevice,
};
use super::library::{Plugin, call, text_of};
use super::values::{OptionValue, named_value, text_of_value};
use crate::timer::protocol::DeviceMemory;

/// A client: a plugin's devices, opened.
pub(crate) struct Client {
    pub(crate) plugin: Rc<Plugin>,
    pub(crate) raw: *mut RawClient,
    devices: Vec<*mut RawDevice>,
}

/// A plugin's description of one device.
pub(crate) struct DeviceDescription {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn create(plugin: &Rc<Plugin>, options: &[(String, OptionValue)]) -> Result<Self, PjrtError> {
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

    pub(crate) fn platform_name(&self) -> Result<String, PjrtError> {
        self.text(self.plugin.api.client_platform_name, "client_platform_name")
    }

    pub(crate) fn platform_version(&self) -> Result<String, PjrtError> {
        self.text(self.plugin.api.client_platform_version, "client_platform_version")
    }

    fn text(&self, function: Option<Fn<ClientTextArgs>>, name: &str) -> Result<String, PjrtError> {
        let mut arguments = ClientTextArgs::new();
        arguments.client = self.raw;
        // SAFETY: the client is alive and owns the text, which is copied.
        unsafe {
            self.plugin.call(function, name, &mut arguments)?;
            Ok(text_of(arguments.text, arguments.text_size))
        }
    }

    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    pub(crate) fn device(&self, index: usize) -> Result<*mut RawDevice, PjrtError> {
        self.devices.get(index).copied().ok_or_else(|| {
            PjrtError::local(format!("there is no device {index}: the plugin shows {}", self.devices.len()))
        })
    }

    /// The local hardware id of a device: its driver's number for it in this process.
    pub(crate) fn local_id(&self, index: usize) -> Result<usize, PjrtError> {
        let mut arguments = LocalIdArgs::new();
        arguments.device = self.device(index)?;
        // SAFETY: the device lives as long as the client.
        unsafe { call!(self.plugin, device_local_hardware_id, &mut arguments) }?;
        usize::try_from(arguments.id).map_err(|_| PjrtError::local(format!("device {index} has no number of its own")))
    }

    /// Used and total memory of a device. Some plugins do not report it, among them those of CPUs.
    pub(crate) fn memory(&self, index: usize) -> Result<DeviceMemory, PjrtError> {
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

    pub(crate) fn describe(&self, index: usize) -> Result<DeviceDescription, PjrtError> {
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
    pub(crate) unsafe fn read(plugin: &Plugin, description: *mut RawDescription) -> Result<Self, PjrtError> {
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
