//! Search spaces: an operation's parameters, their values, the constraints between them, and the resulting configs.
//!
//! A space is a JSON file, `candidates/<op>.json`, embedded in the binary and overridable by a folder:
//!
//! ```json
//! {
//!   "schema": 1,
//!   "op": "blocked_matmul",
//!   "given": {"rows": 512},
//!   "parameters": {
//!     "block_m": [64, 128, 256],
//!     "block_k": {"from": 64, "to": 256, "times": 2},
//!     "params.stages": {"from": 1, "to": 4, "step": 1}
//!   },
//!   "constraints": ["rows % block_m == 0", "block_m <= block_k || params.stages == 1"],
//!   "baseline": {"block_m": 64, "block_k": 64, "params": {"stages": 1}}
//! }
//! ```
//!
//! - `op` is the operation's name without version.
//! - `parameters`, in the order in which they vary, the last fastest. A point in a name makes a nested object.
//! - `constraints` are [expressions](crate::constraint) over parameters and `given` values, true for a valid config.
//! - `given` names what a caller knows about the call, with default values.
//! - `configs`, optional, are configs to try before those of the space, unchecked.
//! - `baseline` is one config of the space or of `configs`.
//!
//! Compiler options form a space, too: [`OptionSpace`], one file per platform.

mod built_in;
mod descent;
mod error;
mod file;
mod locate;
mod options;
mod space;
mod walk;

pub use built_in::Spaces;
pub use descent::{Descent, Descents};
pub use error::SpaceError;
pub use options::spelled;
pub use options::{
    CompilerOption, OptionChoice, OptionClass, OptionError, OptionKind, OptionScope, OptionSet, OptionSpace,
};
pub use space::CandidateSpace;
pub use walk::Configs;
