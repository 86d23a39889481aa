//! How a plane identifies executions: the roles of its stats, the numbers of its names, the windows of its modules.

use crate::wire::WireError;

use super::event::{Event, Stat, StatValue};
use super::id_table::IdTable;
use super::interval::Interval;
use super::names::Names;
use super::space::{Line, MAX_PS, Plane};

/// The role of a stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Role {
    Other = 0,
    Operation = 1,
    Module = 2,
    Program = 3,
    Run = 4,
    Ordinal = 5,
    /// Which kernel of a command buffer.
    GraphNode = 6,
    /// Which launch; all kernels of a command buffer have the same.
    Correlation = 7,
}

impl Role {
    fn of(name: &[u8]) -> Self {
        match name {
            b"hlo_op" => Self::Operation,
            b"hlo_module" => Self::Module,
            b"program_id" => Self::Program,
            b"run_id" => Self::Run,
            b"device_ordinal" => Self::Ordinal,
            b"cuda_graph_node_id" => Self::GraphNode,
            b"correlation_id" => Self::Correlation,
            _ => Self::Other,
        }
    }

    #[inline]
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Operation,
            2 => Self::Module,
            3 => Self::Program,
            4 => Self::Run,
            5 => Self::Ordinal,
            6 => Self::GraphNode,
            7 => Self::Correlation,
            _ => Self::Other,
        }
    }
}

/// How a plane identifies an event's execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Layout {
    /// CPU: thunk events on the host's threads, each with module, program, run and device.
    HostThunks,
    /// GPU: kernels on streams, each with its module and operation.
    DeviceStreams,
    /// TPU: a line of modules and a line of operations, joined by time.
    ModuleLines,
}

/// Lines of module executions: of a core, and of its SparseCores.
pub(super) const MODULE_LINES: [&str; 2] = ["XLA Modules", "Sparse Core Modules"];
/// Lines of their operations.
pub(crate) const OPERATION_LINES: [&str; 2] = ["XLA Ops", "Sparse Core Ops"];

/// A module execution of a modules line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) time: Interval,
    pub(super) module: u32,
    pub(super) program: Option<i64>,
    pub(super) run: Option<i64>,
}

/// A plane with the tables for reading its events fast.
#[derive(Debug)]
pub(super) struct PlaneView<'a> {
    pub(super) plane: Plane<'a>,
    pub(super) layout: Layout,
    /// Role of each stat; a stat that is not in it has no metadata.
    pub(super) roles: IdTable,
    /// The same for ids of one byte on the wire.
    short_roles: [u8; 128],
    /// Number of each stat's name, for references.
    pub(super) references: IdTable,
    /// Number of each event's name; [`END_MARK`] for an event that only marks the end of another.
    pub(super) events: IdTable,
    /// Numbers of the names that XLA gives to command buffers.
    pub(super) buffers: Vec<u32>,
    /// The plane's device, if its name states it.
    pub(super) ordinal: Option<i64>,
    /// Of a SparseCore's plane: the name of its device's plane, and its number.
    pub(super) core: Option<(String, u8)>,
    /// Sorted by start; empty unless the layout is [`Layout::ModuleLines`].
    pub(super) windows: Vec<Window>,
    /// Events of the modules line that could not be used: cannot be decoded, negative duration, out of range.
    pub(super) unusable: [u64; 3],
}

/// How the names begin that XLA gives to command buffers (`CommandBufferThunk`).
pub(super) const COMMAND_BUFFER: &[u8] = b"command_buffer";

/// The role of a stat without metadata.
pub(super) const UNKNOWN: u8 = u8::MAX;

/// The name of an event that is not work.
pub(super) const END_MARK: u32 = u32::MAX - 1;

impl<'a> PlaneView<'a> {
    pub(super) fn new(plane: Plane<'a>, names: &mut Names<'a>) -> Self {
        let name = plane.name();
        let is_of_modules = |line: &Line<'_>| MODULE_LINES.contains(&&*line.name());
        let has_modules = plane.lines().any(|line| is_of_modules(&line) && line.event_count() > 0);
        let layout = match name.starts_with("/device:") {
            true if has_modules => Layout::ModuleLines,
            true => Layout::DeviceStreams,
            false => Layout::HostThunks,
        };
        let roles: Vec<_> = plane.all_stat_names().map(|(id, name)| (id, Role::of(name) as u32)).collect();
        let references: Vec<_> = plane.all_stat_names().map(|(id, name)| (id, names.number(name))).collect();
        let event_names = plane.all_event_metadata().map(|metadata| {
            let (full, display) = (metadata.name(), metadata.display_name());
            let short = if layout == Layout::ModuleLines { instruction_name(full, display) } else { full };
            let number = if full.starts_with(b"end: ") { END_MARK } else { names.number(short) };
            (metadata.id(), number)
        });
        let events: Vec<_> = event_names.collect();
        // a stat refers to its text as to the name of another
        let buffers = plane.all_stat_names().filter(|(_, name)| name.starts_with(COMMAND_BUFFER));
        let buffers = buffers.map(|(_, name)| names.number(name));
        let mut view = Self {
            plane,
            layout,
            roles: IdTable::new(roles.iter().copied()),
            short_roles: [UNKNOWN; 128],
            references: IdTable::new(references.iter().copied()),
            events: IdTable::new(events.iter().copied()),
            buffers: buffers.collect(),
            ordinal: ordinal(&name),
            core: sparse_core(&name),
            windows: Vec::new(),
            unusable: [0; 3],
        };
        for (id, role) in roles {
            if let Some(slot) = usize::try_from(id).ok().and_then(|id| view.short_roles.get_mut(id)) {
                *slot = role as u8;
            }
        }
        if layout == Layout::ModuleLines {
            for line in plane.lines().filter(is_of_modules) {
                view.add_windows(line, names);
            }
            view.windows.sort_by_key(|window| window.time);
        }
        view
    }

    fn add_windows(&mut self, line: Line<'a>, names: &mut Names<'a>) {
        for event in line.events() {
            let Ok(event) = event else {
                self.unusable[0] += 1;
                continue;
            };
            let time = match interval(&line, &event) {
                Ok(time) => time,
                Err(Unusable::Negative) => {
                    self.unusable[1] += 1;
                    continue;
                }
                Err(Unusable::OutOfRange) => {
                    self.unusable[2] += 1;
                    continue;
                }
            };
            let metadata = self.plane.event_metadata(event.metadata_id);
            let (module, mut program) = module_name(metadata.map_or(b"", |metadata| metadata.name()));
            let mut run = None;
            let shared = metadata.into_iter().flat_map(|metadata| metadata.stats());
            for stat in shared.chain(event.stats().filter_map(Result::ok)) {
                match self.roles.get(stat.metadata_id).map(Role::from_number) {
                    Some(Role::Program) => program = stat.value.as_integer().or(program),
                    Some(Role::Run) => run = stat.value.as_integer().or(run),
                    _ => {}
                }
            }
            self.windows.push(Window { time, module: names.number(module), program, run });
        }
    }

    /// The role of a stat, as a number; [`UNKNOWN`] if it has no metadata.
    #[inline(always)]
    pub(super) fn role(&self, stat: &[u8]) -> Result<u8, WireError> {
        // the encoding of every writer: field 1 first, and an id of one byte
        if let [0x08, id @ 0..0x80, rest @ ..] = stat
            && rest.first() != Some(&0x08)
        {
            return Ok(self.short_roles.get(usize::from(*id)).copied().unwrap_or(UNKNOWN));
        }
        let id = Stat::decode(stat)?.metadata_id;
        Ok(self.roles.get(id).map_or(UNKNOWN, |role| role as u8))
    }

    /// The number of a name that a stat holds by reference.
    #[inline]
    pub(super) fn reference(&self, value: StatValue<'_>) -> Option<u32> {
        match value {
            StatValue::Ref(id) => self.references.get(id as i64),
            _ => None,
        }
    }
}

/// Why an event's time cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    Negative,
    OutOfRange,
}

/// An event's time, relative to the XSpace.
pub(super) fn interval(line: &Line<'_>, event: &Event<'_>) -> Result<Interval, Unusable> {
    interval_after(line.base_ps(), event)
}

/// The same, for a line whose base is known.
#[inline]
pub(super) fn interval_after(base_ps: Option<i64>, event: &Event<'_>) -> Result<Interval, Unusable> {
    let duration = event.duration_ps;
    if duration < 0 {
        return Err(Unusable::Negative);
    }
    let start_ps = base_ps.and_then(|base| base.checked_add(event.offset_ps)).ok_or(Unusable::OutOfRange)?;
    let end_ps = start_ps.checked_add(duration).ok_or(Unusable::OutOfRange)?;
    if start_ps.unsigned_abs() > MAX_PS || end_ps.unsigned_abs() > MAX_PS {
        return Err(Unusable::OutOfRange);
    }
    Ok(Interval { start_ps, end_ps })
}

/// The device of a plane: `/device:GPU:3`, `/device:TPU:0 SparseCore 1`.
fn ordinal(name: &str) -> Option<i64> {
    let (_, rest) = name.strip_prefix("/device:")?.rsplit_once(':')?;
    rest.split(' ').next()?.parse().ok()
}

/// `/device:TPU:0 SparseCore 1` is core 1 of `/device:TPU:0`.
fn sparse_core(name: &str) -> Option<(String, u8)> {
    let (device, core) = name.split_once(" SparseCore ")?;
    Some((device.to_owned(), core.parse().ok()?))
}

/// `jit_step(42)` is module `jit_step` of program 42.
pub(crate) fn module_name(name: &[u8]) -> (&[u8], Option<i64>) {
    let split = name.strip_suffix(b")").and_then(|rest| {
        let open = memchr::memrchr(b'(', rest)?;
        let digits = std::str::from_utf8(rest.get(open + 1..)?).ok()?;
        // ids of 64 bits are written as signed or unsigned numbers
        let id = digits.parse().or_else(|_| digits.parse::<u64>().map(|id| id as i64)).ok()?;
        Some((rest.get(..open)?, Some(id)))
    });
    split.unwrap_or((name, None))
}

/// The instruction's name: the display name, or the text before ` = `.
pub(crate) fn instruction_name<'a>(name: &'a [u8], display: &'a [u8]) -> &'a [u8] {
    if !display.is_empty() {
        return display;
    }
    let name = name.strip_prefix(b"%").unwrap_or(name);
    memchr::memmem::find(name, b" = ").and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_planes() {
        assert_eq!(["/device:GPU:3", "/device:TPU:1 SparseCore 0"].map(ordinal), [Some(3), Some(1)]);
        assert_eq!(["/host:CPU", "/device:CUSTOM:Megascale Trace"].map(ordinal), [None; 2]);
        assert_eq!(sparse_core("/device:TPU:1 SparseCore 0"), Some(("/device:TPU:1".to_owned(), 0)));
        assert_eq!(sparse_core("/device:TPU:1"), None);
    }

    #[test]
    fn names_of_modules_and_instructions() {
        assert_eq!(module_name(b"jit_step(42)"), (&b"jit_step"[..], Some(42)));
        assert_eq!(module_name(b"jit_f(18446744073709551615)"), (&b"jit_f"[..], Some(-1)));
        assert_eq!(module_name(b"SyncTensorsGraph"), (&b"SyncTensorsGraph"[..], None));
        assert_eq!(module_name(b"f(x)"), (&b"f(x)"[..], None));
        assert_eq!(instruction_name(b"%fusion.3 = f32[2]{0} fusion(...)", b""), b"fusion.3");
        assert_eq!(instruction_name(b"%fusion.3 = f32[2]{0} fusion(...)", b"fusion.3"), b"fusion.3");
    }
}
