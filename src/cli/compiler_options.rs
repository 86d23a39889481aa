//! `--compiler-options`: how a whole module is compiled, tuned beside its labels or alone.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::Args;
use serde_json::Value;

use crate::candidates::{OptionClass, OptionScope, OptionSet, OptionSpace};
use crate::compiler_options::{OPERATION, OptionModule, OptionTuneError, tune_compiler_options};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::measure::InputOptions;
use crate::timer::Timer;
use crate::timer::events::Events;
use crate::tune::{AutotuningResult, TuneOptions};

use super::exit;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::option_modules::{self, OptionFile, OptionFiles};
use super::option_setting::setting;
use super::programs::ProgramReader;
use super::say::say;

#[derive(Debug, Clone, Args)]
pub(super) struct OptionArgs {
    /// Also find the compiler's options that run the whole module fastest: `safe` ones, also `passes` switched off, also `fast-math`
    /// (docs/options.md). The module may be StableHLO, a serialized HloModuleProto, HLO text from before XLA's passes where the active
    /// Python has JAX, or a dump folder, and needs no label
    #[arg(long = "compiler-options", value_name = "CLASS", value_enum)]
    pub compiler_options: Option<OptionClass>,
    /// Leave labels alone
    #[arg(long = "only-compiler-options", requires = "compiler_options")]
    pub only_options: bool,
    /// An option that is set in any case, `NAME=VALUE`; may be given again. Such options are part of the baseline
    #[arg(long = "base-options", value_name = "NAME=VALUE", requires = "compiler_options", value_parser = setting)]
    pub base_options: Vec<(String, Value)>,
    #[command(flatten)]
    pub inputs: InputArgs,
}

/// Modules that are to be tuned, read before any device is started.
pub(super) struct Wanted {
    files: OptionFiles,
    class: OptionClass,
    base: Vec<(String, Value)>,
    inputs: InputOptions,
}

impl OptionArgs {
    /// Reads the module, or those of a folder, where its options are wanted.
    pub(super) fn read(&self, module: &Path, programs: &ProgramReader<'_>) -> Result<Option<Wanted>, Fault> {
        let Some(class) = self.compiler_options else { return Ok(None) };
        let files = option_modules::read(module, programs)?;
        if files.modules.len() > 1 && self.inputs.inputs.is_some() {
            let message = "`--inputs` are those of one program: name one module of the folder";
            return Err(Fault::new(exit::USAGE, message));
        }
        Ok(Some(Wanted { files, class, base: self.base_options.clone(), inputs: self.inputs.options() }))
    }
}

impl Wanted {
    /// Tunes them one after the other, and adds what came of it to a result; where nothing is to be measured, what would be.
    pub(super) fn tune(
        self,
        (timer, ledger): (&mut dyn Timer, &Ledger),
        is_dry: bool,
        options: &TuneOptions,
        cancel: &AtomicBool,
        events: &Events,
        result: &mut AutotuningResult,
    ) -> Result<(), Fault> {
        let platform = timer.device().identity.platform.clone();
        let Some(space) = OptionSpace::built_in(&platform) else {
            let message = format!("no options of the compiler for `{platform}` are known");
            return Err(Fault::new(exit::NOTHING_MATCHED, message));
        };
        let Self { files, class, base, inputs } = self;
        result.notes.extend(files.left_aside);
        let until = options.budget.and_then(|budget| Instant::now().checked_add(budget));
        let mut left = files.modules.len();
        for file in files.modules {
            let OptionFile { name, program, key, flags } = file;
            let (set, note) = set_by_process(space, flags);
            result.notes.extend(note.filter(|note| !result.notes.contains(note)));
            let mut choices = space.choices(class);
            // what the user has set is changed only if named
            choices.retain(|choice| choice.scope == OptionScope::Compile);
            choices.retain(|choice| !set.iter().chain(&base).any(|(name, _)| choice.set.get(name).is_some()));
            let mut module = OptionModule::new(program, key, choices);
            let base = Config::new(set.into_iter().chain(base.iter().cloned()).collect());
            module.base = OptionSet::from_config(&base).map_err(|error| Fault::new(exit::USAGE, error))?;
            module.inputs = inputs.clone();
            if is_dry {
                let mut planned = module.planned();
                if files.are_of_folder {
                    planned.how = name;
                }
                result.take(Some(planned), None);
                continue;
            }
            // what one module leaves of its part is the others'
            let part =
                until.map(|until| until.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1));
            left -= 1;
            let options = TuneOptions { budget: part, ..options.clone() };
            match tune_compiler_options(timer, ledger, &module, &options, cancel, events) {
                Ok(mut tuned) => {
                    if files.are_of_folder {
                        tuned.operation.how = name;
                    }
                    result.take(Some(tuned.operation), tuned.entry);
                }
                // the inputs of one module are no reason to leave the others
                Err(OptionTuneError::Inputs(error)) if files.are_of_folder => {
                    result.notes.push(format!("`{name}` is not tuned: {error}"));
                }
                Err(error) => return Err(fault(error)),
            }
            if result.interrupted {
                break;
            }
        }
        Ok(())
    }
}

/// Which flags of a process are set for this run too, and a line for the others.
fn set_by_process(space: &OptionSpace, flags: Vec<(String, Value)>) -> (Vec<(String, Value)>, Option<String>) {
    let is_known =
        |name: &str| space.options().iter().any(|option| option.name == name && option.scope == OptionScope::Compile);
    let (set, unset): (Vec<_>, Vec<_>) = flags.into_iter().partition(|(name, _)| is_known(name));
    let names: Vec<&str> = unset.iter().map(|(name, _)| name.as_str()).collect();
    let note = (!names.is_empty()).then(|| {
        format!(
            "the module's process sets XLA_FLAGS that act on a process, or that are not known here: {}; set them for this run too",
            names.join(", ")
        )
    });
    (set, note)
}

/// Says how the options are used, where a set was found.
pub(super) fn say_use(result: &AutotuningResult) {
    let found = result.operations.iter().filter(|operation| operation.call.op_id == OPERATION);
    for best in found.filter_map(|operation| operation.best.as_ref()).filter(|best| !best.config.as_map().is_empty()) {
        say(&format!("compile with `compiler_options={}`", best.config.as_str()));
    }
}

fn fault(error: OptionTuneError) -> Fault {
    match error {
        OptionTuneError::Inputs(error) if error.is_of_input() => Fault::input(error),
        OptionTuneError::Inputs(error) => Fault::device(error),
        OptionTuneError::Fatal(error) => error.into(),
    }
}
