//! Why labels are missing or weak, and the command that writes a file with them.

use super::Evidence;
use super::census::{LONG_NAME_BYTES, STRUCTURE_BYTES};
use super::found::{Diagnosis, FoundLabel, ModuleForm, Scan};
use super::graph::Unread;
use super::sites::Untyped;
use super::structure::Structure;
use crate::counted::{counted, listed};
use crate::printable::printable;

/// The code of [`cut_sites`].
pub(super) const CALL_SITES_CUT: &str = "call-sites-cut";

/// The code of [`kernels_cut`].
pub(super) const KERNELS_CUT: &str = "kernels-cut";

/// The code of [`truncated`].
const TRUNCATED: &str = "truncated";

/// The text of a lowered function with its locations, by the version of JAX.
const STABLEHLO_COMMAND: &str = "write StableHLO text with \
                                 `open(\"module.mlir\", \"w\").write(lowered.as_text(debug_info=True))` (where an \
                                 older JAX takes no `debug_info`: \
                                 `lowered.compiler_ir().operation.get_asm(enable_debug_info=True)`)";
const STAMP_COMMAND: &str =
    "run with `EJKERNEL_OPS_STAMP=hash` set before ejkernel is imported, because its default stamps nothing";
/// How to get labels for a program without a kernel library.
const OWN_LABELS: &str = "`@autotune_lowered.tunable` makes your function an operation with a label, `--label-regex` \
                          finds your own names, and `--compiler-options safe` tunes how the whole module is compiled, \
                          which needs no label";

impl Diagnosis {
    /// Whether it says why there is no label.
    pub fn is_of_no_label(&self) -> bool {
        matches!(self.code.as_str(), "no-labels" | "no-metadata")
    }

    /// The message without the advice for a program that never had labels.
    pub fn without_advice(&self) -> &str {
        let Some(rest) = self.message.strip_suffix(OWN_LABELS) else { return &self.message };
        let rest = rest.strip_suffix("where the program has no labels ").unwrap_or(rest);
        rest.trim_end_matches([' ', ':', ';'])
    }
}

impl Scan {
    /// Why the module seems to be truncated, so that labels may be missing.
    pub fn truncation(&self) -> Option<&Diagnosis> {
        self.diagnosis.iter().find(|diagnosis| diagnosis.code == TRUNCATED)
    }
}

/// A scan's counts besides its labels.
pub(crate) struct Counts<'a> {
    pub(crate) form: ModuleForm,
    pub(crate) broken: u64,
    pub(crate) overflow: u64,
    /// Whether ejkernel is seen in the module.
    pub(crate) is_ejkernel: bool,
    /// `None` if the file was too large for its structure to be read.
    pub(crate) structure: Option<&'a Structure>,
}

/// All diagnoses of these labels.
pub(crate) fn diagnose(counts: &Counts<'_>, labels: &[FoundLabel]) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    if let Some(cut) = counts.structure.and_then(|structure| structure.head.cut.as_ref()) {
        all.push(truncated(counts.form, cut));
    }
    let mut say = |code: &str, message: String| all.push(Diagnosis { code: code.to_owned(), message });
    let form = form_name(counts.form);
    if labels.is_empty() {
        let (code, message) = no_labels(counts, form);
        say(code, message);
    }
    cut_labels(counts, labels, form, &mut say);
    if counts.broken > 0 {
        say(
            "labels-broken",
            format!(
                "{} label prefixes in this {form} are followed by no readable operation (cut or damaged names); \
                 {STABLEHLO_COMMAND}",
                counts.broken
            ),
        );
    }
    if counts.overflow > 0 {
        say(
            "too-many-labels",
            format!(
                "this {form} holds more distinct labels than are kept (at most {}); {} further occurrences are not \
                 listed",
                super::tally::MAX_DISTINCT,
                counts.overflow
            ),
        );
    }
    match counts.structure {
        Some(structure) => {
            long_names(structure, form, &mut say);
            // what the reader could not place may have names
            if structure.head.census.names == 0 && structure.head.unread.count == 0 && !labels.is_empty() {
                say(
                    "directions-unknown",
                    format!(
                        "this {form} has no names, only payloads: labels and call sites are complete, and none is \
                         known to be of a backward pass; for directions {STABLEHLO_COMMAND}"
                    ),
                );
            }
            unread(structure, form, &mut say);
            all.extend(cut_sites(labels));
        }
        None => say(
            "no-call-sites",
            format!(
                "this {form} exceeds {} bytes: labels, counts and lines are complete; call sites, operand shapes and \
                 what follows from calls are left out; scan the module of one function for them",
                STRUCTURE_BYTES
            ),
        ),
    }
    all
}

/// Labels that lost their version or their key.
fn cut_labels(counts: &Counts<'_>, labels: &[FoundLabel], form: &str, say: &mut impl FnMut(&str, String)) {
    let by_name = || labels.iter().filter(|label| label.evidence == Evidence::ByName);
    if by_name().next().is_some() {
        let names = listed(by_name().map(|label| label.label.op_name().to_owned()));
        let cause = match counts.form {
            ModuleForm::HloText | ModuleForm::HloProto => "conversion to HLO cuts each name at its first `@`",
            _ => "their names end before the key",
        };
        say(
            "labels-cut",
            format!(
                "{} of {} labels in this {form} lost version and key ({}): {cause}; for whole labels \
                 {STABLEHLO_COMMAND}",
                by_name().count(),
                labels.len(),
                names
            ),
        );
    }
    let is_unversioned =
        |label: &&FoundLabel| label.evidence == Evidence::Recomputed && label.label.version().is_none();
    let unversioned = labels.iter().filter(is_unversioned).count();
    if unversioned > 0 {
        say(
            "recomputed-version-lost",
            format!(
                "{unversioned} json stamps in this {form} were cut at `@`: their keys were recomputed from their \
                 arguments, their versions must come from the registry; for whole stamps {STABLEHLO_COMMAND}"
            ),
        );
    }
}

/// A truncated text; its content so far was scanned.
pub(crate) fn truncated(form: ModuleForm, cut: &str) -> Diagnosis {
    let form = form_name(form);
    Diagnosis {
        code: TRUNCATED.to_owned(),
        message: format!("this {form} is cut short: {cut}; labels after the cut are missing, write the file again"),
    }
}

fn form_name(form: ModuleForm) -> &'static str {
    match form {
        ModuleForm::HloText => "HLO text",
        ModuleForm::StablehloText => "StableHLO text",
        ModuleForm::HloProto => "HloModuleProto",
        ModuleForm::StablehloBytecode => "MLIR bytecode",
        ModuleForm::DumpFolder => "dump folder",
    }
}

fn no_labels(counts: &Counts<'_>, form: &str) -> (&'static str, String) {
    // how to keep the existing labels, or to get some
    let io_hint = |keep: &str| match counts.is_ejkernel {
        true if keep.is_empty() => format!("{STAMP_COMMAND}; {OWN_LABELS}"),
        true => format!("{STAMP_COMMAND}, and {keep}; {OWN_LABELS}"),
        false => OWN_LABELS.to_owned(),
    };
    let Some(structure) = counts.structure else {
        return ("no-labels", format!("no label in this {form}: {}", io_hint(STABLEHLO_COMMAND)));
    };
    let census = &structure.head.census;
    let hints = if census.hints.is_empty() {
        String::new()
    } else {
        let hints = listed(census.hints.iter().cloned());
        format!(" (instruction names hint at {hints}, which is too weak to tune)")
    };
    match counts.form {
        ModuleForm::StablehloBytecode => (
            "no-labels",
            format!(
                "no label in this {form}: either nothing was stamped, or it was written without debug info, which \
                 `jax.export.export(…)(…).mlir_module_serialized` keeps: {}",
                io_hint("")
            ),
        ),
        ModuleForm::HloText | ModuleForm::HloProto if census.names == 0 => (
            "no-metadata",
            format!(
                "this {form} has no `op_name` metadata, which holds the labels{hints}: `as_hlo_text()` leaves it out; \
                 use `compiled.as_text()` or `lowered.compiler_ir(\"hlo\").as_hlo_module().to_string()`, or \
                 {STABLEHLO_COMMAND}; where the program has no labels {OWN_LABELS}"
            ),
        ),
        ModuleForm::StablehloText if census.names == 0 => (
            "no-metadata",
            format!(
                "this {form} has no named locations, which hold the labels{hints}: `as_text()` leaves them out; \
                 {STABLEHLO_COMMAND}; where the program has no labels {OWN_LABELS}"
            ),
        ),
        _ => ("no-labels", no_name_has_one(counts.form, structure, form, io_hint)),
    }
}

/// There are names, and none carries a label.
fn no_name_has_one(
    module_form: ModuleForm,
    structure: &Structure,
    form: &str,
    io_hint: impl Fn(&str) -> String,
) -> String {
    let census = &structure.head.census;
    let lost = if structure.head.is_optimized && census.relative > 0 {
        format!(
            "; {} names begin inside a scope (`while/…`): XLA drops the beginning of names longer than \
             {LONG_NAME_BYTES} characters when it inlines calls, and json stamps are that long: {STABLEHLO_COMMAND}",
            census.relative
        )
    } else {
        String::new()
    };
    let keep = if lost.is_empty() && module_form != ModuleForm::StablehloText { STABLEHLO_COMMAND } else { "" };
    format!("none of the {} names in this {form} carries a label{lost}: {}", census.names, io_hint(keep))
}

/// Labels with more call sites than are listed.
pub(super) fn cut_sites(labels: &[FoundLabel]) -> Option<Diagnosis> {
    let cut: Vec<String> = labels
        .iter()
        .filter(|label| label.is_list_cut())
        .map(|found| format!("`{}` has {}", found.label, found.forward_calls + found.backward_calls))
        .collect();
    let message = format!(
        "of {} only the first {} call sites are listed, while the counts are complete: {}",
        counted(cut.len(), "label"),
        FoundLabel::MAX_CALL_SITES,
        listed(cut.iter().cloned())
    );
    (!cut.is_empty()).then(|| Diagnosis { code: CALL_SITES_CUT.to_owned(), message })
}

/// Says that there are more kernels than are listed.
pub(super) fn kernels_cut() -> Diagnosis {
    let message = "there are more kernels than are listed, so one that runs on defaults may be missing; scan the part of \
                   the program that you ask about";
    Diagnosis { code: KERNELS_CUT.to_owned(), message: message.to_owned() }
}

/// Says that a label names another operation than the kernel that its call has become.
pub(super) fn stale_adapter(label: &str, operation: &str) -> Diagnosis {
    let message = format!(
        "the label of `{label}` stands on a kernel that names itself `{operation}`: the adapter was for another version of \
         the project, so what it recorded and tuned is not what runs; record with the adapters of this version"
    );
    Diagnosis { code: "stale-adapter".to_owned(), message: printable(&message) }
}

fn long_names(structure: &Structure, form: &str, say: &mut impl FnMut(&str, String)) {
    if structure.head.census.long > 0 {
        say(
            "long-names",
            format!(
                "{} of {} names in this {form} are longer than {LONG_NAME_BYTES} characters: XLA drops their \
                 beginning, label included, when it inlines calls; scan this file rather than the optimized module, \
                 or stamp with `EJKERNEL_OPS_STAMP=hash`",
                structure.head.census.long, structure.head.census.names
            ),
        );
    }
}

/// Places and operands that the reader of the structure could not use.
fn unread(structure: &Structure, form: &str, say: &mut impl FnMut(&str, String)) {
    let Unread { count, first } = structure.head.unread;
    if count > 0 {
        let line = first.map_or_else(String::new, |line| format!(", the first on line {line}"));
        say(
            "structure-unread",
            format!(
                "this {form} holds {} that the reader could not place as an instruction or operation{line}: labels \
                 are complete; call sites, operands and directions that depend on them are missing",
                counted(count, "piece")
            ),
        );
    }
    let Untyped { count, types } = &structure.resolved.untyped;
    if *count > 0 {
        let types: Vec<String> = types.iter().map(|one| format!("`{one}`")).collect();
        say(
            "operands-untyped",
            format!(
                "the call sites in this {form} lack {}, because their types are no plain arrays: {}",
                counted(*count, "operand"),
                types.join(", ")
            ),
        );
    }
}
