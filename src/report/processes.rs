//! What fresh processes say about a winner, and what others did meanwhile.

use crate::counted::counted;
use crate::tune::{OperationResult, RivalResult};

use super::figures::format_interval;
use super::format_part;

/// Maximum number of processes whose ratios are listed.
const MOST_LISTED: usize = 16;

/// Returns each process's ratio, and how likely a fresh run decides the same, in one phrase.
pub(super) fn processes_line(operation: &OperationResult) -> Option<String> {
    let known = operation.confirmation.as_ref()?;
    let ratios = known.processes.iter().take(MOST_LISTED);
    let ratios: Vec<String> =
        ratios.map(|one| format!("{:.3}{}", one.ratio, if one.is_contended { " (contended)" } else { "" })).collect();
    let more = if known.processes.len() > MOST_LISTED { ", …" } else { "" };
    let stable = operation.stability.map_or_else(String::new, |part| {
        format!("; a fresh run publishes the same config with a probability of {}", format_part(part))
    });
    let processes = counted(known.processes.len(), "fresh process");
    Some(format!("{processes}: {}{more} of the baseline's time{stable}", ratios.join(", ")))
}

/// Returns what the same processes say about the others that they measured.
pub(super) fn rivals_line(operation: &OperationResult) -> Option<String> {
    let told = |rival: &RivalResult| {
        format!("{} {:.3} ({})", rival.config.to_brief(), rival.ratio, format_interval(rival.interval, 3))
    };
    let told: Vec<String> = operation.rivals.iter().map(told).collect();
    (!told.is_empty()).then(|| format!("beside it: {} of the baseline's time", told.join(", ")))
}

/// Says that a busy machine measured it, if so.
pub(super) fn load_line(operation: &OperationResult) -> Option<String> {
    let line = "measured beside other processes: it holds for such a load, and is not published; tune \
                again when they are gone";
    (!operation.load.is_quiet()).then(|| line.to_owned())
}
