//! Scans the bytes of a module in any form for its labels: their names, counts, places and evidence.
//!
//! [`scan_path`] scans files and dump folders, [`scan_reader`] streams, [`scan_bytes`] memory. The form is recognized
//! by the content. A scan has two parts. The first searches raw blocks for labels and counts them, in parallel and in
//! constant memory. The second reads the structure of modules up to 256 MiB. It adds call sites with their operand
//! shapes, calls in a backward pass, and whether the module is partitioned.
//!
//! A scan is never silently empty: a [`Diagnosis`] reports missing or weak labels. `docs/scanning.md` lists their
//! codes, the label families and the side file.
//!
//! ```
//! use autotune_lowered_lookup::hlo::{Evidence, ScanOptions, scan_bytes};
//!
//! let module = r#"HloModule step
//! ENTRY main {
//!   p = f32[8]{0} parameter(0)
//!   ROOT r = f32[8]{0} negate(p), metadata={op_name="jit(f)/ejkernel_ops#softmax.v1:fecadd86b926e7e8/neg"}
//! }
//! "#;
//! let scan = scan_bytes(module.as_bytes(), "step.hlo", &ScanOptions::default())?;
//! let [found] = &scan.labels[..] else { panic!("one label") };
//! assert_eq!((found.label.op_name(), found.evidence, found.line), ("softmax", Evidence::Exact, Some(4)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod bytecode;
mod census;
mod compiled_as;
mod compressed;
mod cost;
mod detect;
mod diagnosis;
mod dump;
mod dump_files;
mod envelope;
mod error;
mod escape;
mod file_form;
mod found;
mod frames;
mod graph;
mod hlo_text;
mod in_f64;
mod index_range;
mod interface;
mod kernels;
mod label;
mod longest_sum;
mod memory;
mod mlir_text;
mod module;
mod pallas;
mod placement;
mod plain_text;
mod program;
mod proto;
mod replica_groups;
mod scan;
pub mod schema;
mod semantic;
mod shape;
mod side_file;
mod sites;
mod source;
mod stamp;
mod structure;
mod sub_folders;
mod tally;
mod text_cursor;
mod text_module;
mod triton_call;
mod user_label;

pub use compiled_as::{Argument, CompiledAs, Partitioner, compiled_as};
pub use compressed::read_plain;
pub use cost::{Cost, Costs, FlopUnit, Flops};
pub use dump_files::{DumpedModules, dumped_id, earlier_stage, modules_after_passes, modules_before_passes};
pub use error::{ScanError, ScanErrorKind};
pub use found::{CallSite, Diagnosis, FoundLabel, ModuleForm, Scan};
pub use frames::Frame;
pub use in_f64::{NotInF64, bytecode_in_f64, in_f64};
pub use interface::ProgramArgument;
pub use kernels::found::{FoundKernel, KnownKernel};
pub use kernels::{KernelTemplates, KernelTemplatesError};
pub use label::{Evidence, Label};
pub use memory::{LiveBuffer, ProgramMemory};
pub use module::{HloComputation, HloInstruction, HloModule};
pub use pallas::TpuKernel;
pub use placement::Placement;
pub(crate) use plain_text::symbol;
pub use program::{Program, is_measured_by_xla, module_form, read_program};
pub use replica_groups::{ReplicaGroups, permuted_grid};
pub use scan::{ScanOptions, scan_bytes, scan_path, scan_reader};
pub use semantic::semantic_digest;
pub use side_file::path_for as side_file_of;
pub use stamp::tokamax_label;
pub use user_label::{UserLabels, UserLabelsError, labels_in};
