//! Whole programs from files; HLO text is converted by JAX.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::measure::{MeasureError, MeasuredProgram};
use crate::timer::{ActivePython, TimerName, WorkerLimits, hlo_text_to_proto};

use super::options::LimitArgs;
use super::say::say;
use super::timers::this_program;

/// Reads programs, and finds a Python whose JAX parses HLO text if necessary.
pub(super) struct ProgramReader<'a> {
    /// The timer, as the user named it: `jax:PYTHON` names a Python.
    timer: &'a str,
    limits: &'a LimitArgs,
    /// Options that the user sets, whatever a side file says.
    own: Vec<String>,
    /// The Python, once it was searched for.
    python: RefCell<Option<Option<PathBuf>>>,
}

impl<'a> ProgramReader<'a> {
    pub(super) fn new(timer: &'a str, limits: &'a LimitArgs) -> Self {
        Self { timer, limits, own: Vec::new(), python: RefCell::new(None) }
    }

    /// The same for a user who sets these options.
    pub(super) fn own(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { own: names.into_iter().collect(), ..self }
    }

    /// A program in any form.
    pub(super) fn open(&self, path: &Path) -> Result<MeasuredProgram, MeasureError> {
        MeasuredProgram::open_with(path, &self.own, |text| {
            let Some(python) = self.python() else {
                return Err(MeasureError::HloText { path: path.to_owned() });
            };
            let not = |reason: String| MeasureError::NotConverted { path: path.to_owned(), reason };
            let exe = this_program().map_err(|fault| not(fault.message))?;
            hlo_text_to_proto(&exe, &python, &WorkerLimits::from(self.limits), text)
                .map_err(|failure| not(format!("the JAX of `{}` does not read it: {failure}", python.display())))
        })
    }

    /// The Python that parses HLO text; a message names it once.
    fn python(&self) -> Option<PathBuf> {
        let find = || {
            let python = match self.timer.parse() {
                Ok(TimerName::Jax(Some(python))) => python,
                _ => ActivePython::find().filter(ActivePython::has_jax)?.python,
            };
            say(&format!("the JAX of `{}` converts HLO text to an HloModuleProto", python.display()));
            Some(python)
        };
        self.python.borrow_mut().get_or_insert_with(find).clone()
    }
}
