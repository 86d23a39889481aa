//! The benchmark's flags.

use std::path::{Path, PathBuf};

use autotune_lowered::timer::pjrt::discover;

const HELP: &str = "cargo bench --bench decisions -- [FLAG]…

  --parts LIST        of reference,repeats,wall,peer,aa,flips [all]
  --work DIR          programs and scratch, made once [target/bench-decisions]
  --python PYTHON     makes the programs: has JAX [that of the active environment]
  --peer PYTHON       has ejkernel; without it the peer is left out
  --tune-jax PYTHON   has tune-jax; without it `flips` leaves tune-jax out
  --plugin FILE       PJRT plugin [the one that is found]
  --cases LIST        what is tuned [matmul-64,matmul-256,matmul-512,attention,softmax-matmul,convolution]
  --repeats N         full runs of each minimum improvement [20]
  --keep-executables  a repeat takes over compiled executables, so that it only measures
  --rounds N          interleaved rounds of each half of the reference [40]
  --workers N         measuring processes that share each half's rounds [1]
  --wall N            fresh runs whose wall time is taken [3]
  --peer-repeats N    runs of the peer's tuner, each in a process of its own [3]
  --flip-runs N       fresh runs of each tuner, whose configs are compared [10]
  --aa N              runs of one kernel against itself [40]
  --load K            every part once more, beside K busy processes [0: not again]
  --format FORMAT     markdown or json, on stdout [markdown]
  --tune FLAG         one more argument for every run of the tool; may be given again";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Reference,
    Repeats,
    Wall,
    Peer,
    Aa,
    Flips,
}

const PARTS: [(&str, Part); 6] = [
    ("reference", Part::Reference),
    ("repeats", Part::Repeats),
    ("wall", Part::Wall),
    ("peer", Part::Peer),
    ("aa", Part::Aa),
    ("flips", Part::Flips),
];

/// All cases of `cases.py`.
const CASES: [&str; 6] = ["matmul-64", "matmul-256", "matmul-512", "attention", "softmax-matmul", "convolution"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Markdown,
    Json,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The tool under test; the reference's worker is started from it, too.
    pub(crate) exe: PathBuf,
    pub(crate) plugin: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) peer: Option<PathBuf>,
    pub(crate) tune_jax: Option<PathBuf>,
    parts: Vec<Part>,
    pub(crate) cases: Vec<String>,
    pub(crate) repeats: usize,
    pub(crate) keep_executables: bool,
    pub(crate) rounds: usize,
    pub(crate) workers: usize,
    pub(crate) wall: usize,
    pub(crate) peer_repeats: usize,
    pub(crate) flip_runs: usize,
    pub(crate) aa: usize,
    pub(crate) load: usize,
    pub(crate) format: Format,
    pub(crate) tune: Vec<String>,
}

impl Options {
    pub(crate) fn from_arguments() -> Self {
        // cargo adds `--bench`
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        let mut options = Self::defaults();
        let mut plugin = None;
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("`{word}` needs a value\n\n{HELP}"));
            match word.as_str() {
                "--help" => {
                    println!("{HELP}");
                    std::process::exit(0);
                }
                "--parts" => options.parts = list(&value(), part),
                "--work" => options.work = PathBuf::from(value()),
                "--python" => options.python = PathBuf::from(value()),
                "--peer" => options.peer = Some(PathBuf::from(value())),
                "--tune-jax" => options.tune_jax = Some(PathBuf::from(value())),
                "--plugin" => plugin = Some(PathBuf::from(value())),
                "--cases" => options.cases = list(&value(), case),
                "--repeats" => options.repeats = number(&value()),
                "--keep-executables" => options.keep_executables = true,
                "--rounds" => options.rounds = number(&value()),
                "--workers" => options.workers = number(&value()).max(1),
                "--wall" => options.wall = number(&value()),
                "--peer-repeats" => options.peer_repeats = number(&value()),
                "--flip-runs" => options.flip_runs = number(&value()).max(1),
                "--aa" => options.aa = number(&value()),
                "--load" => options.load = number(&value()),
                "--tune" => options.tune.push(value()),
                "--format" => {
                    options.format = match value().as_str() {
                        "json" => Format::Json,
                        "markdown" => Format::Markdown,
                        other => panic!("`{other}` is neither `markdown` nor `json`"),
                    }
                }
                other => panic!("`{other}` is no flag\n\n{HELP}"),
            }
        }
        std::fs::create_dir_all(&options.work).unwrap();
        // the tool runs in other folders, so the path must be absolute
        options.work = options.work.canonicalize().unwrap();
        options.plugin = discover(plugin.as_deref(), None).unwrap().swap_remove(0).path.canonicalize().unwrap();
        options
    }

    fn defaults() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
        Self {
            exe: env!("CARGO_BIN_EXE_autotune-lowered").into(),
            plugin: PathBuf::new(),
            work: manifest.join("target/bench-decisions"),
            python: environment.unwrap_or_else(|| "python3".into()),
            peer: None,
            tune_jax: None,
            parts: PARTS.iter().map(|(_, part)| *part).collect(),
            cases: CASES.map(str::to_owned).to_vec(),
            repeats: 20,
            keep_executables: false,
            rounds: 40,
            workers: 1,
            wall: 3,
            peer_repeats: 3,
            flip_runs: 10,
            aa: 40,
            load: 0,
            format: Format::Markdown,
            tune: Vec::new(),
        }
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// No load first, then those of `--load`.
    pub(crate) fn loads(&self) -> Vec<usize> {
        if self.load > 0 { vec![0, self.load] } else { vec![0] }
    }
}

fn list<T>(text: &str, item: impl Fn(&str) -> T) -> Vec<T> {
    text.split(',').filter(|word| !word.is_empty()).map(item).collect()
}

fn part(name: &str) -> Part {
    let found = PARTS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("`{name}` is no part\n\n{HELP}")).1
}

fn case(name: &str) -> String {
    assert!(CASES.contains(&name), "`{name}` is no case\n\n{HELP}");
    name.to_owned()
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}
