//! Arrays on a device: transfers in both directions, and their types.

use std::ffi::c_int;
use std::rc::Rc;

use crate::array::{ArraySpec, DType};
use crate::timer::pjrt::plugin::ffi::{
    BufferArgs, BufferDimensionsArgs, BufferEventArgs, BufferLayoutArgs, BufferTypeArgs, CopyRawArgs, FromHostArgs,
    MemoryLayout, RawBuffer, ToHostArgs,
};
use crate::timer::pjrt::plugin::{Client, PjrtError, call};

/// `PJRT_Buffer_MemoryLayout_Type_Tiled`.
const TILED: c_int = 0;

/// A device array.
pub(crate) struct Buffer {
    pub(crate) client: Rc<Client>,
    pub(crate) raw: *mut RawBuffer,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut arguments = BufferArgs::new();
        arguments.buffer = self.raw;
        // SAFETY: the buffer was handed to this owner alone.
        let _ = unsafe { call!(self.client.plugin, buffer_destroy, &mut arguments) };
    }
}

impl Buffer {
    /// Copies dense host bytes to device `index` and waits until they are there.
    pub(crate) fn from_host(
        client: &Rc<Client>,
        index: usize,
        spec: &ArraySpec,
        bytes: &[u8],
    ) -> Result<Self, PjrtError> {
        if spec.host_bytes() != u64::try_from(bytes.len()).ok() {
            return Err(PjrtError::local(format!("{} bytes are not an array {spec}", bytes.len())));
        }
        let dims: Vec<i64> = spec.dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
        let mut arguments = FromHostArgs::new();
        arguments.client = client.raw;
        arguments.data = bytes.as_ptr().cast();
        arguments.element_type = spec.dtype.pjrt_type();
        arguments.dims = dims.as_ptr();
        arguments.num_dims = dims.len();
        // immutable only during the call: the plugin copies before it returns
        arguments.host_buffer_semantics = 0;
        arguments.device = client.device(index)?;
        // SAFETY: bytes and dims outlive the call and the event awaited below; the byte count fits the shape.
        unsafe { call!(client.plugin, client_buffer_from_host_buffer, &mut arguments) }?;
        let buffer = Self { client: Rc::clone(client), raw: arguments.buffer };
        client.plugin.await_event(arguments.done_with_host_buffer)?;
        buffer.wait()?;
        Ok(buffer)
    }

    fn wait(&self) -> Result<(), PjrtError> {
        let mut arguments = BufferEventArgs::new();
        arguments.buffer = self.raw;
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, buffer_ready_event, &mut arguments) }?;
        self.client.plugin.await_event(arguments.event)
    }

    pub(crate) fn spec(&self) -> Result<ArraySpec, PjrtError> {
        let mut kind = BufferTypeArgs::new();
        kind.buffer = self.raw;
        let mut dimensions = BufferDimensionsArgs::new();
        dimensions.buffer = self.raw;
        // SAFETY: the buffer is alive and owns its dimensions, which are copied.
        let dims = unsafe {
            call!(self.client.plugin, buffer_element_type, &mut kind)?;
            call!(self.client.plugin, buffer_dimensions, &mut dimensions)?;
            if dimensions.dims.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(dimensions.dims, dimensions.num_dims).to_vec()
            }
        };
        let dtype = DType::from_pjrt_type(kind.element_type)
            .ok_or_else(|| PjrtError::local(format!("an output has the unknown element type {}", kind.element_type)))?;
        let dims = dims.into_iter().map(|dim| u64::try_from(dim).unwrap_or(0)).collect::<Vec<_>>();
        Ok(ArraySpec::new(dtype, dims))
    }

    /// Copies the array to the host, dense and row major.
    pub(crate) fn to_host(&self, spec: &ArraySpec) -> Result<Vec<u8>, PjrtError> {
        let minor_to_major = row_major(spec);
        let mut layout = MemoryLayout::new();
        layout.minor_to_major = minor_to_major.as_ptr();
        layout.minor_to_major_size = minor_to_major.len();
        let mut arguments = ToHostArgs::new();
        arguments.buffer = self.raw;
        arguments.host_layout = &raw mut layout;
        // SAFETY: a null destination asks for the size alone.
        unsafe { call!(self.client.plugin, buffer_to_host_buffer, &mut arguments) }?;
        let size = arguments.destination_size;
        if spec.host_bytes() != u64::try_from(size).ok() {
            return Err(PjrtError::local(format!("an output {spec} has {size} bytes on the host")));
        }
        let mut bytes = vec![0_u8; size];
        arguments.destination = bytes.as_mut_ptr().cast();
        // SAFETY: the destination has the size that the plugin asked for and outlives the event.
        unsafe { call!(self.client.plugin, buffer_to_host_buffer, &mut arguments) }?;
        self.client.plugin.await_event(arguments.event)?;
        Ok(bytes)
    }

    /// Whether parts of the array can be copied as they are: it is dense and row major on the device, and the plugin
    /// can copy its first element. Elements smaller than a byte may be packed.
    pub(crate) fn gives_parts(&self, spec: &ArraySpec) -> bool {
        let width = spec.dtype.host_bytes();
        let is_packed = spec.dtype != DType::Pred && spec.dtype.bits() as usize != 8 * width;
        // an older table lacks this function, and an empty array has no parts
        let is_none = self.client.plugin.api.buffer_copy_raw_to_host.is_none() || spec.host_bytes() == Some(0);
        !is_packed && !is_none && self.is_row_major(spec).is_ok_and(|is| is) && self.part(0, width).is_ok()
    }

    fn is_row_major(&self, spec: &ArraySpec) -> Result<bool, PjrtError> {
        let mut arguments = BufferLayoutArgs::new();
        arguments.buffer = self.raw;
        // SAFETY: the buffer is alive and owns what the layout points to, which is copied.
        let (kind, tiles, order) = unsafe {
            call!(self.client.plugin, buffer_get_memory_layout, &mut arguments)?;
            let layout = &arguments.layout;
            let is_tiled = layout.kind == TILED && !layout.minor_to_major.is_null();
            let order = if is_tiled {
                std::slice::from_raw_parts(layout.minor_to_major, layout.minor_to_major_size).to_vec()
            } else {
                Vec::new()
            };
            (layout.kind, layout.num_tiles, order)
        };
        Ok(kind == TILED && tiles == 0 && order == row_major(spec))
    }

    /// Copies `length` bytes from an offset to the host, as they lie on the device.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Result<Vec<u8>, PjrtError> {
        let number = |value: usize| i64::try_from(value).map_err(|_| PjrtError::local("a part beyond any array"));
        let mut bytes = vec![0_u8; length];
        let mut arguments = CopyRawArgs::new();
        arguments.buffer = self.raw;
        arguments.destination = bytes.as_mut_ptr().cast();
        arguments.offset = number(offset)?;
        arguments.transfer_size = number(length)?;
        // SAFETY: the buffer is alive; the destination has the size that is asked for and outlives the event.
        unsafe { call!(self.client.plugin, buffer_copy_raw_to_host, &mut arguments) }?;
        self.client.plugin.await_event(arguments.event)?;
        Ok(bytes)
    }
}

/// The order of dimensions from the fastest varying to the slowest.
fn row_major(spec: &ArraySpec) -> Vec<i64> {
    (0..spec.dims.len() as i64).rev().collect()
}
