//! What the kernels of a CUDA plugin need from the packages that are installed beside it.
//!
//! JAX sets these variables when it imports Mosaic GPU (`jax/experimental/mosaic/gpu/core.py`). A worker loads the
//! plugin without JAX, and then the plugin refuses every Mosaic GPU kernel.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A variable, the package folder that brings its file, and the file. `{}` is the name of the CUDA version, such as
/// `cuda13`.
const FILES: [(&str, &str, &str); 3] = [
    ("MOSAIC_GPU_RUNTIME_LIB_PATH", "jax_{}_plugin", "libmosaic_gpu_runtime.so"),
    ("MOSAIC_GPU_NVSHMEM_BC_PATH", "nvidia/nvshmem/lib", "libnvshmem_device.bc"),
    ("MOSAIC_GPU_NVSHMEM_SO_PATH", "nvidia/nvshmem/lib", "libnvshmem_host.so.3"),
];

/// Variables of a worker that loads this plugin. The user's own values stay.
pub(crate) fn environment(plugin: &Path) -> Vec<(OsString, Option<OsString>)> {
    environment_of(plugin, |name| std::env::var_os(name))
}

fn environment_of(plugin: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Vec<(OsString, Option<OsString>)> {
    let Some((site_packages, cuda)) = installed_as(plugin) else { return Vec::new() };
    let path_of = |package: &str, file: &str| -> PathBuf { site_packages.join(package.replace("{}", cuda)).join(file) };
    FILES
        .into_iter()
        .filter(|(name, ..)| variable(name).is_none_or(|value| value.is_empty()))
        .map(|(name, package, file)| (name, path_of(package, file)))
        .filter(|(_, path)| path.is_file())
        .map(|(name, path)| (name.into(), Some(path.into())))
        .collect()
}

/// The folder of packages that holds a plugin in `jax_plugins/xla_cuda13`, and `cuda13`.
fn installed_as(plugin: &Path) -> Option<(&Path, &str)> {
    let package = plugin.parent()?;
    let cuda = package.file_name()?.to_str()?.strip_prefix("xla_")?;
    let is_version = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let is_cuda = cuda.strip_prefix("cuda").is_some_and(is_version);
    let namespace = package.parent().filter(|namespace| is_cuda && namespace.ends_with("jax_plugins"))?;
    Some((namespace.parent()?, cuda))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn mosaics_runtime_is_that_of_the_plugins_own_cuda() {
        let packages = tempfile::tempdir().unwrap();
        let path = |name: &str| packages.path().join(name);
        for name in ["jax_cuda12_plugin", "jax_cuda13_plugin", "jax_plugins/xla_cuda13", "jax_plugins/xla_cuda14"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let plugin = path("jax_plugins/xla_cuda13/xla_cuda_plugin.so");
        let none = |_: &str| None;
        assert_eq!(environment_of(&plugin, none), [], "its package is not installed");
        for name in ["jax_cuda12_plugin", "jax_cuda13_plugin"] {
            fs::write(path(name).join("libmosaic_gpu_runtime.so"), "").unwrap();
        }
        let runtime = path("jax_cuda13_plugin/libmosaic_gpu_runtime.so");
        let set = |name: &str, path: PathBuf| (OsString::from(name), Some(OsString::from(path)));
        assert_eq!(environment_of(&plugin, none), [set("MOSAIC_GPU_RUNTIME_LIB_PATH", runtime.clone())]);
        // with the library for kernels that communicate
        fs::create_dir_all(path("nvidia/nvshmem/lib")).unwrap();
        let bitcode = path("nvidia/nvshmem/lib/libnvshmem_device.bc");
        fs::write(&bitcode, "").unwrap();
        let both = [set("MOSAIC_GPU_RUNTIME_LIB_PATH", runtime), set("MOSAIC_GPU_NVSHMEM_BC_PATH", bitcode)];
        assert_eq!(environment_of(&plugin, none), both);
        // what the user named stays, and an empty value names nothing
        let own = |name: &str| (name == "MOSAIC_GPU_RUNTIME_LIB_PATH").then(|| "/own.so".into());
        assert_eq!(environment_of(&plugin, own), both[1..]);
        assert_eq!(environment_of(&plugin, |_| Some(OsString::new())), both);
        for other in ["jax_plugins/xla_cuda14/x.so", "jax_plugins/xla_rocm7/x.so", "xla_cuda13/x.so", "x.so", ""] {
            let found = environment_of(&path(other), none);
            assert!(found.iter().all(|(name, _)| name != "MOSAIC_GPU_RUNTIME_LIB_PATH"), "{other}");
        }
    }
}
