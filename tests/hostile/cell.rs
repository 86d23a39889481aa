//! A throw-away root with a home, a stranger's repository, and a victim that nothing may touch, in which every access
//! of the program is traced.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use crate::support::folder::in_memory;
use crate::support::prerequisite::{Promised, present};
use crate::support::program::Run;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_autotune-lowered");

/// What was done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Read,
    Write,
    /// Mapped as code.
    Map,
    Execute,
    Connect,
}

pub(crate) type Deed = (Verb, PathBuf);

/// Reading these is what starting a program means; they belong to the system.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev/null", "/dev/urandom"];

/// `repo` holds the stranger's files, `home` and `tmp` are the user's, `victim` is anything else on this machine.
pub(crate) struct Cell {
    root: tempfile::TempDir,
    /// Programs that may be started, and what they do is traced like the rest.
    pub(crate) may_run: Vec<PathBuf>,
    /// Programs that the user named: what they do is their own business.
    pub(crate) may_start: Vec<PathBuf>,
    /// Where a link may lead that the user's folders hold: links are followed to read, and never to write.
    pub(crate) may_read: Vec<PathBuf>,
    /// Where the user asked for output, beside the home and the folder of temporary files.
    pub(crate) may_write: Vec<PathBuf>,
}

impl Cell {
    /// `None`, with the reason printed, where nothing can be traced.
    pub(crate) fn new() -> Option<Self> {
        static CAN_TRACE: LazyLock<Result<(), String>> =
            LazyLock::new(|| match works("strace", &["-ff", "-y", "-o", "/dev/null"]) {
                true => Ok(()),
                false => Err("`strace true` does not work here".to_owned()),
            });
        present(CAN_TRACE.clone(), Promised::ByCi)?;
        let cell = Self {
            root: in_memory(),
            may_run: Vec::new(),
            may_start: Vec::new(),
            may_read: Vec::new(),
            may_write: Vec::new(),
        };
        for folder in ["repo", "home", "tmp", "victim/deep"] {
            fs::create_dir_all(cell.path(folder)).unwrap();
        }
        fs::write(cell.path("victim/secret.bin"), [7; 16]).unwrap();
        cell.script("victim/run", "#!/bin/sh\ntouch \"$0.ran\"\n");
        Some(cell)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A file of the repository.
    pub(crate) fn plant(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("repo").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn script(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Ways to name a file of the victim, from within `repo/DEPTH folders`.
    pub(crate) fn names_of(&self, file: &str, depth: usize) -> Vec<String> {
        let up = "../".repeat(depth + 1);
        let absolute = self.text(&format!("victim/{file}"));
        vec![format!("{up}victim/{file}"), format!("file://{absolute}"), absolute]
    }

    /// Runs the program in the repository, and fails if it did anything that is not allowed, or ended in a panic.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let (run, deeds) = self.traced(PROGRAM, arguments);
        let forbidden: Vec<_> = deeds.iter().filter(|deed| !self.allows(deed)).collect();
        assert!(forbidden.is_empty(), "{arguments:?} did {forbidden:?}\n{}", run.stderr);
        assert!((0..=20).contains(&run.code), "{arguments:?} ended with {}: {}", run.code, run.stderr);
        assert!(!self.path("victim/run.ran").exists(), "{arguments:?} ran a program of the victim");
        run
    }

    /// Runs a program under the tracer; `deeds` are those of the processes that the user did not name.
    pub(crate) fn traced(&self, program: &str, arguments: &[&str]) -> (Run, Vec<Deed>) {
        let (root, traces) = (self.text(""), self.path("trace"));
        drop(fs::remove_dir_all(&traces));
        fs::create_dir(&traces).unwrap();
        let mut command = Command::new("env");
        command.args(["-i", "PATH=/usr/bin:/bin"]).current_dir(self.path("repo"));
        command
            .args(["HOME", "TMPDIR"].iter().zip(["home", "tmp"]).map(|(name, to)| format!("{name}={}", self.text(to))));
        // if an attack succeeds, it finds a root that cannot be written
        static HAS_ROOT: LazyLock<bool> = LazyLock::new(|| works("bwrap", &["--ro-bind", "/", "/", "--dev", "/dev"]));
        if *HAS_ROOT {
            command.args(["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", &root, &root]);
            command.args(["--die-with-parent", "--chdir", &self.text("repo")]);
        }
        command.args(["strace", "-ff", "-y", "-s", "4096", "-e", "trace=%file,execve,mmap,connect"]);
        command.args(["-o", &format!("{}/of", traces.display())]);
        let output = command.arg(program).args(arguments).output().unwrap();
        let mut deeds = Vec::new();
        for file in fs::read_dir(&traces).unwrap() {
            let text = String::from_utf8_lossy(&fs::read(file.unwrap().path()).unwrap()).into_owned();
            self.add_deeds(&text, &mut deeds);
        }
        deeds.sort();
        deeds.dedup();
        (Run::of(output, &[]), deeds)
    }

    /// Adds what one process did, until it became a program that the user named.
    fn add_deeds(&self, trace: &str, deeds: &mut Vec<Deed>) {
        static CALL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\w+)\((.*)\) += (-?\w+)(?:<(.*)>)?").unwrap());
        static PATH: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)""#).unwrap());
        static MAPPED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"PROT_EXEC.*, \d+<([^>]*)>").unwrap());
        let mut here = self.path("repo");
        for line in trace.lines() {
            let Some(call) = CALL.captures(line) else { continue };
            let (name, words, result) = (&call[1], &call[2], call.get(4).map(|path| path.as_str()));
            // the last path is the one that changes: links and renames name what there is first
            let paths = PATH.captures_iter(words).map(|path| {
                let folder = path.get(1).map_or_else(|| here.clone(), |folder| PathBuf::from(folder.as_str()));
                plain(&folder.join(&path[2]))
            });
            let opened = |paths: Vec<PathBuf>| result.map(PathBuf::from).or_else(|| paths.into_iter().next());
            match name {
                "open" | "openat" | "openat2" | "creat" => {
                    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| words.contains(flag));
                    let verb = if writes || name == "creat" { Verb::Write } else { Verb::Read };
                    deeds.extend(opened(paths.collect()).map(|path| (verb, path)));
                }
                "execve" | "execveat" => {
                    let path = paths.collect::<Vec<_>>().swap_remove(0);
                    if self.may_start.contains(&path) {
                        return;
                    }
                    deeds.push((Verb::Execute, path));
                }
                "mmap" => deeds.extend(MAPPED.captures(words).map(|path| (Verb::Map, PathBuf::from(&path[1])))),
                "connect" if words.contains("AF_INET") => deeds.push((Verb::Connect, PathBuf::from(words))),
                "chdir" if result.is_none() => {
                    let folder = paths.last().unwrap();
                    here = folder;
                }
                "symlink" | "symlinkat" => deeds.extend(paths.last().map(|path| (Verb::Write, path))),
                // these look, but not into a file
                "stat" | "lstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2" | "readlink"
                | "readlinkat" | "getcwd" | "chdir" | "statfs" | "connect" => {}
                _ => deeds.extend(paths.map(|path| (Verb::Write, path))),
            }
        }
    }

    fn allows(&self, (verb, path): &Deed) -> bool {
        let is_below = |folder: &Path| path.starts_with(folder);
        let is_users = || ["home", "tmp"].iter().any(|folder| is_below(&self.path(folder)));
        let is_system = || SYSTEM.iter().any(|folder| is_below(Path::new(folder)));
        let is_named = |folders: &[PathBuf]| folders.iter().any(|folder| is_below(folder));
        let is_own = || path == Path::new(PROGRAM);
        match verb {
            Verb::Read => {
                let is_asked = is_named(&self.may_read) || is_named(&self.may_write);
                is_system() || is_own() || is_users() || is_asked || is_below(&self.path("repo"))
            }
            // of a worker: the first to be ended where memory runs out
            Verb::Write if path.starts_with("/proc") => path.ends_with("oom_score_adj"),
            Verb::Write => path == Path::new("/dev/null") || is_users() || is_named(&self.may_write),
            Verb::Map => is_own() || ["/usr", "/lib", "/lib64"].iter().any(|folder| is_below(Path::new(folder))),
            Verb::Execute => is_own() || self.may_run.contains(path),
            Verb::Connect => false,
        }
    }
}

/// Whether a program runs others.
fn works(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).arg("true").output();
    output.is_ok_and(|output| output.status.success())
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Whoever does these things is seen.
#[test]
fn the_tracer_sees_what_a_program_does() {
    let Some(mut cell) = Cell::new() else { return };
    let script = "cat ../victim/secret.bin; : > ../victim/new; mkdir ../victim/folder; ln -s x ../victim/link; \
                  cd ../victim; rm link; mv new other; exec ./run";
    let (run, deeds) = cell.traced("/bin/sh", &["-c", script]);
    let did = |verb, name: &str| deeds.contains(&(verb, cell.path(name)));
    assert!(did(Verb::Read, "victim/secret.bin"), "{deeds:?}\n{}", run.stderr);
    for written in ["new", "folder", "link", "other", "run.ran"] {
        assert!(did(Verb::Write, &format!("victim/{written}")), "{written}: {deeds:?}");
    }
    assert!(did(Verb::Execute, "victim/run"), "{deeds:?}");
    let forbidden =
        deeds.iter().filter(|deed| !cell.allows(deed)).filter(|(_, path)| path.starts_with(cell.path("victim")));
    assert!(forbidden.count() >= 7, "{deeds:?}");
    let (_, deeds) = cell.traced(
        "/usr/bin/python3",
        &[
            "-c",
            "import mmap, os, socket\n\
        f = open('../victim/secret.bin', 'rb')\n\
        mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n\
        socket.socket().connect_ex(('127.0.0.1', 9))",
        ],
    );
    assert!(deeds.contains(&(Verb::Map, cell.path("victim/secret.bin"))), "{deeds:?}");
    assert!(deeds.iter().any(|(verb, _)| *verb == Verb::Connect), "{deeds:?}");
    // deeds of what the user named are its own
    cell.may_start.push("/usr/bin/python3".into());
    let (_, deeds) = cell.traced("/usr/bin/python3", &["-c", "open('../victim/secret.bin', 'rb')"]);
    assert!(deeds.is_empty(), "{deeds:?}");
}
