//! NVIDIA's compute-sanitizer on a short training of a tiny model.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use espalier_tests_gpu::Llama;
use serde_json::json;

use crate::host_training::HostTraining;
use crate::rows::Rows;
use crate::setting::Setting;

const RACES: &str = "racecheck";
const TOOLS: [&str; 2] = ["memcheck", RACES];

/// Measures the part; where the program is missing, the one row says so.
///
/// # Errors
/// Where a tool finds an error.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let Some(program) = find() else {
        let why = "no compute-sanitizer on PATH or in /usr/local/cuda/bin";
        return rows.add(&json!({"skipped": why}));
    };
    let folder = setting.scratch("sanitizer")?;
    let mut failed = Vec::new();
    for tool in TOOLS {
        let training = HostTraining {
            folder: &folder,
            model: Llama::TINY,
            compute: "bf16",
            steps: 1,
            batch: 2,
            micro_batch: 2,
            sequence: 32,
        };
        training.make_inputs()?;
        let mut words = vec!["--backend", "cuda", "--plugins", "nf4,lora"];
        if tool == RACES {
            // It reports cuBLASLt's own kernels, which order their copies in ways that it misses.
            words.extend(["--set", "backend.cuda.products=own"]);
        }
        let host = training.command(setting, tool, &words)?;
        let mut command = Command::new(&program);
        command.current_dir(&setting.tree);
        command.args(["--tool", tool]);
        command.arg(host.get_program()).args(host.get_args());
        let output = command.output().context("compute-sanitizer cannot start")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("===="))
            .collect();
        let summaries: Vec<&str> = lines
            .iter()
            .filter(|line| line.contains("SUMMARY"))
            .copied()
            .collect();
        rows.add(&json!({
            "tool": tool,
            "summaries": summaries,
            "first": lines.iter().take(20).collect::<Vec<_>>(),
            "status": output.status.to_string(),
        }))?;
        if !are_clean(&summaries) || !output.status.success() {
            failed.push(tool);
        }
    }
    ensure!(failed.is_empty(), "errors found by {}", failed.join(", "));
    Ok(())
}

/// Whether there is a summary, and all of them find nothing: `ERROR SUMMARY: 0 errors`, `RACECHECK
/// SUMMARY: 0 hazards displayed (0 errors, 0 warnings)`.
fn are_clean(summaries: &[&str]) -> bool {
    let clean = |line: &&str| line.contains("SUMMARY: 0 ");
    !summaries.is_empty() && summaries.iter().all(clean)
}

fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/local/cuda/bin")]);
    let mut programs = folders.map(|folder| folder.join("compute-sanitizer"));
    programs.find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_with_errors_and_none_at_all_are_not_clean() {
        let clean = "========= ERROR SUMMARY: 0 errors";
        let races = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)";
        let errors = "========= ERROR SUMMARY: 10 errors";
        assert!(are_clean(&[clean, races]));
        assert!(!are_clean(&[clean, errors]));
        assert!(!are_clean(&[]));
    }
}
