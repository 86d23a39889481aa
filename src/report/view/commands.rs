//! Commands that show a capture in other programs.

use std::path::{Path, PathBuf};

use crate::analysis::Capture;

/// Returns commands that show these captures, read from these files, in other programs: the purpose and the command of
/// each.
pub fn view_commands(files: &[PathBuf], captures: &[Capture]) -> Vec<(String, String)> {
    let given: Vec<String> = files.iter().map(|file| quoted(file)).collect();
    let perfetto = format!("autotune-lowered profile trace {} -o trace.pftrace", given.join(" "));
    let mut commands =
        vec![("For Perfetto: write a trace, and open it at https://ui.perfetto.dev.".to_owned(), perfetto)];
    let paths: Vec<&Path> = captures.iter().map(Capture::path).filter(|path| *path != Path::new("-")).collect();
    let Some(first) = paths.first() else { return commands };
    if captures.iter().any(|capture| !matches!(capture, Capture::XSpace(_))) {
        // there is no XSpace for TensorBoard
        return commands;
    }
    let what = "For TensorBoard (pip install tensorboard xprof), on its Profile tab:".to_owned();
    let is_plain = |path: &&Path| path.extension().is_some_and(|extension| extension == "pb");
    commands.push(match log_folder(first).filter(|_| paths.iter().all(is_plain)) {
        Some(folder) => (what, format!("tensorboard --logdir {}", quoted(folder))),
        None => {
            let mut lines = vec!["mkdir -p logs/plugins/profile/run".to_owned()];
            for (number, path) in paths.iter().enumerate() {
                let read = if is_plain(path) { "cat" } else { "gzip -dc" };
                lines.push(format!("{read} {} > logs/plugins/profile/run/host{number}.xplane.pb", quoted(path)));
            }
            lines.push("tensorboard --logdir logs".to_owned());
            (what, lines.join(" &&\n"))
        }
    });
    commands
}

/// Returns the log folder that TensorBoard would find a capture in: `LOGDIR/plugins/profile/RUN/HOST.xplane.pb`.
fn log_folder(capture: &Path) -> Option<&Path> {
    let profile = capture.parent()?.parent()?;
    let plugins = profile.parent()?;
    (profile.file_name()? == "profile" && plugins.file_name()? == "plugins").then(|| match plugins.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    })
}

/// Returns a path quoted for a shell: one word that is not taken for an option.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let text = if text.starts_with('-') && text != "-" { format!("./{text}") } else { text };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_take_any_path() {
        assert_eq!(quoted(Path::new("a b'$(c)")), r"'a b'\''$(c)'");
        assert_eq!(quoted(Path::new("-x")), "./-x");
        assert_eq!(log_folder(Path::new("l/plugins/profile/r/h.xplane.pb")), Some(Path::new("l")));
        assert_eq!(log_folder(Path::new("plugins/profile/r/h.xplane.pb")), Some(Path::new(".")));
        assert_eq!(log_folder(Path::new("profile/r/h.xplane.pb")), None);
    }
}
