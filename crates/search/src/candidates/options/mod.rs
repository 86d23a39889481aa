//! Options of compilers: those of a platform, their values, and sets of them.
//!
//! The options of a platform are a JSON file, `candidates/options/<platform>.json`, embedded in the binary:
//!
//! ```json
//! {
//!   "schema": 1,
//!   "platform": "cpu",
//!   "asked": ["jaxlib 0.9.2", "jaxlib 0.10.2"],
//!   "options": [
//!     {
//!       "name": "xla_cpu_enable_fast_math",
//!       "values": [true],
//!       "kind": "fast-math",
//!       "scope": "compile",
//!       "with": {"xla_cpu_fast_math_honor_nans": false},
//!       "versions": ["jaxlib 0.9.2 to 0.10.2"],
//!       "does": "reorders and approximates floating point arithmetic",
//!       "source": "xla/debug_options_flags.cc"
//!     }
//!   ]
//! }
//! ```
//!
//! Each value of each option is a [`OptionChoice`]. What a choice sets is an [`OptionSet`], and sets are combined.

mod built_in;
mod file;
mod kind;
mod set;
mod space;

pub use kind::{OptionClass, OptionKind, OptionScope};
pub use set::spelled;
pub use set::{OptionError, OptionSet};
pub use space::{CompilerOption, OptionChoice, OptionSpace};
