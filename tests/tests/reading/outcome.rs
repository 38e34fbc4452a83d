//! A number -> the files of a run of that number: any possible course of a run, and faults of its
//! files.

use std::fs;
use std::path::Path;

use espalier_tests::Random;
use serde_json::{Value as Json, json};

/// A step of the final metrics.
pub struct Step {
    pub loss: f64,
    pub tokens: u64,
    pub grad_norm: f64,
}

/// An evaluation after `step` steps.
pub struct Eval {
    pub step: u64,
    pub loss: f64,
    pub accuracy: Option<f64>,
    pub exact: Option<f64>,
    /// Loss and trained tokens of each row, if they are recorded for this evaluation.
    pub rows: Option<Vec<(f64, u64)>>,
    /// The contents of the file of rows, if it exists.
    file: Option<Vec<(f64, u64)>>,
}

/// The files of a run.
pub struct Outcome {
    pub steps: Vec<Step>,
    pub evals: Vec<Eval>,
    pub planned: Option<u64>,
    pub shuffle: bool,
    pub steps_per_epoch: Option<u64>,
    pub clip_norm: f64,
    pub torn: u64,
    /// Accepted and refused swaps.
    pub swaps: [u64; 2],
    /// Lines of steps that a resumption made void.
    void: u64,
    /// Ranks, and whether the plan of all of them is recorded.
    pub ranks: u64,
    pub all_planned: bool,
    pub idle: bool,
}

impl Outcome {
    pub fn random(number: u64) -> Self {
        let mut random = Random::of(number, 0);
        let level = random.pick(&[0.0, 0.01, 1.0, 3.0, 3.0, 10.0]);
        let count = random.pick(&[0, 1, 2, 4, 5, 6, 9, 15, 15, 30, 120]);
        let steps = steps(&mut random, level, count);
        let evals = evals(&mut random, level, count);
        let done = count;
        let ranks = random.pick(&[1, 1, 2, 4]);
        Outcome {
            planned: random.pick(&[None, Some(done), Some(done + 7)]),
            shuffle: !random.once_in(4),
            steps_per_epoch: random.pick(&[None, Some(1), Some(5), Some(15)]),
            clip_norm: random.pick(&[0.0, 1.0]),
            torn: random.pick(&[0, 0, 1, 3]),
            swaps: [random.pick(&[0, 0, 0, 2]), random.pick(&[0, 0, 1])],
            void: if count > 4 && random.once_in(4) { 3 } else { 0 },
            ranks,
            all_planned: random.once_in(2),
            idle: ranks > 1 && random.once_in(3),
            steps,
            evals,
        }
    }

    /// Writes it into `place`, over existing files.
    pub fn write(&self, place: &Path) {
        let _ = fs::remove_dir_all(place.join("held_out"));
        fs::write(place.join("run.json"), self.record().to_string()).expect("written");
        fs::write(place.join("metrics.jsonl"), self.metrics()).expect("written");
        for eval in &self.evals {
            let Some(rows) = &eval.file else { continue };
            fs::create_dir_all(place.join("held_out")).expect("created");
            let rows = rows
                .iter()
                .map(|(loss, trained)| json!({"loss": loss, "trained": trained}));
            let rows: Vec<Json> = rows.collect();
            let file = json!({"step": eval.step, "documents": rows}).to_string();
            let path = place.join(format!("held_out/step-{}.json", eval.step));
            fs::write(path, file).expect("written");
        }
    }

    fn record(&self) -> Json {
        let mut record = json!({
            "config": {
                "optim": {"clip_norm": self.clip_norm},
                "data": {"shuffle": self.shuffle},
            },
            "data": {"total_steps": self.planned, "steps_per_epoch": self.steps_per_epoch},
            "world": self.ranks,
            "memory": {"weights": 60 << 20, "arena": 30 << 20, "program": 10 << 20},
        });
        if self.all_planned {
            record["world_memory"] = json!({
                "ranks_per_process": self.ranks, "processes_per_machine": 1,
                "rank_bytes": 90 << 20,
                "process": {"devices": self.ranks * (90 << 20), "program": 10 << 20},
                "machine": {"devices": self.ranks * (90 << 20), "program": 10 << 20},
            });
        }
        if self.idle {
            record["idle_ranks"] = json!({
                "idle": self.ranks - 1, "ranks": self.ranks, "micro_batches": 1, "rows": 4,
                "set": ["data.micro_batch = 1"],
            });
        }
        record
    }

    fn metrics(&self) -> String {
        let mut lines = Vec::new();
        let swap = |outcome: &str| json!({"step": 0, "swap": {"step": 0, "asked": "quantizer=nf4", "outcome": outcome}});
        let line = |number: usize, step: &Step| {
            json!({
                "step": number + 1, "loss": written(step.loss), "grad_norm": step.grad_norm,
                "trained_tokens": step.tokens, "tokens_per_sec": 100.0, "step_secs": 0.5,
                "peak_host_bytes": self.ranks * (95 << 20), "speed_of_light": 1.34,
            })
        };
        let mut evals = self.evals.iter().peekable();
        let mut evaluated = |done: u64, lines: &mut Vec<Json>| {
            while let Some(eval) = evals.next_if(|eval| eval.step <= done) {
                lines.push(eval.line());
            }
        };
        evaluated(0, &mut lines);
        lines.extend((0..self.swaps[0]).map(|_| swap("taken")));
        lines.extend((0..self.swaps[1]).map(|_| swap("refused")));
        // A first process that continued beyond its last checkpoint: its later lines are void.
        for number in 1..=self.void {
            lines.push(json!({"step": number, "loss": 99.0, "trained_tokens": 1}));
        }
        for (number, step) in self.steps.iter().enumerate() {
            lines.push(line(number, step));
            evaluated(number as u64 + 1, &mut lines);
        }
        let lines = lines.iter().map(Json::to_string);
        let torn = (0..self.torn).map(|_| "{\"step\": 9, \"lo".to_owned());
        lines.chain(torn).collect::<Vec<_>>().join("\n")
    }
}

impl Eval {
    fn line(&self) -> Json {
        json!({
            "step": self.step, "eval_loss": written(self.loss),
            "eval_perplexity": written(self.loss.exp()),
            "eval_token_accuracy": self.accuracy, "eval_exact_match": self.exact,
        })
    }
}

/// JSON has no non-finite number.
fn written(value: f64) -> Json {
    if value.is_finite() {
        json!(value)
    } else {
        Json::Null
    }
}

/// Losses of a random course: level, slope, noise, a jump, and an occasional non-number.
fn steps(random: &mut Random, level: f64, count: u64) -> Vec<Step> {
    let noise = random.pick(&[0.0, 0.01, 0.1, 0.5]);
    let moved = random.pick(&[0.0, 0.0, -0.9, -0.3, -0.05, -0.0005, 0.05, 0.3, 2.0]);
    let at_once = random.once_in(3);
    let broken = random.once_in(25).then(|| random.below(count.max(1)));
    let counted = !random.once_in(5);
    let clipped = random.once_in(3);
    (0..count)
        .map(|index| {
            let at = (index as f64 + 0.5) / count as f64;
            let at = if at_once {
                1.0 - (-12.0 * at).exp()
            } else {
                at
            };
            let loss = level * (1.0 + moved * at) * (1.0 + noise * random.normal());
            Step {
                loss: if broken == Some(index) {
                    f64::NAN
                } else {
                    loss.max(0.0)
                },
                tokens: if counted { 20 + random.below(80) } else { 0 },
                grad_norm: if clipped { 2.0 } else { 0.5 },
            }
        })
        .collect()
}

/// None, one, two or several evaluations, with losses by row or without.
fn evals(random: &mut Random, level: f64, done: u64) -> Vec<Eval> {
    let count = random.pick(&[0, 0, 0, 1, 2, 2, 2, 4, 6]).min(done + 1);
    let rows = random.pick(&[0, 0, 1, 2, 5, 40, 40]);
    let noise = random.pick(&[0.0, 0.001, 0.05, 0.5]);
    let moved = random.pick(&[0.0, 0.0, -0.5, -0.1, -0.01, 0.01, 0.1, 0.5]);
    let turns = random.once_in(2);
    let broken = random.once_in(25).then(|| random.below(count.max(1)));
    let mut row = || (0.2 + random.below(100) as f64 / 50.0, 1 + random.below(60));
    let lot: Vec<(f64, u64)> = (0..rows).map(|_| row()).collect();
    (0..count)
        .map(|index| {
            let step = index * done / (count - 1).max(1);
            let at = index as f64 / (count - 1).max(1) as f64;
            // Down to the lowest point in the middle and up again, by twice as much.
            let at = if turns && at > 0.5 {
                1.5 - 2.0 * at
            } else {
                at
            };
            let mean = level * (1.0 + moved * at);
            let found: Vec<(f64, u64)> = lot
                .iter()
                .map(|&(hard, trained)| {
                    let shift = if index == 0 {
                        0.0
                    } else {
                        noise * random.normal()
                    };
                    let loss = (mean * (hard + shift)).max(0.0) * trained as f64;
                    (loss, trained)
                })
                .collect();
            let tokens: u64 = found.iter().map(|row| row.1).sum();
            let sum: f64 = found.iter().map(|row| row.0).sum();
            let loss = match rows {
                _ if broken == Some(index) => f64::NAN,
                0 => (mean * (1.0 + 0.1 * noise * random.normal())).max(0.0),
                _ => sum / tokens as f64,
            };
            let whole = rows > 0 && loss.is_finite();
            let mut file = whole.then(|| found.clone());
            let mut on_record = whole.then_some(found);
            if random.once_in(12) {
                // Rows of an earlier attempt in the same directory, or no rows.
                file = random.once_in(2).then(|| vec![(1e3, 1), (1e3, 2)]);
                on_record = None;
            }
            Eval {
                step,
                loss,
                accuracy: random.pick(&[None, Some(0.25), Some(0.5)]),
                exact: random.pick(&[None, None, Some(0.125)]),
                rows: on_record,
                file,
            }
        })
        .collect()
}
