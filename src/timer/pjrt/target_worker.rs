//! The worker that compiles for devices which are not here: it opens no client, and runs nothing.

use std::path::Path;

use super::compiling::{described, read_code, refusal, timed, written};
use super::device::fingerprints_of_target;
use super::job::device_failure;
use super::options::{compile_options, parse_client_option};
use super::plugin::{PjrtError, Plugin};
use super::topology::Topology;
use super::worker_options::PjrtWorkerOptions;
use crate::failure::{Failure, FailureKind};
use crate::hlo::{Program, read_program};
use crate::measured_by::Source;
use crate::timer::protocol::{
    BeginParams, CompileParams, Compiled, Hello, LoadParams, Loaded, Measured, Outputs, capability,
};
use crate::timer::server::Worker;

/// Compiles for the devices of one topology.
pub(super) struct TargetWorker {
    options: PjrtWorkerOptions,
    topology: Option<Topology>,
}

impl TargetWorker {
    pub(super) fn new(options: PjrtWorkerOptions) -> Self {
        Self { options, topology: None }
    }

    fn open(&mut self) -> Result<&Topology, PjrtError> {
        if self.topology.is_none() {
            let options = self.options.topology_options.iter().map(|text| parse_client_option(text));
            let options = options.collect::<Result<Vec<_>, _>>().map_err(PjrtError::local)?;
            let plugin = Plugin::load(&self.options.plugin)?;
            let name = self.options.topology.as_deref().unwrap_or_default();
            self.topology = Some(Topology::create(&plugin, name, &options)?);
        }
        self.topology.as_ref().ok_or_else(|| PjrtError::local("there is no topology"))
    }
}

fn no_device<T>() -> Result<T, Failure> {
    Err(Failure::new(FailureKind::Protocol, "this worker compiles for devices that are not here, and runs nothing"))
}

impl Worker for TargetWorker {
    fn hello(&mut self) -> Result<Hello, Failure> {
        let plugin = self.options.plugin.clone();
        let topology = self.open().map_err(|error| match error.is_unimplemented() {
            true => {
                let message = format!("{}: this plugin cannot compile without a device", plugin.display());
                Failure::new(FailureKind::Device, message)
            }
            false => device_failure(&error),
        })?;
        let devices = fingerprints_of_target(topology, &plugin).map_err(|error| device_failure(&error))?;
        let worker = format!("autotune-lowered pjrt {}", env!("CARGO_PKG_VERSION"));
        Ok(Hello::new(worker, Source::HostWall, devices).capabilities(vec![capability::COMPILE.to_owned()]))
    }

    fn compile(&mut self, params: CompileParams) -> Result<Compiled, Failure> {
        let code = read_code(&params.program)?;
        // what cannot be read here is the plugin's to refuse
        if let Ok(Program { partitions: partitions @ 2.., .. }) = read_program(&code, "program") {
            let message = format!("the program has {partitions} partitions, and is compiled for one device here");
            return Err(Failure::new(FailureKind::Device, message));
        }
        let topology = self.topology.as_ref();
        let topology = topology.ok_or_else(|| Failure::new(FailureKind::Protocol, "`hello` must come first"))?;
        let options = compile_options(None, &params.overrides);
        let format = params.program.format.pjrt_format();
        let (executable, compiled) =
            timed(|| topology.compile(&code, format, &options)).map_err(|error| refusal(&error))?;
        let compiled = described(compiled, &executable, &params.program, &code);
        written(compiled, &executable, &params.executable)
    }

    fn begin(&mut self, _params: BeginParams) -> Result<(), Failure> {
        no_device()
    }

    fn load(&mut self, _params: LoadParams) -> Result<Loaded, Failure> {
        no_device()
    }

    fn measure(&mut self, _candidate: usize, _runs: u32) -> Result<Measured, Failure> {
        no_device()
    }

    fn outputs(&mut self, _candidate: usize, _folder: &Path) -> Result<Outputs, Failure> {
        no_device()
    }

    fn end(&mut self) {}
}
