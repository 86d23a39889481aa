//! `profile view`: a profile as one page, served on loopback or written to a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::analysis::trace::write_file;
use crate::analysis::{Capture, HloFiles, StacksBy, SummaryOptions, stacks_by, summarize};
use crate::cli::fault::Fault;
use crate::cli::options::LabelArgs;
use crate::cli::say::say;
use crate::cli::scan::user_labels;
use crate::cli::{ending, exit};
use crate::report::{MAX_EVENTS, Timeline, ViewPage, write_view};

use super::input::read_any;
use super::serve::Server;
use super::summary::ModulesArgs;

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// XSpaces (`.xplane.pb`), gzip of them, log folders of TensorBoard (the newest run, all hosts), `-`; captures of nsys-jax,
    /// one a process, as a zip or a folder
    #[arg(value_name = "FILE|LOGDIR", required = true)]
    files: Vec<PathBuf>,
    /// Port of 127.0.0.1 to serve on [default: one that is free]
    #[arg(long, value_name = "N", conflicts_with = "output")]
    port: Option<u16>,
    /// Write the page to a file and end; one that is there is replaced. `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Serve nothing, which `-o` says already
    #[arg(long, requires = "output")]
    no_serve: bool,
    #[command(flatten)]
    modules: ModulesArgs,
    #[command(flatten)]
    labels: LabelArgs,
}

pub(super) fn view(args: &ViewArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let user = user_labels(&args.labels)?;
    let files = HloFiles::open(&args.modules.counted.hlo).map_err(Fault::input)?;
    // a port that is taken is told before a large capture is read
    let server = match args.output {
        None => Some(Server::bind(args.port)?),
        Some(_) => None,
    };
    let captures = read_any(&args.files, &files)?;
    let timeline = Timeline::new(&captures, MAX_EVENTS);
    if timeline.drawn == 0 {
        return Err(Fault::new(
            exit::NOTHING_MATCHED,
            "the capture has no event with a time: there is nothing to view",
        ));
    }
    let options = SummaryOptions { counting: args.modules.counting(), labels: user.as_ref() };
    let frames = [StacksBy::Source, StacksBy::OpName];
    let [by_source, by_op_name] = stacks_by(&captures, &files, frames, args.modules.counting());
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let page = ViewPage {
        subject: &names.join(", "),
        summary: &summarize(&captures, &files, options),
        timeline: &timeline,
        by_source: &by_source.time_ns,
        by_op_name: &by_op_name.time_ns,
        commands: &commands(&args.files, &captures),
    };
    match (&args.output, server) {
        (Some(path), _) if path == Path::new("-") => write_view(out, &page)?,
        (Some(path), _) => {
            write_file(path, false, |file| write_view(file, &page)).map_err(Fault::input)?;
            writeln!(out, "{}", path.display())?;
        }
        (None, Some(server)) => {
            let mut bytes = Vec::new();
            write_view(&mut bytes, &page)?;
            drop(captures);
            ending::end_with(exit::FINE)?;
            writeln!(out, "{}", server.url())?;
            out.flush()?;
            say("open it in a browser of this machine; Ctrl-C ends");
            server.run(bytes);
        }
        (None, None) => {}
    }
    Ok(exit::FINE)
}

/// What shows the same in other programs.
fn commands(files: &[PathBuf], captures: &[Capture]) -> Vec<(String, String)> {
    let given: Vec<String> = files.iter().map(|file| quoted(file)).collect();
    let perfetto = format!("autotune-lowered profile trace {} -o trace.pftrace", given.join(" "));
    let mut commands =
        vec![("For Perfetto: write a trace, and open it at https://ui.perfetto.dev.".to_owned(), perfetto)];
    let paths: Vec<&Path> = captures.iter().map(Capture::path).filter(|path| *path != Path::new("-")).collect();
    let Some(first) = paths.first() else { return commands };
    if captures.iter().any(|capture| !matches!(capture, Capture::XSpace(_))) {
        // no XSpace that TensorBoard would read
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

/// The log folder that TensorBoard would find a capture in: `LOGDIR/plugins/profile/RUN/HOST.xplane.pb`.
fn log_folder(capture: &Path) -> Option<&Path> {
    let profile = capture.parent()?.parent()?;
    let plugins = profile.parent()?;
    (profile.file_name()? == "profile" && plugins.file_name()? == "plugins").then(|| match plugins.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    })
}

/// A path as a shell takes it: one word, and no option.
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
