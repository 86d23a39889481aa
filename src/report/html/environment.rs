//! The device, its software, and the notes of the run.

use std::io::{self, Write};

use crate::measured_by::Source;
use crate::report::roofline::roof_line;
use crate::tune::AutotuningResult;

use super::escape::{Prose, Text};

/// What a clock's name means.
pub(super) fn clock_of(source: &Source) -> &'static str {
    match source {
        Source::HostWall => "the host's clock around launch and completion",
        Source::DeviceProfile => "device time, from profiles",
        Source::Replay => "recorded earlier, not measured in this run",
        Source::Other(_) => "not known to this version",
    }
}

/// Writes both, as lists.
pub(super) fn write_environment(result: &AutotuningResult, out: &mut dyn Write) -> io::Result<()> {
    let (identity, environment) = (&result.device.identity, &result.device.environment);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: &str| rows.push((name.to_owned(), value.to_owned()));
    row("Platform", &identity.platform);
    row("Device", &identity.device_kind);
    for (name, value) in &identity.hardware {
        row(name, value);
    }
    row("Platform version", &environment.platform_version);
    row("Driver", environment.driver.as_deref().unwrap_or_default());
    row("Plugin", environment.plugin.as_deref().unwrap_or_default());
    let digest = environment.plugin_digest.map_or_else(String::new, |digest| format!("sha256 {digest}"));
    row("Plugin's digest", &digest);
    row("Plugin's API", environment.plugin_api.as_deref().unwrap_or_default());
    row("XLA flags", &environment.xla_flags.join(" "));
    row("XLA's own autotuning", environment.xla_autotuning.as_deref().unwrap_or_default());
    row("Timer", &result.measured_by.timer);
    row("Clock", &format!("{}: {}", result.measured_by.source, clock_of(&result.measured_by.source)));
    row("A duration is", result.measured_by.metric.as_str());
    row("Caches before a run", result.measured_by.cache_state.as_str());
    if let Some(launch) = &result.measured_by.launch {
        row("Kernels are launched", launch.to_words());
    }
    if let Some(clocks) = result.measured_by.clocks {
        row("The GPU's clocks", &clocks.to_string());
    }
    row("Peaks of the device", &result.peaks.as_ref().map_or_else(String::new, roof_line));
    row("Program", &result.tool);
    write_facts(&rows, &result.notes, out)
}

/// Writes facts by their names, those that are known, and notes.
pub(super) fn write_facts(rows: &[(String, String)], notes: &[String], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<h3>Device and environment</h3><dl class=\"facts\">")?;
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", Text(name), Text(value))?;
    }
    writeln!(out, "</dl>")?;
    if !notes.is_empty() {
        write!(out, "<h3>Notes of the run</h3><ul class=\"notes\">")?;
        for note in notes {
            write!(out, "<li>{}</li>", Prose(note))?;
        }
        writeln!(out, "</ul>")?;
    }
    Ok(())
}
