//! Finds what is known about the operations of modules: by their HLO, by their events, by the custom call that they are
//! a region of, or by the name of their kernel; and says of how many nothing is known.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use crate::counted::{counted, listed};
use crate::hlo::{Costs, HloModule, ProgramMemory};

use super::attribution::{Attribution, KnownBy, UserNames};
use super::by_kind::OfOperation;
use super::modules::{Modules, OfModule};
use super::outside::NAMES_HINT;
use super::programs::Programs;

/// Maximum nesting of regions in a custom call.
const MAX_REGIONS: usize = 16;

/// Looks up operations that are not known yet.
pub(super) fn attribute(modules: &mut Modules, programs: &Programs<'_>, names: UserNames<'_>, notes: &mut Vec<String>) {
    for ((name, program_id), of_module) in modules {
        if of_module.operations.values().all(|operation| operation.attribution.is_some()) {
            continue;
        }
        let module = programs.find(name, *program_id).map(|module| (module, Costs::of(module)));
        if let Some((module, _)) = &module {
            of_module.is_known = true;
            of_module.memory = ProgramMemory::of(module);
            if let Some(files) = programs.guessed_among(name, *program_id) {
                let id = program_id.unwrap_or_default();
                notes.push(format!("none of {files} HLO files of `{name}` has the id {id}: the first one is used"));
            }
        }
        // kernels run on a device's streams
        let of_kernels = of_module.on_streams.then(OnceCell::new);
        let finder = Finder { module, of_kernels, programs, program_id: *program_id, names };
        finder.attribute(&mut of_module.operations);
    }
}

/// Instructions by the names that XLA gives to their kernels, with `_` for what C does not allow. A name that two
/// instructions share identifies neither.
fn kernel_names(module: &HloModule) -> HashMap<String, Option<usize>> {
    let mut names = HashMap::new();
    for (place, instruction) in module.instructions.iter().enumerate() {
        let name = instruction.name().replace(['.', '-'], "_");
        names.entry(name).and_modify(|place| *place = None).or_insert(Some(place));
    }
    names
}

struct Finder<'p, 'a> {
    module: Option<(&'p HloModule, Costs)>,
    /// Instructions by the names of their kernels, once one is looked up; `None` if the program has no kernels.
    of_kernels: Option<OnceCell<HashMap<String, Option<usize>>>>,
    programs: &'p Programs<'a>,
    program_id: Option<i64>,
    names: UserNames<'p>,
}

impl Finder<'_, '_> {
    fn attribute(&self, operations: &mut BTreeMap<String, OfOperation>) {
        for (name, of) in operations.iter_mut().filter(|(_, of)| of.attribution.is_none()) {
            of.attribution = self.find(name, of.time.count == of.time.own.count());
        }
        let regions = operations.iter().filter(|(_, of)| of.is_without_opcode());
        let regions: Vec<(String, Attribution)> =
            regions.filter_map(|(name, of)| Some((name.clone(), call_of(operations, of)?.of_region(name)?))).collect();
        for (name, region) in regions {
            if let Some(of) = operations.get_mut(&name) {
                of.attribution = Some(region);
            }
        }
    }

    fn find(&self, operation: &str, is_single: bool) -> Option<Attribution> {
        let of_hlo = || {
            let (module, costs) = self.module.as_ref()?;
            Attribution::find(module, costs, operation, self.names)
        };
        let of_events = || {
            let facts = self.programs.event_facts(self.program_id, operation)?;
            Some(Attribution::of_events(operation, facts, self.names))
        };
        let of_named_kernel = || {
            let (module, costs) = self.module.as_ref()?;
            let of_kernels = self.of_kernels.as_ref()?.get_or_init(|| kernel_names(module));
            let instruction = module.instructions.get((*of_kernels.get(operation)?)?)?;
            let found = Attribution::find(module, costs, instruction.name(), self.names)?;
            Some(found.of_named_kernel(is_single))
        };
        let of_kernel = || Attribution::of_kernel(operation, self.names);
        of_hlo().or_else(of_events).or_else(of_named_kernel).or_else(of_kernel)
    }
}

impl OfOperation {
    fn is_without_opcode(&self) -> bool {
        self.attribution.as_ref().is_none_or(|known| known.opcode == super::UNKNOWN && !known.communication)
    }
}

/// What is known of the operation that encloses a region.
fn call_of<'o>(operations: &'o BTreeMap<String, OfOperation>, region: &'o OfOperation) -> Option<&'o Attribution> {
    let mut at = region;
    for _ in 0..MAX_REGIONS {
        at = operations.get(at.inside.as_ref()?)?;
        if !at.is_without_opcode() {
            return at.attribution.as_ref();
        }
    }
    None
}

/// What is not known of modules and operations, and what is known by their events alone, one line each.
pub(super) fn missing(modules: &Modules) -> Vec<String> {
    let named =
        |(name, id): &(String, Option<i64>)| format!("`{name}{}`", id.map_or_else(String::new, |id| format!("({id})")));
    let mut notes: Vec<String> = modules.iter().flat_map(|(program, of)| missing_in(&named(program), of)).collect();
    let without_names = modules.iter().filter(|(_, of)| of.has_kernels_without_names());
    let without_names: Vec<String> = without_names.map(|(program, _)| named(program)).collect();
    if !without_names.is_empty() {
        notes.push(format!("kernels of {} name no instruction: {NAMES_HINT}", listed(without_names)));
    }
    notes
}

impl OfModule {
    fn count(&self, is: impl Fn(&OfOperation) -> bool) -> usize {
        self.operations.values().filter(|operation| is(operation)).count()
    }

    fn known_by(&self, by: KnownBy) -> usize {
        self.count(|operation| operation.attribution.as_ref().is_some_and(|known| known.known_by == by))
    }

    fn has_kernels_without_names(&self) -> bool {
        let kernels = self.known_by(KnownBy::Kernel);
        let unknown = self.count(|operation| operation.attribution.is_none());
        // without HLO a name may be an instruction's
        self.on_streams && (kernels > 0 || (self.is_known && unknown > 0))
    }
}

fn missing_in(module: &str, of: &OfModule) -> Vec<String> {
    let by_events = of.known_by(KnownBy::Events);
    let unknown = of.count(|operation| operation.attribution.is_none()) + of.known_by(KnownBy::Kernel);
    let mut notes = Vec::new();
    match (of.is_known, by_events) {
        (false, 1..) => notes.push(format!(
            "no HLO of {module}: of {by_events} of {} operations is known what their events state; give the HLO with \
             `--hlo FILE`",
            of.operations.len()
        )),
        (false, 0) if unknown > 0 => {
            notes.push(format!("no HLO of {module}: its operations are unknown; give it with `--hlo FILE`"));
        }
        (true, _) if unknown + by_events > 0 => {
            notes.push(format!("{} operations of {module} are not instructions of its HLO", unknown + by_events));
        }
        _ => {}
    }
    let named = of.known_by(KnownBy::NamedKernel);
    if named > 0 {
        notes.push(format!(
            "{} of {module} known by the instruction with the same name: XLA runs one for equal fusions, so source and \
             label are known only of those that run once",
            counted(named, "kernel"),
        ));
    }
    let regions = of.known_by(KnownBy::Region);
    if regions > 0 {
        notes.push(format!("{} of custom calls in {module}, counted with their calls", counted(regions, "region")));
    }
    notes
}
