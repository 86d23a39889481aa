//! `--timer auto`: the compiler that the user's programs run with.

use std::path::{Path, PathBuf};

use super::active_python::ActivePython;
use super::pjrt::{FoundPlugin, PCI, has_tpu, installed_in};

/// The timer that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AutoTimer {
    /// The PJRT plugin that the user named.
    NamedPlugin,
    /// The PJRT plugin by which the active environment's JAX reaches its device.
    Plugin(FoundPlugin),
    /// The JAX worker, with this Python.
    Jax(PathBuf),
    /// A PJRT plugin although none was named and the active environment has no JAX: programs may run with another
    /// compiler.
    PluginWithoutJax,
}

impl AutoTimer {
    /// Chooses for this process. `plugin_is_named` says whether the user named a plugin, which then is used.
    ///
    /// Otherwise it is the plugin by which the active environment's JAX reaches a device other than the CPU, if there
    /// is such a device; else JAX itself.
    pub fn choose(plugin_is_named: bool) -> Self {
        let is_named = plugin_is_named
            || ["PJRT_NAMES_AND_LIBRARY_PATHS", "PJRT_PLUGIN_LIBRARY_PATH"]
                .into_iter()
                .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        if is_named { Self::NamedPlugin } else { Self::of(ActivePython::find().as_ref(), Path::exists, Path::new(PCI)) }
    }

    fn of(python: Option<&ActivePython>, exists: impl Fn(&Path) -> bool, pci: &Path) -> Self {
        let Some(python) = python else { return Self::PluginWithoutJax };
        let for_device_here = |name: &str| {
            let nodes: &[&str] = match name {
                name if name.contains("cpu") => return false,
                name if name.contains("cuda") => &["/dev/nvidiactl", "/dev/dxg"],
                name if name.contains("rocm") => &["/dev/kfd"],
                name if name.contains("tpu") => return has_tpu(pci),
                _ => return true,
            };
            nodes.iter().any(|node| exists(Path::new(node)))
        };
        match installed_in(python).into_iter().find(|plugin| for_device_here(&plugin.name)) {
            Some(plugin) => Self::Plugin(plugin),
            None if python.has_jax() => Self::Jax(python.python.clone()),
            None => Self::PluginWithoutJax,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    /// A Python with these packages; those in a namespace are plugins.
    fn python(folder: &Path, packages: &[&str]) -> ActivePython {
        for package in packages {
            let package = folder.join(package);
            fs::create_dir_all(&package).unwrap();
            fs::write(package.join("__init__.py"), "").unwrap();
            fs::write(package.join("plugin.so"), b"GetPjrtApi\0").unwrap();
        }
        fs::write(folder.join("python"), "").unwrap();
        ActivePython { python: folder.join("python"), site_packages: vec![folder.to_owned()] }
    }

    #[test]
    fn the_compiler_of_the_users_programs_is_chosen() {
        let root = tempfile::tempdir().unwrap();
        let here = |node: &'static str| move |path: &Path| path == Path::new(node);
        let mut number = 0;
        let mut chosen = |packages: &[&str], node: &'static str| {
            number += 1;
            let folder = root.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            let python = python(&folder, packages);
            match AutoTimer::of(Some(&python), here(node), root.path()) {
                AutoTimer::Jax(of) => {
                    assert_eq!(of, python.python);
                    "jax"
                }
                AutoTimer::Plugin(plugin) => {
                    assert!(!plugin.name.contains("cpu"), "{plugin:?}");
                    "plugin"
                }
                AutoTimer::PluginWithoutJax => "plugin without jax",
                AutoTimer::NamedPlugin => "named",
            }
        };
        let (jax, cuda, cpu) = (["jax", "jaxlib"], "jax_plugins/xla_cuda12", "xla_plugins/xla_cpu_pjrt");
        assert_eq!(chosen(&jax, ""), "jax");
        assert_eq!(chosen(&[jax[0], jax[1], cpu], ""), "jax");
        assert_eq!(chosen(&[cpu], ""), "plugin without jax");
        assert_eq!(chosen(&[jax[0], jax[1], cpu, cuda], "/dev/nvidiactl"), "plugin");
        // JAX itself falls back to the CPU there
        assert_eq!(chosen(&[jax[0], jax[1], cuda], ""), "jax");
        assert_eq!(chosen(&["jax_plugins/metal"], ""), "plugin");
        // the machine has no TPU
        assert_eq!(chosen(&[jax[0], jax[1], "libtpu"], ""), "jax");
        assert_eq!(AutoTimer::of(None, |_| true, root.path()), AutoTimer::PluginWithoutJax);
    }
}
