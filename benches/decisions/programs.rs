//! The programs that are tuned, made by `programs.py` once.

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
    /// In the order of their sizes.
    pub(crate) operations: Vec<Operation>,
}

/// One recorded call.
pub(crate) struct Operation {
    pub(crate) size: u64,
    pub(crate) baseline: usize,
    pub(crate) invocation: Arc<Invocation>,
}

/// Both modules.
pub(crate) struct Programs {
    pub(crate) matmul: Module,
    pub(crate) aa: Module,
}

impl Programs {
    /// Makes them where they are not there yet, or of other sizes.
    pub(crate) fn make(options: &Options) -> Self {
        let sizes: Vec<String> = options.sizes.iter().map(u64::to_string).collect();
        let folder = options.work.join(format!("programs-{}", sizes.join("-")));
        if !folder.join("made.json").exists() {
            eprintln!("making programs in `{}`", folder.display());
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/decisions/programs.py");
            let made = Command::new(&options.python).arg(script).arg(&folder).args(&sizes).status();
            let made = made.unwrap_or_else(|error| panic!("cannot run `{}`: {error}", options.python.display()));
            assert!(made.success(), "no programs: `{}` needs JAX 0.10", options.python.display());
        }
        Self { matmul: Module::open(folder.join("matmul")), aa: Module::open(folder.join("aa")) }
    }
}

impl Module {
    fn open(folder: PathBuf) -> Self {
        let registry = Registry::open(folder.join("registry")).unwrap();
        assert!(registry.problems().is_empty(), "{:?}", registry.problems());
        let operation = |invocation: &Arc<Invocation>| Operation {
            size: invocation.static_arguments["size"].as_u64().unwrap(),
            baseline: position(invocation, &invocation.baseline).unwrap(),
            invocation: Arc::clone(invocation),
        };
        let mut operations: Vec<Operation> = registry.invocations().iter().map(operation).collect();
        operations.sort_by_key(|operation| operation.size);
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

    /// Which candidate a config is, as the tool or the peer spells it in JSON.
    pub(crate) fn candidate(&self, config: &Value) -> Option<usize> {
        position(&self.invocation, &serde_json::from_value(config.clone()).ok()?)
    }

    /// A config in a few characters.
    pub(crate) fn brief(&self, candidate: usize) -> String {
        let config = self.invocation.candidates[candidate].config.as_map();
        let block = |name: &str| config.get(name).map_or_else(String::new, Value::to_string);
        ["block_m", "block_n", "block_k"].map(block).join("×")
    }

    /// The call as a timer takes it.
    pub(crate) fn job(&self, registry: &Registry, scratch: &Path) -> Job {
        let invocation = &self.invocation;
        let inputs = invocation.arguments.iter().enumerate().map(|(index, argument)| {
            let path = scratch.join(format!("input-{}-{index}.bin", self.size));
            std::fs::write(&path, registry.argument_bytes(invocation, index).unwrap()).unwrap();
            InputArray::new(&argument.name, argument.spec.clone(), path).donated(argument.donated)
        });
        let candidates = invocation.candidates.iter().map(|candidate| {
            let program = candidate.program.clone().unwrap();
            let path = registry.checked_program_path(&program).unwrap();
            JobCandidate::new(candidate.config.clone()).program(Some(ProgramFile { path, program }))
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
