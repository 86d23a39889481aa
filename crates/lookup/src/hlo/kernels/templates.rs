//! Which names of kernels belong to which operation of a project.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::call::Call;
use super::found::KnownKernel;
use super::names::{base, scopes};
use super::proto;
use crate::hlo::module::{HloInstruction, HloModule};
use crate::hlo::user_label::labels_in;

/// The version of the files.
const SCHEMA: u32 = 1;
/// Most bytes of a pattern's program.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The names of serving kernels come first: those of JAX are less particular.
const SHIPPED: [&str; 2] =
    [include_str!("../../../candidates/kernels/serving.json"), include_str!("../../../candidates/kernels/jax.json")];

static BUILT_IN: LazyLock<Vec<Template>> = LazyLock::new(|| {
    // a test reads each of them
    SHIPPED.iter().flat_map(|text| read(text).unwrap_or_default()).collect()
});

/// Why a file of templates cannot be used: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KernelTemplatesError(String);

/// Templates of kernels: a user's own, and the built-in ones behind them.
#[derive(Debug, Clone, Default)]
pub struct KernelTemplates {
    own: Vec<Template>,
}

/// A file of templates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateFile {
    schema: u32,
    kernels: Vec<TemplateText>,
}

/// A template as a file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateText {
    /// As the project names it.
    operation: String,
    /// The projects that have it, each with a part of the paths of its files in small letters.
    projects: BTreeMap<String, String>,
    /// The custom calls that hold it.
    targets: Vec<String>,
    /// A pattern of a whole name; its named groups are values.
    name: String,
    /// The groups that are no tunable parameters.
    #[serde(default, rename = "static")]
    static_groups: Vec<String>,
    /// Members of the kernel's metadata that are parameters, and what these are called.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// The same of what is no parameter.
    #[serde(default)]
    static_metadata: BTreeMap<String, String>,
    /// Which of `num_warps` and `num_stages` are parameters.
    #[serde(default)]
    launch: Vec<String>,
    /// Whether a file of a project must be known, because the name is a common one.
    #[serde(default)]
    needs_file: bool,
    /// The operations of adapters whose calls hold it, as their labels name them.
    #[serde(default)]
    labels: Vec<String>,
    /// The values that the project takes if nothing is tuned.
    #[serde(default)]
    defaults: BTreeMap<String, Value>,
    /// Where the name was read.
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Debug, Clone)]
struct Template {
    operation: String,
    projects: BTreeMap<String, String>,
    targets: Vec<String>,
    name: Regex,
    static_groups: Vec<String>,
    metadata: BTreeMap<String, String>,
    static_metadata: BTreeMap<String, String>,
    launch: Vec<String>,
    needs_file: bool,
    labels: Vec<String>,
    defaults: BTreeMap<String, Value>,
}

impl KernelTemplates {
    /// Most bytes of a file.
    pub const MAX_BYTES: u64 = 1 << 20;

    /// Reads a user's templates, in the form of the files in `candidates/kernels`.
    ///
    /// # Errors
    ///
    /// If the text is not such a document, or a pattern is none.
    pub fn of_text(text: &str) -> Result<Self, KernelTemplatesError> {
        read(text).map(|own| Self { own })
    }

    /// What the kernel of an instruction is; `None` of one that holds no kernel, or an unknown one.
    pub fn of_instruction(&self, module: &HloModule, instruction: &HloInstruction) -> Option<KnownKernel> {
        self.recognise(&proto::call_of(module, instruction)?)
    }

    /// What a kernel is by the name of its event in a profile, its scopes, and its file and line if they are known.
    pub fn of_event(&self, event: &str, op_name: &str, source: Option<&(String, u64)>) -> Option<KnownKernel> {
        let names = std::iter::once(base(event).to_owned()).chain(scopes(op_name)).collect();
        self.recognise(&Call { names, places: source.cloned().into_iter().collect(), ..Call::default() })
    }

    /// What the kernel of a call is.
    pub(super) fn recognise(&self, call: &Call) -> Option<KnownKernel> {
        self.all().find_map(|template| template.recognise(call))
    }

    /// What a call's label and its kernel's name say of it, if they disagree: the label is of an adapter, and the kernel
    /// is known and none of that adapter's.
    pub(super) fn disagreement(&self, call: &Call) -> Option<(String, KnownKernel)> {
        let (label, _) = labels_in(&call.scope, "", None).pop()?;
        let label = label.op_name();
        let is_of = |template: &Template| template.labels.iter().any(|known| known == label);
        if !self.all().any(is_of) {
            return None;
        }
        let mut known = self.all().filter_map(|template| Some((template.recognise(call)?, is_of(template))));
        let first = known.next()?;
        (!first.1 && known.all(|(_, is_own)| !is_own)).then(|| (label.to_owned(), first.0))
    }

    fn all(&self) -> impl Iterator<Item = &Template> {
        self.own.iter().chain(BUILT_IN.iter())
    }
}

fn read(text: &str) -> Result<Vec<Template>, KernelTemplatesError> {
    let wrong = |why: String| KernelTemplatesError(why);
    let TemplateFile { schema, kernels } =
        serde_json::from_str(text).map_err(|error| wrong(format!("it holds no kernel templates: {error}")))?;
    if schema != SCHEMA {
        return Err(wrong(format!("it has schema {schema}, this version reads {SCHEMA}")));
    }
    let template = |text: TemplateText| {
        let whole = format!("^(?:{})$", text.name);
        let name = RegexBuilder::new(&whole).size_limit(MAX_PATTERN_BYTES).build();
        let name = name.map_err(|error| {
            let why = error.to_string();
            wrong(format!("the name of `{}` is no pattern: {}", text.operation, why.lines().last().unwrap_or_default()))
        })?;
        Ok(Template {
            operation: text.operation,
            projects: text.projects,
            targets: text.targets,
            name,
            static_groups: text.static_groups,
            metadata: text.metadata,
            static_metadata: text.static_metadata,
            launch: text.launch,
            needs_file: text.needs_file,
            labels: text.labels,
            defaults: text.defaults,
        })
    };
    kernels.into_iter().map(template).collect()
}

impl Template {
    fn recognise(&self, call: &Call) -> Option<KnownKernel> {
        // an event does not name its target
        if !call.target.is_empty() && !self.targets.contains(&call.target) {
            return None;
        }
        let own: Vec<&str> = self
            .projects
            .iter()
            .filter(|(_, part)| call.places.iter().any(|(file, _)| file.to_lowercase().contains(part.as_str())))
            .map(|(project, _)| project.as_str())
            .collect();
        if self.needs_file && own.is_empty() {
            return None;
        }
        let names = call.name.iter().chain(&call.names);
        let captures = names.filter_map(|name| self.name.captures(name)).next()?;
        let project = if own.is_empty() { self.projects.keys().map(String::as_str).collect() } else { own };
        let (mut parameters, mut static_arguments) = (BTreeMap::new(), BTreeMap::new());
        self.groups(&captures, &mut parameters, &mut static_arguments);
        let said = |names: &BTreeMap<String, String>, into: &mut BTreeMap<String, Value>| {
            let known = names.iter().filter_map(|(key, name)| Some((name.clone(), call.metadata.get(key)?.clone())));
            into.extend(known);
        };
        said(&self.metadata, &mut parameters);
        said(&self.static_metadata, &mut static_arguments);
        for (name, value) in [("num_warps", call.num_warps), ("num_stages", call.num_stages)] {
            if let Some(value) = value.filter(|_| self.launch.iter().any(|one| one == name)) {
                parameters.insert(name.to_owned(), value.into());
            }
        }
        let on_defaults = self.is_on_defaults(&parameters);
        Some(KnownKernel {
            project: project.join(" or "),
            operation: self.operation.clone(),
            parameters,
            static_arguments,
            on_defaults,
        })
    }

    fn groups(
        &self,
        captures: &Captures<'_>,
        parameters: &mut BTreeMap<String, Value>,
        static_arguments: &mut BTreeMap<String, Value>,
    ) {
        for name in self.name.capture_names().flatten() {
            let Some(text) = captures.name(name) else { continue };
            let text = text.as_str();
            let value = text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
            let is_static = self.static_groups.iter().any(|one| one == name);
            let into = if is_static { &mut *static_arguments } else { &mut *parameters };
            into.insert(name.to_owned(), value);
        }
    }

    /// Whether all parameters whose defaults are known have them; `None` if one of them cannot be read.
    fn is_on_defaults(&self, parameters: &BTreeMap<String, Value>) -> Option<bool> {
        if self.defaults.is_empty() {
            return None;
        }
        let same: Option<Vec<bool>> =
            self.defaults.iter().map(|(name, value)| Some(parameters.get(name)? == value)).collect();
        same.map(|same| same.into_iter().all(|is_same| is_same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(target: &str, name: &str) -> Option<KnownKernel> {
        let call = Call { target: target.to_owned(), name: Some(name.to_owned()), ..Call::default() };
        KernelTemplates::default().recognise(&call)
    }

    fn parameters(name: &str) -> String {
        let known = known("tpu_custom_call", name).unwrap();
        let each = known.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        each.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_shipped_files_are_read_and_each_names_its_operations() {
        for text in SHIPPED {
            assert!(!read(text).unwrap().is_empty());
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/candidates/kernels");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), SHIPPED.len(), "every file of the folder is embedded");
        assert_eq!(BUILT_IN.len(), SHIPPED.iter().map(|text| read(text).unwrap().len()).sum::<usize>());
    }

    /// Names as the projects write them.
    #[test]
    fn block_sizes_are_read_from_names() {
        assert_eq!(parameters("RPAd-p_64-bq_8_8-bkv_512_256"), "bkv=512 bkv_compute=256 bq=8 bq_compute=8");
        assert_eq!(parameters("RPAm-p_64-bq_64_32-bkv_512_256-sw_128"), "bkv=512 bkv_compute=256 bq=64 bq_compute=32");
        assert_eq!(parameters("RPA-bq_32-bkvp_16-p_64"), "bkv_pages=16 bq=32");
        assert_eq!(parameters("MLA-bd-bq_1-bkvp_4-p_64-bsz_8"), "batch_size=8 bkv_pages=4 bq=1");
        assert_eq!(parameters("MLA-RPA-bq_16-bkvp_2-p_128"), "bkv_pages=2 bq=16");
        assert_eq!(parameters("SparseMLA-p_512-bz_4-gcz_64"), "batch_size=4");
        assert_eq!(parameters("StreamIdxTC-d-bq_16-bkvp_8"), "bkv_pages=8 bq=16");
        assert_eq!(
            parameters("gmm_v2-g_8-m_256-k_6144-act_silu-n_4096-tm_64-tk_3072-tn_128"),
            "tile_k=3072 tile_m=64 tile_n=128"
        );
        assert_eq!(
            parameters("fused-moe-k_8-renorm_k-bt_32_32_32-bf_512_256-bd1_1024_512-bd2_1024_1024"),
            "bd1=1024 bd1c=512 bd2=1024 bd2c=1024 bf=512 bfc=256 bt=32 btc=32 bts=32"
        );
        assert_eq!(
            parameters("fused-moe-k_8-bt_64_64_64-bf_1024_1024-bd1_2048_2048-bd2_2048_2048-shared_expert_bse_256"),
            "bd1=2048 bd1c=2048 bd2=2048 bd2c=2048 bf=1024 bfc=1024 bse=256 bt=64 btc=64 bts=64"
        );
        let missed = known("tpu_custom_call", "quantized_matmul_kernel_128_128_128").unwrap();
        assert_eq!((missed.operation.as_str(), missed.on_defaults), ("quantized_matmul", Some(true)));
        let tuned = known("tpu_custom_call", "quantized_matmul_kernel_1024_256_4096").unwrap();
        assert_eq!(tuned.on_defaults, Some(false));
        assert_eq!(known("tpu_custom_call", "somebody's kernel"), None);
        assert_eq!(known("other_custom_call", "RPAd-p_64-bq_8_8-bkv_512_256"), None);
    }

    /// Under `vmap` on a GPU, JAX names them after their functions, and both norms give their backward kernels one name.
    #[test]
    fn norms_have_two_names_and_share_one() {
        let of = |name: &str| known("__gpu$xla.gpu.triton", name).map(|known| known.operation);
        for (name, operation) in [
            ("ln_forward", "layer_norm"),
            ("layer_norm_forward_kernel", "layer_norm"),
            ("layer_norm_backward_kernel_dw_db", "layer_norm"),
            ("rms_forward", "rms_norm"),
            ("rms_norm_forward_kernel", "rms_norm"),
            ("rms_norm_backward_kernel_dx", "rms_norm"),
            ("ln_backward_dx", "layer_or_rms_norm"),
        ] {
            assert_eq!(of(name).as_deref(), Some(operation), "{name}");
        }
    }

    #[test]
    fn a_common_name_counts_in_its_projects_files_only() {
        let call = |file: &str| Call {
            target: "mosaic_gpu_v2".to_owned(),
            names: vec!["matmul".to_owned()],
            places: vec![(file.to_owned(), 1)],
            ..Call::default()
        };
        let of = |file| KernelTemplates::default().recognise(&call(file)).map(|known| known.operation);
        assert_eq!(of("/x/jax/experimental/pallas/ops/gpu/hopper_matmul_mgpu.py").as_deref(), Some("hopper_matmul"));
        assert_eq!(of("/x/mine.py"), None);
    }

    /// A label says `tpu_inference.rpa_v3`, and the kernel that its call has become is another one.
    #[test]
    fn a_label_and_a_name_that_disagree_are_told() {
        let of = |label: &str, name: &str| {
            let call = Call {
                target: "tpu_custom_call".to_owned(),
                name: Some(name.to_owned()),
                scope: format!("jit(f)/ejkernel_ops#{label}:0123456789abcdef/pallas_call"),
                ..Call::default()
            };
            KernelTemplates::default().disagreement(&call).map(|(label, known)| (label, known.operation))
        };
        let gmm = "gmm_v2-g_8-m_256-k_6144-act_silu-n_4096-tm_64-tk_3072-tn_128";
        let told = Some(("tpu_inference.rpa_v3".to_owned(), "gmm_v2".to_owned()));
        assert_eq!(of("tpu_inference.rpa_v3.v1", gmm), told);
        for (label, name) in [
            ("tpu_inference.rpa_v3.v1", "RPAd-p_64-bq_8_8-bkv_512_256"),
            ("maxtext.gmm_v2.v3", gmm),
            // a user's own operation around it, and a kernel that nobody knows
            ("mine.v1", gmm),
            ("tpu_inference.rpa_v3.v1", "somebody's"),
        ] {
            assert_eq!(of(label, name), None, "{label} {name}");
        }
    }

    #[test]
    fn a_users_templates_come_first_and_bad_ones_are_named() {
        let file = |name: &str| {
            format!(
                r#"{{"schema": 1, "kernels": [{{"operation": "mine", "projects": {{"me": "me/"}},
                "targets": ["tpu_custom_call"], "name": "{name}", "source": "me.py"}}]}}"#
            )
        };
        let own = KernelTemplates::of_text(&file("RPAd-.*")).unwrap();
        let call = Call { target: "tpu_custom_call".to_owned(), name: Some("RPAd-p_64".to_owned()), ..Call::default() };
        assert_eq!(own.recognise(&call).unwrap().operation, "mine");
        for (text, word) in [
            (file("("), "no pattern"),
            (file("(?:a{1000}){1000}"), "no pattern"),
            (r#"{"schema": 2, "kernels": []}"#.to_owned(), "schema 2"),
            ("[]".to_owned(), "no kernel templates"),
        ] {
            let error = KernelTemplates::of_text(&text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }
}
