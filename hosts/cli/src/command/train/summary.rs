//! What a run came to -> a few lines: what was learned, where it lies, what to do next.

use std::path::Path;

use espalier_engine::observer::EvalMetrics;
use espalier_system::shell;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::train::RunSummary;

/// The lines; `program` is how the user calls it.
pub fn lines(summary: &RunSummary, program: &str) -> String {
    let saved = summary.saved.display();
    let directory = summary.saved.parent().unwrap_or(Path::new("."));
    let quoted = shell::quoted(&directory.display().to_string());
    let mut lines = Vec::new();
    match (summary.finished_before, summary.last_loss) {
        (true, _) => lines.push(format!("nothing to do: this run is finished, see {saved}")),
        (false, Some(loss)) => lines.push(format!(
            "{} steps done, training loss {loss:.4} in the last",
            summary.steps
        )),
        (false, None) => lines.push(format!("{} steps done", summary.steps)),
    }
    if let Some(before) = &summary.eval_before {
        lines.extend(held_out(before, summary.eval_after.as_ref()));
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
    let program = shell::quoted(program);
    let next = format!("next      {program} generate --run {quoted} --prompt \"...\"");
    lines.push(next);
    lines.push(String::new());
    lines.join("\n")
}

/// A held-out number a line, before and after.
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
mod tests {
    use espalier_data::{Counts, Lost};
    use espalier_plan::plan::{HostMemory, WorldMemory};
    use espalier_trainer::train::RunMemory;

    use super::*;

    #[test]
    fn a_run_ends_in_a_few_lines() {
        let before = EvalMetrics {
            eval_loss: 5.7539,
            eval_perplexity: 315.43,
            eval_token_accuracy: 0.093,
            ..EvalMetrics::default()
        };
        let after = EvalMetrics {
            eval_loss: 4.4092,
            eval_perplexity: 82.2,
            eval_token_accuracy: 0.219,
            ..before.clone()
        };
        let summary = RunSummary {
            steps: 120,
            last_loss: Some(4.5218),
            eval_before: Some(before),
            eval_after: Some(after),
            finished_before: false,
            swaps: Vec::new(),
            counts: Counts {
                rows: 9,
                truncated: 2,
                tokens: 100,
                trained_tokens: 75,
                lost: Lost {
                    truncated: 25,
                    ..Lost::default()
                },
                ..Counts::default()
            },
            memory: Some(RunMemory {
                planned: WorldMemory {
                    ranks_per_process: 2,
                    processes_per_machine: 1,
                    rank_bytes: 41 << 20,
                    process: HostMemory {
                        devices: 82 << 20,
                        program: 12 << 20,
                        ..HostMemory::default()
                    },
                    ..WorldMemory::default()
                },
                held_bytes: 97 << 20,
            }),
            saved: "my runs/first/adapter".into(),
        };
        let expected = "\
120 steps done, training loss 4.5218 in the last
  held-out loss        5.7539 -> 4.4092
  perplexity           315.43 -> 82.20
  token accuracy        9.3 % -> 21.9 %
rows      9 sequences of 9 rows, 100 tokens, 75 trained (75.0 %), 2 cut to data.max_seq_len; 25.0 % of the trained tokens are lost
memory    97.00 MiB held at most, 94.00 MiB planned (2 ranks of 41.00 MiB each)
saved     my runs/first/adapter
next      host generate --run 'my runs/first' --prompt \"...\"
";
        assert_eq!(lines(&summary, "host"), expected);
    }
}
