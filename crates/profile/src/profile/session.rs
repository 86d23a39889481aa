//! What is read of a log folder: its newest run, with the hosts of the same launch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::ProfileError;
use super::run_order::seconds;
use super::runs::{CaptureRun, capture_runs, captures_in};
use crate::counted::counted;

/// Each host names its run by its own second. Runs of different hosts that began within this belong to one launch.
const ONE_LAUNCH_SECONDS: u64 = 30;
/// Runs of other hosts that began within this may belong to it.
const MAYBE_ONE_LAUNCH_SECONDS: u64 = 600;

/// The captures of one launch in a log folder.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// One per host.
    pub(super) files: Vec<PathBuf>,
    /// Which run they are, and what was not read, one line each.
    pub(super) notes: Vec<String>,
}

/// The newest run of a log folder. A folder of captures is one run.
///
/// # Errors
/// If the folder cannot be read, or holds no capture.
pub(super) fn newest_session(folder: &Path) -> Result<Session, ProfileError> {
    let files = captures_in(folder).unwrap_or_default();
    if !files.is_empty() {
        return Ok(Session { files, notes: Vec::new() });
    }
    let runs = capture_runs(folder)?;
    let Launch { runs: read, maybe } = Launch::newest(&runs);
    let names = |runs: &[&CaptureRun]| runs.iter().map(|run| format!("`{}`", run.name)).collect::<Vec<_>>().join(", ");
    let which = match (read.len(), runs.len()) {
        (1, 1) => names(&read),
        (1, all) => format!("{}, the newest of {all}; `profile list` names them all", names(&read)),
        (hosts, all) => {
            let hosts = counted(hosts, "run");
            format!("{}: {hosts} of one launch, by their hosts and times, the newest of {all}", names(&read))
        }
    };
    let mut notes = vec![format!("reading `{}`: {which}", folder.display())];
    if !maybe.is_empty() {
        let folders: Vec<String> = read.iter().chain(&maybe).map(|run| run.folder().display().to_string()).collect();
        notes.push(format!(
            "{} began within {} minutes of it and is not read; if it is of the same launch, give all: {}",
            names(&maybe),
            MAYBE_ONE_LAUNCH_SECONDS / 60,
            folders.join(" ")
        ));
    }
    let mut files: Vec<PathBuf> = read.iter().flat_map(|run| &run.files).map(|file| file.path.clone()).collect();
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    Ok(Session { files, notes })
}

/// The newest run, and those before it that began at about the same time beside it, on other hosts.
struct Launch<'r> {
    /// The newest first.
    runs: Vec<&'r CaptureRun>,
    /// Those that may belong to it.
    maybe: Vec<&'r CaptureRun>,
}

impl<'r> Launch<'r> {
    fn newest(sorted: &'r [CaptureRun]) -> Self {
        let Some((newest, before)) = sorted.split_last() else { return Self { runs: Vec::new(), maybe: Vec::new() } };
        let mut launch = Self { runs: vec![newest], maybe: Vec::new() };
        let hosts = |run: &'r CaptureRun| run.files.iter().map(|file| file.host.as_str());
        let mut taken: BTreeSet<&str> = hosts(newest).collect();
        for run in before.iter().rev() {
            let apart = seconds(&newest.name).zip(seconds(&run.name)).map(|(newest, time)| newest.abs_diff(time));
            let is_beside = run.folder().parent() == newest.folder().parent();
            let Some(apart) = apart.filter(|apart| is_beside && *apart <= MAYBE_ONE_LAUNCH_SECONDS) else { break };
            // a host's earlier run ends the launch, unless hosts share a name
            let is_of_others = hosts(run).all(|host| taken.insert(host));
            match (is_of_others, apart <= ONE_LAUNCH_SECONDS) {
                (true, true) => launch.runs.push(run),
                (true, false) | (false, true) => launch.maybe.push(run),
                (false, false) => {}
            }
            if !is_of_others {
                break;
            }
        }
        launch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_launch_are_read_together() {
        let launch = |runs: &[(&str, &[&str])]| {
            let run = |(name, hosts): &(&str, &[&str])| CaptureRun::of_hosts(&format!("logs/{name}"), hosts);
            let runs: Vec<CaptureRun> = runs.iter().map(run).collect();
            let Launch { runs, maybe } = Launch::newest(&runs);
            let names = |runs: &[&CaptureRun]| runs.iter().map(|run| run.name[5..].to_owned()).collect::<Vec<_>>();
            (names(&runs), names(&maybe))
        };
        let (first, second) = ("2026_05_06_04_59_59", "2026_05_06_05_00_01");
        assert_eq!(launch(&[(first, &["a"]), (second, &["b"])]).0, [second, first]);
        // the same host again: an earlier run, or a host of the same name
        let again = launch(&[("2026_05_06_04_59_00", &["b"]), (first, &["a"]), (second, &["b", "c"])]);
        assert_eq!(again, (vec![second.to_owned(), first.to_owned()], vec![]));
        assert_eq!(launch(&[(first, &["a"]), (second, &["a"])]), (vec![second.to_owned()], vec![first.to_owned()]));
        let minutes = launch(&[("2026_05_06_04_55_00", &["a"]), (second, &["b"])]);
        assert_eq!(minutes, (vec![second.to_owned()], vec!["2026_05_06_04_55_00".to_owned()]));
        assert_eq!(launch(&[("run_1", &["a"]), ("run_2", &["b"])]), (vec!["run_2".to_owned()], vec![]));
    }
}
