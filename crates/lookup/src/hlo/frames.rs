//! The call stacks that a module's instructions share.

use std::borrow::Cow;

use bytes::Bytes;

use super::schema::hlo::StackFrameIndexProto;

/// Maximum depth of a stack: a longer or cyclic one ends here.
const MAX_DEPTH: usize = 512;

/// One call of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The file.
    pub file: Cow<'a, str>,
    /// The function; empty if it is not known.
    pub function: Cow<'a, str>,
    /// The line, from one.
    pub line: u64,
    /// The column; zero if it is not known.
    pub column: u64,
}

impl StackFrameIndexProto {
    /// The stack of a frame, the outermost call first.
    pub(super) fn stack(&self, mut id: u64) -> Vec<Frame<'_>> {
        let mut stack = Vec::new();
        while let Some(call) = of_id(&self.stack_frames, id)
            && stack.len() < MAX_DEPTH
        {
            if let Some(place) = of_id(&self.file_locations, call.file_location_id) {
                let (file, function) =
                    (text(&self.file_names, place.file_name_id), text(&self.function_names, place.function_name_id));
                stack.push(Frame { file, function, line: place.line, column: place.column });
            }
            id = call.parent_frame_id;
        }
        stack.reverse();
        stack
    }
}

/// Ids count from one; zero means none.
fn of_id<T>(list: &[T], id: u64) -> Option<&T> {
    list.get(usize::try_from(id.checked_sub(1)?).ok()?)
}

fn text(list: &[Bytes], id: u64) -> Cow<'_, str> {
    of_id(list, id).map(|text| String::from_utf8_lossy(text)).unwrap_or_default()
}
