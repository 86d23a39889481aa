//! How large the buffers of the on-device profiler are.

use std::io::{self, Write};

use serde::Serialize;

use super::document::versioned;
use super::grid::cells;
use super::{Document, Grid};

/// Sizes for one launch.
#[derive(Serialize)]
pub struct MosaicSizes {
    /// The scope of one trace.
    pub scope: &'static str,
    /// Traces of the launch.
    pub traces: u64,
    /// Words of a trace.
    pub entries: u64,
    /// Ranges that fit into a trace.
    pub ranges: u64,
    /// `u32`s of the buffer in global memory.
    pub buffer_words: u64,
    /// The same in bytes.
    pub buffer_bytes: u64,
    /// Bytes of shared memory per block.
    pub shared_bytes: u64,
}

impl Document for MosaicSizes {
    fn into_json(self) -> impl Serialize {
        versioned(self)
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(&["what", ">size", "unit"]);
        for (what, size, unit) in [
            ("traces", self.traces, format!("one a {}", self.scope)),
            ("entries", self.entries, "words per trace, 3 of them its header".to_owned()),
            ("ranges", self.ranges, "that fit into a trace".to_owned()),
            ("buffer", self.buffer_words, "uint32 in global memory".to_owned()),
            ("buffer", self.buffer_bytes, "bytes in global memory".to_owned()),
            ("shared memory", self.shared_bytes, "bytes a block".to_owned()),
        ] {
            grid.row(cells![what, size, unit]);
        }
        grid.write(out)
    }
}
