//! The inputs and outputs of a program with several partitions: parts of arrays, one on each device.

use prost::Message;

use super::sharding::Sharding;
use crate::array::ArraySpec;
use crate::failure::{Failure, FailureKind};
use crate::hlo::schema::hlo::HloModuleProto;
use crate::timer::pjrt::compile::{PlainExecutable, module_of, parameters};
use crate::timer::pjrt::plugin::{PjrtError, one_line};
use crate::timer::protocol::ProgramSignature;

/// The shardings of a program's arrays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProgramShardings {
    /// Each parameter and its sharding.
    pub(crate) parameters: Vec<(ArraySpec, Sharding)>,
    /// The outputs' shardings.
    pub(crate) outputs: Vec<Sharding>,
}

impl ProgramShardings {
    /// Reads a compiled program; `None` if it runs on one device. Anything unknown is a failure, because a wrong part
    /// would go unnoticed.
    pub(crate) fn of(executable: &PlainExecutable) -> Result<Option<Self>, Failure> {
        let read = || {
            let devices = executable.devices()?;
            if devices == 1 {
                return Ok(None);
            }
            let (code, format) = executable.optimized_program()?;
            Self::read(&code, &format, devices, executable.outputs()?).map(Some).map_err(PjrtError::local)
        };
        read().map_err(|error: PjrtError| {
            let reason = one_line(&error.message);
            let message = format!(
                "the sharding of a program of several partitions is not understood: {reason}; `--timer jax` may run it"
            );
            Failure::new(FailureKind::Signature, message)
        })
    }

    /// Reads the shardings that the partitioner leaves in a module.
    fn read(code: &[u8], format: &str, devices: usize, outputs: usize) -> Result<Self, String> {
        let module = module_of(code, format).ok_or("the plugin shows no optimized program")?;
        let module = HloModuleProto::decode(module).map_err(|error| error.to_string())?;
        let parts = parameters(&module).ok_or("a parameter that is not an array")?;
        let shardings = module.spmd_parameters_shardings.iter().map(|sharding| Sharding::of(sharding, devices));
        let shardings = shardings.collect::<Result<Vec<_>, _>>()?;
        let of_outputs = module.spmd_output_sharding.as_ref().map(|sharding| Sharding::all_of(sharding, devices));
        let mut of_outputs = of_outputs.transpose()?.unwrap_or_default();
        if shardings.len() != parts.len() {
            return Err(format!("{} shardings of {} parameters", shardings.len(), parts.len()));
        }
        // one that applies to all
        if let [one] = of_outputs.as_slice()
            && one.is_whole()
        {
            of_outputs = vec![one.clone(); outputs];
        }
        if of_outputs.len() != outputs {
            return Err(format!("{} shardings of {outputs} outputs", of_outputs.len()));
        }
        let parameters = parts.iter().zip(shardings).map(|(part, sharding)| Ok((sharding.whole_of(part)?, sharding)));
        Ok(Self { parameters: parameters.collect::<Result<_, String>>()?, outputs: of_outputs })
    }

    /// The whole arrays that the program takes.
    pub(crate) fn signature(&self) -> ProgramSignature {
        ProgramSignature::new(self.parameters.iter().map(|(spec, _)| spec.clone()).collect())
    }
}
