//! The result of a run -> a few lines: its losses, some answers, the path of the output, the next
//! command.

use std::path::Path;

use espalier_engine::observer::EvalMetrics;
use espalier_system::shell;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::train::RunSummary;

use super::learned::Learned;

/// The lines; `program` is the program's name on the command line.
pub fn lines(summary: &RunSummary, learned: &Learned, program: &str) -> String {
    let saved = summary.saved.display();
    let directory = summary.saved.parent().unwrap_or(Path::new("."));
    let mut lines = Vec::new();
    match (summary.finished_before, summary.last_loss) {
        (true, _) => lines.push(format!("nothing to do: this run is finished, see {saved}")),
        (false, Some(loss)) => lines.push(format!(
            "{} steps done, {}",
            summary.steps,
            learned.training_loss(loss)
        )),
        (false, None) => lines.push(format!("{} steps done", summary.steps)),
    }
    if let Some(before) = &summary.eval_before {
        lines.extend(held_out(before, summary.eval_after.as_ref()));
        lines.extend(learned.questions());
    }
    if !summary.counts.reasons().is_empty() {
        lines.push(format!("rows      {}", summary.counts));
    }
    if let Some(memory) = summary.memory.filter(|memory| memory.held_bytes > 0) {
        let (held, planned) = (memory.held_bytes, memory.planned.process.needed());
        let (held, planned) = (Bytes(held), Bytes(planned));
        let world = memory.planned;
        lines.push(format!(
            "memory    {held} held at most, {planned} planned{world}"
        ));
        if memory.device_bytes[0] > 0 {
            let [held, planned] = memory.device_bytes.map(Bytes);
            lines.push(format!(
                "device    {held} held at most by a rank, {planned} planned"
            ));
        }
    }
    for swap in &summary.swaps {
        lines.push(format!("swapped   {}", swap.shown()));
    }
    if !summary.finished_before {
        lines.push(format!("saved     {saved}"));
    }
    let report = directory.join("report.html");
    if report.is_file() {
        lines.push(format!("report    {}", report.display()));
    }
    let (program, run) = (shell::program(program), shell::path(directory));
    let is_chat = summary.counts.trains.conversations > 0;
    let chat = if is_chat { "--chat " } else { "" };
    lines.push(format!(
        "next      {program} generate --run {run} {chat}--prompt \"...\""
    ));
    lines.push(String::new());
    lines.join("\n")
}

/// A line per held-out number, before and after.
fn held_out(before: &EvalMetrics, after: Option<&EvalMetrics>) -> Vec<String> {
    let line = |name: &str, of: &dyn Fn(&EvalMetrics) -> Option<String>| {
        let first = of(before)?;
        let then = after.and_then(of).map(|then| format!(" -> {then}"));
        Some(format!(
            "  {name:<18}{first:>9}{}",
            then.unwrap_or_default()
        ))
    };
    let share = |value: f64| format!("{:.1} %", value * 100.0);
    [
        line("held-out loss", &|eval| {
            Some(format!("{:.4}", eval.eval_loss))
        }),
        line("perplexity", &|eval| {
            Some(format!("{:.2}", eval.eval_perplexity))
        }),
        line("token accuracy", &|eval| {
            Some(share(eval.eval_token_accuracy))
        }),
        line("exact match", &|eval| {
            eval.exact_match().map(|answered| answered.to_string())
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests;
