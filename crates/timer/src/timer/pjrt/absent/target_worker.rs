//! The worker that compiles for absent devices: it opens no client and runs nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::topology::Topology;
use crate::counted::counted;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::Source;
use crate::target::MAX_DEVICES;
use crate::timer::pjrt::compile::figures::{described, llo, written};
use crate::timer::pjrt::compile::{
    Partitions, compile_options, options_of, partitioned_options, read_code, refusal, timed,
};
use crate::timer::pjrt::device::fingerprints_of_target;
use crate::timer::pjrt::execute::ProgramShardings;
use crate::timer::pjrt::plugin::{OptionValue, PjrtError, Plugin, device_failure, parse_client_option};
use crate::timer::pjrt::worker_options::PjrtWorkerOptions;
use crate::timer::protocol::{
    BeginParams, CompileAnswer, CompileParams, Hello, LoadAnswer, LoadParams, MeasureAnswer, OutputsAnswer, capability,
};
use crate::timer::server::Worker;

/// Compiles for the devices of one topology.
pub(crate) struct TargetWorker {
    options: PjrtWorkerOptions,
    topology: Option<Topology>,
    /// The same with as many devices as programs have partitions, if the plugin creates as many GPUs as requested.
    wider: BTreeMap<u64, Topology>,
}

/// The option that describes the devices to a GPU plugin: partitions, hosts, and devices of each host.
const SHAPE: &str = "topology";
/// One device on one host: the shape of a target without a number.
fn is_one(shape: &OptionValue) -> bool {
    matches!(shape, OptionValue::Text(shape) if shape == "1x1x1")
}

impl TargetWorker {
    pub(crate) fn new(options: PjrtWorkerOptions) -> Self {
        Self { options, topology: None, wider: BTreeMap::new() }
    }

    fn topology_options(&self) -> Result<Vec<(String, OptionValue)>, PjrtError> {
        let options = self.options.topology_options.iter().map(|text| parse_client_option(text));
        options.collect::<Result<_, _>>().map_err(PjrtError::local)
    }

    fn open(&mut self) -> Result<&Topology, PjrtError> {
        if self.topology.is_none() {
            let options = self.topology_options()?;
            let plugin = Plugin::load(&self.options.plugin)?;
            let name = self.options.topology.as_deref().unwrap_or_default();
            self.topology = Some(match &self.options.topology_description {
                Some(text) => Topology::deserialize(&plugin, &decoded(text)?)?,
                None => Topology::create(&plugin, name, &options)?,
            });
        }
        self.topology.as_ref().ok_or_else(|| PjrtError::local("there is no topology"))
    }

    /// The topology for a program with this many partitions, and its devices' ids.
    fn open_for(&mut self, partitions: u64) -> Result<(&Topology, Vec<i64>), Failure> {
        let no_topology = |error: PjrtError| device_failure(&error);
        let mut options = self.topology_options().map_err(no_topology)?;
        if partitions > MAX_DEVICES {
            let message = format!("the program has {partitions} partitions, of {MAX_DEVICES} at most");
            return Err(Failure::new(FailureKind::Compile, message));
        }
        self.open().map_err(no_topology)?;
        let Self { topology: Some(own), wider, .. } = self else {
            return Err(no_topology(PjrtError::local("there is no topology")));
        };
        let shape = options.iter_mut().find(|(name, _)| name == SHAPE);
        let topology = match shape {
            // a target without a number has as many as a program needs
            Some((_, shape)) if is_one(shape) && partitions > 1 => {
                *shape = OptionValue::Text(format!("1x1x{partitions}"));
                match wider.entry(partitions) {
                    Entry::Occupied(made) => made.into_mut(),
                    Entry::Vacant(place) => {
                        place.insert(Topology::create(&own.plugin, "", &options).map_err(no_topology)?)
                    }
                }
            }
            _ => own,
        };
        let devices = topology.devices().map_err(no_topology)?;
        let count = usize::try_from(partitions).unwrap_or(usize::MAX);
        if devices.len() < count {
            let message = format!(
                "the program has {partitions} partitions, and the target {}: name a larger one, such as \
                 `cuda:h100_sxm:16` or `tpu:v6e:4x4`",
                counted(devices.len(), "device")
            );
            return Err(Failure::new(FailureKind::Compile, message));
        }
        let ids = devices.iter().take(count).map(|device| device.id).collect();
        Ok((topology, ids))
    }
}

/// The bytes of a description in base64.
fn decoded(text: &str) -> Result<Vec<u8>, PjrtError> {
    let decoded = STANDARD.decode(text);
    decoded.map_err(|error| PjrtError::local(format!("a description of devices that is not base64: {error}")))
}

/// Has the plugin read `XLA_FLAGS` now. A topology alone does not need them, so that a plugin would die of a wrong one
/// only with the first program, and with every other.
fn read_flags(topology: &Topology) {
    if std::env::var_os("XLA_FLAGS").is_none_or(|flags| flags.is_empty()) {
        return;
    }
    // The plugin reads them before it looks at an option of the compiler, and refuses this one before it looks at the
    // program: nothing is compiled or dumped.
    let no_option = BTreeMap::from([("autotune_lowered_no_option".to_owned(), "1".to_owned())]);
    let _refusal = topology.compile(NOTHING, "mlir", &compile_options(None, &no_option));
}

/// A program that does nothing.
const NOTHING: &[u8] = b"module @nothing { func.func @main() { return } }";

fn no_device<T>() -> Result<T, Failure> {
    Err(Failure::new(FailureKind::Protocol, "this worker compiles for absent devices, and runs nothing"))
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
        read_flags(topology);
        let devices = fingerprints_of_target(topology, &plugin).map_err(|error| device_failure(&error))?;
        let worker = format!("autotune-lowered pjrt {}", env!("CARGO_PKG_VERSION"));
        Ok(Hello::new(worker, Source::HostWall, devices)
            .capabilities([capability::COMPILE, capability::COMPILE_OPTIONS].map(str::to_owned).into()))
    }

    fn compile(&mut self, params: CompileParams) -> Result<CompileAnswer, Failure> {
        let code = read_code(&params.program)?;
        if self.topology.is_none() {
            return Err(Failure::new(FailureKind::Protocol, "`hello` must come first"));
        }
        let llo_dump = self.options.llo_dump.clone();
        if let Some(folder) = &llo_dump {
            llo::clear(folder);
        }
        let partitions = Partitions::of(&code);
        let plugin = self.options.plugin.clone();
        let (topology, ids) = self.open_for(partitions.count)?;
        let platform = topology.platform_name().map_err(|error| device_failure(&error))?;
        let options = match partitions.count {
            1 => compile_options(None, &params.overrides),
            _ => partitioned_options(partitions, &ids, &params.overrides),
        };
        let options = options_of(&params.program, options)?;
        let format = params.program.format.pjrt_format();
        let (executable, compiled) =
            timed(|| topology.compile(&code, format, &options)).map_err(|error| refusal(&error, &plugin))?;
        let mut compiled = described(compiled, &executable, &params.program, &code, llo_dump.as_deref());
        if partitions.count > 1 {
            // the compiled program takes parts
            compiled = compiled
                .signature(ProgramShardings::of(&executable).ok().flatten().map(|shardings| shardings.signature()));
        }
        written(compiled, &executable, &params.executable, &platform)
    }

    fn begin(&mut self, _params: BeginParams) -> Result<(), Failure> {
        no_device()
    }

    fn load(&mut self, _params: LoadParams) -> Result<LoadAnswer, Failure> {
        no_device()
    }

    fn measure(&mut self, _candidate: usize, _runs: u32) -> Result<MeasureAnswer, Failure> {
        no_device()
    }

    fn outputs(&mut self, _candidate: usize, _folder: &Path) -> Result<OutputsAnswer, Failure> {
        no_device()
    }

    fn end(&mut self) {}
}
