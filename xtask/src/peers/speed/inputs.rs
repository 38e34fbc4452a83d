//! A preset -> the model, rows and adapter that both sides read, made by
//! `tests/peers/speed_inputs.py`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::watched;
use crate::workspace::Workspace;

/// Size of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// A Llama: hidden 768, 12 layers, 12 heads, 4 kv heads, feed-forward 2048, vocabulary 32000,
    /// untied head
    #[value(name = "124m")]
    Llama124m,
    /// A Llama: hidden 64, 2 layers, 4 heads, 2 kv heads, feed-forward 192, vocabulary 512
    Tiny,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Preset::Llama124m => "124m",
            Preset::Tiny => "tiny",
        })
    }
}

/// What is made.
pub struct Wanted<'a> {
    /// A Python with the peers.
    pub python: &'a Path,
    /// The model's size.
    pub model: Preset,
    /// Rows.
    pub rows: u64,
    /// Tokens of a row.
    pub sequence: u64,
    /// Those at its start that are not trained.
    pub prompt: u64,
}

/// What both sides read.
pub struct Inputs {
    /// Holds `model/`, `adapter/` and `rows.jsonl`.
    pub folder: PathBuf,
    /// Holds the output of the programs, a file each.
    pub logs: PathBuf,
    /// What made them.
    pub made: MadeBy,
}

/// What the script prints.
#[derive(Deserialize)]
pub struct MadeBy {
    /// Today, as `2026-01-31`.
    pub date: String,
    /// Versions of Python and of the peers, by name.
    pub versions: Map<String, Value>,
}

impl Inputs {
    /// Makes what is missing in the preset's folder of `out`, and writes the rows.
    ///
    /// # Errors
    /// Where the script fails.
    pub fn make(workspace: &Workspace, wanted: &Wanted<'_>, out: &Path) -> Result<Self> {
        let model = wanted.model.to_string();
        let (folder, logs) = (out.join(&model), out.join("logs"));
        let mut script = Command::new(wanted.python);
        script
            .arg(workspace.root.join("tests/peers/speed_inputs.py"))
            .arg(&folder)
            .arg(workspace.root.join("tests/golden/llama/tiny"))
            .args(["--preset", &model])
            .args(["--rows", &wanted.rows.to_string()])
            .args(["--sequence", &wanted.sequence.to_string()])
            .args(["--prompt", &wanted.prompt.to_string()]);
        watched::offline(&mut script);
        println!("model {model}, rows and adapter in {}", folder.display());
        let output = watched::run(&mut script, &logs.join("inputs"), |_| ())?.output;
        Ok(Inputs {
            folder,
            logs,
            made: serde_json::from_str(&output).context("speed_inputs.py printed no JSON")?,
        })
    }
}
