//! The command line -> the places that parts use, and how large a measurement is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Parser, value_parser};
use espalier_backend_cuda::CudaBackend;
use espalier_conformance::Threads;
use espalier_interface::Options;
use serde_json::json;

/// Measures the backend `cuda` on this machine's card.
#[derive(Parser)]
#[command(name = "run", version)]
pub struct Arguments {
    /// 1: correctness, and a time for each op; 2: the step of an 8B model, and that of the peers;
    /// 3: a 70B model whose weights are streamed, and an 8B model's longest row
    #[arg(value_parser = value_parser!(u8).range(1..=3))]
    pub run: u8,
    /// Only these parts; `versions` always runs
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Where the results go [default: beside this program]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The working tree, which holds golden data and configs
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub tree: PathBuf,
    /// A Python for the peers
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Layers of the models of runs 2 and 3 [default: those of Llama 3 8B, 32, and 70B, 80]
    #[arg(long, value_parser = value_parser!(u64).range(1..=80))]
    pub layers: Option<u64>,
    /// Settings of the host's steps in runs 2 and 3, as its own `--set`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Small shapes, which try this program; their times say nothing
    #[arg(long)]
    pub small: bool,
    /// The part that this process measures
    #[arg(long, hide = true)]
    pub part: Option<String>,
}

/// What parts are measured with.
pub struct Setting {
    /// The folder of this program, and of those beside it.
    pub programs: PathBuf,
    /// The working tree.
    pub tree: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// A Python for the peers.
    pub python: PathBuf,
    /// The folder of its packages' environment, where it starts.
    pub packages: Option<PathBuf>,
    /// Layers of models, where they are not those of Llama 3.
    pub layers: Option<u64>,
    /// Settings of the host's steps.
    pub settings: Vec<String>,
    /// The folder of compiled kernels beside this program, if it is there.
    pub kernels: Option<PathBuf>,
    /// Whether shapes are small.
    pub is_small: bool,
}

/// The folder of compiled kernels, as `cargo xtask gpu pack --arch` names it.
const KERNELS: &str = "kernels";

impl Setting {
    /// The setting that was asked for.
    ///
    /// # Errors
    /// Where this program's folder is unknown, or the tree is none of this project.
    pub fn new(arguments: &Arguments) -> Result<Self> {
        let program = env::current_exe().context("the path of this program is unknown")?;
        let programs = program.parent().unwrap_or(Path::new(".")).to_owned();
        let tree = arguments.tree.canonicalize();
        let tree =
            tree.with_context(|| format!("there is no folder {}", arguments.tree.display()))?;
        ensure!(
            tree.join("tests/golden").is_dir(),
            "{} has no tests/golden: name the working tree with --tree",
            tree.display()
        );
        let out = arguments.out.as_ref().unwrap_or(&programs);
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let kernels = programs.join(KERNELS);
        Ok(Setting {
            out: out.canonicalize()?,
            programs,
            tree,
            python: arguments.python.clone(),
            packages: prefix(&arguments.python),
            layers: arguments.layers,
            settings: arguments.set.clone(),
            kernels: kernels.is_dir().then_some(kernels),
            is_small: arguments.small,
        })
    }

    /// The words of a host's command line for `values`, and behind them the settings that were
    /// asked for.
    pub fn set<'a>(&'a self, values: &[&'a str]) -> Vec<&'a str> {
        let asked = self.settings.iter().map(String::as_str);
        let values = values.iter().copied().chain(asked);
        values.flat_map(|value| ["--set", value]).collect()
    }

    /// The options of the backend: its defaults, with the kernels beside this program.
    pub fn options(&self) -> Options {
        let kernels = self.kernels.iter();
        let kernels = kernels.map(|folder| ("kernels".to_owned(), json!(folder)));
        Options(kernels.collect())
    }

    /// The backend with those options.
    ///
    /// # Errors
    /// Never with them.
    pub fn backend(&self) -> Result<CudaBackend> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let services = Arc::new(Threads::new(threads));
        CudaBackend::new(&self.options(), services).map_err(told)
    }

    /// A program beside this one, run in the tree.
    ///
    /// # Errors
    /// Where it is missing.
    pub fn program(&self, name: &str) -> Result<Command> {
        let path = self.programs.join(name);
        ensure!(
            path.is_file(),
            "{} is missing: `cargo xtask gpu pack` puts it beside this program",
            path.display()
        );
        let mut command = Command::new(path);
        command.current_dir(&self.tree);
        Ok(command)
    }

    /// A script beside this program, run by Python.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(self.programs.join(name));
        command
    }

    /// A folder beside this program for what a part writes, empty.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn scratch(&self, part: &str) -> Result<PathBuf> {
        let folder = self.programs.join("scratch").join(part);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Where a Python is installed, or its virtual environment.
fn prefix(python: &Path) -> Option<PathBuf> {
    let mut python = Command::new(python);
    let output = python
        .args(["-c", "import sys; print(sys.prefix)"])
        .output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let prefix = text.trim();
    (!prefix.is_empty()).then(|| PathBuf::from(prefix))
}

/// An error of a backend.
pub fn told(error: espalier_interface::PluginError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.message)
}
