//! `XLA_FLAGS` that kill a plugin, read from its stderr: an unknown flag aborts the process.

use crate::timer::worker_command::WorkerCommand;

const VARIABLE: &str = "XLA_FLAGS";

/// Leaves out of a worker's command the flags that a worker just died of, and returns a note for the user; `None` if it
/// died of something else. Each call leaves out at least one, so a loop around it ends.
pub(crate) fn leave_out_fatal(command: &mut WorkerCommand, stderr: &str) -> Option<String> {
    let given = command.environment.iter().rfind(|(name, _)| name == VARIABLE);
    let flags = given.map_or_else(|| std::env::var_os(VARIABLE), |(_, flags)| flags.clone()).unwrap_or_default();
    let (left, gone) = without_fatal(&flags.to_string_lossy(), stderr)?;
    command.environment.retain(|(name, _)| name != VARIABLE);
    command.environment.push((VARIABLE.into(), Some(left.into())));
    let gone = gone.join(" ");
    Some(format!("this plugin does not accept `{gone}` in {VARIABLE}: it runs without"))
}

/// The flags without those that stderr complains about; `None` if it complains about none.
pub(crate) fn without_fatal(flags: &str, stderr: &str) -> Option<(String, Vec<String>)> {
    let mut fatal: Vec<String> = Vec::new();
    for line in stderr.lines() {
        // tsl/util/command_line_flags.cc and xla/parse_flags_from_env.cc
        if let Some((_, named)) =
            line.split_once("Unknown flags in XLA_FLAGS: ").or(line.split_once("Unknown flag in XLA_FLAGS: "))
        {
            fatal.extend(named.split_whitespace().map(str::to_owned));
        } else if let Some((_, rest)) = line.split_once("Couldn't interpret value ")
            && let Some((_, name)) = rest.rsplit_once(" for flag ")
        {
            let name = name.trim_end_matches('.');
            let wrong = |flag: &&str| {
                let flag = flag.trim_start_matches('-');
                flag == name || flag.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
            };
            fatal.extend(flags.split_whitespace().filter(wrong).map(str::to_owned));
        } else if line.contains("to read flags for environment variable \"XLA_FLAGS\"") {
            // a flags file that cannot be read: the whole value is its name
            fatal.extend(flags.split_whitespace().map(str::to_owned));
        }
    }
    let (gone, left): (Vec<&str>, Vec<&str>) =
        flags.split_whitespace().partition(|flag| fatal.iter().any(|fatal| fatal == flag));
    (!gone.is_empty()).then(|| (left.join(" "), gone.into_iter().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_started_again_without_them() {
        let environment = vec![(VARIABLE.into(), Some("--a --xla_b=1".into())), ("OTHER".into(), None)];
        let mut command = WorkerCommand { exe: "x".into(), environment, ..WorkerCommand::default() };
        assert_eq!(leave_out_fatal(&mut command, "out of memory"), None);
        let note =
            leave_out_fatal(&mut command, "parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --a\n").unwrap();
        assert_eq!(note, "this plugin does not accept `--a` in XLA_FLAGS: it runs without");
        assert_eq!(command.environment, [("OTHER".into(), None), (VARIABLE.into(), Some("--xla_b=1".into()))]);
    }

    #[test]
    fn takes_away_what_the_plugin_names() {
        // a real plugin's last message
        let stderr = "F0000 00:00:1795259173.669504   16982 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: \
                      --bogus_flag=1 --xla_other_thing\n";
        let (left, gone) =
            without_fatal("--bogus_flag=1 --xla_cpu_enable_fast_math=true --xla_other_thing", stderr).unwrap();
        assert_eq!(left, "--xla_cpu_enable_fast_math=true");
        assert_eq!(gone, ["--bogus_flag=1", "--xla_other_thing"]);
        let stderr = "E0000 00:00:1 17010 command_line_flags.cc:93] Couldn't interpret value banana for flag \
                      xla_cpu_enable_fast_math.\n";
        let (left, gone) = without_fatal("--xla_a --xla_cpu_enable_fast_math=banana", stderr).unwrap();
        assert_eq!((left.as_str(), gone.len()), ("--xla_a", 1));
        let stderr = "Could not open file \"bogus\" to read flags for environment variable \"XLA_FLAGS\". (We";
        assert_eq!(without_fatal("bogus", stderr).unwrap().0, "");
        assert_eq!(without_fatal("--xla_a", "all is well"), None);
        assert_eq!(without_fatal("", stderr), None);
    }
}
