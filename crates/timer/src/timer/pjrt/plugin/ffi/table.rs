//! The function table of the PJRT C API (openxla/xla, `xla/pjrt/c/pjrt_c_api.h`).

use std::ffi::c_void;

use super::arguments::*;

/// A function of the API: takes its argument struct and returns null or an error.
pub(crate) type Fn<T> = unsafe extern "C" fn(*mut T) -> *mut RawError;
/// A function of the API that cannot fail.
pub(crate) type VoidFn<T> = unsafe extern "C" fn(*mut T);
type Unused = unsafe extern "C" fn();

/// The API's function table up to the last function in use; a plugin's table may be shorter or longer.
#[repr(C)]
pub(crate) struct Api {
    pub(crate) struct_size: usize,
    pub(crate) extension_start: *mut c_void,
    pub(crate) version: ApiVersion,
    pub(crate) error_destroy: Option<VoidFn<ErrorArgs>>,
    pub(crate) error_message: Option<VoidFn<ErrorMessageArgs>>,
    pub(crate) error_get_code: Option<Fn<ErrorCodeArgs>>,
    pub(crate) plugin_initialize: Option<Fn<EmptyArgs>>,
    _unused_0: [Option<Unused>; 1],
    pub(crate) event_destroy: Option<Fn<EventArgs>>,
    pub(crate) event_is_ready: Option<Fn<EventReadyArgs>>,
    _unused_1: [Option<Unused>; 1],
    pub(crate) event_await: Option<Fn<EventArgs>>,
    _unused_2: [Option<Unused>; 1],
    pub(crate) client_create: Option<Fn<ClientCreateArgs>>,
    pub(crate) client_destroy: Option<Fn<ClientArgs>>,
    pub(crate) client_platform_name: Option<Fn<ClientTextArgs>>,
    _unused_3: [Option<Unused>; 1],
    pub(crate) client_platform_version: Option<Fn<ClientTextArgs>>,
    _unused_4: [Option<Unused>; 1],
    pub(crate) client_addressable_devices: Option<Fn<ClientDevicesArgs>>,
    _unused_5: [Option<Unused>; 3],
    pub(crate) client_compile: Option<Fn<CompileArgs>>,
    _unused_6: [Option<Unused>; 1],
    pub(crate) client_buffer_from_host_buffer: Option<Fn<FromHostArgs>>,
    pub(crate) device_description_id: Option<Fn<DescriptionIdArgs>>,
    _unused_7: [Option<Unused>; 1],
    pub(crate) device_description_attributes: Option<Fn<DescriptionAttributesArgs>>,
    pub(crate) device_description_kind: Option<Fn<DescriptionTextArgs>>,
    _unused_8: [Option<Unused>; 2],
    pub(crate) device_get_description: Option<Fn<DeviceDescriptionArgs>>,
    _unused_9: [Option<Unused>; 1],
    pub(crate) device_local_hardware_id: Option<Fn<LocalIdArgs>>,
    _unused_20: [Option<Unused>; 2],
    pub(crate) device_memory_stats: Option<Fn<DeviceMemoryArgs>>,
    _unused_21: [Option<Unused>; 5],
    pub(crate) executable_destroy: Option<Fn<ExecutableArgs>>,
    _unused_10: [Option<Unused>; 2],
    pub(crate) executable_num_partitions: Option<Fn<ExecutableCountArgs>>,
    pub(crate) executable_num_outputs: Option<Fn<ExecutableCountArgs>>,
    _unused_11: [Option<Unused>; 1],
    pub(crate) executable_cost_analysis: Option<Fn<CostAnalysisArgs>>,
    _unused_19: [Option<Unused>; 1],
    pub(crate) executable_optimized_program: Option<Fn<OptimizedProgramArgs>>,
    pub(crate) executable_serialize: Option<Fn<SerializeArgs>>,
    pub(crate) loaded_executable_destroy: Option<Fn<LoadedExecutableArgs>>,
    pub(crate) loaded_executable_get_executable: Option<Fn<GetExecutableArgs>>,
    pub(crate) loaded_executable_addressable_devices: Option<Fn<ExecutableDevicesArgs>>,
    _unused_12: [Option<Unused>; 2],
    pub(crate) loaded_executable_execute: Option<Fn<ExecuteArgs>>,
    pub(crate) executable_deserialize_and_load: Option<Fn<DeserializeArgs>>,
    _unused_13: [Option<Unused>; 1],
    pub(crate) buffer_destroy: Option<Fn<BufferArgs>>,
    pub(crate) buffer_element_type: Option<Fn<BufferTypeArgs>>,
    pub(crate) buffer_dimensions: Option<Fn<BufferDimensionsArgs>>,
    _unused_14: [Option<Unused>; 2],
    pub(crate) buffer_get_memory_layout: Option<Fn<BufferLayoutArgs>>,
    _unused_22: [Option<Unused>; 6],
    pub(crate) buffer_to_host_buffer: Option<Fn<ToHostArgs>>,
    _unused_15: [Option<Unused>; 1],
    pub(crate) buffer_ready_event: Option<Fn<BufferEventArgs>>,
    _unused_16: [Option<Unused>; 9],
    pub(crate) topology_create: Option<Fn<TopologyCreateArgs>>,
    pub(crate) topology_destroy: Option<Fn<TopologyArgs>>,
    pub(crate) topology_platform_name: Option<Fn<TopologyTextArgs>>,
    pub(crate) topology_platform_version: Option<Fn<TopologyTextArgs>>,
    pub(crate) topology_device_descriptions: Option<Fn<TopologyDevicesArgs>>,
    pub(crate) topology_serialize: Option<Fn<TopologySerializeArgs>>,
    _unused_17: [Option<Unused>; 1],
    pub(crate) topology_compile: Option<Fn<TopologyCompileArgs>>,
    _unused_18: [Option<Unused>; 5],
    pub(crate) client_topology: Option<Fn<ClientTopologyArgs>>,
    pub(crate) executable_memory_stats: Option<Fn<MemoryStatsArgs>>,
    _unused_23: [Option<Unused>; 3],
    pub(crate) buffer_copy_raw_to_host: Option<Fn<CopyRawArgs>>,
    _unused_24: [Option<Unused>; 13],
    pub(crate) topology_deserialize: Option<Fn<TopologyDeserializeArgs>>,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Offsets that a C compiler computes from the same header.
    #[test]
    fn fields_are_where_c_has_them() {
        assert_eq!(size_of::<ApiVersion>(), 24);
        assert_eq!(offset_of!(ExecuteOptions, non_donatable_input_indices), 56);
        assert_eq!(offset_of!(ExecuteArgs, output_lists), 56);
        assert_eq!(offset_of!(MemoryLayout, kind), 72);
        assert_eq!(offset_of!(NamedValue, value_size), 48);
        assert_eq!(offset_of!(FromHostArgs, device), 80);
        assert_eq!(offset_of!(FromHostArgs, buffer), 112);
        assert_eq!(offset_of!(Api, error_destroy), 40);
        assert_eq!(offset_of!(Api, client_create), 120);
        assert_eq!(offset_of!(Api, client_addressable_devices), 168);
        assert_eq!(offset_of!(Api, client_compile), 200);
        assert_eq!(offset_of!(Api, client_buffer_from_host_buffer), 216);
        assert_eq!(offset_of!(Api, device_description_attributes), 240);
        assert_eq!(offset_of!(Api, device_get_description), 272);
        assert_eq!(offset_of!(Api, executable_num_partitions), 384);
        assert_eq!(offset_of!(Api, executable_num_outputs), 392);
        assert_eq!(offset_of!(Api, executable_optimized_program), 424);
        assert_eq!(offset_of!(Api, loaded_executable_addressable_devices), 456);
        assert_eq!(offset_of!(Api, loaded_executable_execute), 480);
        assert_eq!(offset_of!(Api, executable_deserialize_and_load), 488);
        assert_eq!(offset_of!(Api, buffer_destroy), 504);
        assert_eq!(offset_of!(Api, buffer_to_host_buffer), 600);
        assert_eq!(offset_of!(Api, buffer_ready_event), 616);
        // function n is at 40 + 8 n
        assert_eq!(offset_of!(Api, device_local_hardware_id), 40 + 8 * 31);
        assert_eq!(offset_of!(Api, executable_cost_analysis), 40 + 8 * 46);
        assert_eq!(offset_of!(Api, topology_create), 40 + 8 * 82);
        assert_eq!(offset_of!(Api, topology_device_descriptions), 40 + 8 * 86);
        assert_eq!(offset_of!(Api, topology_serialize), 40 + 8 * 87);
        assert_eq!(offset_of!(Api, topology_compile), 40 + 8 * 89);
        assert_eq!(offset_of!(Api, client_topology), 40 + 8 * 95);
        assert_eq!(offset_of!(Api, topology_deserialize), 40 + 8 * 114);
        assert_eq!(offset_of!(Api, executable_memory_stats), 40 + 8 * 96);
        assert_eq!(offset_of!(Api, device_memory_stats), 40 + 8 * 34);
        assert_eq!(offset_of!(Api, buffer_get_memory_layout), 40 + 8 * 63);
        assert_eq!(offset_of!(Api, buffer_copy_raw_to_host), 40 + 8 * 100);
        assert_eq!(offset_of!(DeviceMemoryArgs, bytes_limit), 80);
    }
}
