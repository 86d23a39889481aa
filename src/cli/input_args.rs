//! Arguments of every command that makes a program's inputs itself.

use std::path::PathBuf;

use clap::Args;

use crate::measure::{ArgumentFill, InputOptions};

#[derive(Debug, Clone, Args)]
pub(super) struct InputArgs {
    /// Folder of inputs: one that `autotune_lowered.capture` wrote, or dense little-endian elements in `0.bin`,
    /// `1.bin`, … [default: normal values, indices in range, zeros for other integers]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// Values of an argument, given by its path, the beginning of its path, or its number: `normal`, `normal:SCALE`,
    /// `uniform:LOW,HIGH`, `zeros`, `ones` or `constant:VALUE`
    #[arg(long = "fill", value_name = "ARGUMENT=VALUES")]
    pub fills: Vec<ArgumentFill>,
    /// Random seed of the values
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub input_seed: u64,
}

impl InputArgs {
    pub(super) fn options(&self) -> InputOptions {
        let options = InputOptions::default().fills(self.fills.clone());
        options.folder(self.inputs.clone()).seed(self.input_seed)
    }
}
