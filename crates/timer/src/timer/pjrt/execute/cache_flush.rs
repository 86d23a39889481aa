//! Cache flush: evicts what a run left in them before the next run.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::executable::{DeviceArguments, Executable};
use crate::timer::pjrt::compile::compile_options;
use crate::timer::pjrt::plugin::{Client, PjrtError};

/// Where Linux describes the caches of each core.
const CORES: &str = "/sys/devices/system/cpu";
/// Bytes to stream if the system does not describe its caches.
const USUAL_BYTES: usize = 64 << 20;
/// Maximum bytes to stream before a run.
const MAX_BYTES: usize = 1 << 30;
/// Writes 256 MiB on a device, twice the largest second-level cache of any GPU. A transfer from the host would evict
/// nothing: on an H200 it goes past the second-level cache.
const DEVICE_PROGRAM: &str = "module @autotune_lowered_flush {
  func.func public @main() -> tensor<67108864xui32> {
    %0 = stablehlo.iota dim = 0 : tensor<67108864xui32>
    return %0 : tensor<67108864xui32>
  }
}
";
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// How the caches are flushed between runs.
pub(crate) enum CacheFlush {
    /// Each core streams a buffer of its own.
    Host(Vec<CoreBuffer>),
    /// A program that writes more than the caches hold, one for each device from the first on.
    Device { client: Rc<Client>, first: usize, programs: RefCell<Vec<Executable>> },
}

/// One core's buffer; the core is absent if threads cannot be bound.
pub(crate) struct CoreBuffer {
    core: Option<usize>,
    words: Vec<AtomicU64>,
}

impl CacheFlush {
    /// The flush that suits a client's device.
    pub(crate) fn of(client: &Rc<Client>, first: usize) -> Result<Self, PjrtError> {
        if client.platform_name()?.eq_ignore_ascii_case("cpu") {
            return Ok(Self::host(&own_cores(), Path::new(CORES)));
        }
        Ok(Self::Device { client: Rc::clone(client), first, programs: RefCell::default() })
    }

    /// Compiles what programs on so many devices need, and runs it once, so that no profile shows that.
    pub(crate) fn prepare(&self, devices: usize) -> Result<(), PjrtError> {
        let Self::Device { client, first, programs } = self else { return Ok(()) };
        let mut programs = programs.borrow_mut();
        while programs.len() < devices {
            let device = first.saturating_add(programs.len());
            let id = if device == 0 { None } else { Some(client.describe(device)?.id) };
            let options = compile_options(id, &BTreeMap::new());
            let program = Executable::compile(client, DEVICE_PROGRAM.as_bytes(), "mlir", &options)?;
            write_all(&program)?;
            programs.push(program);
        }
        Ok(())
    }

    fn host(cores: &[usize], root: &Path) -> Self {
        let bytes = cache_bytes(cores, root).map_or(USUAL_BYTES, |bytes| bytes.saturating_mul(2)).min(MAX_BYTES);
        let threads = match cores {
            [] => vec![None; std::thread::available_parallelism().map_or(1, usize::from)],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let words = bytes / threads.len().max(1) / size_of::<u64>();
        let stream = |core| CoreBuffer { core, words: (0..words).map(|_| AtomicU64::new(0)).collect() };
        Self::Host(threads.into_iter().map(stream).collect())
    }

    /// Flushes the caches of a program's devices, from the first on. Afterwards nothing from before is cached.
    pub(crate) fn run(&self, devices: usize) -> Result<(), PjrtError> {
        match self {
            Self::Host(streams) => {
                let without_thread = |error| PjrtError::local(format!("no thread to flush the caches: {error}"));
                std::thread::scope(|scope| {
                    for stream in streams {
                        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                            bind(stream.core);
                            stream.touch();
                        });
                        thread.map_err(without_thread)?;
                    }
                    Ok(())
                })
            }
            Self::Device { programs, .. } => programs.borrow().iter().take(devices).try_for_each(write_all),
        }
    }
}

/// Runs a program without arguments. Its result is dropped at once, so that the next program has the memory.
fn write_all(program: &Executable) -> Result<(), PjrtError> {
    program.run(&DeviceArguments::new(1, &[])?, Duration::ZERO).map(drop)
}

impl CoreBuffer {
    /// Reads and writes one word of every line.
    fn touch(&self) {
        for word in self.words.iter().step_by(LINE_BYTES / size_of::<u64>()) {
            word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// Binds this thread to a core, if that is permitted.
fn bind(core: Option<usize>) {
    if let Some(core) = core {
        let mut only = CpuSet::new();
        only.set(core);
        let _ = sched_setaffinity(None, &only);
    }
}

/// The cores that this process may use.
fn own_cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    allowed.map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The total bytes of these cores' data caches, a shared cache counted once; `None` if the system describes none.
fn cache_bytes(cores: &[usize], root: &Path) -> Option<usize> {
    let mut seen = BTreeSet::new();
    let mut sum: usize = 0;
    for core in cores {
        let folder = root.join(format!("cpu{core}/cache"));
        for index in 0.. {
            let read = |name: &str| fs::read_to_string(folder.join(format!("index{index}/{name}"))).ok();
            let (Some(kind), Some(size)) = (read("type"), read("size")) else { break };
            // if sharing is not described, a cache belongs to its core alone
            let shared = read("shared_cpu_list").unwrap_or_else(|| core.to_string());
            if kind.trim() != "Instruction" && seen.insert((index, shared)) {
                sum = sum.saturating_add(size_of_text(size.trim()).unwrap_or(0));
            }
        }
    }
    (sum > 0).then_some(sum)
}

/// Parses `32768K`, the kernel's format of sizes.
fn size_of_text(text: &str) -> Option<usize> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, text.chars().last()),
        None => (text, None),
    };
    let shift = match unit {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    // larger than any cache
    let number = digits.parse::<usize>().ok().filter(|&number| number < 1 << 30)?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::profiled::FLUSH_PROGRAM;

    /// Two cores that share a third-level cache, in the layout of sysfs.
    fn machine(folder: &Path) {
        for core in 0..2 {
            let levels = [("Data", "48K", core), ("Instruction", "32K", core), ("Unified", "1024K", core)];
            let shared = [("Unified", "32M", 9)];
            for (index, (kind, size, owner)) in levels.into_iter().chain(shared).enumerate() {
                let cache = folder.join(format!("cpu{core}/cache/index{index}"));
                fs::create_dir_all(&cache).unwrap();
                fs::write(cache.join("type"), format!("{kind}\n")).unwrap();
                fs::write(cache.join("size"), format!("{size}\n")).unwrap();
                let list = if owner == 9 { "0-1\n".to_owned() } else { format!("{owner}\n") };
                fs::write(cache.join("shared_cpu_list"), list).unwrap();
            }
        }
    }

    fn bytes(flush: &CacheFlush) -> Vec<usize> {
        match flush {
            CacheFlush::Host(streams) => streams.iter().map(|stream| stream.words.len() * 8).collect(),
            CacheFlush::Device { .. } => Vec::new(),
        }
    }

    #[test]
    fn the_program_is_named_as_profiles_are_read() {
        assert!(DEVICE_PROGRAM.starts_with(&format!("module @{FLUSH_PROGRAM} ")));
    }

    #[test]
    fn shared_caches_count_once_and_instructions_not() {
        let folder = tempfile::tempdir().unwrap();
        machine(folder.path());
        let own = (48 + 1024) << 10;
        assert_eq!(cache_bytes(&[0, 1], folder.path()), Some(2 * own + (32 << 20)));
        assert_eq!(cache_bytes(&[1], folder.path()), Some(own + (32 << 20)), "only what its cores use");
        assert_eq!(cache_bytes(&[7], folder.path()), None);
        // twice the sum, in equal parts
        let part = 2 * own + (32 << 20);
        assert_eq!(bytes(&CacheFlush::host(&[0, 1], folder.path())), [part, part]);
        let unknown = bytes(&CacheFlush::host(&[0, 1], Path::new("/no/such/folder")));
        assert_eq!(unknown, [USUAL_BYTES / 2; 2]);
        assert_eq!(bytes(&CacheFlush::host(&[], folder.path())).iter().sum::<usize>() >> 20, USUAL_BYTES >> 20);
        fs::write(folder.path().join("cpu0/cache/index3/size"), "900000K").unwrap();
        assert_eq!(bytes(&CacheFlush::host(&[0], folder.path())), [MAX_BYTES]);
    }

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        for (text, expected) in [("48K", Some(49152)), ("32M", Some(32 << 20)), ("512", Some(512))] {
            assert_eq!(size_of_text(text), expected, "{text}");
        }
        for text in ["", "K", "-1K", "x", "99999999999999999999K"] {
            assert_eq!(size_of_text(text), None, "{text}");
        }
    }

    #[test]
    fn every_line_of_every_stream_is_written() {
        let folder = tempfile::tempdir().unwrap();
        machine(folder.path());
        let flush = CacheFlush::host(&own_cores(), folder.path());
        for _ in 0..3 {
            flush.run(1).unwrap();
        }
        let CacheFlush::Host(streams) = &flush else { panic!("not of a device") };
        assert!(!streams.is_empty());
        assert!(
            streams.iter().all(|stream| stream.words.iter().step_by(8).all(|word| word.load(Ordering::Relaxed) == 3))
        );
    }
}
