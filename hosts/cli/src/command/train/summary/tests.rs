//! The last lines of a run.

use espalier_data::{Counts, Lost};
use espalier_plan::plan::{HostMemoryPlan, WorldMemory};
use espalier_report::{GivenAnswer, Sample};
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
                process: HostMemoryPlan {
                    devices: 82 << 20,
                    program: 12 << 20,
                    ..HostMemoryPlan::default()
                },
                ..WorldMemory::default()
            },
            held_bytes: 97 << 20,
            device_bytes: [40 << 20, 41 << 20],
        }),
        saved: "/my runs/first/adapter".into(),
    };
    let answer = |text: &str| GivenAnswer {
        text: text.to_owned(),
        right: text == "king",
    };
    let learned = Learned {
        training_loss: Some([5.75391, 4.52184]),
        samples: vec![Sample {
            question: "And the king said,\nWho is it?".to_owned(),
            expected: "king".to_owned(),
            before: answer("the\u{1b}LORD"),
            after: Some(answer("king")),
        }],
    };
    let expected = "\
120 steps done, training loss 5.754 -> 4.522
  held-out loss        5.7539 -> 4.4092
  perplexity           315.43 -> 82.20
  token accuracy        9.3 % -> 21.9 %
question  And the king said,⏎Who is it?
  expected  king
  before    the␛LORD
  after     king
rows      9 sequences of 9 rows, 100 tokens, 75 trained (75.0 %), 2 cut to data.max_seq_len; 25.0 % of the trained tokens are lost
memory    97.00 MiB held at most, 94.00 MiB planned (2 ranks of 41.00 MiB each)
device    40.00 MiB held at most by a rank, 41.00 MiB planned
saved     /my runs/first/adapter
next      host generate --run '/my runs/first' --prompt \"...\"
";
    assert_eq!(lines(&summary, &learned, "host"), expected);
}
