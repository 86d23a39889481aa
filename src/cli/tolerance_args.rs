//! How far outputs may be off, as the user says.

use clap::Args;

use crate::race::OutputTolerances;

use super::options::number;

/// Tolerances of outputs.
#[derive(Debug, Clone, Args)]
pub(super) struct ToleranceArgs {
    /// How far outputs may be off the baseline's, relative to their size; OUTPUT, a name or number, limits it to one of
    /// them. It replaces the tolerance of the element type, which allows another order of the same sums
    /// (docs/decisions.md); may be repeated
    #[arg(long = "tolerance", value_name = "[OUTPUT=]PART", value_parser = tolerance)]
    pub tolerances: Vec<GivenTolerance>,
}

/// A tolerance, of one output or of all.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GivenTolerance {
    output: Option<String>,
    relative: f64,
}

fn tolerance(text: &str) -> Result<GivenTolerance, String> {
    // a name may contain the sign
    let (output, part) = text.rsplit_once('=').map_or((None, text), |(output, part)| (Some(output), part));
    if output.is_some_and(str::is_empty) {
        return Err("the output before `=` has no name".to_owned());
    }
    let relative = number(part, 0.0..=1.0, "a number from 0 to 1, such as 0.02 or loss=0.02")?;
    Ok(GivenTolerance { output: output.map(str::to_owned), relative })
}

impl ToleranceArgs {
    /// The library's form of it. Of two for one output the later one counts.
    pub(super) fn options(&self) -> OutputTolerances {
        self.tolerances.iter().fold(OutputTolerances::default(), |all, given| match &given.output {
            Some(output) => all.of_output(output.clone(), given.relative),
            None => all.of_all(given.relative),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_named_before_the_last_sign() {
        let given = |output: Option<&str>, relative| GivenTolerance { output: output.map(str::to_owned), relative };
        assert_eq!(tolerance("0.02"), Ok(given(None, 0.02)));
        assert_eq!(tolerance("grads['a=b']=1e-3"), Ok(given(Some("grads['a=b']"), 1e-3)));
        for wrong in ["", "x", "-0.1", "1.5", "nan", "=0.1", "loss="] {
            assert!(tolerance(wrong).is_err(), "{wrong}");
        }
        let args = ToleranceArgs { tolerances: vec![given(None, 0.5), given(Some("0"), 0.25), given(None, 0.125)] };
        assert_eq!(args.options(), OutputTolerances::default().of_all(0.125).of_output("0", 0.25));
    }
}
