//! The programs to tune, generated once by `programs.py`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use autotune_lowered::config::Config;
use autotune_lowered::registry::{Invocation, Registry};
use autotune_lowered::timer::{InputArray, Job, JobCandidate, ProgramFile};
use serde_json::Value;

use crate::options::Options;

/// A module with the registry beside it.
pub(crate) struct Module {
    pub(crate) folder: PathBuf,
    pub(crate) registry: Registry,
    /// In the order of the request.
    pub(crate) operations: Vec<Operation>,
}

/// One recorded call.
pub(crate) struct Operation {
    /// As in `cases.py`.
    pub(crate) name: String,
    /// Names of its parameters, in the order of a config.
    parameters: Vec<String>,
    pub(crate) baseline: usize,
    pub(crate) invocation: Arc<Invocation>,
}

/// Both modules.
pub(crate) struct Programs {
    pub(crate) cases: Module,
    pub(crate) aa: Module,
}

impl Programs {
    /// Makes them if they are missing, or are those of other cases.
    pub(crate) fn make(options: &Options) -> Self {
        let names = &options.cases;
        let folder = options.work.join(format!("programs-{}", names.join("+")));
        if !folder.join("made.json").exists() {
            eprintln!("making programs in `{}`", folder.display());
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/decisions/programs.py");
            let made = Command::new(&options.python).arg(script).arg(&folder).args(names).status();
            let made = made.unwrap_or_else(|error| panic!("cannot run `{}`: {error}", options.python.display()));
            assert!(made.success(), "no programs: `{}` needs JAX 0.10", options.python.display());
        }
        Self { cases: Module::open(folder.join("cases"), names), aa: Module::open(folder.join("aa"), &[]) }
    }
}

impl Module {
    fn open(folder: PathBuf, order: &[String]) -> Self {
        let registry = Registry::open(folder.join("registry")).unwrap();
        assert!(registry.problems().is_empty(), "{:?}", registry.problems());
        let operation = |invocation: &Arc<Invocation>| Operation {
            name: serde_json::from_value(invocation.static_arguments["case"].clone()).unwrap(),
            parameters: serde_json::from_value(invocation.static_arguments["parameters"].clone()).unwrap(),
            baseline: position(invocation, &invocation.baseline).unwrap(),
            invocation: Arc::clone(invocation),
        };
        let mut operations: Vec<Operation> = registry.invocations().iter().map(operation).collect();
        operations.sort_by_key(|operation| order.iter().position(|name| *name == operation.name));
        Self { folder, registry, operations }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("module.mlir")
    }
}

impl Operation {
    pub(crate) fn len(&self) -> usize {
        self.invocation.candidates.len()
    }

    /// The candidate of a config, given as the tool or the peer prints it in JSON.
    pub(crate) fn candidate(&self, config: &Value) -> Option<usize> {
        position(&self.invocation, &serde_json::from_value(config.clone()).ok()?)
    }

    /// Seed of its random numbers: digits of a digest.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.invocation.call.call_key, 16).unwrap()
    }

    /// A config in a few characters.
    pub(crate) fn brief(&self, candidate: usize) -> String {
        let config = self.invocation.candidates[candidate].config.as_map();
        self.parameters.iter().map(|name| config[name].to_string()).collect::<Vec<_>>().join("×")
    }

    /// The call as a timer takes it.
    pub(crate) fn job(&self, registry: &Registry, scratch: &Path) -> Job {
        let invocation = &self.invocation;
        let inputs = invocation.arguments.iter().enumerate().map(|(index, argument)| {
            let path = scratch.join(format!("input-{}-{index}.bin", self.name));
            std::fs::write(&path, registry.argument_bytes(invocation, index).unwrap()).unwrap();
            InputArray::new(&argument.name, argument.spec.clone(), path).donated(argument.donated)
        });
        let candidates = invocation.candidates.iter().map(|candidate| {
            let program = candidate.program.clone().unwrap();
            let path = registry.checked_program_path(&program).unwrap();
            JobCandidate::new(candidate.config.clone()).program(Some(ProgramFile::new(path, program)))
        });
        Job::new(invocation.call.clone(), scratch)
            .direction(invocation.direction)
            .inputs(inputs.collect())
            .candidates(candidates.collect())
    }
}

fn position(invocation: &Invocation, config: &Config) -> Option<usize> {
    invocation.candidates.iter().position(|candidate| candidate.config == *config)
}
