//! The ranges of compilation in a capture of either kind.

use crate::analysis::Capture;

use super::forest::CompileRange;
use super::nsys::nsys_compile_ranges;
use super::space::space_compile_ranges;

/// A host's compilations; `None` if the capture has no trace of the host.
pub fn compile_ranges(capture: &Capture) -> Option<Vec<CompileRange>> {
    match capture {
        Capture::XSpace(capture) => Some(space_compile_ranges(&capture.space)),
        Capture::Nsys(profile) => profile.host_ranges.as_deref().map(nsys_compile_ranges),
    }
}
