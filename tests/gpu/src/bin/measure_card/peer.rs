//! The peers on the same card: torch's product and copy, and the same step by transformers, PEFT
//! and bitsandbytes.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value as Json, json};

use crate::rows::Rows;
use crate::setting::Setting;
use crate::step::{self, BATCH, UNCOUNTED_STEPS, watched};

/// The script beside this program.
const SCRIPT: &str = "card_peer.py";

/// Characters of a script's last words that are kept.
const MOST_WORDS: usize = 1500;

/// What the script prints, lines of JSON.
///
/// # Errors
/// Where it fails, with its last words.
pub fn lines(setting: &Setting, arguments: &[String]) -> Result<Vec<Json>> {
    let mut script = setting.script(SCRIPT);
    script.args(arguments).stdin(Stdio::null());
    let output = script.output().with_context(|| {
        let python = setting.python.display();
        format!("{python} cannot be started; name a Python with torch with --python")
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let words: Vec<char> = words.trim().chars().collect();
        let from = words.len().saturating_sub(MOST_WORDS);
        bail!("{}", words[from..].iter().collect::<String>());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().map(serde_json::from_str::<Json>);
    let found: std::result::Result<Vec<Json>, _> = found.collect();
    found.with_context(|| format!("expected lines of JSON from {SCRIPT}, found {text}"))
}

/// Measures the peers' step without gradient checkpointing.
///
/// # Errors
/// Where it fails.
pub fn without_recompute(setting: &Setting, rows: &mut Rows) -> Result<()> {
    measure(setting, rows, "none")
}

/// Measures the peers' step with gradient checkpointing.
///
/// # Errors
/// Where it fails.
pub fn with_recompute(setting: &Setting, rows: &mut Rows) -> Result<()> {
    measure(setting, rows, "layer")
}

fn measure(setting: &Setting, rows: &mut Rows, recompute: &str) -> Result<()> {
    let folder = setting.scratch(&format!("peer-{recompute}"))?;
    let (model, sequence, steps) = step::shape(setting);
    model.make_inputs(&folder, steps * BATCH, sequence)?;
    let mut arguments = vec!["step".to_owned(), "--inputs".to_owned()];
    arguments.push(folder.display().to_string());
    for (name, value) in [
        ("--batch", BATCH.to_string()),
        ("--uncounted", UNCOUNTED_STEPS.to_string()),
        ("--rank", "16".to_owned()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    if recompute == "layer" {
        arguments.push("--checkpointing".to_owned());
    }
    let (found, peak_bytes) = watched(setting, || lines(setting, &arguments))?;
    for mut row in found {
        row["recompute"] = json!(recompute);
        row["layers"] = json!(model.layers);
        row["peak_device_bytes"] = json!(peak_bytes);
        rows.add(&row)?;
    }
    Ok(())
}
