//! A compiled program that no device has loaded: what it says about itself, and its bytes.

use std::rc::Rc;

use crate::timer::pjrt::plugin::ffi::{
    CostAnalysisArgs, ExecutableArgs, ExecutableCountArgs, MemoryStatsArgs, OptimizedProgramArgs, ProgramStruct,
    RawExecutable, SerializeArgs,
};
use crate::timer::pjrt::plugin::{PjrtError, Plugin, call, number_of_value, taken};
use crate::timer::protocol::{CostAnalysis, MemoryStats};

/// Largest optimized program whose signature is read; real ones are far smaller.
const MAX_PROGRAM_BYTES: usize = 1 << 30;

/// A compiled program that is not loaded on a device.
pub(crate) struct PlainExecutable {
    plugin: Rc<Plugin>,
    raw: *mut RawExecutable,
}

impl PlainExecutable {
    /// Takes ownership of an executable returned by a plugin.
    pub(crate) fn adopt(plugin: &Rc<Plugin>, raw: *mut RawExecutable) -> Self {
        Self { plugin: Rc::clone(plugin), raw }
    }

    /// The executable's bytes; some plugins do not implement this.
    pub(crate) fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        let mut arguments = SerializeArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; the plugin gives the bytes with their owner.
        unsafe {
            call!(self.plugin, executable_serialize, &mut arguments)?;
            Ok(taken(arguments.bytes, arguments.bytes_size, arguments.owner, arguments.deleter))
        }
    }

    /// The optimized program and its format: `hlo` or `hlo_with_config`.
    pub(crate) fn optimized_program(&self) -> Result<(Vec<u8>, String), PjrtError> {
        let mut program = ProgramStruct::new();
        let mut arguments = OptimizedProgramArgs::new();
        arguments.executable = self.raw;
        arguments.program = &raw mut program;
        // SAFETY: without a place for the code the plugin tells its size alone.
        unsafe { call!(self.plugin, executable_optimized_program, &mut arguments) }?;
        if program.code_size > MAX_PROGRAM_BYTES {
            return Err(PjrtError::local(format!("an optimized program of {} bytes", program.code_size)));
        }
        let mut code = vec![0_u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        arguments.program = &raw mut program;
        // SAFETY: the place has the size asked for; the format's text lives as long as the plugin.
        let format = unsafe {
            call!(self.plugin, executable_optimized_program, &mut arguments)?;
            if program.format.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(program.format.cast::<u8>(), program.format_size)
            }
        };
        Ok((code, String::from_utf8_lossy(format).into_owned()))
    }

    /// Number of outputs on each device.
    pub(crate) fn outputs(&self) -> Result<usize, PjrtError> {
        let mut arguments = ExecutableCountArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; a number is written.
        unsafe { call!(self.plugin, executable_num_outputs, &mut arguments) }?;
        Ok(arguments.count)
    }

    /// Number of devices that it runs on: one for each partition.
    pub(crate) fn devices(&self) -> Result<usize, PjrtError> {
        let mut arguments = ExecutableCountArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; a number is written.
        match unsafe { call!(self.plugin, executable_num_partitions, &mut arguments) } {
            Ok(()) => Ok(arguments.count.max(1)),
            // a plugin that does not implement the count has one partition
            Err(error) if error.is_unimplemented() => Ok(1),
            Err(error) => Err(error),
        }
    }

    /// The compiler's cost analysis of a run; `None` if it has none, unimplemented in some plugins.
    pub(crate) fn cost(&self) -> Result<Option<CostAnalysis>, PjrtError> {
        let mut arguments = CostAnalysisArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive and owns the properties, which are copied.
        let properties: Vec<(String, f64)> = unsafe {
            call!(self.plugin, executable_cost_analysis, &mut arguments)?;
            if arguments.properties.is_null() {
                return Ok(None);
            }
            let properties = std::slice::from_raw_parts(arguments.properties, arguments.num_properties);
            properties.iter().filter_map(|property| number_of_value(property)).collect()
        };
        Ok(CostAnalysis::of(&properties))
    }

    /// Device memory of a run in bytes; some plugins do not implement this.
    pub(crate) fn memory(&self) -> Result<MemoryStats, PjrtError> {
        let mut arguments = MemoryStatsArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; numbers are written, no pointers.
        unsafe { call!(self.plugin, executable_memory_stats, &mut arguments) }?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        Ok(MemoryStats::new(bytes(arguments.argument), bytes(arguments.output), bytes(arguments.temporary))
            .code_bytes(bytes(arguments.generated_code))
            .alias_bytes(bytes(arguments.alias))
            .peak_bytes(bytes(arguments.peak)))
    }
}

impl Drop for PlainExecutable {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let mut arguments = ExecutableArgs::new();
        arguments.executable = self.raw;
        // SAFETY: it belongs to this owner alone.
        let _ = unsafe { call!(self.plugin, executable_destroy, &mut arguments) };
    }
}
