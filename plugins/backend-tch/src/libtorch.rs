//! The option, the environment and the host's place -> the folder of a libtorch of the right
//! version.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use espalier_interface::{ErrorCode, PluginError, Result};

use crate::LIBTORCH_VERSION;

/// What the user can do about a missing libtorch.
const HOW_TO_GET_IT: &str = "run `cargo xtask setup-libtorch`, or name the folder of one with LIBTORCH=DIR or backend.tch.libtorch";

/// The files that the engine needs, relative to the folder of libtorch, in the order of opening.
pub const FILES: [&str; 2] = ["lib/libc10.so", "lib/libtorch_cpu.so"];

/// The library of libtorch with CUDA, relative to its folder. It names the others that it needs.
pub const CUDA_FILE: &str = "lib/libtorch_cuda.so";

/// The library of a libtorch that is built for ROCm.
const ROCM_FILE: &str = "lib/libtorch_hip.so";

/// What the user can do about a libtorch without CUDA.
const HOW_TO_GET_CUDA: &str = "name a libtorch 2.13.0 with CUDA by LIBTORCH=DIR or backend.tch.libtorch, such as the folder `torch` that `pip install torch==2.13.0` fills together with the packages of NVIDIA, or set backend.tch.device = \"cpu\"";

/// A folder of libtorch whose version was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libtorch {
    /// The folder that holds `lib`.
    pub folder: PathBuf,
}

/// The part of the environment that says where libtorch is.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `LIBTORCH`.
    pub libtorch: Option<OsString>,
    /// The folder of the package `torch` of Python, where `LIBTORCH_USE_PYTORCH` asks for it, or
    /// why there is none.
    pub python: Option<std::result::Result<PathBuf, String>>,
    /// The running program.
    pub program: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn read() -> Self {
        let wanted = env::var_os("LIBTORCH_USE_PYTORCH").filter(|value| value != "0");
        Surroundings {
            libtorch: env::var_os("LIBTORCH").filter(|folder| !folder.is_empty()),
            python: wanted.map(|_| python_package()),
            program: env::current_exe().ok(),
        }
    }
}

/// The folder of libtorch: `named` by the option, or as the environment says.
///
/// # Errors
/// `DEVICE` where there is none, a file of it is missing, or its version is another one. The
/// message says what was expected, what was found, and how to get it.
pub fn find(named: Option<&str>) -> Result<Libtorch> {
    find_in(named, &Surroundings::read())
}

/// As [`find`], in given surroundings.
///
/// # Errors
/// As [`find`].
pub fn find_in(named: Option<&str>, surroundings: &Surroundings) -> Result<Libtorch> {
    if let Some(folder) = named {
        return checked(Path::new(folder), "backend.tch.libtorch");
    }
    if let Some(folder) = &surroundings.libtorch {
        return checked(Path::new(folder), "LIBTORCH");
    }
    match &surroundings.python {
        Some(Ok(folder)) => return checked(folder, "LIBTORCH_USE_PYTORCH"),
        Some(Err(why)) => return Err(missing(format!("LIBTORCH_USE_PYTORCH is set, but {why}"))),
        None => {}
    }
    let near = near(surroundings.program.as_deref());
    match near.iter().find(|folder| folder.join(FILES[1]).exists()) {
        Some(folder) => checked(folder, "the folder near the host"),
        None => {
            let looked = near.iter().map(|folder| folder.display().to_string());
            let looked = looked.collect::<Vec<_>>().join(", ");
            Err(missing(format!(
                "libtorch {LIBTORCH_VERSION} was not found: no {} in {looked}, and LIBTORCH is not set",
                FILES[1]
            )))
        }
    }
}

/// The folders in which `cargo xtask setup-libtorch` and an unpacked archive put it: `libtorch`
/// beside the program and one folder up.
fn near(program: Option<&Path>) -> Vec<PathBuf> {
    let Some(beside) = program.and_then(Path::parent) else {
        return Vec::new();
    };
    let above = beside.parent();
    let folders = std::iter::once(beside).chain(above);
    folders
        .map(|folder| folder.join("libtorch"))
        .flat_map(|folder| [folder.join("torch"), folder])
        .collect()
}

/// The libtorch in `folder`, which `source` named.
fn checked(folder: &Path, source: &str) -> Result<Libtorch> {
    for file in FILES.iter().rev() {
        let path = folder.join(file);
        if !path.is_file() {
            return Err(missing(format!(
                "{} does not exist; {source} gives the folder {}",
                path.display(),
                folder.display()
            )));
        }
    }
    let found = version(folder).ok_or_else(|| {
        missing(format!(
            "the version of the libtorch in {} is unknown: it has no build-version and no version.py; expected {LIBTORCH_VERSION}",
            folder.display()
        ))
    })?;
    // What follows a `+` says for which devices it was built.
    let number = found.split('+').next().unwrap_or(&found);
    if number != LIBTORCH_VERSION {
        return Err(missing(format!(
            "expected libtorch {LIBTORCH_VERSION}, found {found} in {}, which {source} gives",
            folder.display()
        )));
    }
    Ok(Libtorch {
        folder: folder.to_owned(),
    })
}

/// The version that the files beside libtorch state: `build-version` of its archives, `version.py`
/// of its wheels, or that of its CMake package.
fn version(folder: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(folder.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let quoted = |file: &str, start: &str| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        let line = text.lines().find(|line| line.starts_with(start))?;
        line.split(['\'', '"']).nth(1).map(str::to_owned)
    };
    let cmake = "share/cmake/Torch/TorchConfigVersion.cmake";
    quoted("version.py", "__version__").or_else(|| quoted(cmake, "set(PACKAGE_VERSION"))
}

/// The folder of the package `torch` of the active Python. The package is found and not imported.
fn python_package() -> std::result::Result<PathBuf, String> {
    let python = match env::var_os("VIRTUAL_ENV") {
        Some(_) => "python",
        None => "python3",
    };
    let script =
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let output = Command::new(python).args(["-c", script]).output();
    let output = output.map_err(|error| format!("`{python}` cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{python}` has no package `torch`"));
    }
    let folder = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(folder.trim()))
}

/// The file of CUDA in a folder of libtorch.
///
/// # Errors
/// `DEVICE` where that libtorch has none; the message says how to get it.
pub fn cuda(libtorch: &Libtorch) -> Result<PathBuf> {
    let folder = &libtorch.folder;
    let file = folder.join(CUDA_FILE);
    if file.is_file() {
        return Ok(file);
    }
    let found = if folder.join(ROCM_FILE).is_file() {
        format!(
            "the libtorch in {} is built for ROCm, which this backend does not offer",
            folder.display()
        )
    } else {
        format!("the libtorch in {} is one without CUDA", folder.display())
    };
    Err(no_cuda(format!(
        "{} does not exist: {found}",
        file.display()
    )))
}

/// The error of CUDA that is asked for and is not there, with the next step.
pub(crate) fn no_cuda(what: String) -> PluginError {
    let message = format!("backend.tch.device is `cuda`, but {what}; {HOW_TO_GET_CUDA}");
    PluginError::new(ErrorCode::DEVICE, message)
}

/// The error of a library that is not there, with the next step.
pub(crate) fn missing(what: String) -> PluginError {
    PluginError::new(ErrorCode::DEVICE, format!("{what}; {HOW_TO_GET_IT}"))
}

#[cfg(test)]
mod tests;
