//! Kernels without a label: custom calls that Pallas, Triton and Mosaic kernels become, which name themselves.
//!
//! A kernel has a name of its own, scopes, functions and files around it, and some of its parameters in the name or in
//! the metadata of its call. [`KernelTemplates`] say which of these names belong to which operation of a project.

mod call;
pub(super) mod found;
mod mlir;
mod names;
mod proto;
mod templates;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use self::call::{Call, holds_target};
use self::found::FoundKernel;
use super::bytecode;
use super::escape::Escapes;
use super::found::ModuleForm;
use super::mlir_text;
use super::module::HloModule;

pub(super) use call::METADATA;
pub use templates::{KernelTemplates, KernelTemplatesError};

/// Distinct kernels that are listed of a module, and calls that are looked at.
const MAX_KERNELS: usize = 4096;
const MAX_CALLS: usize = 1 << 16;

/// The kernel of a call.
fn kernel_of(call: Call, templates: &KernelTemplates) -> FoundKernel {
    let known = templates.recognise(&call);
    let source = call.source();
    let Call { target, name, names, grid, num_warps, num_stages, metadata, operands, scope, line, .. } = call;
    let name = name.or_else(|| names.into_iter().next()).unwrap_or_else(|| target.clone());
    FoundKernel { target, name, known, grid, num_warps, num_stages, metadata, operands, scope, source, line, calls: 1 }
}

/// Adds kernels to those that are listed; calls of one kernel are counted together. Returns whether all have a place.
pub(super) fn add(listed: &mut Vec<FoundKernel>, more: impl IntoIterator<Item = FoundKernel>) -> bool {
    let mut places: HashMap<String, usize> =
        listed.iter().enumerate().map(|(place, kernel)| (kernel.identity(), place)).collect();
    let mut is_whole = true;
    for kernel in more {
        let next = listed.len();
        let place = *places.entry(kernel.identity()).or_insert(next);
        match listed.get_mut(place) {
            Some(known) => known.calls += kernel.calls,
            None if next < MAX_KERNELS => listed.push(kernel),
            None => is_whole = false,
        }
    }
    is_whole
}

/// The kernels of a module.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    /// In the order of their first calls.
    pub(super) listed: Vec<FoundKernel>,
    /// Whether some had no place.
    pub(super) is_cut: bool,
    /// Operations of labels whose kernels are known as other ones, with these.
    pub(super) disagreeing: BTreeMap<String, String>,
}

/// The kernels of a whole module. What cannot be read holds none.
pub(super) fn of_module(form: ModuleForm, bytes: &[u8], templates: &KernelTemplates) -> Kernels {
    let mut kernels = Kernels::default();
    if !holds_target(bytes) {
        return kernels;
    }
    let mut calls: Vec<Call> = Vec::new();
    match form {
        ModuleForm::HloText | ModuleForm::HloProto => {
            let module = match form {
                ModuleForm::HloText => HloModule::of_text(bytes, 0, ""),
                _ => HloModule::of_bytes(&Bytes::copy_from_slice(bytes), ""),
            };
            calls.extend(module.iter().flat_map(proto::calls));
            if form == ModuleForm::HloText {
                proto::give_lines(&mut calls, bytes);
            }
        }
        ModuleForm::StablehloText => {
            mlir_text::read(bytes, &mut |function| calls.extend(mlir::calls(&function, Escapes::Mlir)));
        }
        ModuleForm::StablehloBytecode => {
            let functions = bytecode::functions(bytes).unwrap_or_default();
            calls.extend(functions.iter().flat_map(|function| mlir::calls(function, Escapes::Raw)));
        }
        ModuleForm::DumpFolder => {}
    }
    let is_short = calls.len() <= MAX_CALLS;
    calls.truncate(MAX_CALLS);
    let told = calls.iter().filter_map(|call| templates.disagreement(call));
    kernels.disagreeing = told.map(|(label, known)| (label, known.operation)).collect();
    let is_whole = add(&mut kernels.listed, calls.into_iter().map(|call| kernel_of(call, templates)));
    kernels.is_cut = !(is_short && is_whole);
    kernels
}
