//! A program's arguments beside the recorded inputs.

use super::job::InputArray;
use super::protocol::ProgramSignature;
use crate::failure::{Failure, FailureKind};

/// Compares a program's arguments with the recorded inputs, because a plugin would accept other bytes of the same
/// length.
pub(crate) fn check_signature(signature: &ProgramSignature, inputs: &[InputArray]) -> Result<(), Failure> {
    let mismatch = |message: String| Err(Failure::new(FailureKind::Signature, message));
    if signature.parameters.len() != inputs.len() {
        return mismatch(format!(
            "the program takes {} arguments, {} are recorded",
            signature.parameters.len(),
            inputs.len()
        ));
    }
    for (index, (parameter, input)) in signature.parameters.iter().zip(inputs).enumerate() {
        if *parameter != input.spec {
            return mismatch(format!(
                "argument {index} `{}`: the program takes {parameter}, {} is recorded",
                input.name, input.spec
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_mismatch_names_the_argument() {
        let input = |name: &str, spec: &str| InputArray {
            name: name.into(),
            spec: spec.parse().unwrap(),
            path: PathBuf::new(),
            donated: false,
        };
        let signature =
            |specs: &[&str]| ProgramSignature::new(specs.iter().map(|spec| spec.parse().unwrap()).collect());
        let inputs = [input("query", "f32[2,4]"), input("lengths", "s32[2]")];
        assert_eq!(check_signature(&signature(&["f32[2,4]", "s32[2]"]), &inputs), Ok(()));
        let failure = check_signature(&signature(&["f32[2,4]", "f32[2]"]), &inputs).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Signature);
        assert_eq!(failure.message, "argument 1 `lengths`: the program takes f32[2], s32[2] is recorded");
        assert!(check_signature(&signature(&["f32[2,4]"]), &inputs).unwrap_err().message.contains("takes 1 arguments"));
        assert!(check_signature(&signature(&["f32[4,2]", "s32[2]"]), &inputs).is_err());
    }
}
