//! The calibrated programs: the user's, or small built-in ones.

use std::path::Path;

use crate::array::{ArraySpec, DType};
use crate::measure::{MeasureError, MeasuredProgram};
use crate::setters;

/// A few µs to run: 16 KiB, one loop over them.
const ELEMENTWISE: &str = "module @elementwise {
  func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
    %0 = stablehlo.sine %x : tensor<4096xf32>
    %1 = stablehlo.multiply %0, %x : tensor<4096xf32>
    %2 = stablehlo.tanh %1 : tensor<4096xf32>
    %3 = stablehlo.add %2, %x : tensor<4096xf32>
    return %3 : tensor<4096xf32>
  }
}
";

/// All cores, inside the caches.
const MATMUL: &str = "module @matmul {
  func.func public @main(%x: tensor<256x256xf32>, %y: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> \
    tensor<256x256xf32>
    return %0 : tensor<256x256xf32>
  }
}
";

/// Milliseconds: all cores, beyond the inner caches.
const LARGE_MATMUL: &str = "module @large_matmul {
  func.func public @main(%x: tensor<768x768xf32>, %y: tensor<768x768xf32>) -> tensor<768x768xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<768x768xf32>, tensor<768x768xf32>) -> \
    tensor<768x768xf32>
    return %0 : tensor<768x768xf32>
  }
}
";

/// 4 MiB read once.
const REDUCTION: &str = "module @reduction {
  func.func public @main(%x: tensor<1024x1024xf32>) -> tensor<1024xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<1024x1024xf32>, \
    tensor<f32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}
";

/// A program and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct SelftestProgram {
    /// The file as the user named it, or the built-in name.
    pub name: String,
    /// The program.
    pub program: MeasuredProgram,
    /// Its parameters, if known without a compiler.
    pub parameters: Option<Vec<ArraySpec>>,
}

setters!(SelftestProgram { parameters: Option<Vec<ArraySpec>> });

impl SelftestProgram {
    /// A file of the user's.
    ///
    /// # Errors
    /// If it cannot be read or is not a program that a plugin compiles.
    pub fn open(path: &Path) -> Result<Self, MeasureError> {
        let name = path.display().to_string();
        Ok(Self { name, program: MeasuredProgram::open(path)?, parameters: None })
    }

    /// Programs that any plugin runs, from microseconds to milliseconds.
    pub fn own() -> Vec<Self> {
        let square = |side| ArraySpec::new(DType::F32, [side, side]);
        let own = [
            ("elementwise", ELEMENTWISE, vec![ArraySpec::new(DType::F32, [4096])]),
            ("matmul", MATMUL, vec![square(256), square(256)]),
            ("large-matmul", LARGE_MATMUL, vec![square(768), square(768)]),
            ("reduction", REDUCTION, vec![square(1024)]),
        ];
        let program = |(name, text, parameters): (&str, &str, _)| Self {
            name: name.to_owned(),
            program: MeasuredProgram::of_text(text),
            parameters: Some(parameters),
        };
        own.map(program).into()
    }
}
