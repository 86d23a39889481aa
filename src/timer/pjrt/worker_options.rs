//! What a PJRT worker is reported when it starts.

use std::path::PathBuf;

use crate::setters::setters;

/// What `worker pjrt` was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PjrtWorkerOptions {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Index of the device to run on.
    pub device: usize,
    /// `name=value` for `PJRT_Client_Create`; the program's own choice when empty.
    pub client_options: Vec<String>,
    /// Compile for the devices of the topology with this name, and for no device that is here. Some plugins know topologies by
    /// options alone: the name is empty then.
    pub topology: Option<String>,
    /// `name=value` for `PJRT_TopologyDescription_Create`.
    pub topology_options: Vec<String>,
    /// The folder into which libtpu dumps what it schedules, as its own flags tell it.
    pub llo_dump: Option<PathBuf>,
    /// Leave the plugin's profiler alone: the host clock times, whatever the plugin could do.
    pub no_profiler: bool,
    /// The most bytes of a large output that are on the host at a time to be compared; 64 MiB by default.
    pub output_block_bytes: Option<u64>,
}

setters!(PjrtWorkerOptions {
    plugin: PathBuf,
    device: usize,
    client_options: Vec<String>,
    topology: Option<String>,
    topology_options: Vec<String>,
    llo_dump: Option<PathBuf>,
    no_profiler: bool,
    output_block_bytes: Option<u64>,
});
