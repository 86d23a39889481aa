//! Finding invocations: by operation, call key and device.

use std::sync::Arc;

use serde::Serialize;

use super::{Invocation, NotRunnable, RecordedTarget, Registry};
use crate::call::{Call, Direction};
use crate::device::{DeviceIdentity, DeviceMatch, MatchMode};

impl RecordedTarget {
    /// Whether an invocation for this target may be run on a device. A platform matches every device of it.
    pub fn compare(&self, mode: MatchMode, device: &DeviceIdentity) -> DeviceMatch {
        match self {
            Self::Device(theirs) => mode.compare(device, theirs),
            Self::Platform(platform) if *platform == device.platform => DeviceMatch::Same,
            Self::Platform(platform) if mode == MatchMode::Any => {
                DeviceMatch::Flagged(format!("recorded for the platform `{platform}`"))
            }
            Self::Platform(platform) => DeviceMatch::Miss(format!(
                "recorded for the platform `{platform}`, the device is `{device}`; only `--match any` would accept it"
            )),
        }
    }
}

/// One line of `registry ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedInvocation {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute.
    pub direction: Direction,
    /// The target, in words.
    pub target: String,
    /// Argument specs, `f32[2,128]`.
    pub arguments: Vec<String>,
    /// Number of candidates.
    pub candidates: usize,
    /// Number of different programs among them.
    pub programs: usize,
    /// The baseline config, in brief.
    pub baseline: String,
    /// Why it is not run, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_runnable: Option<String>,
    /// When, seconds since 1970.
    pub recorded_at: u64,
    /// What recorded it.
    pub recorder: String,
}

impl Registry {
    /// Invocations of one operation, of every call key and device. `op_id` may be `name@vN` or the bare name, which
    /// finds every version.
    pub fn of_operation<'a, 'n>(&'a self, op_id: &'n str) -> impl Iterator<Item = &'a Arc<Invocation>> + use<'a, 'n> {
        let named =
            move |invocation: &&Arc<Invocation>| invocation.call.op_id == op_id || invocation.call.op_name() == op_id;
        self.invocations().iter().filter(named)
    }

    /// Why a call that was recorded for the device cannot be tuned from its records alone, if so.
    pub fn not_runnable(
        &self,
        mode: MatchMode,
        device: &DeviceIdentity,
        op_id: &str,
        call_key: &str,
    ) -> Option<NotRunnable> {
        self.of_operation(op_id)
            .filter(|invocation| invocation.call.call_key == call_key)
            .filter(|invocation| !matches!(invocation.target.compare(mode, device), DeviceMatch::Miss(_)))
            .find_map(|invocation| invocation.runnable().err())
    }

    /// One line for each invocation, for `registry ls`.
    pub fn list(&self) -> Vec<ListedInvocation> {
        self.invocations().iter().map(|invocation| listed(invocation)).collect()
    }
}

fn listed(invocation: &Invocation) -> ListedInvocation {
    let groups = invocation.program_groups();
    ListedInvocation {
        call: invocation.call.clone(),
        direction: invocation.direction,
        target: match &invocation.target {
            RecordedTarget::Device(identity) => identity.to_string(),
            RecordedTarget::Platform(platform) => format!("every {platform} device"),
        },
        arguments: invocation.arguments.iter().map(|argument| argument.spec.to_string()).collect(),
        candidates: invocation.candidates.len(),
        programs: groups.iter().filter(|group| group.program.is_some()).count(),
        baseline: invocation.baseline.to_brief(),
        not_runnable: invocation.runnable().err().map(|reason| reason.to_string()),
        recorded_at: invocation.recorded_at,
        recorder: invocation.recorder.clone(),
    }
}
