//! tracing on stderr, out of the way of progress bars.

use std::io::{self, IsTerminal, Write};

use indicatif::MultiProgress;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::printable::printable;

/// Starts logging; the bars returned make way for its lines.
pub(super) fn start(verbose: u8, colours: bool) -> MultiProgress {
    let bars = MultiProgress::new();
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    // sled talks of its own affairs at info, and what HTTP carries holds credentials
    let default =
        format!("{level},sled=warn,object_store=warn,reqwest=warn,hyper=warn,hyper_util=warn,h2=warn,rustls=warn");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // what is said holds the words of files, workers and arguments; the colours come from the layer and stay
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
    // a library's user may have set one already
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
