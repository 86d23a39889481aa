//! Options of a compiling process: flags after the user's own, in the variable that its plugin reads when it is loaded.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::compiler_flags::{FlagVariable, flags_of};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::timer::pjrt::plugin::without_fatal;
use crate::timer::refusals::NOT_ACCEPTED;
use crate::timer::worker_command::WorkerCommand;

/// What a compile worker is started with in addition to every worker's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessFlags {
    variable: FlagVariable,
    /// At least one flag, separated by spaces.
    flags: String,
    /// The user's own flags as in the device's worker, including those of a file.
    own: Vec<String>,
}

impl ProcessFlags {
    /// The flags that set these options for a device's plugin; `None` if there are no options.
    pub(crate) fn of(device: &DeviceFingerprint, options: &BTreeMap<String, String>) -> Result<Option<Self>, Failure> {
        if options.is_empty() {
            return Ok(None);
        }
        let text = |(name, value): (&String, &String)| (name.clone(), Value::from(value.as_str()));
        let flags = flags_of(&Config::new(options.iter().map(text).collect()));
        let flags = flags.map_err(|message| Failure::new(FailureKind::Compile, message))?;
        let variable = FlagVariable::of_platform(&device.identity.platform);
        Ok(Some(Self { variable, flags, own: device.environment.xla_flags.clone() }))
    }

    /// All flags as in an executable's key: the same as if the user had set them.
    pub(crate) fn in_key(&self) -> Vec<String> {
        let mut all = self.own.clone();
        all.extend(self.flags.split_whitespace().map(str::to_owned));
        all.sort_by(|one, other| one.split('=').next().cmp(&other.split('=').next()));
        all
    }

    /// A worker's command with the flags after the user's.
    pub(crate) fn added_to(&self, command: &WorkerCommand) -> WorkerCommand {
        let mut command = command.clone();
        let name = self.variable.name();
        let given = command.environment.iter().rfind(|(known, _)| known == name);
        let mut text = given.map_or_else(|| std::env::var_os(name), |(_, value)| value.clone()).unwrap_or_default();
        let names_a_file = {
            let text = text.to_string_lossy();
            !text.trim_start().is_empty() && !text.trim_start().starts_with('-')
        };
        if names_a_file && self.variable == FlagVariable::XlaFlags {
            text = self.own.join(" ").into();
        }
        if !text.is_empty() {
            text.push(" ");
        }
        text.push(&self.flags);
        command.environment.retain(|(known, _)| known != name);
        command.environment.push((name.into(), Some(text)));
        command
    }

    /// Explains from its stderr why a worker with these flags ended: an unknown flag is the option's fault.
    pub(crate) fn explained(&self, failure: Failure, stderr: &str) -> Failure {
        let name = self.variable.name();
        let gone = without_fatal(&self.flags, stderr).and_then(|(_, gone)| gone.into_iter().next());
        match gone {
            Some(flag) => Failure::new(FailureKind::Compile, format!("{NOT_ACCEPTED}{flag}` in {name}")),
            None => Failure::new(failure.kind, format!("with `{}` in {name}: {}", self.flags, failure.message)),
        }
    }

    /// Why a program is not timed if its executable cannot be loaded in another process.
    pub(crate) fn not_loaded(&self, why: &str) -> Failure {
        let message = format!(
            "`{}` acts on the process that compiles, and what it compiled cannot be loaded into the one that measures: \
             {why}",
            self.flags
        );
        Failure::new(FailureKind::Compile, message)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::device::{DeviceIdentity, Environment};

    fn flags(platform: &str, own: &[&str], options: &[(&str, &str)]) -> Result<Option<ProcessFlags>, Failure> {
        let identity =
            DeviceIdentity { platform: platform.to_owned(), device_kind: String::new(), hardware: BTreeMap::new() };
        let environment = Environment::default().xla_flags(own.iter().map(|flag| (*flag).to_owned()).collect());
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ProcessFlags::of(&DeviceFingerprint { identity, environment }, &options)
    }

    fn variable(flags: &ProcessFlags, own: &str) -> Vec<(OsString, Option<OsString>)> {
        let name = flags.variable.name().into();
        let environment = vec![(name, Some(own.into())), ("OTHER".into(), None)];
        let command = WorkerCommand { exe: "x".into(), environment, ..WorkerCommand::default() };
        flags.added_to(&command).environment
    }

    #[test]
    fn the_users_own_flags_stay() {
        assert_eq!(flags("cpu", &[], &[]), Ok(None));
        let options = [("xla_b", "True"), ("xla_c", "AVX2")];
        let cpu = flags("cpu", &["--xla_a=1", "--xla_z=2"], &options).unwrap().unwrap();
        let with = |text: &str| ("XLA_FLAGS".into(), Some(OsString::from(text)));
        let other = ("OTHER".into(), None);
        assert_eq!(
            variable(&cpu, "--xla_z=2 --xla_a=1"),
            [other.clone(), with("--xla_z=2 --xla_a=1 --xla_b=true --xla_c=AVX2")]
        );
        // nothing can be appended to a file of flags
        assert_eq!(variable(&cpu, "flags.txt"), [other, with("--xla_a=1 --xla_z=2 --xla_b=true --xla_c=AVX2")]);
        // as in a process that was started with them
        assert_eq!(cpu.in_key(), ["--xla_a=1", "--xla_b=true", "--xla_c=AVX2", "--xla_z=2"]);
        let tpu = flags("tpu", &["--xla_a=1"], &options).unwrap().unwrap();
        assert_eq!(variable(&tpu, "--d").last().unwrap().1.as_deref().unwrap(), "--d --xla_b=true --xla_c=AVX2");
        assert_eq!(tpu.in_key(), ["--xla_a=1", "--xla_b=true", "--xla_c=AVX2"]);
        let blank = flags("cpu", &[], &[("xla_b", "a b")]).unwrap_err();
        assert_eq!((blank.kind, &*blank.message), (FailureKind::Compile, "`xla_b` has a value with blanks or quotes"));
    }

    #[test]
    fn a_worker_that_dies_of_a_flag_says_which() {
        let flags = flags("cpu", &[], &[("xla_b", "True"), ("xla_c", "x")]).unwrap().unwrap();
        let died = Failure::new(FailureKind::Device, "the worker died of SIGABRT");
        // a real plugin's message
        let stderr = "F0000 00:00:1 17 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: --xla_c=x \n";
        let refused = flags.explained(died.clone(), stderr);
        assert_eq!(refused.to_string(), "compile: this plugin does not accept `--xla_c=x` in XLA_FLAGS");
        let other = flags.explained(died, "out of memory");
        assert_eq!(
            (other.kind, &*other.message),
            (FailureKind::Device, "with `--xla_b=true --xla_c=x` in XLA_FLAGS: the worker died of SIGABRT")
        );
    }
}
