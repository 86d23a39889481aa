//! Two profiles on one page: the second one's flame graph coloured by the difference, and the differences as tables.

use std::collections::BTreeMap;
use std::io;

use maud::{Markup, html};

use crate::analysis::ProfileDiff;
use crate::counted::counted;
use crate::report::profile_diff::{cells_of, columns};

use super::flame::difference;
use super::table::table;

/// A second profile, after a change.
#[derive(Debug, Clone, Copy)]
pub struct AfterPage<'a> {
    /// What was captured: a file's or folder's name.
    pub subject: &'a str,
    /// The differences from the first one.
    pub diff: &'a ProfileDiff,
    /// Nanoseconds by stack of source lines.
    pub by_source: &'a BTreeMap<Vec<String>, f64>,
    /// Nanoseconds by scopes of the `op_name`.
    pub by_op_name: &'a BTreeMap<Vec<String>, f64>,
    /// Module executions that count, in the first and in this one.
    pub executions: [u64; 2],
}

impl<'a> AfterPage<'a> {
    /// Puts a profile beside the first. `stacks` are those by source line and those by scope.
    pub fn new(
        subject: &'a str,
        diff: &'a ProfileDiff,
        [by_source, by_op_name]: [&'a BTreeMap<Vec<String>, f64>; 2],
        executions: [u64; 2],
    ) -> Self {
        Self { subject, diff, by_source, by_op_name, executions }
    }

    /// Draws the section. `before` are the first one's stacks.
    pub(super) fn section(&self, before: [&BTreeMap<Vec<String>, f64>; 2]) -> io::Result<Markup> {
        let [executions, own] = self.executions;
        // scaled to the same number of executions
        let scale = if executions > 0 && own > 0 { own as f64 / executions as f64 } else { 1.0 };
        let [by_source, by_op_name] = before.map(|stacks| -> BTreeMap<Vec<String>, f64> {
            stacks.iter().map(|(stack, ns)| (stack.clone(), ns * scale)).collect()
        });
        Ok(html! {
            section {
                h2 #after { "Before and after" }
                p.fine {
                    "A is the profile above, B is " (self.subject)
                    ". The graphs are of B: a frame that takes more time by itself than in A is red, one that takes \
                     less is blue; deeper colours mean larger changes. Frames that exist only in A appear in the \
                     tables."
                    @if (scale - 1.0).abs() > f64::EPSILON {
                        " A’s times are scaled from " (counted(executions, "module execution")) " to "
                        (counted(own, "execution")) "."
                    }
                }
                (difference("By source line, B against A", [&by_source, self.by_source], false)?)
                (difference("By op_name, B against A", [&by_op_name, self.by_op_name], true)?)
                (table("Differences of modules", &columns(false), self.diff.modules.iter().map(cells_of)))
                (table("Differences of operations", &columns(true), self.diff.operations.iter().map(cells_of)))
                p.fine {
                    "Times are per launch, averaged over devices. Each interval is 95 % for its row alone; p is \
                     adjusted for all rows (Welch, Holm)."
                }
                @for note in &self.diff.notes { p.fine { (note) } }
            }
        })
    }
}
