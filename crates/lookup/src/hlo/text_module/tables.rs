//! The tables of files, functions and call stacks before the computations, which later versions of XLA print.

use bytes::Bytes;

use super::attributes::{members, unescaped};
use crate::hlo::hlo_text::number;
use crate::hlo::schema::hlo::StackFrameIndexProto;
use crate::hlo::schema::hlo::stack_frame_index_proto::{FileLocation, StackFrame};
use crate::hlo::text_cursor::quoted;

/// The tables of a text; `None` if it has none.
pub(super) fn of_text(text: &[u8]) -> Option<StackFrameIndexProto> {
    let mut index = StackFrameIndexProto::default();
    let mut table: &[u8] = &[];
    for content in text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
        match content.split_first() {
            Some((first, _)) if first.is_ascii_digit() && !table.is_empty() => row(&mut index, table, content),
            Some(_) if [&b"FileNames"[..], b"FunctionNames", b"FileLocations", b"StackFrames"].contains(&content) => {
                table = content;
            }
            // the computations follow
            Some(_) if !table.is_empty() => break,
            _ => {}
        }
    }
    // some versions print the number after that of the parent: the first frame has none
    if index.stack_frames.first().is_some_and(|first| first.parent_frame_id > 0) {
        index.stack_frames.iter_mut().for_each(|frame| frame.parent_frame_id = frame.parent_frame_id.saturating_sub(1));
    }
    (!table.is_empty()).then_some(index)
}

/// `1 "file.py"` or `1 {file_name_id=1 line=29}`; rows are numbered from one in their order.
fn row(index: &mut StackFrameIndexProto, table: &[u8], row: &[u8]) {
    let digits = row.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let content = row.get(digits..).unwrap_or_default().trim_ascii();
    let name = || Bytes::from(unescaped(content.strip_prefix(b"\"").map(quoted).unwrap_or_default()));
    let member = |name: &[u8]| {
        let inside = content.strip_prefix(b"{").and_then(|inside| inside.strip_suffix(b"}")).unwrap_or_default();
        members(inside).find(|(key, _)| *key == name).and_then(|(_, value)| number(value)).unwrap_or_default()
    };
    match table {
        b"FileNames" => index.file_names.push(name()),
        b"FunctionNames" => index.function_names.push(name()),
        b"FileLocations" => index.file_locations.push(FileLocation {
            file_name_id: member(b"file_name_id"),
            function_name_id: member(b"function_name_id"),
            line: member(b"line"),
            column: member(b"column"),
        }),
        _ => index.stack_frames.push(StackFrame {
            file_location_id: member(b"file_location_id"),
            parent_frame_id: member(b"parent_frame_id"),
        }),
    }
}
