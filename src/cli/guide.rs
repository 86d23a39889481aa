//! `guide`: the documents, without a browser.

use std::io::Write;

use clap::Args;

use crate::guide::{NoPage, Page, contents};

use super::exit;
use super::fault::Fault;
use super::reference::reference;

#[derive(Debug, Args)]
pub(super) struct GuideArgs {
    /// A page, `TOPIC` or `TOPIC#SECTION` [default: a list of all pages]
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}

/// Prints a page, a section of it, or the list of pages. `shape` is the definition of the whole command line.
pub(super) fn run(args: &GuideArgs, shape: clap::Command, out: &mut dyn Write) -> Result<u8, Fault> {
    let Some(topic) = &args.topic else {
        out.write_all(contents().as_bytes())?;
        return Ok(exit::FINE);
    };
    let (topic, section) = match topic.split_once('#') {
        Some((topic, section)) => (topic, Some(section)),
        None => (topic.as_str(), None),
    };
    let text = match (Page::of_topic(topic)?, section) {
        (None, _) => reference(shape),
        (Some(page), None) => page.to_text(),
        (Some(page), Some(section)) => page.section(section)?,
    };
    out.write_all(text.as_bytes())?;
    Ok(exit::FINE)
}

impl From<NoPage> for Fault {
    fn from(error: NoPage) -> Self {
        Self::new(exit::USAGE, error)
    }
}
