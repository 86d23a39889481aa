//! One entry for every form: detect, decompress, search, read the structure, diagnose.

use std::io::{self, Read};
use std::path::Path;

use super::Evidence;
use super::blocks::{Search, lines_at};
use super::bytecode;
use super::census::STRUCTURE_BYTES;
use super::compressed;
use super::detect::{self, Content, HEAD_BYTES};
use super::diagnosis::{Counts, diagnose, kernels_cut, stale_adapter, truncated};
use super::dump;
use super::envelope;
use super::error::{ScanError, ScanErrorKind};
use super::escape::Escapes;
use super::found::{Diagnosis, FoundLabel, ModuleForm, Scan};
use super::graph::{Computation, Head};
use super::hlo_text;
use super::kernels::{self, KernelTemplates};
use super::mlir_text;
use super::proto;
use super::side_file::{self, Side};
use super::sites::Sites;
use super::source::{FileSource, Source};
use super::structure::Structure;
use super::tally::{Tally, Transformations};
use super::user_label::UserLabels;
use crate::counted::counted;
use crate::digest::Digest;
use crate::outside_file::{self, Input};
use crate::setters;

const BLOCK_BYTES: usize = 1 << 18;
const TAIL_BYTES: u64 = 1 << 12;
const MAX_COMPRESSION_LAYERS: usize = 2;

/// Settings of a scan.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// A user's own labels, found beside the built-in families.
    pub user_labels: Option<UserLabels>,
    /// Which names belong to which kernels, besides the built-in ones.
    pub kernels: KernelTemplates,
}

setters!(ScanOptions { user_labels: Option<UserLabels>, kernels: KernelTemplates });

impl Scan {
    /// Version of the schema that `scan --format json` prints.
    pub const SCHEMA: u32 = 1;

    /// A scan with labels only.
    pub fn new(form: ModuleForm, labels: Vec<FoundLabel>) -> Self {
        Self {
            schema: Self::SCHEMA,
            form,
            module: None,
            digest: None,
            partitioned: None,
            labels,
            kernels: Vec::new(),
            diagnosis: Vec::new(),
        }
    }
}

/// Scans a module's file, or the folder of an XLA dump.
///
/// # Errors
///
/// A path that cannot be read, or holds no module in any form.
pub fn scan_path(path: impl AsRef<Path>, options: &ScanOptions) -> Result<Scan, ScanError> {
    let path = path.as_ref();
    let place = path.display().to_string();
    if path.is_dir() {
        return dump::scan(path, |file| scan_path(file, options));
    }
    // its length does not matter, because it is read in blocks
    let opened = outside_file::open_input(path, u64::MAX).map_err(|error| {
        match error.kind() {
            io::ErrorKind::NotFound => ScanErrorKind::Missing,
            _ => ScanErrorKind::Unreadable(error),
        }
        .at(&place)
    })?;
    let file = match opened {
        Input::File(file) => file,
        Input::Pipe(pipe) => return scan_reader(pipe, &place, options),
    };
    let source = FileSource::new(file).map_err(|error| ScanErrorKind::Unreadable(error).at(&place))?;
    let mut scan = scan_source(&source, options).map_err(|kind| kind.at(&place))?;
    let known = scan.digest;
    let digest = || match known {
        Some(digest) => Ok(digest),
        None => Digest::of_reader(outside_file::open(path, u64::MAX)?),
    };
    match side_file::read(path, digest) {
        Side::None => {}
        Side::Labels(labels) => use_side_file(&mut scan, path, labels),
        Side::Unusable(diagnosis) => scan.diagnosis.push(diagnosis),
    }
    Ok(scan)
}

/// Scans the bytes of a reader, such as standard input; `place` names it in errors.
///
/// # Errors
///
/// A reader that fails, or bytes that are not a module in any form.
pub fn scan_reader(reader: impl Read, place: &str, options: &ScanOptions) -> Result<Scan, ScanError> {
    scan_stream(Box::new(reader), None, 0, options).map_err(|kind| kind.at(place))
}

/// Scans a module in memory; `place` names it in errors.
///
/// # Errors
///
/// Bytes that are not a module in any form.
pub fn scan_bytes(bytes: &[u8], place: &str, options: &ScanOptions) -> Result<Scan, ScanError> {
    scan_source(&bytes, options).map_err(|kind| kind.at(place))
}

fn use_side_file(scan: &mut Scan, path: &Path, mut labels: Vec<FoundLabel>) {
    // the module describes complete labels better: with lines and each call site
    labels.retain(|label| {
        let whole =
            scan.labels.iter_mut().find(|known| known.evidence == Evidence::Exact && known.label == label.label);
        whole.map(|known| known.backward |= label.backward).is_none()
    });
    if labels.is_empty() {
        return;
    }
    let (found, listed) = (scan.labels.len(), labels.len());
    scan.diagnosis.retain(|diagnosis| {
        !matches!(diagnosis.code.as_str(), "no-labels" | "no-metadata" | "labels-cut" | "recomputed-version-lost")
    });
    scan.diagnosis.push(Diagnosis {
        code: "side-file".to_owned(),
        message: format!(
            "{listed} labels come from `{}`, which matches this module; the module itself has {found}",
            side_file::path_for(path).display()
        ),
    });
    for mut label in labels {
        // the module's labels of the same operation add lines and counts
        let weak = scan.labels.iter().position(|known| {
            known.label == label.label
                || (known.label.call_key.is_none() && known.label.op_name() == label.label.op_name())
        });
        if let Some(known) = weak.and_then(|at| scan.labels.get(at)) {
            label.line = known.line;
            label.backward |= known.backward;
            label.mapped |= known.mapped;
            label.occurrences = label.occurrences.max(known.occurrences);
            if label.call_sites.is_empty() {
                label.add_calls_of(known.clone());
            }
        }
        scan.labels.retain(|known| known.label != label.label);
        scan.labels.push(label);
    }
    let named: Vec<String> = scan
        .labels
        .iter()
        .filter(|label| label.family == "side-file")
        .map(|label| label.label.op_name().to_owned())
        .collect();
    scan.labels.retain(|label| {
        label.family == "side-file"
            || label.label.call_key.is_some()
            || !named.iter().any(|name| name == label.label.op_name())
    });
    sort(&mut scan.labels);
}

fn sort(labels: &mut [FoundLabel]) {
    labels.sort_by(|a, b| (&a.label, &a.family).cmp(&(&b.label, &b.family)));
}

fn scan_source(source: &dyn Source, options: &ScanOptions) -> Result<Scan, ScanErrorKind> {
    let head = source.window(0, HEAD_BYTES).map_err(ScanErrorKind::Unreadable)?;
    let form = match detect::detect(&head)? {
        Content::Module(form) => form,
        Content::Exported if source.len() <= STRUCTURE_BYTES => {
            let length = usize::try_from(source.len()).unwrap_or(usize::MAX);
            return scan_exported(&source.window(0, length).map_err(ScanErrorKind::Unreadable)?, options);
        }
        Content::Exported => return Err(exported_too_large()),
        compressed => {
            let mut scan = scan_stream(Box::new(SourceReader { source, offset: 0 }), Some(compressed), 0, options)?;
            scan.digest = None;
            if source.len() <= STRUCTURE_BYTES {
                let digest = Digest::of_reader(SourceReader { source, offset: 0 });
                scan.digest = Some(digest.map_err(ScanErrorKind::Unreadable)?);
            }
            return Ok(scan);
        }
    };
    if source.len() > STRUCTURE_BYTES {
        return scan_module(source, form, None, options);
    }
    let length = usize::try_from(source.len()).unwrap_or(usize::MAX);
    let bytes = source.window(0, length).map_err(ScanErrorKind::Unreadable)?;
    scan_module(&bytes.as_slice(), form, Some(&bytes), options)
}

/// Scans the bytecode in a file of `jax.export`, and that of its derivatives.
fn scan_exported(file: &[u8], options: &ScanOptions) -> Result<Scan, ScanErrorKind> {
    let scan = |module: &[u8]| scan_module(&module, ModuleForm::StablehloBytecode, Some(module), options);
    let digest = Some(Digest::of(file));
    let of_function = scan(envelope::exported(file)?)?;
    let derivatives = envelope::exported_derivatives(file)?;
    if derivatives.is_empty() {
        return Ok(Scan { digest, ..of_function });
    }
    let message = format!(
        "this file of `jax.export` also holds the program of {}: its labels are listed as well",
        counted(derivatives.len(), "derivative")
    );
    let said = vec![Diagnosis { code: "derivatives".to_owned(), message }];
    let mut scans = vec![("function".to_owned(), of_function.clone())];
    for (module, order) in derivatives.into_iter().zip(1..) {
        scans.push((format!("derivative {order}"), scan(module)?));
    }
    let Scan { labels, kernels, diagnosis, .. } = dump::merge(scans, said);
    Ok(Scan { digest, labels, kernels, diagnosis, ..of_function })
}

fn exported_too_large() -> ScanErrorKind {
    ScanErrorKind::TooLarge {
        what: "this file of `jax.export`".to_owned(),
        limit: STRUCTURE_BYTES,
        advice: "write the bytes of `exported.mlir_module_serialized` to a file and scan that",
    }
}

/// A source read from its start to its end.
struct SourceReader<'a> {
    source: &'a dyn Source,
    offset: u64,
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

fn escapes(form: ModuleForm) -> Escapes {
    match form {
        ModuleForm::HloText => Escapes::C,
        ModuleForm::StablehloText => Escapes::Mlir,
        _ => Escapes::Raw,
    }
}

fn search(form: ModuleForm, options: &ScanOptions) -> Search<'_> {
    Search { escapes: escapes(form), user: options.user_labels.as_ref(), block_bytes: BLOCK_BYTES }
}

/// Scans a module whose form is known; `whole` is all of it, if it is small enough.
fn scan_module(
    source: &dyn Source,
    form: ModuleForm,
    whole: Option<&[u8]>,
    options: &ScanOptions,
) -> Result<Scan, ScanErrorKind> {
    let user = options.user_labels.as_ref();
    if form == ModuleForm::StablehloBytecode
        && let Some(cut) = whole.and_then(bytecode::find_cut)
    {
        return Err(cut);
    }
    let (tally, structure) = if form == ModuleForm::HloProto {
        let head = || source.window(0, HEAD_BYTES).unwrap_or_default();
        let walk = proto::walk(source, user, whole.is_some()).map_err(|kind| detect::explain(kind, &head()))?;
        (walk.tally, whole.map(|_| walk.structure))
    } else {
        let tally = search(form, options).run(source).map_err(ScanErrorKind::Unreadable)?;
        (tally, whole.map(|text| read_structure(form, text, user)))
    };
    let lines = match form {
        ModuleForm::HloText | ModuleForm::StablehloText => {
            let offsets: Vec<u64> = tally.entries.iter().map(|entry| entry.first).collect();
            lines_at(source, &offsets, BLOCK_BYTES).map_err(ScanErrorKind::Unreadable)?
        }
        _ => Vec::new(),
    };
    let is_whole = structure.is_some();
    // not needed if there are labels
    let is_ejkernel = tally.entries.is_empty()
        && match whole {
            Some(bytes) => is_of_ejkernel(bytes),
            None => is_of_ejkernel(&source.window(0, HEAD_BYTES).map_err(ScanErrorKind::Unreadable)?),
        };
    let mut scan = assemble(form, tally, &lines, structure, is_ejkernel);
    scan.digest = whole.map(Digest::of);
    let kernels = whole.map(|of| kernels::of_module(form, of, &options.kernels)).unwrap_or_default();
    scan.kernels = kernels.listed;
    scan.diagnosis.extend(kernels.is_cut.then(kernels_cut));
    scan.diagnosis.extend(kernels.disagreeing.iter().map(|(label, operation)| stale_adapter(label, operation)));
    if !is_whole {
        let head = source.window(0, HEAD_BYTES).map_err(ScanErrorKind::Unreadable)?;
        describe_large(form, &head, &mut scan);
        let tail = source.window(source.len().saturating_sub(TAIL_BYTES), TAIL_BYTES as usize);
        let tail = tail.map_err(ScanErrorKind::Unreadable)?;
        let is_text = matches!(form, ModuleForm::HloText | ModuleForm::StablehloText);
        if is_text && !matches!(tail.trim_ascii_end().last(), Some(b'}' | b')')) {
            let cut = "it ends neither with a brace nor with a location";
            scan.diagnosis.insert(0, truncated(form, cut));
        }
    }
    Ok(scan)
}

/// Sets the name of a module of which only the beginning was read.
fn describe_large(form: ModuleForm, head: &[u8], scan: &mut Scan) {
    let structure = match form {
        ModuleForm::HloText => hlo_text::read_head(head),
        ModuleForm::StablehloText => mlir_text::read_head(head),
        _ => return,
    };
    (scan.module, scan.partitioned) = (structure.module, structure.partitioned);
}

fn read_structure(form: ModuleForm, text: &[u8], user: Option<&UserLabels>) -> Structure {
    let mut sites = Sites::new(escapes(form), user);
    let mut each = |computation: Computation<'_>| sites.add(&computation);
    let head = match form {
        ModuleForm::HloText => hlo_text::read(text, &mut each),
        ModuleForm::StablehloText => mlir_text::read(text, &mut each),
        ModuleForm::StablehloBytecode => bytecode::read(text, &mut each),
        _ => Head::default(),
    };
    Structure { head, resolved: sites.resolve() }
}

/// Scans a stream: in memory while it is small, otherwise without structure, if the form allows it.
fn scan_stream(
    mut reader: Box<dyn Read + '_>,
    content: Option<Content>,
    layers: usize,
    options: &ScanOptions,
) -> Result<Scan, ScanErrorKind> {
    if let Some(content) = content {
        let (codec, expanded): (_, Box<dyn Read + '_>) = match content {
            Content::Gzip => ("gzip", Box::new(compressed::gzip(reader))),
            Content::Zstd => ("zstd", Box::new(compressed::zstd(reader))),
            Content::Module(_) | Content::Exported => ("", reader),
        };
        if layers == MAX_COMPRESSION_LAYERS {
            return Err(ScanErrorKind::NotAModule { seen: format!("{codec} within {layers} layers of compression") });
        }
        return scan_stream(expanded, None, layers + 1, options).map_err(|kind| match kind {
            ScanErrorKind::Unreadable(error) => compressed::error_kind(codec, error),
            other => other,
        });
    }
    let mut kept = Vec::new();
    reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut kept).map_err(ScanErrorKind::Unreadable)?;
    let content = detect::detect(&kept)?;
    let form = match content {
        Content::Module(form) => form,
        Content::Exported => ModuleForm::StablehloBytecode,
        inner => return scan_stream(Box::new(io::Cursor::new(kept).chain(reader)), Some(inner), layers, options),
    };
    let left = STRUCTURE_BYTES + 1 - kept.len() as u64;
    reader.by_ref().take(left).read_to_end(&mut kept).map_err(ScanErrorKind::Unreadable)?;
    let is_whole = kept.len() as u64 <= STRUCTURE_BYTES;
    match content {
        Content::Exported if is_whole => return scan_exported(&kept, options),
        Content::Exported => return Err(exported_too_large()),
        _ if is_whole => return scan_module(&kept.as_slice(), form, Some(&kept), options),
        _ => {}
    }
    if form == ModuleForm::HloProto {
        return Err(ScanErrorKind::TooLarge {
            what: "this HloModuleProto, which comes as a stream,".to_owned(),
            limit: STRUCTURE_BYTES,
            advice: "decompress or save it to a file and scan that",
        });
    }
    let head = kept.get(..HEAD_BYTES).unwrap_or_default().to_vec();
    let (tally, lines) =
        search(form, options).run_stream(io::Cursor::new(kept).chain(reader)).map_err(ScanErrorKind::Unreadable)?;
    let lines = if form == ModuleForm::StablehloBytecode { Vec::new() } else { lines };
    let mut scan = assemble(form, tally, &lines, None, is_of_ejkernel(&head));
    describe_large(form, &head, &mut scan);
    Ok(scan)
}

/// Whether a module contains code of ejkernel: locations contain its files and functions, names its operations.
fn is_of_ejkernel(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"ejkernel").is_some()
}

fn assemble(
    form: ModuleForm,
    tally: Tally,
    lines: &[u64],
    mut structure: Option<Structure>,
    is_ejkernel: bool,
) -> Scan {
    let mut labels: Vec<FoundLabel> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for (at, entry) in tally.entries.into_iter().enumerate() {
        let line = lines.get(at).copied();
        let id = (entry.stamp.label.clone(), entry.stamp.family);
        let next = labels.len();
        let slot = *index.entry(id.clone()).or_insert(next);
        if let Some(known) = labels.get_mut(slot) {
            // another spelling of the same label
            known.occurrences += entry.occurrences;
            known.backward |= entry.transformations.backward;
            known.mapped |= entry.transformations.mapped;
            known.line = known.line.into_iter().chain(line).min();
            continue;
        }
        let sites = structure.as_mut().and_then(|structure| structure.resolved.sites.remove(&id)).unwrap_or_default();
        let Transformations { backward, mapped } = entry.transformations;
        let backward =
            backward || structure.as_ref().is_some_and(|structure| structure.resolved.backward.contains(&id));
        labels.push(FoundLabel {
            evidence: entry.stamp.evidence,
            occurrences: entry.occurrences,
            line,
            backward,
            mapped,
            forward_calls: sites.forward,
            backward_calls: sites.backward,
            call_sites: sites.listed,
            arguments: entry.stamp.arguments,
            ..FoundLabel::new(id.0, id.1.name())
        });
    }
    let repeated = structure.as_ref().map(|structure| &structure.resolved.repeated);
    // instructions of a proto were counted one by one
    for (label, count) in repeated.into_iter().flatten().filter(|_| form != ModuleForm::HloProto) {
        if let Some(known) = index.get(label).and_then(|slot: &usize| labels.get_mut(*slot)) {
            known.occurrences = known.occurrences.saturating_sub(*count).max(1);
        }
    }
    sort(&mut labels);
    let (broken, overflow) = (tally.broken, tally.overflow);
    let counts = Counts { form, broken, overflow, structure: structure.as_ref(), is_ejkernel };
    let diagnosis = diagnose(&counts, &labels);
    let (module, partitioned) =
        structure.map(|structure| (structure.head.module, structure.head.partitioned)).unwrap_or_default();
    Scan { module, partitioned, diagnosis, ..Scan::new(form, labels) }
}
