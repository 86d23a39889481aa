//! A device that need not be present: the plugin's description of it, and programs compiled for it.

use std::ptr;
use std::rc::Rc;

use crate::timer::pjrt::compile::PlainExecutable;
use crate::timer::pjrt::plugin::ffi::{
    ClientTopologyArgs, Fn, NamedValue, ProgramStruct, RawTopology, TopologyArgs, TopologyCompileArgs,
    TopologyCreateArgs, TopologyDeserializeArgs, TopologyDevicesArgs, TopologySerializeArgs, TopologyTextArgs,
};
use crate::timer::pjrt::plugin::{
    Client, DeviceDescription, OptionValue, PjrtError, Plugin, call, named_value, taken, text_of,
};

/// The description of a client's devices, with which a process without a client compiles for them
/// ([`Topology::deserialize`]).
pub(crate) fn topology_of(client: &Client) -> Result<Vec<u8>, PjrtError> {
    let plugin = &client.plugin;
    if plugin.api.topology_deserialize.is_none() {
        return Err(PjrtError::local("the plugin reads no description of devices"));
    }
    let mut of_client = ClientTopologyArgs::new();
    of_client.client = client.raw;
    // SAFETY: the client is alive.
    unsafe { call!(plugin, client_topology, &mut of_client) }?;
    if of_client.topology.is_null() {
        return Err(PjrtError::local("the plugin describes no devices"));
    }
    let mut arguments = TopologySerializeArgs::new();
    arguments.topology = of_client.topology;
    // SAFETY: the topology belongs to the client, which is alive; the plugin gives the bytes with their owner.
    unsafe {
        call!(plugin, topology_serialize, &mut arguments)?;
        Ok(taken(arguments.bytes, arguments.bytes_size, arguments.owner, arguments.deleter))
    }
}

/// A topology: devices as a plugin describes them, without a client.
pub(crate) struct Topology {
    pub(crate) plugin: Rc<Plugin>,
    raw: *mut RawTopology,
}

impl Topology {
    /// A topology, by name or by options. Plugins accept one or the other.
    pub(crate) fn create(
        plugin: &Rc<Plugin>,
        name: &str,
        options: &[(String, OptionValue)],
    ) -> Result<Self, PjrtError> {
        let values: Vec<NamedValue> = options.iter().map(|(name, value)| named_value(name, value)).collect();
        let mut arguments = TopologyCreateArgs::new();
        arguments.topology_name = name.as_ptr().cast();
        arguments.topology_name_size = name.len();
        arguments.create_options = values.as_ptr();
        arguments.num_options = values.len();
        // SAFETY: the name, the options and the texts that they point to outlive the call.
        unsafe { call!(plugin, topology_create, &mut arguments) }?;
        if arguments.topology.is_null() {
            return Err(PjrtError::local("the plugin gave no topology"));
        }
        Ok(Self { plugin: Rc::clone(plugin), raw: arguments.topology })
    }

    /// A topology from the description that another process of the same plugin made.
    pub(crate) fn deserialize(plugin: &Rc<Plugin>, description: &[u8]) -> Result<Self, PjrtError> {
        let mut arguments = TopologyDeserializeArgs::new();
        arguments.bytes = description.as_ptr().cast();
        arguments.bytes_size = description.len();
        // SAFETY: the description outlives the call.
        unsafe { call!(plugin, topology_deserialize, &mut arguments) }?;
        if arguments.topology.is_null() {
            return Err(PjrtError::local("the plugin gave no topology"));
        }
        Ok(Self { plugin: Rc::clone(plugin), raw: arguments.topology })
    }

    pub(crate) fn platform_name(&self) -> Result<String, PjrtError> {
        self.text(self.plugin.api.topology_platform_name, "topology_platform_name")
    }

    pub(crate) fn platform_version(&self) -> Result<String, PjrtError> {
        self.text(self.plugin.api.topology_platform_version, "topology_platform_version")
    }

    fn text(&self, function: Option<Fn<TopologyTextArgs>>, name: &str) -> Result<String, PjrtError> {
        let mut arguments = TopologyTextArgs::new();
        arguments.topology = self.raw;
        // SAFETY: the topology is alive and owns the text, which is copied.
        unsafe {
            self.plugin.call(function, name, &mut arguments)?;
            Ok(text_of(arguments.text, arguments.text_size))
        }
    }

    /// Its devices.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceDescription>, PjrtError> {
        let mut arguments = TopologyDevicesArgs::new();
        arguments.topology = self.raw;
        // SAFETY: the topology is alive; the list and the descriptions live as long as it does.
        unsafe {
            call!(self.plugin, topology_device_descriptions, &mut arguments)?;
            if arguments.descriptions.is_null() {
                return Ok(Vec::new());
            }
            let descriptions = std::slice::from_raw_parts(arguments.descriptions, arguments.num_descriptions);
            descriptions.iter().map(|&description| DeviceDescription::read(&self.plugin, description)).collect()
        }
    }

    /// Compiles a program for its devices; `options` is a serialized `CompileOptionsProto`.
    pub(crate) fn compile(&self, code: &[u8], format: &str, options: &[u8]) -> Result<PlainExecutable, PjrtError> {
        let program = ProgramStruct::of(code, format);
        let mut arguments = TopologyCompileArgs::new();
        arguments.topology = self.raw;
        arguments.program = &raw const program;
        arguments.compile_options = options.as_ptr().cast();
        arguments.compile_options_size = options.len();
        arguments.client = ptr::null_mut();
        // SAFETY: topology, program and options outlive the call; the plugin does not write to the code.
        unsafe { call!(self.plugin, topology_compile, &mut arguments) }?;
        Ok(PlainExecutable::adopt(&self.plugin, arguments.executable))
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let mut arguments = TopologyArgs::new();
        arguments.topology = self.raw;
        // SAFETY: it belongs to this owner alone, and nothing that it handed out is used any more.
        let _ = unsafe { call!(self.plugin, topology_destroy, &mut arguments) };
    }
}
