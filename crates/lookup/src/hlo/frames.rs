//! `StackFrameIndexProto`: the call stacks that a module's instructions share. Ids count from one; zero means none.

use std::borrow::Cow;

use crate::wire::{WireCursor, WireError, WireValue};

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

#[derive(Debug, Default)]
pub(super) struct Frames<'a> {
    files: Vec<Cow<'a, str>>,
    functions: Vec<Cow<'a, str>>,
    /// File, function, line, column.
    locations: Vec<[u64; 4]>,
    /// Location, parent.
    frames: Vec<[u64; 2]>,
}

impl<'a> Frames<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut frames = Self::default();
        for field in WireCursor::new(bytes) {
            match field? {
                (1, WireValue::Bytes(name)) => frames.files.push(String::from_utf8_lossy(name)),
                (2, WireValue::Bytes(name)) => frames.functions.push(String::from_utf8_lossy(name)),
                (3, WireValue::Bytes(location)) => frames.locations.push(numbers(location)?),
                (4, WireValue::Bytes(frame)) => frames.frames.push(numbers(frame)?),
                _ => {}
            }
        }
        Ok(frames)
    }

    /// The stack of a frame, the outermost call first.
    pub(super) fn stack(&self, mut id: u64) -> Vec<Frame<'a>> {
        let mut stack = Vec::new();
        while let Some(&[location, parent]) = of_id(&self.frames, id)
            && stack.len() < MAX_DEPTH
        {
            if let Some(&[file, function, line, column]) = of_id(&self.locations, location) {
                let text = |list: &[Cow<'a, str>], id| of_id(list, id).cloned().unwrap_or_default();
                let (file, function) = (text(&self.files, file), text(&self.functions, function));
                stack.push(Frame { file, function, line, column });
            }
            id = parent;
        }
        stack.reverse();
        stack
    }
}

fn of_id<T>(list: &[T], id: u64) -> Option<&T> {
    list.get(usize::try_from(id.checked_sub(1)?).ok()?)
}

/// The fields 1 to N of a message, all numbers.
fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N], WireError> {
    let mut numbers = [0; N];
    for field in WireCursor::new(bytes) {
        if let (number, WireValue::Varint(value)) = field?
            && let Some(slot) = (number as usize).checked_sub(1).and_then(|place| numbers.get_mut(place))
        {
            *slot = value;
        }
    }
    Ok(numbers)
}
