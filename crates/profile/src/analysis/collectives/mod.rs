//! Collectives: bandwidth, overlap with computation, and time lost to stragglers, for any profile.
//!
//! The formulas are nsys-jax's (NVIDIA/JAX-Toolbox, `nsys_jax/analysis.py`); `docs/collectives.md` has them and says
//! where we differ.

mod align;
mod assembly;
mod gatherer;
mod halves;
mod hiding;
mod instance;
mod instruction;
mod kind;
mod measure;
mod model;
mod read;
mod sample;
mod waits;

pub use align::{Alignment, Clocks};
pub use instruction::Role;
pub use kind::CollectiveKind;
pub use measure::{Bandwidth, CollectiveMetrics, Figures, OperationRow, SizeRow, Wait, collective_metrics};
pub use model::{Collectives, Communication, CommunicationKernel, Device, Operation, Part, Parts};
pub use read::collectives;
pub use waits::{STEPS, SizeWaits, Waits, straggler_waits};
