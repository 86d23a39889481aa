//! A profile as one page: its summary, a timeline to zoom into, and flame graphs, with style, script and events inside.
//!
//! As the page of a run ([`super::write_html`]) it needs no network and nothing beside it; names enter as text, and a content
//! security policy names the digests of the one style and the one script. The script draws the timeline from JSON in the page.

mod calls;
mod choose;
mod commands;
mod compare;
mod flame;
mod page;
mod rows;
mod serve;
mod steps;
mod table;
mod tables;
mod timeline;

pub use commands::view_commands;
pub use compare::AfterPage;
pub use page::{ViewPage, write_view};
pub use serve::Server;
pub use timeline::{MAX_EVENTS, Timeline};
