//! The metrics of a run -> the numbers of its steps.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The numbers of `key` in the lines of the metrics of the run in `out` that have it.
///
/// # Errors
/// Where the file cannot be read, is not JSON, or has none.
pub fn numbers(out: &Path, key: &str) -> Result<Vec<f64>> {
    let path = out.join("metrics.jsonl");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<_>, _>>();
    let lines = lines.with_context(|| format!("{} is not JSON", path.display()))?;
    let numbers: Vec<f64> = lines.iter().filter_map(|line| line[key].as_f64()).collect();
    if numbers.is_empty() {
        bail!("{} has no `{key}`", path.display());
    }
    Ok(numbers)
}

/// Steps that the run in `out` has reported; 0 before its metrics exist.
pub fn steps(out: &Path) -> usize {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let of_steps = text.lines().filter(|line| line.contains("\"step_secs\""));
    of_steps.count()
}
