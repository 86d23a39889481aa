//! Self-contained SVG plots: no script, no font, no network. The same results give the same bytes.
//!
//! Names come from files that anyone may have written; they enter as text. What is drawn is bounded by distinct
//! operations and sizes, not by events.

mod axis;
mod bandwidth;
mod collectives;
mod marks;
mod picture;
mod roofline;
mod skew;
mod spread;
mod waits;

pub use collectives::write_collectives_plot;
pub(in crate::report) use roofline::roofline_plot;
pub use spread::write_spread_plot;
