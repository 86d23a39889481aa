//! `bisect`: the first of several compilers under which cached configs no longer hold.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::MultiProgress;

use crate::atomic_write::folder_of;
use crate::io_hint::io_hint;
use crate::outside_file;
use crate::registry::Invocation;
use crate::report::bisect_line;
use crate::upgrade::{BisectOutcome, BisectResult, BisectedCall, Bisection};

use super::compiler_change::{ChangeArgs, ChangeRun};
use super::compiler_side::NamedCompiler;
use super::exit;
use super::fault::Fault;
use super::options::FormatArg;
use super::say::say;
use super::scan::nothing_matched;

/// Length of a list, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Environments in a list.
const MAX_ENVIRONMENTS: usize = 1000;

#[derive(Debug, Args)]
pub(super) struct BisectArgs {
    /// The compilers, the oldest first, one a line: environments of Python with JAX, or PJRT plugins. Paths are relative
    /// to this file; lines that begin with `#` are comments
    #[arg(value_name = "LIST")]
    pub list: PathBuf,
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Compares as few compilers as necessary with the first one, and prints which one changed each call.
pub(super) fn run(args: &BisectArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let listed = Listed::read(&args.list, &args.change)?;
    let change = match ChangeRun::new(&args.change, listed.ends(), bars)? {
        Ok(change) => change,
        Err(scan) => return nothing_matched(&scan, &args.format, out),
    };
    let names = listed.all().map(|one| one.name.clone()).collect();
    let mut bisection = Bisection::new(names, args.change.min_difference);
    let mut is_first = true;
    while let Some((place, new)) = bisection.next_environment().and_then(|place| Some((place, listed.get(place)?))) {
        bars.suspend(|| say(&format!("`{}` beside `{}`", new.name, listed.first.name)));
        let is_wanted = |one: &Invocation| bisection.is_wanted(place, &one.call, one.direction);
        match change.measure([&listed.first, new], None, &is_wanted) {
            Ok((_, Some(error))) => return Err(error.into()),
            Ok((compared, None)) => bisection.add(place, &compared),
            Err(fault) if !is_first && fault.code == exit::INTERRUPTED => bisection.interrupt(),
            Err(fault) if is_first || !is_of_environment(&fault) => return Err(fault),
            Err(fault) => {
                let name = format!("`{}`", new.name);
                let why = fault.message.strip_prefix(&format!("{name}: ")).unwrap_or(&fault.message);
                bars.suspend(|| say(&format!("{name} is left out: {why}")));
                bisection.skip(place, why.to_owned());
            }
        }
        is_first = false;
    }
    let result = bisection.finish();
    args.format.write(out, &result).and_then(|()| out.flush())?;
    say(&bisect_line(&result));
    Ok(exit_code(&result))
}

/// Whether another environment may do better.
fn is_of_environment(fault: &Fault) -> bool {
    [exit::DEVICE_TROUBLE, exit::NOTHING_MATCHED].contains(&fault.code)
}

/// The compilers of a list.
struct Listed {
    first: NamedCompiler,
    others: Vec<NamedCompiler>,
}

impl Listed {
    fn read(path: &Path, change: &ChangeArgs) -> Result<Self, Fault> {
        let unusable = |why: &str| Fault::input(format!("cannot use the list `{}`: {why}", path.display()));
        let bytes = outside_file::input(path, MAX_LIST_BYTES)
            .map_err(|error| unusable(&format!("{error}{}", io_hint(&error))))?;
        let text = String::from_utf8(bytes).map_err(|_| unusable("it is not UTF-8"))?;
        let named: Vec<(usize, &str)> = lines(&text).collect();
        if named.len() > MAX_ENVIRONMENTS {
            return Err(unusable(&format!("it has more than {MAX_ENVIRONMENTS} lines with environments; shorten it")));
        }
        let compiler = |(number, name): &(usize, &str)| {
            let place = folder_of(path).join(name);
            let named = format!("line {number} of `{}`, `{name}`,", path.display());
            // the command line is right, and the file is not
            let compiler = change.side.compiler(&named, (*name).to_owned(), &place);
            let compiler = compiler.map_err(|fault| Fault::input(fault.message))?;
            if change.record.is_some() && compiler.python.is_none() {
                let message = format!("{named} is a plugin: `--record` needs environments of Python with JAX");
                return Err(Fault::input(message));
            }
            Ok(compiler)
        };
        let mut compilers = named.iter().map(compiler).collect::<Result<Vec<_>, Fault>>()?.into_iter();
        match (compilers.next(), compilers.as_slice()) {
            (Some(first), [_, ..]) => Ok(Self { first, others: compilers.collect() }),
            _ => Err(unusable("it names fewer than two environments: add some, one a line, the oldest first")),
        }
    }

    fn all(&self) -> impl Iterator<Item = &NamedCompiler> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The first, and the last.
    fn ends(&self) -> [&NamedCompiler; 2] {
        [&self.first, self.others.last().unwrap_or(&self.first)]
    }

    fn get(&self, place: usize) -> Option<&NamedCompiler> {
        self.all().nth(place)
    }
}

/// The lines that name something, each with its number.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn exit_code(result: &BisectResult) -> u8 {
    let is_unmeasured = |call: &BisectedCall| call.outcome == BisectOutcome::Undecided && call.compared.ratio.is_none();
    if result.interrupted {
        exit::INTERRUPTED
    } else if result.calls.is_empty() {
        exit::NOTHING_MATCHED
    } else if result.calls.iter().any(|call| call.changed.is_some()) {
        exit::REGRESSED
    } else if !result.missed.is_empty() || result.calls.iter().any(is_unmeasured) {
        exit::SOME_FAILED
    } else {
        exit::FINE
    }
}
