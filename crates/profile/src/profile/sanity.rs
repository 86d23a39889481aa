//! The findings of a capture.

use std::collections::{BTreeMap, BTreeSet};

use super::event::text;
use super::execution::Execution;
use super::finding::Finding;
use super::gather::Tally;
use super::index::Index;
use super::plane_view::Layout;
use super::space::XSpace;

pub(super) fn findings(
    space: &XSpace,
    index: &Index<'_, '_>,
    executions: &[Execution],
    names: &[Box<str>],
) -> Vec<Finding> {
    let (mut findings, views) = (Vec::new(), index.views);
    // XLA writes one that it collected from a GPU as an error and as a warning
    let mut said = BTreeSet::new();
    for message in space.errors().iter().chain(space.warnings()).filter(|message| said.insert(*message)).cloned() {
        let dropped = message.to_ascii_lowercase().contains("drop");
        findings.push(if dropped { Finding::DroppedEvents { message } } else { Finding::ProfilerMessage { message } });
    }
    for plane in space.planes() {
        for stat in plane.stats() {
            let name = plane.stat_name(stat.metadata_id).unwrap_or_default();
            let count = stat.value.as_integer().unwrap_or(0);
            if name.starts_with(b"dropped") && count != 0 {
                let message = format!("{} of plane `{}` is {count}", text(name), plane.name());
                findings.push(Finding::DroppedEvents { message });
            }
        }
    }
    let on_devices = views.iter().any(|view| view.layout != Layout::HostThunks);
    if !on_devices && executions.is_empty() {
        let planes = space.planes().map(|plane| format!("`{}`", plane.name())).collect::<Vec<_>>().join(", ");
        findings.push(Finding::NoDevicePlane { planes });
    }
    for ((view, tally), joined) in views.iter().zip(&index.tallies).zip(&index.joined_events) {
        let plane = view.plane.name().into_owned();
        if let (Some((device, _)), events @ 1..) = (&view.core, *joined) {
            findings.push(Finding::JoinedPlane { plane: plane.clone(), device: device.clone(), events });
        }
        let of_plane = || executions.iter().filter(|execution| execution.plane == view.plane.number());
        let events = view.plane.lines().map(|line| line.event_count()).sum();
        if view.layout != Layout::HostThunks && events > 0 && *joined == 0 && of_plane().next().is_none() {
            findings.push(Finding::NoExecutions { plane: plane.clone(), events });
        }
        let without = of_plane().filter(|execution| execution.events == 0).count() as u64;
        if without > 0 {
            findings.push(Finding::NoOperations { plane: plane.clone(), executions: without });
        }
        findings.extend(of_tally(&plane, tally, view.unusable));
    }
    for &(view, line, events) in &index.backwards {
        let Some(view) = views.get(view) else { continue };
        let line = view.plane.lines().nth(line).map(|line| line.name().into_owned()).unwrap_or_default();
        findings.push(Finding::ClockBackwards { plane: view.plane.name().into_owned(), line, events });
    }
    let mut without_run = BTreeMap::<u32, u64>::new();
    for execution in executions.iter().filter(|one| one.layout == Layout::DeviceStreams && one.run_id.is_none()) {
        *without_run.entry(execution.module.0).or_default() += 1;
    }
    findings.extend(without_run.into_iter().map(|(module, executions)| Finding::SplitByFirstOperation {
        module: names.get(module as usize).map(|name| name.to_string()).unwrap_or_default(),
        executions,
    }));
    findings
}

fn of_tally(plane: &str, tally: &Tally, unusable: [u64; 3]) -> Vec<Finding> {
    let plane = || plane.to_owned();
    let [malformed, negative, out_of_range] = unusable;
    let mut findings = Vec::new();
    let mut add = |events: u64, make: &dyn Fn(u64) -> Finding| {
        if events > 0 {
            findings.push(make(events));
        }
    };
    add(tally.malformed + malformed, &|events| Finding::MalformedEvents { plane: plane(), events });
    add(tally.unknown, &|references| Finding::UnknownMetadata { plane: plane(), references });
    add(tally.negative + negative, &|events| Finding::NegativeDurations { plane: plane(), events });
    add(tally.out_of_range + out_of_range, &|events| Finding::TimeOutOfRange { plane: plane(), events });
    add(tally.outside, &|events| Finding::OutsideModules { plane: plane(), events });
    findings
}
