//! Options of a PJRT worker.

use std::path::PathBuf;

use crate::setters;

/// The options of `worker pjrt`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PjrtWorkerOptions {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Index of the device to run on.
    pub device: usize,
    /// `name=value` for `PJRT_Client_Create`; the program's own defaults if empty.
    pub client_options: Vec<String>,
    /// Compile for the devices of the topology with this name instead of a present device. Some plugins know topologies
    /// by options alone; then the name is empty.
    pub topology: Option<String>,
    /// `name=value` for `PJRT_TopologyDescription_Create`.
    pub topology_options: Vec<String>,
    /// Compile for the devices of this description in base64, as [`Hello`](crate::timer::protocol::Hello) has it,
    /// without opening them.
    pub topology_description: Option<String>,
    /// The folder into which libtpu dumps its schedules, as its flags specify.
    pub llo_dump: Option<PathBuf>,
    /// Do not use the plugin's profiler: times come from the host clock.
    pub no_profiler: bool,
    /// Maximum bytes of a large output that are on the host at a time for a comparison; 64 MiB by default.
    pub output_block_bytes: Option<u64>,
}

setters!(PjrtWorkerOptions {
    plugin: PathBuf,
    device: usize,
    client_options: Vec<String>,
    topology: Option<String>,
    topology_options: Vec<String>,
    topology_description: Option<String>,
    llo_dump: Option<PathBuf>,
    no_profiler: bool,
    output_block_bytes: Option<u64>,
});
