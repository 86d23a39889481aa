//! The device, its software, and the notes of the run.

use maud::{Markup, html};

use crate::measured_by::Source;
use crate::report::roofline::roof_line;
use crate::tune::AutotuningResult;

use super::escape::prose;

/// Says what a clock's name means.
pub(super) fn clock_of(source: &Source) -> &'static str {
    match source {
        Source::HostWall => "the host's clock around launch and completion",
        Source::DeviceProfile => "device time, from profiles",
        Source::Replay => "recorded earlier, not measured in this run",
        Source::Other(_) => "not known to this version",
    }
}

/// Draws the device and its software, and the notes, as lists.
pub(super) fn environment(result: &AutotuningResult) -> Markup {
    let (identity, environment) = (&result.device.identity, &result.device.environment);
    let by = &result.measured_by;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let hardware = identity.hardware.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let first = [("Platform", identity.platform.clone()), ("Device", identity.device_kind.clone())];
    let rest = [
        ("Platform version", environment.platform_version.clone()),
        ("Driver", text(&environment.driver)),
        ("Plugin", text(&environment.plugin)),
        ("Plugin's digest", environment.plugin_digest.map_or_else(String::new, |digest| format!("sha256 {digest}"))),
        ("Plugin's API", text(&environment.plugin_api)),
        ("XLA flags", environment.xla_flags.join(" ")),
        ("XLA's own autotuning", text(&environment.xla_autotuning)),
        ("Timer", by.timer.clone()),
        ("Clock", format!("{}: {}", by.source, clock_of(&by.source))),
        ("A duration is", by.metric.as_str().to_owned()),
        ("Caches before a run", by.cache_state.as_str().to_owned()),
        ("Kernels are launched", by.launch.as_ref().map_or_else(String::new, |launch| launch.to_words().to_owned())),
        ("The GPU's clocks", by.clocks.map_or_else(String::new, |clocks| clocks.to_string())),
        ("Peaks of the device", result.peaks.as_ref().map_or_else(String::new, roof_line)),
        ("Program", result.tool.clone()),
    ];
    facts(first.into_iter().chain(hardware).chain(rest), &result.notes)
}

/// Draws facts by their names, those that are known, and notes.
pub(super) fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, String)>, notes: &[String]) -> Markup {
    html! {
        h3 { "Device and environment" }
        dl.facts {
            @for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
        @if !notes.is_empty() {
            h3 { "Notes of the run" }
            ul.notes { @for note in notes { li { (prose(note)) } } }
        }
    }
}
