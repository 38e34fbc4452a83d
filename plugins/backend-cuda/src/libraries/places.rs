//! Folders in which CUDA's libraries may lie.

use std::path::{Path, PathBuf};
use std::{env, fmt};

/// Folders, in the order in which they are looked in.
pub struct Places {
    folders: Vec<PathBuf>,
    /// Whether the user named the one folder.
    named: bool,
}

/// Folders of a toolkit that hold libraries.
const OF_TOOLKIT: &[&str] = &["lib64", "lib", "targets/x86_64-linux/lib"];

/// Folders of Python's packages of NVIDIA that hold libraries, below `site-packages`.
const OF_PACKAGES: &[&str] = &[
    "nvidia/cu13/lib",
    "nvidia/cuda_nvrtc/lib",
    "nvidia/cublas/lib",
    "nvidia/nccl/lib",
];

impl Places {
    /// The one folder that the user named, or the places of this machine.
    pub fn of_machine(named: Option<&Path>) -> Self {
        if let Some(folder) = named {
            return Places {
                folders: vec![folder.to_owned()],
                named: true,
            };
        }
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set);
        let toolkits = toolkits.map(PathBuf::from);
        let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]);
        let of_toolkits = toolkits.flat_map(|root| OF_TOOLKIT.iter().map(move |at| root.join(at)));
        let pythons = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set);
        let pythons = pythons.map(PathBuf::from);
        let of_packages = pythons.flat_map(|root| site_packages(&root));
        let of_packages =
            of_packages.flat_map(|site| OF_PACKAGES.iter().map(move |at| site.join(at)));
        Places {
            folders: of_toolkits.chain(of_packages).collect(),
            named: false,
        }
    }

    /// The paths of `file` that there are.
    pub fn having(&self, file: &str) -> Vec<PathBuf> {
        let paths = self.folders.iter().map(|folder| folder.join(file));
        paths.filter(|path| path.exists()).collect()
    }

    /// Whether no other place counts.
    pub fn is_exclusive(&self) -> bool {
        self.named
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<_> = self
            .folders
            .iter()
            .map(|at| at.display().to_string())
            .collect();
        f.write_str(&folders.join(", "))
    }
}

/// The folders `site-packages` of a Python at `root`.
fn site_packages(root: &Path) -> Vec<PathBuf> {
    let versions = root.join("lib").read_dir().into_iter().flatten().flatten();
    let sites = versions.map(|version| version.path().join("site-packages"));
    sites.filter(|site| site.exists()).collect()
}
