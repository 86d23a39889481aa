//! Whether a recorded call may be the one at a call site, judging by shapes.

use crate::call::Direction;
use crate::hlo::CallSite;
use crate::registry::Invocation;

/// Names of the cotangents among a forward-vjp recording's arguments start with this; a call site need not show them.
pub const COTANGENT_PREFIX: &str = "output_cotangent";

/// Whether the arguments of an invocation all occur among the operands of one call site.
///
/// Order and number do not count: a compiler may reorder operands and pass one array once that the call took twice.
pub(super) fn fits(invocation: &Invocation, sites: &[CallSite]) -> bool {
    let is_operand = |name: &str| invocation.direction == Direction::Forward || !name.starts_with(COTANGENT_PREFIX);
    sites.iter().filter(|site| !site.operands.is_empty()).any(|site| {
        let mut arguments = invocation.arguments.iter().filter(|argument| is_operand(&argument.name));
        arguments.all(|argument| site.operands.contains(&argument.spec))
    })
}

/// Whether any call site shows operands at all.
pub(super) fn are_shown(sites: &[CallSite]) -> bool {
    sites.iter().any(|site| !site.operands.is_empty())
}
