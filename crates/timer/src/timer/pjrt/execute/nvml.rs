//! Clocks of NVIDIA's GPUs, read with NVML, the driver's management library, which is not always installed.
//!
//! Runs in worker processes only, as plugins do. Names, signatures and numbers are those of `nvml.h` (NVML 12) and
//! `cuda.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use libloading::Library;

use crate::measured_by::Clocks;
use crate::timer::pjrt::plugin::one_line;
use crate::timer::protocol::RunningClocks;

const NVML: &str = "libnvidia-ml.so.1";
/// The driver's library; the plugin has already loaded and initialised it.
const CUDA: &str = "libcuda.so.1";

/// `NVML_SUCCESS`, also `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `NVML_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 3;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
const NO_FUNCTION: c_int = 13;
/// `NVML_CLOCK_SM`.
const SM: c_uint = 1;
/// `NVML_CLOCK_MEM`.
const MEMORY: c_uint = 2;
/// Bytes of a PCI bus id: `NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE`.
const BUS_ID_BYTES: usize = 32;
/// No GPU's clock is faster, so a higher number means nothing.
const MOST_MHZ: c_uint = 100_000;

/// The bits of `nvmlDeviceGetCurrentClocksEventReasons` that limit a clock; being idle is not one of them.
const REASONS: [(c_ulonglong, &str); 8] = [
    (0x2, "the clocks that are set"),
    (0x4, "its power limit"),
    (0x8, "a slowdown by hardware"),
    (0x10, "the slowest GPU of its group"),
    (0x20, "heat"),
    (0x40, "heat, by hardware"),
    (0x80, "the power supply, by hardware"),
    (0x100, "the display's clocks"),
];

type Device = *mut c_void;
type InitFn = unsafe extern "C" fn() -> c_int;
type CountFn = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndexFn = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type ByBusIdFn = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
type ClockFn = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int;
type ReasonsFn = unsafe extern "C" fn(Device, *mut c_ulonglong) -> c_int;
type CuDeviceFn = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type CuBusIdFn = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

/// One GPU as seen by NVML. The library is never unloaded because it may have threads.
pub(crate) struct Nvml {
    device: Device,
    highest: ClockFn,
    now: Option<ClockFn>,
    set: Option<ClockFn>,
    unset: Option<ClockFn>,
    reasons: Option<ReasonsFn>,
}

impl Nvml {
    /// The GPU with this CUDA ordinal in this process, whose client is open.
    pub(crate) fn open(ordinal: usize) -> Result<Self, String> {
        let library = load(NVML)?;
        // SAFETY: `nvml.h` declares these functions with these types.
        let (init, highest) = unsafe {
            (function::<InitFn>(library, "nvmlInit_v2")?, function::<ClockFn>(library, "nvmlDeviceGetMaxClockInfo")?)
        };
        // SAFETY: the function takes no arguments and may be called at any time.
        check("nvmlInit_v2", unsafe { init() })?;
        let device = device(library, ordinal)?;
        // SAFETY: `nvml.h` declares these functions with these types. A library without one of them gives `None`.
        unsafe {
            Ok(Self {
                device,
                highest,
                now: function(library, "nvmlDeviceGetClockInfo").ok(),
                set: function(library, "nvmlDeviceGetApplicationsClock").ok(),
                unset: function(library, "nvmlDeviceGetDefaultApplicationsClock").ok(),
                // the name since CUDA 12.2
                reasons: function(library, "nvmlDeviceGetCurrentClocksEventReasons")
                    .or_else(|_| function(library, "nvmlDeviceGetCurrentClocksThrottleReasons"))
                    .ok(),
            })
        }
    }

    /// Its clock limits.
    pub(crate) fn clocks(&self) -> Result<Clocks, String> {
        let of = |kind| -> Result<(u32, u32), String> {
            let highest = self.ask("nvmlDeviceGetMaxClockInfo", Some(self.highest), kind)?;
            let highest = highest.ok_or_else(|| "`nvmlDeviceGetMaxClockInfo`: not supported".to_owned())?;
            let set = self.ask("nvmlDeviceGetApplicationsClock", self.set, kind)?;
            let unset = self.ask("nvmlDeviceGetDefaultApplicationsClock", self.unset, kind)?;
            // with the driver's default setting it boosts to the highest clock
            let set = set.filter(|set| unset.is_some_and(|unset| unset != *set));
            Ok((set.map_or(highest, |set| set.min(highest)), highest))
        };
        let ((sm_mhz, max_sm_mhz), (memory_mhz, max_memory_mhz)) = (of(SM)?, of(MEMORY)?);
        Ok(Clocks { sm_mhz, memory_mhz, max_sm_mhz, max_memory_mhz })
    }

    /// Its current clocks; `None` if the driver does not report them.
    pub(crate) fn running(&self) -> Option<RunningClocks> {
        let sm_mhz = self.ask("nvmlDeviceGetClockInfo", self.now, SM).ok()??;
        let mut bits: c_ulonglong = 0;
        // SAFETY: NVML returned this device, and `bits` outlives the call.
        let reported = self.reasons.is_some_and(|reasons| unsafe { reasons(self.device, &mut bits) } == SUCCESS);
        let held_by = REASONS.iter().filter(|(bit, _)| reported && bits & bit != 0).map(|(_, why)| (*why).to_owned());
        Some(RunningClocks { sm_mhz, held_by: held_by.collect() })
    }

    /// One clock in MHz; `None` if the GPU has no such setting.
    fn ask(&self, name: &str, function: Option<ClockFn>, kind: c_uint) -> Result<Option<u32>, String> {
        let Some(function) = function else { return Ok(None) };
        let mut mhz: c_uint = 0;
        // SAFETY: NVML returned this device, and `mhz` outlives the call.
        match unsafe { function(self.device, kind, &mut mhz) } {
            NOT_SUPPORTED | NO_FUNCTION => Ok(None),
            code => {
                check(name, code)?;
                match (1..=MOST_MHZ).contains(&mhz) {
                    true => Ok(Some(mhz)),
                    false => Err(format!("`{name}` reports {mhz} MHz")),
                }
            }
        }
    }
}

/// NVML's handle of the GPU: found by its PCI bus id from CUDA, or the only one.
fn device(library: &'static Library, ordinal: usize) -> Result<Device, String> {
    let mut device: Device = ptr::null_mut();
    let found = match bus_id(ordinal) {
        Ok(bus_id) => {
            let name = "nvmlDeviceGetHandleByPciBusId_v2";
            // SAFETY: `nvml.h` declares the function with this type. `bus_id` ends with a zero; it and `device` outlive
            // the call.
            let code = unsafe { function::<ByBusIdFn>(library, name)?(bus_id.as_ptr().cast(), &mut device) };
            check(name, code)
        }
        Err(why) => {
            let mut count: c_uint = 0;
            // SAFETY: `nvml.h` declares the function with this type, and `count` outlives the call.
            let code = unsafe { function::<CountFn>(library, "nvmlDeviceGetCount_v2")?(&mut count) };
            check("nvmlDeviceGetCount_v2", code)?;
            if count != 1 {
                return Err(format!("it is unknown which of {count} GPUs is measured: {why}"));
            }
            // SAFETY: `nvml.h` declares the function with this type, and `device` outlives the call.
            let code = unsafe { function::<ByIndexFn>(library, "nvmlDeviceGetHandleByIndex_v2")?(0, &mut device) };
            check("nvmlDeviceGetHandleByIndex_v2", code)
        }
    };
    found?;
    if device.is_null() { Err("NVML gave no device".to_owned()) } else { Ok(device) }
}

/// The GPU's PCI bus id, ended by a zero.
fn bus_id(ordinal: usize) -> Result<[u8; BUS_ID_BYTES], String> {
    let library = load(CUDA)?;
    let ordinal = c_int::try_from(ordinal).map_err(|_| format!("no device has the number {ordinal}"))?;
    let (mut device, mut text) = (0, [0; BUS_ID_BYTES]);
    // SAFETY: `cuda.h` declares both functions with these types; `device` and `text` outlive the calls. CUDA may write
    // all bytes of `text` but the last, so the text ends with a zero.
    unsafe {
        let get: CuDeviceFn = function(library, "cuDeviceGet")?;
        let of: CuBusIdFn = function(library, "cuDeviceGetPCIBusId")?;
        check("cuDeviceGet", get(&mut device, ordinal))?;
        check("cuDeviceGetPCIBusId", of(text.as_mut_ptr().cast(), BUS_ID_BYTES as c_int - 1, device))?;
    }
    match CStr::from_bytes_until_nul(&text) {
        Ok(reported) if !reported.is_empty() => Ok(text),
        _ => Err("`cuDeviceGetPCIBusId` gave no text".to_owned()),
    }
}

fn load(name: &str) -> Result<&'static Library, String> {
    // SAFETY: the library belongs to the driver that the plugin runs on, so it is trusted like the plugin. A crash in
    // its constructors ends only this worker process.
    let library = unsafe { Library::new(name) }.map_err(|error| {
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("`{name}` cannot be loaded: {}", one_line(&reason))
    })?;
    Ok(Box::leak(Box::new(library)))
}

/// A function of a library.
///
/// # Safety
/// The library's function of this name is of the type `F`.
unsafe fn function<F: Copy>(library: &'static Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller promises that the type is right; the library is never unloaded.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|found| *found).map_err(|_| format!("there is no `{name}`"))
}

/// An error's number, with its name in `nvml.h` if it is an expected one.
fn check(name: &str, code: c_int) -> Result<(), String> {
    let known = match code {
        SUCCESS => return Ok(()),
        1 => " (not initialised)",
        2 => " (wrong argument)",
        NOT_SUPPORTED => " (not supported)",
        4 => " (no permission)",
        6 => " (not found)",
        9 => " (driver not loaded)",
        15 => " (the GPU is lost)",
        18 => " (the driver and its library are of different versions)",
        _ => "",
    };
    Err(format!("`{name}` failed with {code}{known}"))
}
