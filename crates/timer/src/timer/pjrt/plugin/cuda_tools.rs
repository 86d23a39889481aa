//! What a CUDA plugin takes from CUDA while it compiles: the assembler, and the library of device functions. NVIDIA's
//! packages and their folders changed with CUDA 13.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::digest::digest_of_plugin;

/// The variable that XLA reads; it prefers what is there to the packages beside the plugin.
const HOME: &str = "CUDA_HOME";
/// Other variables in which users name CUDA's folder.
const OTHER_HOMES: [&str; 2] = ["CUDA_ROOT", "CUDA_PATH"];
/// The folders in which NVIDIA's packages put CUDA's, beside those of the plugin: of CUDA 13, and of 12.
const OF_PACKAGES: [&str; 2] = ["nvidia/cu13", "nvidia/cuda_nvcc"];
const PTXAS: &str = "bin/ptxas";
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// An environment's variables by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn own_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The packages that bring these tools for a plugin.
pub(crate) fn packages_for(plugin: &Path) -> &'static str {
    match cuda_of(plugin) {
        Some(12) => "nvidia-cuda-nvcc-cu12",
        Some(_) => "nvidia-cuda-nvcc and nvidia-nvvm",
        None => "nvidia-cuda-nvcc and nvidia-nvvm (for CUDA 12: nvidia-cuda-nvcc-cu12)",
    }
}

/// The version of CUDA that a plugin is for, by the folder of its package: `jax_plugins/xla_cuda13`.
fn cuda_of(plugin: &Path) -> Option<u32> {
    let package = plugin.parent()?.file_name()?.to_str()?;
    package.strip_prefix("xla_cuda")?.parse().ok()
}

/// `CUDA_HOME` for the workers of a plugin that has no packages beside it, if only another variable names CUDA's
/// folder.
pub(crate) fn cuda_home_for(plugin: &Path) -> Option<(OsString, Option<OsString>)> {
    Some((HOME.into(), Some(home_elsewhere(plugin, &own_variable)?.into())))
}

/// The folder in which a plugin's worker finds CUDA by its environment.
fn home_of_worker(plugin: &Path, variables: Variables<'_>) -> Option<PathBuf> {
    home_elsewhere(plugin, variables).or_else(|| variables(HOME).map(PathBuf::from))
}

fn home_elsewhere(plugin: &Path, variables: Variables<'_>) -> Option<PathBuf> {
    let has_assembler = |folder: &PathBuf| folder.join(PTXAS).is_file();
    let has_home = variables(HOME).is_some_and(|home| !home.is_empty());
    if has_home || beside(plugin).iter().any(has_assembler) {
        return None;
    }
    let named = OTHER_HOMES.iter().filter_map(|name| variables(name)).map(PathBuf::from);
    // a relative folder depends on where this runs
    named.into_iter().find(|folder| folder.is_absolute() && has_assembler(folder))
}

/// CUDA's folders in the packages beside a plugin's.
fn beside(plugin: &Path) -> Vec<PathBuf> {
    let packages = plugin.ancestors().nth(3);
    packages.into_iter().flat_map(|packages| OF_PACKAGES.map(|cuda| packages.join(cuda))).collect()
}

/// Every tool of CUDA that XLA may use for a target: from the folder named by the flag, from the one that a variable
/// names, from the packages beside the plugin's, from the usual folder, and from `PATH`. XLA picks one of each kind. A
/// change of any may change the code. `folder` keeps digests.
pub(crate) fn toolchain(plugin: &Path, xla_flags: &[String], folder: &Path) -> Option<String> {
    toolchain_in(plugin, xla_flags, folder, &own_variable)
}

fn toolchain_in(plugin: &Path, xla_flags: &[String], folder: &Path, variables: Variables<'_>) -> Option<String> {
    let named = xla_flags.iter().filter_map(|flag| flag.strip_prefix("--xla_gpu_cuda_data_dir=")).map(PathBuf::from);
    let by_variable = home_of_worker(plugin, variables);
    let roots = named.chain(by_variable).chain(beside(plugin)).chain([PathBuf::from("/usr/local/cuda")]);
    let in_roots = roots.flat_map(|root| [("ptxas", root.join(PTXAS)), ("libdevice", root.join(LIBDEVICE))]);
    let path = variables("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| ("ptxas", folder.join("ptxas")));
    let found = in_roots.chain(on_path).filter(|(_, file)| file.is_file());
    let digests =
        found.filter_map(|(tool, file)| Some(format!("{tool} {}", digest_of_plugin(&file, Some(folder)).ok()?)));
    let digests: BTreeSet<String> = digests.collect();
    (!digests.is_empty()).then(|| Vec::from_iter(digests).join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    fn variables<'a>(pairs: &'a [(&'a str, &'a Path)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |wanted| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, folder)| folder.as_os_str().to_owned())
    }

    fn write(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
    }

    #[test]
    fn packages_by_the_version_of_cuda() {
        let of = |plugin: &str| packages_for(Path::new(plugin));
        assert_eq!(of("/p/jax_plugins/xla_cuda12/xla_cuda_plugin.so"), "nvidia-cuda-nvcc-cu12");
        assert_eq!(of("/p/jax_plugins/xla_cuda13/xla_cuda_plugin.so"), "nvidia-cuda-nvcc and nvidia-nvvm");
        assert!(of("/p/xla_cuda_plugin.so").contains("(for CUDA 12: nvidia-cuda-nvcc-cu12)"));
    }

    #[test]
    fn the_variable_that_xla_reads_wins_and_others_need_an_assembler() {
        let folder = tempfile::tempdir().unwrap();
        let (with, without) = (folder.path().join("with"), folder.path().join("without"));
        let plugin = folder.path().join("jax_plugins/xla_cuda13/xla_cuda_plugin.so");
        write(&with.join(PTXAS));
        fs::create_dir_all(&without).unwrap();
        let of = |pairs: &[(&str, &Path)]| home_elsewhere(&plugin, &variables(pairs));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("CUDA_ROOT", &with)]).as_ref(), Some(&with));
        assert_eq!(of(&[("CUDA_ROOT", &without), ("CUDA_PATH", &with)]).as_ref(), Some(&with));
        assert_eq!(of(&[(HOME, Path::new("")), ("CUDA_PATH", &with)]).as_ref(), Some(&with));
        assert_eq!(of(&[(HOME, &without), ("CUDA_ROOT", &with)]), None);
        for wrong in [without.as_path(), Path::new("with"), Path::new("")] {
            assert_eq!(of(&[("CUDA_ROOT", wrong)]), None, "{wrong:?}");
        }
        // the packages fit the plugin, and an old CUDA may not
        write(&folder.path().join("nvidia/cu13").join(PTXAS));
        assert_eq!(of(&[("CUDA_ROOT", &with)]), None);
    }

    #[test]
    fn every_tool_that_may_be_used_is_part_of_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let plugin = path("jax_plugins/xla_cuda13/xla_cuda_plugin.so");
        let (root, home) = (path("root"), path("home"));
        let pairs: &[(&str, &Path)] = &[("CUDA_ROOT", &root), ("PATH", &path("on-path"))];
        let with_home: &[(&str, &Path)] = &[("CUDA_ROOT", &root), (HOME, &home)];
        let flag = [format!("--xla_gpu_cuda_data_dir={}", path("own").display())];
        let of = |flags, pairs| toolchain_in(&plugin, flags, folder.path(), &variables(pairs));
        let mut seen = BTreeSet::from([of(&[], pairs)]);
        for (flags, pairs, file) in [
            (&[][..], pairs, "root/bin/ptxas"),
            (&[], pairs, "root/nvvm/libdevice/libdevice.10.bc"),
            (&[], pairs, "on-path/ptxas"),
            (&[], with_home, "home/bin/ptxas"),
            (&flag, pairs, "own/bin/ptxas"),
            (&[], pairs, "nvidia/cu13/bin/ptxas"),
            (&[], pairs, "nvidia/cu13/nvvm/libdevice/libdevice.10.bc"),
            (&[], pairs, "nvidia/cuda_nvcc/bin/ptxas"),
            (&[], pairs, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"),
        ] {
            write(&path(file));
            assert!(seen.insert(of(flags, pairs)), "{file}");
        }
        let all = of(&[], pairs).unwrap();
        assert!(all.contains("ptxas ") && all.contains("libdevice "), "{all}");
    }
}
