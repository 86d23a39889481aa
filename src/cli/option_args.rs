//! The arguments of `--compiler-options`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::Value;

use crate::cache::{OptionPolicy, option_policy};
use crate::candidates::{CompilerOption, OptionClass, OptionSpace, spelled};
use crate::printable::printable;

use super::compiler_options::ModulesToTune;
use super::exit;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::option_modules;
use super::option_setting::setting;
use super::programs::ProgramReader;

/// Parses the class of options that are tried.
fn option_classes() -> impl TypedValueParser<Value = OptionClass> {
    let help = |class: OptionClass| match class {
        OptionClass::Passes => "Passes may also be off",
        OptionClass::FastMath => "Arithmetic may also have fewer guarantees",
        _ => "Semantics stay",
    };
    let classes = OptionClass::ALL.map(|class| PossibleValue::new(class.as_str()).help(help(class)));
    let class = |name: String| OptionClass::ALL.into_iter().find(|class| class.as_str() == name);
    PossibleValuesParser::new(classes).try_map(move |name| class(name).ok_or("it is no class of options"))
}

#[derive(Debug, Clone, Args)]
pub(super) struct OptionArgs {
    /// Also find the compiler options that make the whole module run fastest: `safe`, `passes` (also switch passes off)
    /// or `fast-math` (also change arithmetic) (docs/options.md). The module may be StableHLO, a serialized
    /// HloModuleProto, HLO text from before XLA's passes if the active Python has JAX, or a dump folder, and needs no
    /// label
    #[arg(long = "compiler-options", value_name = "CLASS", value_parser = option_classes())]
    pub compiler_options: Option<OptionClass>,
    /// Ignore labels
    #[arg(long = "only-compiler-options", requires = "compiler_options")]
    pub only_options: bool,
    /// Find one set for all modules of a folder, because `XLA_FLAGS` apply to a whole process: it slows none of them
    /// down and saves the most in all. With --profile, modules are weighted by their time in the step. Only then are
    /// options tried that act on a process, such as `xla_cpu_max_isa`, and no module's cache entry holds one
    /// (docs/options.md)
    #[arg(long, requires = "compiler_options")]
    pub shared: bool,
    /// Try the options of this file, in the format of candidates/options/cpu.json, instead of the program's own
    #[arg(long = "options-file", value_name = "FILE", requires = "compiler_options")]
    pub options_file: Option<PathBuf>,
    /// An option of one compilation that is always set, `NAME=VALUE`; may be repeated. Such options are part of the
    /// baseline
    #[arg(
        long = "base-options",
        value_name = "NAME=VALUE",
        requires = "compiler_options",
        value_parser = setting,
        allow_hyphen_values = true
    )]
    pub base_options: Vec<(String, Value)>,
    #[command(flatten)]
    pub inputs: InputArgs,
}

impl OptionArgs {
    /// The options that the user sets, whatever a module's side file says.
    pub(super) fn own(&self) -> impl Iterator<Item = String> {
        self.base_options.iter().map(|(name, _)| name.clone())
    }

    /// Reads the module, or those of a folder, if compiler options are requested.
    pub(super) fn read(&self, module: &Path, programs: &ProgramReader<'_>) -> Result<Option<ModulesToTune>, Fault> {
        let Some(class) = self.compiler_options else { return Ok(None) };
        let files = option_modules::read(module, programs)?;
        if files.modules.len() > 1 && self.inputs.inputs.is_some() {
            let message = "`--inputs` belong to one program: name one module of the folder";
            return Err(Fault::new(exit::USAGE, message));
        }
        let space = self.options_file.as_deref().map(own_list).transpose()?;
        Ok(Some(ModulesToTune {
            files,
            class,
            space,
            base: self.base_options.clone(),
            inputs: self.inputs.options(),
            is_shared: self.shared,
            shares: None,
        }))
    }
}

/// The user's own list. It has other values of the options that the program's lists have: an entry with others would be
/// refused at every use.
fn own_list(path: &Path) -> Result<OptionSpace, Fault> {
    let wrong = |error| Fault::input(format!("`--options-file` needs a list of compiler options as JSON: {error}"));
    let space = OptionSpace::open(path).map_err(wrong)?;
    let choices = space.options().iter().flat_map(|option| option.values.iter().map(move |value| (option, value)));
    let refused = choices.into_iter().find_map(|(CompilerOption { name, with, .. }, value)| {
        let mut set = std::iter::once((name.as_str(), value)).chain(with.iter());
        set.find(|(name, value)| option_policy(name, value) != OptionPolicy::Allowed)
    });
    match refused {
        Some((name, value)) => {
            let message = format!(
                "`{}`: `{name}={}` is on no list of what an entry may set (docs/options.md): remove it, or always set \
                 it with `--base-options`",
                path.display(),
                printable(&spelled(value))
            );
            Err(Fault::new(exit::BAD_INPUT, message))
        }
        None => Ok(space),
    }
}
