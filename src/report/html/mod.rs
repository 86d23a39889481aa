//! A run as one self-contained HTML page with its style, script and data, which makes no network requests.
//!
//! Everything visible is drawn here, as text, tables and SVG; the script only sorts and filters. Names and messages
//! come from files that anyone may have written: they enter as text ([`escape`]), and a content security policy names
//! the digests of the one style and the one script that the page may use. The same results make the same bytes.

mod axis;
mod candidates;
mod cells;
mod environment;
mod escape;
mod operation;
mod overview;
pub(super) mod page;
mod processes;
mod run;
mod step;
mod strip;
mod time_breakdown;
mod upgrade;

pub use run::{HtmlReport, write_html};
pub use step::{StepReport, write_step_html};
pub use upgrade::{UpgradeReport, write_upgrade_html};
