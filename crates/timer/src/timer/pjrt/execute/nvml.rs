//! Clocks of NVIDIA's GPUs and what other processes use of them, read with NVML, the driver's management library, which
//! is not always installed.
//!
//! Runs in worker processes only, as plugins do. Names, signatures and numbers are those of `nvml.h` (NVML 12) and
//! `cuda.h`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::unix::process::parent_id;
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
/// `NVML_ERROR_NOT_FOUND`.
const NOT_FOUND: c_int = 6;
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

/// Processes on a GPU that are looked at; of more nothing is known.
const MOST_PROCESSES: usize = 256;

/// `nvmlProcessInfo_t`, since version 2.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlProcessUtilizationSample_t`: what a process used lately, in per cent of the time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessUse {
    pid: c_uint,
    time_us: c_ulonglong,
    multiprocessors: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

type Device = *mut c_void;
type InitFn = unsafe extern "C" fn() -> c_int;
type CountFn = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndexFn = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type ByBusIdFn = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
type ClockFn = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int;
type ReasonsFn = unsafe extern "C" fn(Device, *mut c_ulonglong) -> c_int;
type ProcessesFn = unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int;
type UsesFn = unsafe extern "C" fn(Device, *mut ProcessUse, *mut c_uint, c_ulonglong) -> c_int;
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
    processes: Option<ProcessesFn>,
    uses: Option<UsesFn>,
    /// The last report on each process: per cent of the multiprocessors' time.
    used: RefCell<BTreeMap<c_uint, c_uint>>,
    /// When the last report was made, microseconds.
    reported_us: Cell<c_ulonglong>,
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
                processes: function(library, "nvmlDeviceGetComputeRunningProcesses_v3").ok(),
                uses: function(library, "nvmlDeviceGetProcessUtilization").ok(),
                used: RefCell::default(),
                reported_us: Cell::new(0),
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
        Some(RunningClocks { sm_mhz, held_by: held_by.collect(), others_percent: self.others_percent() })
    }

    /// Per cent of the multiprocessors' time that processes other than the tuner's used lately. `None` if the driver
    /// does not report processes, or numbers them otherwise than this machine does, as it does for a container.
    ///
    /// The driver reports at most every 400 to 600 ms (seen on an H100, driver 580), so a shorter moment goes unseen.
    fn others_percent(&self) -> Option<u32> {
        let mut listed = [ProcessInfo::default(); MOST_PROCESSES];
        let mut count = MOST_PROCESSES as c_uint;
        // SAFETY: NVML returned this device; it writes at most `count` processes, which `listed` has room for.
        let code = unsafe { self.processes?(self.device, &mut count, listed.as_mut_ptr()) };
        let listed = listed.get(..count as usize).filter(|_| code == SUCCESS)?;
        // this process has a client, so it is listed by the number that it knows, unless that is another one there
        if !listed.iter().any(|one| one.pid == std::process::id()) {
            return None;
        }
        let others: Vec<c_uint> = listed.iter().map(|one| one.pid).filter(|pid| !is_of_tuner(*pid)).collect();
        if others.is_empty() {
            return Some(0);
        }
        let mut uses = [ProcessUse::default(); MOST_PROCESSES];
        let mut count = MOST_PROCESSES as c_uint;
        // SAFETY: NVML returned this device; it writes at most `count` reports, which `uses` has room for.
        let code = unsafe { self.uses?(self.device, uses.as_mut_ptr(), &mut count, self.reported_us.get()) };
        let mut used = self.used.borrow_mut();
        match code {
            SUCCESS => {
                let mut reports = uses.get(..count as usize)?.to_vec();
                reports.sort_by_key(|report| report.time_us);
                used.retain(|pid, _| others.contains(pid));
                for ProcessUse { pid, time_us, multiprocessors, .. } in reports {
                    self.reported_us.set(self.reported_us.get().max(time_us));
                    used.insert(pid, multiprocessors);
                }
            }
            // nothing new since then
            NOT_FOUND => {}
            _ => return None,
        }
        Some(others.iter().filter_map(|pid| used.get(pid)).sum::<u32>().min(100))
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

/// Whether a process is this worker, its tuner, or another one that the tuner started.
fn is_of_tuner(pid: c_uint) -> bool {
    /// No process tree is deeper; a number that was given anew meanwhile may close a circle.
    const DEEPEST: usize = 32;
    let parent_of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // after the name, which stands in parentheses: its state, then its parent
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let ours = [std::process::id(), parent_id()];
    std::iter::successors(Some(pid), parent_of).take(DEEPEST).any(|pid| ours.contains(&pid))
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
