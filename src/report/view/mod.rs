//! A profile as one page: a summary, a timeline to zoom into, and flame graphs. Style, script and events are inside.
//!
//! Like the page of a run ([`super::write_html`]), it needs no network and no other files. Names are inserted as text,
//! and a content security policy lists the digests of the one style and the one script. The script draws the timeline
//! from JSON in the page.

mod calls;
mod choose;
mod commands;
mod compare;
mod flame;
mod page;
mod rows;
mod steps;
mod table;
mod tables;
mod timeline;

pub use commands::view_commands;
pub use compare::AfterPage;
pub use page::{ViewPage, write_view};
pub use timeline::{MAX_EVENTS, Timeline};
