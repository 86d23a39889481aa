//! A module to compile: the bytes for the compiler, whether it may destroy its arguments, and on how many devices it
//! runs.

use prost::Message;

use super::bytecode::integer_attribute;
use super::detect::{self, Content, HEAD_BYTES};
use super::envelope;
use super::error::{ScanError, ScanErrorKind};
use super::found::ModuleForm;
use super::hlo_text;
use super::index_range::{index_ranges_of_functions, index_ranges_of_proto};
use super::interface::{DONATED, ProgramArgument, arguments, functions, has_results, results};
use super::longest_sum::longest_narrow_sum;
use super::module::damaged;
use super::schema::hlo::HloModuleProto;

/// A module in memory, in a form for the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// Its form.
    pub form: ModuleForm,
    /// The module without its envelope: of an `HloProto` the `HloModuleProto`, of a `jax.export` file the bytecode.
    pub bytes: &'a [u8],
    /// Whether it may overwrite arguments with outputs, so that they must be passed again for each run.
    pub donates: bool,
    /// The number of partitions, one for each device that it runs on. An `HloModuleProto` does not state it: 1.
    pub partitions: u64,
    /// Whether XLA's passes have run over it: it is scheduled. Options for those passes then have no effect.
    pub is_optimized: bool,
    /// Whether its shardings are Shardy's, which the partitioner before Shardy refuses.
    pub is_shardy: bool,
}

/// The name of the module attribute with the number of partitions; no other attribute has this name.
const PARTITIONS: &str = "mhlo.num_partitions";
/// The prefix of Shardy's attributes, also of those stored in a portable artifact (`xla.sdy.…`).
const SHARDY: &str = "sdy.";
/// The dialect itself, as bytecode names it: strings end with a zero.
const SHARDY_DIALECT: &str = "\0sdy\0";

/// Reads a program; `place` names it in errors.
///
/// # Errors
///
/// If the bytes are neither StableHLO nor an `HloModuleProto`, or are damaged.
pub fn read_program<'a>(bytes: &'a [u8], place: &str) -> Result<Program<'a>, ScanError> {
    read(bytes).map_err(|kind| kind.at(place))
}

/// The form of a module, from its first bytes; `place` names it in errors. A file of `jax.export` holds bytecode.
///
/// # Errors
///
/// If the bytes begin no module, or a compressed one.
pub fn module_form(bytes: &[u8], place: &str) -> Result<ModuleForm, ScanError> {
    match detect::detect(bytes.get(..HEAD_BYTES).unwrap_or(bytes)).map_err(|kind| kind.at(place))? {
        Content::Module(form) => Ok(form),
        Content::Exported => Ok(ModuleForm::StablehloBytecode),
        Content::Gzip | Content::Zstd => Err(compressed().at(place)),
    }
}

fn compressed() -> ScanErrorKind {
    ScanErrorKind::NotAModule { seen: "it is compressed: decompress it first".to_owned() }
}

/// Names, in the forms of a module, of operations whose algorithm XLA chooses by measuring on the device: matrix
/// products, convolutions, and the calls of vendors' libraries that they become. Text, bytecode (its strings end with a
/// zero byte, and versions of operations are part of their names), and the field `opcode` of `HloInstructionProto`.
const MEASURED: [&[u8]; 14] = [
    b"stablehlo.dot",
    b"stablehlo.convolution",
    b"mhlo.dot",
    b"mhlo.convolution",
    b"chlo.ragged_dot",
    b"dot_general_v",
    b"\0dot_v",
    b"\0convolution_v",
    b"\x12\x03dot",
    b"\x12\x0bconvolution",
    b"\x12\x0aragged-dot",
    b"\x12\x0ascaled-dot",
    b"__cublas$",
    b"__cudnn$",
];

/// Whether XLA would measure on the device how to compute an operation of a module. A kernel with its own code does not
/// count, even if it multiplies. In case of doubt, true.
pub fn is_measured_by_xla(module: &[u8]) -> bool {
    MEASURED.iter().any(|mark| memchr::memmem::find(module, mark).is_some())
}

impl Program<'_> {
    /// Its arguments in order; `None` if the form or the module does not list them individually, like HLO text.
    ///
    /// # Errors
    ///
    /// A module that is damaged; `place` names it.
    pub fn arguments(&self, place: &str) -> Result<Option<Vec<ProgramArgument>>, ScanError> {
        arguments(self.form, self.bytes).map_err(|kind| kind.at(place))
    }

    /// For each argument, how many values it may have as an index into some array, from zero on; `None` if it is not an
    /// index. Empty for HLO text, and for a module that cannot be read.
    pub fn index_ranges(&self) -> Vec<Option<u64>> {
        match self.form {
            ModuleForm::HloProto => index_ranges_of_proto(self.bytes),
            form => functions(form, self.bytes).map(|all| index_ranges_of_functions(&all)).unwrap_or_default(),
        }
    }

    /// The names of its results, such as `loss` or `grads/w`, in order. The list is empty if the form lacks them or no
    /// result has one, as the only result of a JAX function; otherwise a result without a name has an empty one.
    pub fn results(&self) -> Vec<String> {
        results(self.form, self.bytes)
    }

    /// Most terms that it sums or multiplies in a floating-point type narrower than `f32`; zero if there are none, and
    /// for every form but StableHLO. Matrix products and windows do not count.
    pub fn longest_narrow_sum(&self) -> u64 {
        longest_narrow_sum(self.form, self.bytes)
    }

    /// Whether it has any result; `None` if the form or the module does not tell, like HLO text.
    pub fn has_results(&self) -> Option<bool> {
        has_results(self.form, self.bytes)
    }
}

fn read(bytes: &[u8]) -> Result<Program<'_>, ScanErrorKind> {
    let (form, bytes) = match detect::detect(bytes.get(..HEAD_BYTES).unwrap_or(bytes))? {
        Content::Module(form) => (form, bytes),
        Content::Exported => (ModuleForm::StablehloBytecode, envelope::exported(bytes)?),
        Content::Gzip | Content::Zstd => return Err(compressed()),
    };
    if form != ModuleForm::HloProto {
        let donates = DONATED.iter().any(|mark| memchr::memmem::find(bytes, mark).is_some());
        // the compiler refuses unreadable bytecode
        let hlo = (form == ModuleForm::HloText).then(|| hlo_text::read_head(bytes));
        let partitions = match (&hlo, form) {
            (Some(head), _) => head.partitions,
            (None, ModuleForm::StablehloBytecode) => integer_attribute(bytes, PARTITIONS.as_bytes()).ok().flatten(),
            (None, _) => number_in_text(bytes, PARTITIONS),
        };
        let is_optimized = hlo.is_some_and(|head| head.is_optimized);
        let is_shardy =
            [SHARDY, SHARDY_DIALECT].iter().any(|mark| memchr::memmem::find(bytes, mark.as_bytes()).is_some());
        return Ok(Program { form, bytes, donates, partitions: partitions.unwrap_or(1), is_optimized, is_shardy });
    }
    let (start, bytes) = envelope::module_in(bytes)?;
    let module = HloModuleProto::decode(bytes).map_err(|error| damaged(&error, start))?;
    let aliases = module.input_output_alias.is_some_and(|alias| !alias.entries.is_empty());
    let donates = aliases || module.buffer_donor.is_some_and(|donor| !donor.entries.is_empty());
    let is_optimized = module.schedule.is_some();
    Ok(Program { form, bytes, donates, partitions: 1, is_optimized, is_shardy: false })
}

fn number_in_text(bytes: &[u8], name: &str) -> Option<u64> {
    let number = |at: usize| {
        let rest = bytes.get(at + name.len()..)?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
    };
    memchr::memmem::find_iter(bytes, name).find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sample(name: &str) -> Vec<u8> {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/timer").join(name)).unwrap()
    }

    #[test]
    fn every_form_is_recognised_and_donation_with_it() {
        for (name, form, donates) in [
            ("add.mlir", ModuleForm::StablehloText, false),
            ("donated.mlir", ModuleForm::StablehloText, true),
            ("add.mlirbc", ModuleForm::StablehloBytecode, false),
            ("add.hlo.pb", ModuleForm::HloProto, false),
        ] {
            let bytes = sample(name);
            let program = read_program(&bytes, name).unwrap();
            assert_eq!((program.form, program.donates, program.bytes), (form, donates, &bytes[..]), "{name}");
        }
    }

    /// JAX 0.10.2 exported one function under a mesh of two devices in both forms.
    #[test]
    fn partitions_are_counted_in_text_and_bytecode() {
        for (name, partitions) in
            [("sharded2.mlir", 2), ("sharded2.mlirbc", 2), ("add.mlir", 1), ("add.mlirbc", 1), ("add.hlo.pb", 1)]
        {
            assert_eq!(read_program(&sample(name), name).unwrap().partitions, partitions, "{name}");
        }
        for (name, is_shardy) in [("sharded2.mlir", true), ("sharded2.mlirbc", true), ("sharded2_gspmd.mlir", false)] {
            assert_eq!(read_program(&sample(name), name).unwrap().is_shardy, is_shardy, "{name}");
        }
        for (text, partitions) in [
            ("module @m attributes {mhlo.num_partitions=12:i32} {}", 12),
            ("module @m attributes {mhlo.num_partitions} {}", 1),
            ("module @m {} // mhlo.num_partitions = 99999999999999999999", 1),
        ] {
            assert_eq!(read_program(text.as_bytes(), "text").unwrap().partitions, partitions, "{text}");
        }
        let bytes = sample("sharded2.mlirbc");
        for end in 4..bytes.len() {
            let cut = read_program(&bytes[..end], "cut").unwrap();
            assert!(cut.partitions <= 2, "a file cut at {end}");
        }
    }

    /// XLA wrote these before and after its passes.
    #[test]
    fn optimized_programs_are_recognised() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hlo");
        for (name, is_optimized) in [
            ("grouped_matmul.hash.pre.hlo.txt", false),
            ("grouped_matmul.hash.post.hlo.txt", true),
            ("grouped_matmul.hash.pre.hlo.pb", false),
            ("grouped_matmul.hash.post.hlo.pb", true),
            ("grouped_matmul.hash.stablehlo.mlir", false),
        ] {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            assert_eq!(read_program(&bytes, name).unwrap().is_optimized, is_optimized, "{name}");
        }
        let sharded = std::fs::read(folder.join("sharded8.post.hlo.txt")).unwrap();
        assert_eq!(read_program(&sharded, "sharded").unwrap().partitions, 8);
    }

    #[test]
    fn an_hlo_proto_is_unwrapped() {
        let mut module = sample("add.hlo.pb");
        // input_output_alias { entries { parameter_number: 1 } }
        module.extend([0x42, 4, 0x0a, 2, 0x10, 1]);
        let mut length = module.len();
        let mut wrapped = vec![0x0a];
        while length >= 0x80 {
            wrapped.push(length as u8 | 0x80);
            length >>= 7;
        }
        wrapped.push(length as u8);
        wrapped.extend(&module);
        let program = read_program(&wrapped, "wrapped").unwrap();
        assert_eq!((program.bytes, program.donates), (&module[..], true));
        let cut = read_program(&wrapped[..wrapped.len() - 9], "cut").unwrap_err();
        assert!(cut.to_string().contains("`cut`: is truncated"), "{cut}");
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let message_of = |bytes: &[u8]| read_program(bytes, "file").unwrap_err().to_string();
        assert!(message_of(b"").contains("is empty"));
        assert!(message_of(b"\x1f\x8b\x08").contains("decompress it first"));
        assert!(message_of(b"{\"a\": 1}").contains("JSON"));
    }

    /// The programs of a Pallas-Triton matrix product multiply in a separate kernel. JAX wrote all of them.
    #[test]
    fn a_matrix_product_outside_of_kernels_is_measured_by_xla() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["add.mlir", "add.mlirbc", "add.hlo.pb"] {
            assert!(!is_measured_by_xla(&sample(name)), "{name}");
        }
        let triton = folder.join("tests/data/targets/registry/programs");
        let mut kernels = 0;
        for folder in std::fs::read_dir(triton).unwrap() {
            for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                assert!(!is_measured_by_xla(&std::fs::read(&path).unwrap()), "{}", path.display());
                kernels += 1;
            }
        }
        assert_eq!(kernels, 10);
        let transformer = folder.join("examples/transformer");
        assert!(is_measured_by_xla(&std::fs::read(transformer.join("module.stablehlo.mlir")).unwrap()));
        assert!(is_measured_by_xla(&sample("sharded2.mlirbc")), "bytecode names its operations");
        // an HloInstructionProto whose second field is its opcode
        for (opcode, measured) in [("dot", true), ("convolution", true), ("add", false), ("dotted", false)] {
            let mut instruction = vec![0x12, opcode.len() as u8];
            instruction.extend(opcode.as_bytes());
            assert_eq!(is_measured_by_xla(&instruction), measured, "{opcode}");
        }
    }
}
