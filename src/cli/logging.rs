//! Writes tracing's lines to stderr, above the progress bars.

use std::env;
use std::io::{self, IsTerminal, Write};

use indicatif::MultiProgress;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;

use crate::printable::printable;

/// Starts logging. The returned bars are hidden while a line is written.
pub(super) fn start(verbose: u8, colours: bool) -> MultiProgress {
    let bars = MultiProgress::new();
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // sled logs internals at info, and HTTP logs contain credentials
    let quiet = ["sled", "object_store", "reqwest", "hyper", "hyper_util", "h2", "rustls"];
    let default = || Targets::new().with_default(level).with_targets(quiet.map(|name| (name, LevelFilter::WARN)));
    let wanted = env::var("RUST_LOG").ok().and_then(|directives| directives.parse().ok());
    let filter: Targets = wanted.unwrap_or_else(default);
    // messages contain text from files, workers and arguments; colours come from the layer and are kept
    let fields = debug_fn(|writer, field, value| {
        let value = printable(&format!("{value:?}"));
        if field.name() == "message" { write!(writer, "{value}") } else { write!(writer, "{field}={value}") }
    });
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(fields.delimited(" "))
        .with_ansi(colours && io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .with_writer(BehindBars(bars.clone()))
        .with_filter(filter);
    let subscriber = tracing_subscriber::registry().with(lines);
    // the user of the library may already have set one
    let _ = tracing::subscriber::set_global_default(subscriber);
    bars
}

#[derive(Clone)]
struct BehindBars(MultiProgress);

impl Write for BehindBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for BehindBars {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
