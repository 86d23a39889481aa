//! `--compiler-options`: tunes how a whole module is compiled, whether it has labels or not.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use crate::cache::{OptionPolicy, option_policy};
use crate::candidates::{CompilerOption, OptionChoice, OptionClass, OptionScope, OptionSpace};
use crate::compiler_flags::{FlagVariable, flags_of};
use crate::compiler_options::{
    OPERATION, OptionModule, OptionTuneError, SharedModule, tune_compiler_options, tune_shared_options,
};
use crate::config::Config;
use crate::counted::{counted, listed};
use crate::measure::{CompiledWith, InputOptions};
use crate::race::{Deadline, RaceOptions, Runner};
use crate::tune::{AutotuningResult, OperationResult, Status, StepProfile, TuneOptions};

use super::exit;
use super::fault::Fault;
use super::option_modules::{OptionFile, OptionFiles};
use super::option_setting::{option_set, settings_of};
use super::say::say;

/// The platform whose compiler also reads `LIBTPU_INIT_ARGS`.
const TPU: &str = "tpu";

/// The modules to tune, read before any device is started.
pub(super) struct ModulesToTune {
    pub(super) files: OptionFiles,
    pub(super) class: OptionClass,
    /// The user's own list.
    pub(super) space: Option<OptionSpace>,
    pub(super) base: Vec<(String, Value)>,
    pub(super) inputs: InputOptions,
    pub(super) is_shared: bool,
    /// Each module's share of a step's time, if a step was profiled.
    pub(super) shares: Option<Vec<f64>>,
}

/// A module with its possible settings.
struct Ready {
    name: String,
    module: OptionModule,
}

impl ModulesToTune {
    /// Orders the modules by their time in a step.
    pub(super) fn by_time(mut self, step: Option<&StepProfile>) -> Self {
        self.shares = step.map(|step| self.files.by_time(step));
        self
    }

    /// Tunes them one after the other, or all together, and adds the outcome to a result. In a dry run, adds what would
    /// be measured.
    pub(super) fn tune(
        mut self,
        runner: &mut Runner<'_>,
        is_dry: bool,
        options: &TuneOptions,
        result: &mut AutotuningResult,
    ) -> Result<(), Fault> {
        let platform = runner.timer.info().device.identity.platform.clone();
        let space = self.space.take();
        if let Some(other) = space.as_ref().map(OptionSpace::platform).filter(|other| *other != platform) {
            let message = format!("`--options-file` is for `{other}`, and the device's platform is `{platform}`");
            return Err(Fault::new(exit::BAD_INPUT, message));
        }
        let Some(space) = space.as_ref().or_else(|| OptionSpace::built_in(&platform)) else {
            let message = format!("no compiler options for `{platform}` are known: name a list with `--options-file`");
            return Err(Fault::new(exit::NOTHING_MATCHED, message));
        };
        if let Some((name, _)) = self.base.iter().find(|(name, _)| acts_on_process(space, name)) {
            let variable = FlagVariable::of_platform(&platform).name();
            let message = format!(
                "`--base-options {name}`: it acts on a process and not on one compilation: set it in {variable} for \
                 this run"
            );
            return Err(Fault::new(exit::USAGE, message));
        }
        let mut notes: Vec<String> = self.files.left_aside.take().into_iter().collect();
        let files = std::mem::take(&mut self.files.modules);
        // what this run's environment sets for every program that it compiles
        let own = settings_of(&runner.timer.info().device.environment.xla_flags.join(" "));
        let modules = files.into_iter().map(|file| self.ready(space, file, &own, &mut notes));
        let mut modules = modules.collect::<Result<Vec<Ready>, Fault>>()?;
        if !runner.timer.info().can.set_process_options {
            notes.extend(without_process_options(&mut modules, &runner.timer.info().name));
        }
        notes.into_iter().for_each(|line| tell(result, line));
        if is_dry {
            for Ready { name, module } in modules {
                let planned = module.planned();
                let how = if self.files.are_of_folder { name } else { planned.how };
                result.take(Some(OperationResult { how, ..planned }), None);
            }
            return Ok(());
        }
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let options = options.race.clone().budget(options.race.budget.or(options.stop_at.map(left)));
        match self.is_shared {
            true => self.tune_shared(runner, modules, &options, result),
            false => self.tune_each(runner, modules, &options, result),
        }
    }

    /// A module with the choices of the class, except for options that the user has set, which change only if named.
    /// `own` are the settings of this run's environment.
    fn ready(
        &self,
        space: &OptionSpace,
        file: OptionFile,
        own: &[(String, Value)],
        notes: &mut Vec<String>,
    ) -> Result<Ready, Fault> {
        let OptionFile { name, program, mut key, mut flags, tpu_flags, named, note: of_file, .. } = file;
        if space.platform() == TPU {
            flags.extend(tpu_flags);
        }
        // an option of a process has no effect as an option of one program, and is not part of an entry
        let (of_process, named): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|(name, _)| acts_on_process(space, name));
        let in_flags = flags.iter().filter(|(name, _)| acts_on_process(space, name)).cloned();
        let of_process: Vec<_> = in_flags.chain(of_process).collect();
        let (mut set, note) = set_by_process(space, flags);
        // an option set for one program overrides that of the process
        set.extend(named);
        notes.extend(note.filter(|note| !notes.contains(note)));
        notes.extend(of_file);
        let skipped = program.compiled_with.as_ref().and_then(CompiledWith::note);
        notes.extend(skipped.filter(|note| !notes.contains(note)));
        let mut choices = space.choices(self.class);
        // an entry holds the options that one program is compiled with
        choices.retain(|choice| choice.scope == OptionScope::Compile || self.is_shared);
        let is_set = |choice: &OptionChoice| {
            let mut set = set.iter().chain(&of_process).chain(&self.base).chain(own);
            set.any(|(name, _)| choice.set.get(name).is_some())
        };
        choices.retain(|choice| !is_set(choice));
        let mut base = self.base.iter();
        if let Some((name, _)) = base.find(|(name, value)| option_policy(name, value) != OptionPolicy::Allowed) {
            key = Err(format!("`--base-options {name}` is on no list of what a cache entry may set"));
        }
        let mut module = OptionModule::new(program, key, choices);
        module.base = option_set(set.into_iter().chain(self.base.iter().cloned()))?;
        module.inputs = self.inputs.clone();
        Ok(Ready { name, module })
    }

    fn tune_each(
        &self,
        runner: &mut Runner<'_>,
        modules: Vec<Ready>,
        options: &RaceOptions,
        result: &mut AutotuningResult,
    ) -> Result<(), Fault> {
        let until = Deadline::after(options.budget);
        let mut left = modules.len();
        for Ready { name, module } in modules {
            // a module leaves its unused time to the others
            let part = until.left().map(|time| time / u32::try_from(left).unwrap_or(1));
            left -= 1;
            let options = options.clone().budget(part);
            match tune_compiler_options(runner, &module, &options) {
                Ok(mut tuned) => {
                    if self.files.are_of_folder {
                        tuned.operation.how = name;
                    }
                    result.take(Some(tuned.operation), tuned.entry);
                }
                // bad inputs of one module do not skip the others
                Err(OptionTuneError::Inputs(error)) if self.files.are_of_folder => {
                    let (status, reason) = (Status::Failed, error.to_string());
                    result.take(Some(OperationResult { how: name, status, reason, ..module.planned() }), None);
                }
                Err(error) => return Err(fault(error)),
            }
            if result.interrupted {
                break;
            }
        }
        Ok(())
    }

    fn tune_shared(
        &self,
        runner: &mut Runner<'_>,
        modules: Vec<Ready>,
        options: &RaceOptions,
        result: &mut AutotuningResult,
    ) -> Result<(), Fault> {
        let mut modules: Vec<SharedModule> =
            modules.into_iter().map(|Ready { name, module }| SharedModule::new(name, module)).collect();
        // the profile of a step that runs none of them says nothing about their time
        if let Some(shares) = self.shares.as_ref().filter(|shares| shares.iter().any(|share| *share > 0.0)) {
            for (shared, share) in modules.iter_mut().zip(shares) {
                shared.weight = *share;
            }
        }
        let base = |module: &OptionModule| {
            // the options that are not tried were set
            let tried: Vec<String> = module.choices.iter().map(OptionChoice::to_string).collect();
            (module.base.to_config(), tried)
        };
        let bases: BTreeSet<(Config, Vec<String>)> = modules.iter().map(|shared| base(&shared.module)).collect();
        if bases.len() > 1 {
            let message =
                "`--shared` is for the modules of one process, and these were dumped with different XLA_FLAGS";
            return Err(Fault::new(exit::USAGE, message));
        }
        let found = tune_shared_options(runner, &modules, options).map_err(fault)?;
        tell(result, format!("one set for {}: {}", counted(modules.len(), "module"), found.reason));
        if let Some(set) = found.set {
            let variable = FlagVariable::of_platform(&runner.timer.info().device.identity.platform);
            let flags = flags_of(&set.to_config()).map_err(|error| Fault::new(exit::BAD_INPUT, error))?;
            tell(result, format!("set for the process: {}='{flags}'", variable.name()));
        }
        let mut entries = found.entries.into_iter().peekable();
        for operation in found.operations {
            let own = entries.next_if(|(key, _)| key.call == operation.call);
            result.take(Some(operation), own);
        }
        Ok(())
    }
}

/// Prints a line and adds it to the result.
fn tell(result: &mut AutotuningResult, line: String) {
    say(&line);
    result.notes.push(line);
}

fn acts_on_process(space: &OptionSpace, name: &str) -> bool {
    space.options().iter().any(|option| option.scope == OptionScope::Process && option.name == name)
}

/// Removes the choices that act on a process. Returns one line on why, if there were any.
fn without_process_options(modules: &mut [Ready], timer: &str) -> Option<String> {
    let mut names = BTreeSet::new();
    for Ready { module, .. } in modules {
        let (process, others): (Vec<OptionChoice>, Vec<OptionChoice>) =
            std::mem::take(&mut module.choices).into_iter().partition(|choice| choice.scope == OptionScope::Process);
        names.extend(process.into_iter().map(|choice| format!("`{}`", choice.name)));
        module.choices = others;
    }
    let names = (!names.is_empty()).then(|| listed(names))?;
    Some(format!(
        "not tried, because they act on a process and the timer `{timer}` compiles in the one that measures: {names}; \
         `--timer pjrt` compiles elsewhere"
    ))
}

/// The process's flags that also apply to this run, and a note on the others.
fn set_by_process(space: &OptionSpace, flags: Vec<(String, Value)>) -> (Vec<(String, Value)>, Option<String>) {
    let known = |name: &str| {
        let of_compilation = |option: &&CompilerOption| option.name == name && option.scope == OptionScope::Compile;
        space.options().iter().find(of_compilation)
    };
    let may = |name: &str, value: &Value| option_policy(name, value) == OptionPolicy::Allowed;
    let (set, unset): (Vec<_>, Vec<_>) =
        flags.into_iter().partition(|(name, value)| known(name).is_some() && may(name, value));
    // as a flag, a boolean may be written as a number
    let typed = |(name, value): (String, Value)| {
        let is_switch = known(&name).is_some_and(|option| option.values.iter().all(Value::is_boolean));
        let value = match value.as_u64().filter(|number| is_switch && *number < 2) {
            Some(number) => Value::Bool(number == 1),
            None => value,
        };
        (name, value)
    };
    let set = set.into_iter().map(typed).collect();
    let names: Vec<&str> = unset.iter().map(|(name, _)| name.as_str()).collect();
    let note = (!names.is_empty()).then(|| {
        format!(
            "the module's process sets XLA_FLAGS that act on a process, or that are unknown here: {}; set them for \
             this run too",
            names.join(", ")
        )
    });
    (set, note)
}

/// Prints how to use the options of each module, if a set was found.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::MeasuredProgram;

    fn wanted(space: OptionSpace) -> ModulesToTune {
        let files = OptionFiles { modules: Vec::new(), are_of_folder: false, left_aside: None };
        let inputs = InputOptions::default();
        ModulesToTune {
            files,
            class: OptionClass::Safe,
            space: Some(space),
            base: Vec::new(),
            inputs,
            is_shared: false,
            shares: None,
        }
    }

    /// The set options and the tried ones of a module whose process had these flags, if this run has others.
    fn ready(platform: &str, flags: [&str; 3]) -> (Value, Vec<String>, Vec<String>) {
        let (Ready { module, .. }, notes) = ready_for(false, platform, flags, &[]);
        let tried = module.choices.iter().map(|choice| choice.name.clone()).collect();
        (json!(module.base.to_config()), tried, notes)
    }

    /// The same for a program with these options of its own. One option of the list acts on a process.
    fn ready_for(
        is_shared: bool,
        platform: &str,
        [xla, tpu, here]: [&str; 3],
        named: &[(&str, Value)],
    ) -> (Ready, Vec<String>) {
        let option = |name: &str, value: &str, scope: &str| {
            format!(
                r#"{{"name": "{name}", "values": [{value}], "kind": "safe", "scope": "{scope}", "does": "d",
                    "source": "s"}}"#
            )
        };
        let compile = [
            ("xla_cpu_enable_fast_math", "true"),
            ("xla_cpu_prefer_vector_width", "2"),
            ("xla_backend_optimization_level", "3"),
        ]
        .map(|(name, value)| option(name, value, "compile"));
        let options = [&compile[..], &[option("xla_cpu_max_isa", "\"AVX2\"", "process")]].concat();
        let list = format!(r#"{{"schema": 1, "platform": "{platform}", "options": [{}]}}"#, options.join(","));
        let wanted = ModulesToTune { is_shared, ..wanted(OptionSpace::parse("list.json", &list).unwrap()) };
        let file = OptionFile {
            name: "m".to_owned(),
            module: None,
            program: MeasuredProgram::of_text("module @m {}"),
            key: Err("none".to_owned()),
            flags: settings_of(xla),
            tpu_flags: settings_of(tpu),
            named: named.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            note: None,
        };
        let mut notes = Vec::new();
        let space = wanted.space.as_ref().unwrap();
        let Ok(ready) = wanted.ready(space, file, &settings_of(here), &mut notes) else { panic!("a module") };
        (ready, notes)
    }

    #[test]
    fn what_acts_on_a_process_is_tried_for_a_process_alone_and_only_where_nobody_set_it() {
        let tries = |is_shared, flags, named: &[(&str, Value)]| {
            let (Ready { module, .. }, _) = ready_for(is_shared, "cpu", flags, named);
            assert_eq!(module.base.get("xla_cpu_max_isa"), None, "it would be in an entry");
            module.choices.iter().any(|choice| choice.name == "xla_cpu_max_isa")
        };
        assert!(tries(true, ["--xla_cpu_enable_fast_math", "", "--xla_cpu_prefer_vector_width=2"], &[]));
        assert!(!tries(false, ["", "", ""], &[]));
        assert!(
            !tries(true, ["--xla_cpu_max_isa=AVX512", "", ""], &[])
                && !tries(true, ["", "", "--xla_cpu_max_isa=AVX512"], &[])
        );
        assert!(
            !tries(true, ["", "", ""], &[("xla_cpu_max_isa", json!("AVX512"))]),
            "as an option of one program it does nothing"
        );
        // other timers compile in the process that measures
        let (ready, _) = ready_for(true, "cpu", ["", "", ""], &[]);
        let mut modules = [ready];
        let line = without_process_options(&mut modules, "jax").unwrap();
        assert!(line.contains("the timer `jax`") && line.contains(": `xla_cpu_max_isa`;"), "{line}");
        assert_eq!(modules[0].module.choices.len(), 3);
        assert_eq!(without_process_options(&mut modules, "jax"), None);
    }

    #[test]
    fn flags_that_the_user_has_set_are_not_tried() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (base, tried, notes) = ready(
            "cpu",
            [
                "--xla_cpu_enable_fast_math --xla_cpu_prefer_vector_width=7 --xla_z",
                "--xla_backend_optimization_level=4",
                "",
            ],
        );
        assert_eq!(
            (base, tried),
            (
                json!({"xla_cpu_enable_fast_math": true, "xla_cpu_prefer_vector_width": 7}),
                names(&["xla_backend_optimization_level"])
            )
        );
        assert!(notes.len() == 1 && notes[0].contains("unknown here: xla_z;"), "{notes:?}");
        // what this run's environment sets is already part of every program
        let (base, tried, _) = ready("cpu", ["--xla_cpu_enable_fast_math=0", "", "--xla_cpu_prefer_vector_width"]);
        assert_eq!(
            (base, tried),
            (json!({"xla_cpu_enable_fast_math": false}), names(&["xla_backend_optimization_level"]))
        );
        let (base, tried, _) =
            ready("tpu", ["--xla_cpu_enable_fast_math", "--xla_cpu_prefer_vector_width=7 --xla_dump_to=/x", ""]);
        assert_eq!(
            base,
            json!({"xla_cpu_enable_fast_math": true, "xla_cpu_prefer_vector_width": 7}),
            "and no path that a side file names"
        );
        assert_eq!(tried, names(&["xla_backend_optimization_level"]));
    }
}
