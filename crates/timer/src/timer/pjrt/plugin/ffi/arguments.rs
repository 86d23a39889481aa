//! The argument structs of the PJRT C API (openxla/xla, `xla/pjrt/c/pjrt_c_api.h`), as far as a timer needs them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// What a plugin writes for a C `bool`. A Rust `bool` with a byte other than 0 and 1 would be undefined behaviour:
/// anything but 0 is true.
pub(crate) type CBool = u8;

/// An opaque handle.
macro_rules! opaque {
    ($($name:ident),+) => { $( #[repr(C)] pub(crate) struct $name { _private: [u8; 0] } )+ };
}

opaque!(
    RawError,
    RawEvent,
    RawClient,
    RawDevice,
    RawDescription,
    RawExecutable,
    RawLoadedExecutable,
    RawBuffer,
    RawTopology
);

/// An argument struct; `new` sets its size and zeroes the rest: null pointers, no function, `false`.
macro_rules! arguments {
    ($($name:ident { $($field:ident: $type:ty = $zero:expr),* $(,)? })+) => { $(
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) struct_size: usize,
            pub(crate) extension_start: *mut c_void,
            $(pub(crate) $field: $type),*
        }

        impl $name {
            // structs that only the plugin fills in are never created here
            #[allow(dead_code)]
            pub(crate) fn new() -> Self {
                // C counts up to the end of the last field, without the padding after it
                #[allow(unused_mut, unused_assignments)]
                let mut struct_size = size_of::<usize>() + size_of::<*mut c_void>();
                $(struct_size = std::mem::offset_of!(Self, $field) + size_of::<$type>();)*
                Self { struct_size, extension_start: ptr::null_mut(), $($field: $zero),* }
            }
        }
    )+ };
}

arguments! {
    EmptyArgs {}
    ErrorArgs { error: *mut RawError = ptr::null_mut() }
    ErrorMessageArgs {
        error: *const RawError = ptr::null(),
        message: *const c_char = ptr::null(),
        message_size: usize = 0,
    }
    ErrorCodeArgs { error: *const RawError = ptr::null(), code: c_int = 0 }
    EventArgs { event: *mut RawEvent = ptr::null_mut() }
    EventReadyArgs { event: *mut RawEvent = ptr::null_mut(), is_ready: CBool = 0 }
    ClientCreateArgs {
        create_options: *const NamedValue = ptr::null(),
        num_options: usize = 0,
        kv_get_callback: *const c_void = ptr::null(),
        kv_get_user_arg: *mut c_void = ptr::null_mut(),
        kv_put_callback: *const c_void = ptr::null(),
        kv_put_user_arg: *mut c_void = ptr::null_mut(),
        client: *mut RawClient = ptr::null_mut(),
        kv_try_get_callback: *const c_void = ptr::null(),
        kv_try_get_user_arg: *mut c_void = ptr::null_mut(),
    }
    ClientArgs { client: *mut RawClient = ptr::null_mut() }
    ClientTextArgs {
        client: *mut RawClient = ptr::null_mut(),
        text: *const c_char = ptr::null(),
        text_size: usize = 0,
    }
    ClientDevicesArgs {
        client: *mut RawClient = ptr::null_mut(),
        devices: *const *mut RawDevice = ptr::null(),
        num_devices: usize = 0,
    }
    ProgramStruct {
        code: *mut c_char = ptr::null_mut(),
        code_size: usize = 0,
        format: *const c_char = ptr::null(),
        format_size: usize = 0,
    }
    CompileArgs {
        client: *mut RawClient = ptr::null_mut(),
        program: *const ProgramStruct = ptr::null(),
        compile_options: *const c_char = ptr::null(),
        compile_options_size: usize = 0,
        executable: *mut RawLoadedExecutable = ptr::null_mut(),
    }
    TopologyCreateArgs {
        topology_name: *const c_char = ptr::null(),
        topology_name_size: usize = 0,
        create_options: *const NamedValue = ptr::null(),
        num_options: usize = 0,
        topology: *mut RawTopology = ptr::null_mut(),
    }
    TopologyArgs { topology: *mut RawTopology = ptr::null_mut() }
    TopologyTextArgs {
        topology: *mut RawTopology = ptr::null_mut(),
        text: *const c_char = ptr::null(),
        text_size: usize = 0,
    }
    ClientTopologyArgs {
        client: *mut RawClient = ptr::null_mut(),
        topology: *mut RawTopology = ptr::null_mut(),
    }
    TopologySerializeArgs {
        topology: *mut RawTopology = ptr::null_mut(),
        bytes: *const c_char = ptr::null(),
        bytes_size: usize = 0,
        owner: *mut c_void = ptr::null_mut(),
        deleter: Option<unsafe extern "C" fn(*mut c_void)> = None,
    }
    TopologyDeserializeArgs {
        bytes: *const c_char = ptr::null(),
        bytes_size: usize = 0,
        topology: *mut RawTopology = ptr::null_mut(),
    }
    TopologyDevicesArgs {
        topology: *mut RawTopology = ptr::null_mut(),
        descriptions: *const *mut RawDescription = ptr::null(),
        num_descriptions: usize = 0,
    }
    TopologyCompileArgs {
        topology: *const RawTopology = ptr::null(),
        program: *const ProgramStruct = ptr::null(),
        compile_options: *const c_char = ptr::null(),
        compile_options_size: usize = 0,
        client: *mut RawClient = ptr::null_mut(),
        executable: *mut RawExecutable = ptr::null_mut(),
    }
    MemoryStatsArgs {
        executable: *mut RawExecutable = ptr::null_mut(),
        generated_code: i64 = 0,
        argument: i64 = 0,
        output: i64 = 0,
        alias: i64 = 0,
        temporary: i64 = 0,
        host_generated_code: i64 = 0,
        host_argument: i64 = 0,
        host_output: i64 = 0,
        host_alias: i64 = 0,
        host_temporary: i64 = 0,
        peak: i64 = 0,
    }
    FromHostArgs {
        client: *mut RawClient = ptr::null_mut(),
        data: *const c_void = ptr::null(),
        element_type: c_int = 0,
        dims: *const i64 = ptr::null(),
        num_dims: usize = 0,
        byte_strides: *const i64 = ptr::null(),
        num_byte_strides: usize = 0,
        host_buffer_semantics: c_int = 0,
        device: *mut RawDevice = ptr::null_mut(),
        memory: *mut c_void = ptr::null_mut(),
        device_layout: *mut MemoryLayout = ptr::null_mut(),
        done_with_host_buffer: *mut RawEvent = ptr::null_mut(),
        buffer: *mut RawBuffer = ptr::null_mut(),
    }
    DeviceDescriptionArgs {
        device: *mut RawDevice = ptr::null_mut(),
        description: *mut RawDescription = ptr::null_mut(),
    }
    LocalIdArgs { device: *mut RawDevice = ptr::null_mut(), id: c_int = 0 }
    DescriptionIdArgs { description: *mut RawDescription = ptr::null_mut(), id: c_int = 0 }
    DescriptionTextArgs {
        description: *mut RawDescription = ptr::null_mut(),
        text: *const c_char = ptr::null(),
        text_size: usize = 0,
    }
    DescriptionAttributesArgs {
        description: *mut RawDescription = ptr::null_mut(),
        num_attributes: usize = 0,
        attributes: *const NamedValue = ptr::null(),
    }
    ExecutableArgs { executable: *mut RawExecutable = ptr::null_mut() }
    ExecutableCountArgs { executable: *mut RawExecutable = ptr::null_mut(), count: usize = 0 }
    CostAnalysisArgs {
        executable: *mut RawExecutable = ptr::null_mut(),
        num_properties: usize = 0,
        properties: *const NamedValue = ptr::null(),
    }
    OptimizedProgramArgs {
        executable: *mut RawExecutable = ptr::null_mut(),
        program: *mut ProgramStruct = ptr::null_mut(),
    }
    SerializeArgs {
        executable: *const RawExecutable = ptr::null(),
        bytes: *const c_char = ptr::null(),
        bytes_size: usize = 0,
        owner: *mut c_void = ptr::null_mut(),
        deleter: Option<unsafe extern "C" fn(*mut c_void)> = None,
    }
    LoadedExecutableArgs { executable: *mut RawLoadedExecutable = ptr::null_mut() }
    ExecutableDevicesArgs {
        executable: *mut RawLoadedExecutable = ptr::null_mut(),
        devices: *const *mut RawDevice = ptr::null(),
        num_devices: usize = 0,
    }
    GetExecutableArgs {
        loaded_executable: *mut RawLoadedExecutable = ptr::null_mut(),
        executable: *mut RawExecutable = ptr::null_mut(),
    }
    DeserializeArgs {
        client: *mut RawClient = ptr::null_mut(),
        bytes: *const c_char = ptr::null(),
        bytes_size: usize = 0,
        loaded_executable: *mut RawLoadedExecutable = ptr::null_mut(),
        overridden_options: *const c_char = ptr::null(),
        overridden_options_size: usize = 0,
    }
    ExecuteOptions {
        send_callbacks: *mut c_void = ptr::null_mut(),
        recv_callbacks: *mut c_void = ptr::null_mut(),
        num_send_ops: usize = 0,
        num_recv_ops: usize = 0,
        launch_id: c_int = 0,
        non_donatable_input_indices: *const i64 = ptr::null(),
        num_non_donatable_input_indices: usize = 0,
        context: *mut c_void = ptr::null_mut(),
        call_location: *const c_char = ptr::null(),
        num_tasks: usize = 0,
        task_ids: *mut c_int = ptr::null_mut(),
        incarnation_ids: *mut i64 = ptr::null_mut(),
    }
    ExecuteArgs {
        executable: *mut RawLoadedExecutable = ptr::null_mut(),
        options: *mut ExecuteOptions = ptr::null_mut(),
        argument_lists: *const *const *mut RawBuffer = ptr::null(),
        num_devices: usize = 0,
        num_args: usize = 0,
        output_lists: *const *mut *mut RawBuffer = ptr::null(),
        device_complete_events: *mut *mut RawEvent = ptr::null_mut(),
        execute_device: *mut RawDevice = ptr::null_mut(),
    }
    BufferArgs { buffer: *mut RawBuffer = ptr::null_mut() }
    BufferTypeArgs { buffer: *mut RawBuffer = ptr::null_mut(), element_type: c_int = 0 }
    BufferDimensionsArgs {
        buffer: *mut RawBuffer = ptr::null_mut(),
        dims: *const i64 = ptr::null(),
        num_dims: usize = 0,
    }
    BufferEventArgs { buffer: *mut RawBuffer = ptr::null_mut(), event: *mut RawEvent = ptr::null_mut() }
    ToHostArgs {
        buffer: *mut RawBuffer = ptr::null_mut(),
        host_layout: *mut MemoryLayout = ptr::null_mut(),
        destination: *mut c_void = ptr::null_mut(),
        destination_size: usize = 0,
        event: *mut RawEvent = ptr::null_mut(),
    }
    CopyRawArgs {
        buffer: *mut RawBuffer = ptr::null_mut(),
        destination: *mut c_void = ptr::null_mut(),
        offset: i64 = 0,
        transfer_size: i64 = 0,
        event: *mut RawEvent = ptr::null_mut(),
    }
    BufferLayoutArgs { buffer: *mut RawBuffer = ptr::null_mut(), layout: MemoryLayout = MemoryLayout::new() }
    DeviceMemoryArgs {
        device: *mut RawDevice = ptr::null_mut(),
        bytes_in_use: i64 = 0,
        peak_bytes_in_use: i64 = 0,
        has_peak_bytes_in_use: CBool = 0,
        allocations: i64 = 0,
        has_allocations: CBool = 0,
        largest_allocation: i64 = 0,
        has_largest_allocation: CBool = 0,
        bytes_limit: i64 = 0,
        has_bytes_limit: CBool = 0,
        bytes_reserved: i64 = 0,
        has_bytes_reserved: CBool = 0,
        peak_bytes_reserved: i64 = 0,
        has_peak_bytes_reserved: CBool = 0,
        reservable_limit: i64 = 0,
        has_reservable_limit: CBool = 0,
        largest_free_block: i64 = 0,
        has_largest_free_block: CBool = 0,
        pool_bytes: i64 = 0,
        has_pool_bytes: CBool = 0,
        peak_pool_bytes: i64 = 0,
        has_peak_pool_bytes: CBool = 0,
    }
    // `PJRT_Buffer_MemoryLayout` with the union's larger arm, the tiled one, in place
    MemoryLayout {
        tiled_struct_size: usize = 7 * size_of::<usize>(),
        tiled_extension_start: *mut c_void = ptr::null_mut(),
        minor_to_major: *const i64 = ptr::null(),
        minor_to_major_size: usize = 0,
        tile_dims: *const i64 = ptr::null(),
        tile_dim_sizes: *const usize = ptr::null(),
        num_tiles: usize = 0,
        kind: c_int = 0,
    }
    NamedValue {
        name: *const c_char = ptr::null(),
        name_size: usize = 0,
        kind: c_int = 0,
        value: NamedValueUnion = NamedValueUnion { int64: 0 },
        value_size: usize = 0,
    }
    ApiVersion { major: c_int = 0, minor: c_int = 0 }
}

impl ProgramStruct {
    /// Borrows both: they must outlive the call, which does not write to the code.
    pub(crate) fn of(code: &[u8], format: &str) -> Self {
        let mut program = Self::new();
        program.code = code.as_ptr().cast_mut().cast();
        program.code_size = code.len();
        program.format = format.as_ptr().cast();
        program.format_size = format.len();
        program
    }
}

/// `PJRT_NamedValue_Type`.
pub(crate) mod named_value_kind {
    use std::ffi::c_int;

    pub(crate) const STRING: c_int = 0;
    pub(crate) const INT64: c_int = 1;
    pub(crate) const FLOAT: c_int = 3;
    pub(crate) const BOOL: c_int = 4;
}

/// The value of a [`NamedValue`]; `kind` selects the arm.
#[repr(C)]
pub(crate) union NamedValueUnion {
    pub(crate) string: *const c_char,
    pub(crate) int64: i64,
    pub(crate) float: f32,
    pub(crate) boolean: CBool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that a C compiler computes from the header of version 0.81 (`PJRT_…_STRUCT_SIZE`).
    #[test]
    fn structs_are_as_long_as_in_c() {
        for (name, ours, theirs) in [
            ("Plugin_Initialize", EmptyArgs::new().struct_size, 16),
            ("Error_Destroy", ErrorArgs::new().struct_size, 24),
            ("Error_Message", ErrorMessageArgs::new().struct_size, 40),
            ("Error_GetCode", ErrorCodeArgs::new().struct_size, 28),
            ("Event_Await", EventArgs::new().struct_size, 24),
            ("Client_Create", ClientCreateArgs::new().struct_size, 88),
            ("Client_PlatformName", ClientTextArgs::new().struct_size, 40),
            ("Client_AddressableDevices", ClientDevicesArgs::new().struct_size, 40),
            ("Program", ProgramStruct::new().struct_size, 48),
            ("Client_Compile", CompileArgs::new().struct_size, 56),
            ("Client_BufferFromHostBuffer", FromHostArgs::new().struct_size, 120),
            ("Device_GetDescription", DeviceDescriptionArgs::new().struct_size, 32),
            ("Device_LocalHardwareId", LocalIdArgs::new().struct_size, 28),
            ("DeviceDescription_Id", DescriptionIdArgs::new().struct_size, 28),
            ("DeviceDescription_Kind", DescriptionTextArgs::new().struct_size, 40),
            ("DeviceDescription_Attributes", DescriptionAttributesArgs::new().struct_size, 40),
            ("Executable_NumPartitions", ExecutableCountArgs::new().struct_size, 32),
            ("Executable_NumOutputs", ExecutableCountArgs::new().struct_size, 32),
            ("Executable_GetCostAnalysis", CostAnalysisArgs::new().struct_size, 40),
            ("Executable_OptimizedProgram", OptimizedProgramArgs::new().struct_size, 32),
            ("Executable_Serialize", SerializeArgs::new().struct_size, 56),
            ("LoadedExecutable_GetExecutable", GetExecutableArgs::new().struct_size, 32),
            ("LoadedExecutable_AddressableDevices", ExecutableDevicesArgs::new().struct_size, 40),
            ("Executable_DeserializeAndLoad", DeserializeArgs::new().struct_size, 64),
            ("ExecuteOptions", ExecuteOptions::new().struct_size, 112),
            ("LoadedExecutable_Execute", ExecuteArgs::new().struct_size, 80),
            ("Buffer_ElementType", BufferTypeArgs::new().struct_size, 28),
            ("Buffer_Dimensions", BufferDimensionsArgs::new().struct_size, 40),
            ("Buffer_ToHostBuffer", ToHostArgs::new().struct_size, 56),
            ("Buffer_CopyRawToHost", CopyRawArgs::new().struct_size, 56),
            ("Buffer_GetMemoryLayout", BufferLayoutArgs::new().struct_size, 104),
            ("Device_MemoryStats", DeviceMemoryArgs::new().struct_size, 185),
            ("Buffer_MemoryLayout", MemoryLayout::new().struct_size, 76),
            ("Buffer_MemoryLayout_Tiled", MemoryLayout::new().tiled_struct_size, 56),
            ("NamedValue", NamedValue::new().struct_size, 56),
            ("TopologyDescription_Create", TopologyCreateArgs::new().struct_size, 56),
            ("TopologyDescription_Destroy", TopologyArgs::new().struct_size, 24),
            ("TopologyDescription_PlatformName", TopologyTextArgs::new().struct_size, 40),
            ("Client_TopologyDescription", ClientTopologyArgs::new().struct_size, 32),
            ("TopologyDescription_Serialize", TopologySerializeArgs::new().struct_size, 56),
            ("TopologyDescription_Deserialize", TopologyDeserializeArgs::new().struct_size, 40),
            ("TopologyDescription_GetDeviceDescriptions", TopologyDevicesArgs::new().struct_size, 40),
            ("Compile", TopologyCompileArgs::new().struct_size, 64),
            ("Executable_GetCompiledMemoryStats", MemoryStatsArgs::new().struct_size, 112),
        ] {
            assert_eq!(ours, theirs, "PJRT_{name}");
        }
    }
}
