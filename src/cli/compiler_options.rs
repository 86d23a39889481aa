//! `--compiler-options`: how a whole module is compiled, tuned beside its labels or alone.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde_json::{Map, Value};

use crate::candidates::{OptionClass, OptionScope, OptionSet, OptionSpace};
use crate::compiler_options::{OPERATION, OptionModule, OptionTuneError, tune_compiler_options};
use crate::config::Config;
use crate::digest::Digest;
use crate::hlo::compiled_as;
use crate::ledger::Ledger;
use crate::measure::{InputOptions, MeasuredProgram};
use crate::timer::Timer;
use crate::timer::events::Events;
use crate::tune::{AutotuningResult, TuneOptions};

use super::exit;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::say::say;

#[derive(Debug, Clone, Args)]
pub(super) struct OptionArgs {
    /// Also find the compiler's options that run the whole module fastest: `safe` ones, also `passes` switched off, also `fast-math`
    /// (docs/options.md). The module may be StableHLO or a serialized HloModuleProto, and needs no label
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

/// `name=value`, with or without the dashes of XLA_FLAGS; the value as JSON where it is a scalar of it, else a text.
fn setting(text: &str) -> Result<(String, Value), String> {
    let wrong = || format!("`{text}` is no `NAME=VALUE`, such as `xla_backend_optimization_level=2`");
    let (name, value) = text.trim_start_matches("--").split_once('=').ok_or_else(wrong)?;
    let value = match value {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        other => match serde_json::from_str(other) {
            Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
            _ => Value::from(other),
        },
    };
    let setting = Config::new(Map::from_iter([(name.to_owned(), value.clone())]));
    OptionSet::from_config(&setting).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

/// A module that is to be tuned, read before any device is started.
pub(super) struct Wanted {
    program: MeasuredProgram,
    key: Result<Digest, String>,
    class: OptionClass,
    base: Vec<(String, Value)>,
    /// `XLA_FLAGS` of the process that runs it, where that is known.
    flags: Vec<(String, Value)>,
    inputs: InputOptions,
}

impl OptionArgs {
    /// Reads the module, where its options are wanted.
    pub(super) fn read(&self, module: &Path) -> Result<Option<Wanted>, Fault> {
        let Some(class) = self.compiler_options else { return Ok(None) };
        if module == Path::new("-") {
            return Err(Fault::new(exit::USAGE, "`--compiler-options` needs a file: standard input is read once"));
        }
        let program = MeasuredProgram::open(module).map_err(Fault::input)?;
        let side = compiled_as(module).map_err(Fault::input)?.unwrap_or_default();
        // a process computes the text's digest
        let key = program.stablehlo_digest().or(side.stablehlo_digest).ok_or_else(no_key);
        let flags = side.xla_flags.as_deref().unwrap_or_default().split_whitespace();
        let flags = flags.filter_map(|flag| setting(flag).ok()).collect();
        Ok(Some(Wanted { program, key, class, base: self.base_options.clone(), flags, inputs: self.inputs.options() }))
    }
}

fn no_key() -> String {
    "this form does not tell the digest of its StableHLO text; tune the text, or a module that `autotune_lowered.dump` wrote".to_owned()
}

impl Wanted {
    /// Tunes it, and adds what came of it to a result.
    pub(super) fn tune(
        self,
        (timer, ledger): (&mut dyn Timer, &Ledger),
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
        let is_known = |name: &str| {
            space.options().iter().any(|option| option.name == name && option.scope == OptionScope::Compile)
        };
        let (set, unset): (Vec<_>, Vec<_>) = self.flags.into_iter().partition(|(name, _)| is_known(name));
        if !unset.is_empty() {
            let names: Vec<&str> = unset.iter().map(|(name, _)| name.as_str()).collect();
            result.notes.push(format!(
                "the module's process sets XLA_FLAGS that act on a process, or that are not known here: {}; set them for this run too",
                names.join(", ")
            ));
        }
        let mut choices = space.choices(self.class);
        // what the user has set is changed only if named
        choices.retain(|choice| choice.scope == OptionScope::Compile);
        choices.retain(|choice| !set.iter().chain(&self.base).any(|(name, _)| choice.set.get(name).is_some()));
        let mut module = OptionModule::new(self.program, self.key, choices);
        let base = Config::new(set.into_iter().chain(self.base).collect());
        module.base = OptionSet::from_config(&base).map_err(|error| Fault::new(exit::USAGE, error))?;
        module.inputs = self.inputs;
        let tuned = tune_compiler_options(timer, ledger, &module, options, cancel, events).map_err(fault)?;
        result.take(Some(tuned.operation), tuned.entry);
        Ok(())
    }
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
