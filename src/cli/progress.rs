//! The progress of a run on stderr: bars on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::counted::counted;
use crate::failure::Failure;
use crate::printable::printable;
use crate::report::format_ratio;
use crate::timer::events::{Event, EventKind, Sink, Slice};
use crate::tune::Status;

use super::pace::SharedPace;

/// Draws the events of one tuner.
pub(super) struct Progress {
    bars: MultiProgress,
    bar: Option<ProgressBar>,
    on_terminal: bool,
    /// The pace of a run over several operations that are alike.
    pace: Option<SharedPace>,
    /// The operation, alone and with its place in the plan; no place is told of a single one.
    name: String,
    head: String,
    /// How many operations there are.
    of: usize,
    /// Whether the operation is measured in this run, and what is told about the time left.
    is_measured: bool,
    left: String,
    /// Whether a search tries a config: its own rounds are not drawn.
    in_try: bool,
    /// The operation's initial number of candidates.
    programs: usize,
    /// The last reported failure, because many candidates may fail alike.
    failure: Option<Failure>,
}

const COMPILING: &str = "{prefix} compiling {bar:24} {pos}/{len} candidates, {eta} left";
const SEARCHING: &str = "{prefix} searching {bar:24} {pos}/{len} configs, {eta} left";
const MEASURING: &str = "{prefix} measuring {bar:24} {pos}/{len} rounds, {per_sec}";

impl Progress {
    /// Draws between the lines of `bars`.
    pub(super) fn new(bars: MultiProgress) -> Arc<Mutex<Self>> {
        Self::with_pace(bars, None)
    }

    /// The same, which also tells how long the run still takes.
    pub(super) fn with_pace(bars: MultiProgress, pace: Option<SharedPace>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            bars,
            bar: None,
            on_terminal: io::stderr().is_terminal(),
            pace,
            name: String::new(),
            head: String::new(),
            of: 0,
            is_measured: false,
            left: String::new(),
            in_try: false,
            programs: 0,
            failure: None,
        }))
    }

    fn draw(&mut self, at_ns: u64, kind: &EventKind<'_>) {
        match kind {
            EventKind::Begin(Slice::Operation { name, index, of }) => self.begin(name, (*index, *of), at_ns),
            EventKind::End(Slice::Operation { .. }) => self.end(),
            EventKind::Begin(Slice::Search { configs, sampled, .. }) => {
                let sample = if *sampled { ", a sample of more" } else { "" };
                self.plain(&format!("{}: searching {}{sample}", self.head, counted(*configs, "config")));
            }
            EventKind::Begin(Slice::Try { .. }) => self.in_try = true,
            EventKind::End(Slice::Try { .. }) => self.in_try = false,
            EventKind::Begin(Slice::Restart(reason)) => {
                self.line(&format!("{}: worker restarted after {reason}", self.head));
            }
            EventKind::Started { programs, rounds_kept } => {
                (self.programs, self.failure, self.is_measured) = (*programs, None, true);
                self.left = self.time_left(at_ns);
                let kept = match rounds_kept {
                    0 => String::new(),
                    kept => format!(", {} from earlier runs", counted(*kept, "round")),
                };
                self.plain(&format!("{}: {}{kept}{}", self.head, counted(*programs, "program"), self.left));
            }
            EventKind::Evaluated { done, of, best } => self.evaluated(*done, *of, *best),
            EventKind::Prepared { done, of, .. } if !self.in_try => {
                self.advance(COMPILING, *done as u64, *of as u64);
                if done == of {
                    self.plain(&format!("{}: {} ready", self.head, counted(*of, "program")));
                }
            }
            EventKind::Round { done, of, is_most, contenders } if !self.in_try => {
                self.round((*done, *of), *is_most, *contenders);
            }
            EventKind::Failed { config, failure, .. } => {
                let is_known = self.failure.as_ref() == Some(*failure);
                let why = if is_known { "likewise".to_owned() } else { failure.to_string() };
                self.line(&format!("{}: {} is rejected: {why}", self.head, config.to_brief()));
                self.failure = Some((*failure).clone());
            }
            EventKind::Ahead(text) if self.head.is_empty() => self.line(text),
            EventKind::Ahead(text) => self.line(&format!("{}: {text}", self.head)),
            EventKind::Finished { status, reason, speed_up } => {
                self.clear();
                self.line(&finished(&self.name, status, reason, *speed_up));
            }
            _ => {}
        }
    }

    fn begin(&mut self, name: &str, (index, of): (usize, usize), at_ns: u64) {
        self.name = name.to_owned();
        let place = if of > 1 { format!("[{}/{of}] ", index + 1) } else { String::new() };
        self.head = printable(&format!("{place}{name}"));
        (self.programs, self.failure, self.of, self.is_measured) = (0, None, of, false);
        self.left.clear();
        if let Some(pace) = &self.pace {
            pace.lock().unwrap_or_else(PoisonError::into_inner).begin(at_ns);
        }
    }

    fn end(&mut self) {
        self.clear();
        self.head.clear();
        if let Some(pace) = &self.pace {
            pace.lock().unwrap_or_else(PoisonError::into_inner).end(self.is_measured);
        }
    }

    /// The end of a line that an operation begins with.
    fn time_left(&self, at_ns: u64) -> String {
        let pace = self.pace.as_ref().map(|pace| pace.lock().unwrap_or_else(PoisonError::into_inner));
        let left = pace.and_then(|pace| pace.left(at_ns, self.of));
        left.map_or_else(String::new, |left| format!(", {left}"))
    }

    fn evaluated(&mut self, done: usize, of: Option<usize>, best: Option<f64>) {
        let best = best.map_or_else(String::new, |best| format!(", the best at {best:.3} of the baseline's time"));
        self.advance(SEARCHING, done as u64, of.unwrap_or(done) as u64);
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("{}{}{best}", self.head, self.left));
        }
        if done.is_multiple_of(of.unwrap_or(100).div_ceil(5).max(1)) || Some(done) == of {
            let of = of.map_or_else(String::new, |of| format!(" of {of}"));
            self.plain(&format!("{}: {done}{of} configs tried{best}", self.head));
        }
    }

    fn round(&mut self, (done, of): (u32, u32), is_most: bool, contenders: usize) {
        self.advance(MEASURING, u64::from(done), u64::from(of.max(done)));
        let is_smaller = contenders < self.programs;
        if let (Some(bar), true) = (&self.bar, is_smaller) {
            bar.set_prefix(format!("{}{} ({contenders} left)", self.head, self.left));
        }
        // five lines per operation are enough if nothing can be redrawn, and a few more if it continues
        let step = if done <= of { of.div_ceil(5) } else { 2 * of };
        if done.is_multiple_of(step.max(1)) || done == of {
            let of = match done <= of {
                true if is_most => format!(" of {of}"),
                true => String::new(),
                false => ", not settled yet".to_owned(),
            };
            let left = if is_smaller { format!(", {} left", counted(contenders, "candidate")) } else { String::new() };
            self.plain(&format!("{}: round {done}{of}{left}", self.head));
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn advance(&mut self, template: &'static str, done: u64, of: u64) {
        if !self.on_terminal {
            return;
        }
        let starts_over = self.bar.as_ref().is_none_or(|bar| bar.message() != template);
        if starts_over {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            let bar = self.bars.add(ProgressBar::new(of));
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(format!("{}{}", self.head, self.left));
            // the message is not drawn; it identifies the bar
            bar.set_message(template);
            bar.enable_steady_tick(Duration::from_millis(250));
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(done);
        }
    }

    /// A line for output without bars.
    fn plain(&self, text: &str) {
        if !self.on_terminal {
            self.line(text);
        }
    }

    fn line(&self, text: &str) {
        let text = printable(text);
        self.bars.suspend(|| {
            let _ = writeln!(io::stderr(), "{text}");
        });
    }
}

impl Sink for Progress {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        self.draw(event.at_ns, &event.kind);
        Ok(())
    }
}

fn finished(name: &str, status: &str, reason: &str, speed_up: Option<f64>) -> String {
    let says_it_all = [Status::Cached, Status::Planned, Status::NotStarted].map(Status::name).contains(&status);
    match speed_up {
        Some(speed_up) if status == Status::Tuned.name() => {
            format!("{name}: tuned, {} the baseline's speed", format_ratio(speed_up))
        }
        _ if says_it_all => format!("{name}: {status}"),
        _ => format!("{name}: {status}: {reason}"),
    }
}
