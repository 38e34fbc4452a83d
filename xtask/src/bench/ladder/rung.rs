//! The plan of a ladder -> its rungs, trained and watched.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::metrics;
use crate::peers::speed::run_until;

/// Rows of a step; packed, they are one micro-batch.
pub const ROWS: u64 = 8;
/// Rows of a micro-batch that is not packed.
const MICRO_BATCH: u64 = 2;

/// What all rungs have in common.
pub struct LadderInputs {
    /// The host's program.
    pub host: PathBuf,
    /// Holds the model and its rows, and the runs.
    pub folder: PathBuf,
    /// Tokens of a packed micro-batch.
    pub tokens: u64,
    /// Steps of a run.
    pub steps: usize,
}

/// A rung that was trained.
pub struct MeasuredRung {
    /// Its place in the ladder, counted from 1.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The number of the rung that it changes.
    pub from: Option<usize>,
    /// The options that change it.
    pub step: String,
    /// Tokens of the largest micro-batch.
    pub tokens: u64,
    /// The most bytes that the run held, without mapped files.
    pub peak_bytes: u64,
    /// The peak of the plan.
    pub planned_bytes: u64,
}

impl LadderInputs {
    /// Plans the ladder and trains its rungs. A rung whose options another one has, which differs
    /// in the plan alone, is left out.
    ///
    /// # Errors
    /// Where the host fails.
    pub fn ladder(&self, name: &str) -> Result<Vec<MeasuredRung>> {
        let mut plan = self.command("plan", name);
        plan.args([&format!("--ladder={name}"), "--json"]);
        let output = plan.output().context("cannot run the host")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "host plan failed: {error}");
        let ladder: Value = serde_json::from_slice(&output.stdout)?;
        let rungs = ladder["rungs"].as_array().context("a plan without rungs")?;
        let mut measured = Vec::new();
        for (index, rung) in rungs.iter().enumerate() {
            let later = &rungs[index + 1..];
            if later
                .iter()
                .any(|other| other["options"] == rung["options"])
            {
                continue;
            }
            measured.push(self.measure(name, index, rungs)?);
        }
        Ok(measured)
    }

    fn measure(&self, ladder: &str, index: usize, rungs: &[Value]) -> Result<MeasuredRung> {
        let rung = &rungs[index];
        let name = rung["name"].as_str().context("a rung without a name")?;
        let reason = rung["refused"].as_str().unwrap_or_default();
        ensure!(rung["plan"].is_object(), "{name} is refused: {reason}");
        let options = words(&rung["options"]);
        let (out, log) = (self.folder.join("run"), self.folder.join("log"));
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let mut train = self.command("train", ladder);
        train.args(["--quiet", "--out"]).arg(&out).args(&options);
        let enough = || metrics::steps(&out) >= self.steps;
        let watched = run_until(&mut train, &log, enough)?;
        let record: Value = serde_json::from_str(&fs::read_to_string(out.join("run.json"))?)?;
        fs::remove_dir_all(&out)?;
        // The rung that was left out for this one is what changes an earlier one.
        let mut all = rungs.iter();
        let first = all.find(|other| other["options"] == rung["options"]);
        let first = first.unwrap_or(rung);
        let from = first["from"].as_u64().map(|from| from as usize);
        let mut step = first["step"].clone();
        if from.is_some_and(|from| rungs[from]["options"]["plugins"] == step["plugins"]) {
            step["plugins"] = Value::Array(Vec::new());
        }
        let measured = MeasuredRung {
            number: index + 1,
            name: name.to_owned(),
            from: from.map(|from| from + 1),
            step: words(&step).join(" "),
            tokens: rung["plan"]["max_tokens"].as_u64().unwrap_or_default(),
            peak_bytes: watched.own_peak_bytes(),
            planned_bytes: planned(&record).context("run.json has no planned memory")?,
        };
        println!(
            "{ladder} {:>2} {name}: {:.1} MB, planned {:.1} MB",
            index + 1,
            measured.peak_bytes as f64 / 1e6,
            measured.planned_bytes as f64 / 1e6
        );
        Ok(measured)
    }

    /// A command of the host on the model and its rows. The ladder of optimizers takes two rows a
    /// step; that of the recipe packs all rows of a step from its second rung on.
    fn command(&self, command: &str, ladder: &str) -> Command {
        let mut host = Command::new(&self.host);
        host.arg(command)
            .arg("--model")
            .arg(self.folder.join("model"))
            .arg("--data")
            .arg(self.folder.join("rows.jsonl"));
        let batch = if ladder == "recipe" {
            ROWS
        } else {
            MICRO_BATCH
        };
        for setting in [
            "model.init=random".to_owned(),
            "data.shuffle=false".to_owned(),
            format!("data.max_seq_len={}", self.tokens / MICRO_BATCH),
            format!("data.batch_size={batch}"),
            format!("data.micro_batch={MICRO_BATCH}"),
        ] {
            host.args(["--set", &setting]);
        }
        host
    }
}

/// The words of a rung's options on a command line.
fn words(options: &Value) -> Vec<String> {
    let list = |key: &str| {
        let list = options[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned)
    };
    let plugins: Vec<String> = list("plugins").collect();
    let mut words = Vec::new();
    if !plugins.is_empty() {
        words.extend(["--plugins".to_owned(), plugins.join(",")]);
    }
    words.extend(list("set").flat_map(|set| ["--set".to_owned(), set]));
    words
}

/// The peak of the plan in `run.json`: of a step, or while loading.
fn planned(record: &Value) -> Option<u64> {
    let memory = record["memory"].as_object()?;
    let bytes = |name: &str| memory.get(name).and_then(Value::as_u64).unwrap_or(0);
    let step = memory
        .iter()
        .filter(|(name, _)| *name != "loading")
        .filter_map(|(_, bytes)| bytes.as_u64())
        .sum::<u64>();
    let loading = bytes("program") + bytes("weights") + bytes("trainable") + bytes("loading");
    Some(step.max(loading))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_words_of_a_command_line() {
        let options = json!({"plugins": ["nf4", "lora"], "set": ["optim.name=sgd"]});
        let expected = ["--plugins", "nf4,lora", "--set", "optim.name=sgd"];
        assert_eq!(words(&options), expected);
        assert_eq!(words(&json!({"plugins": [], "set": []})), [""; 0]);
    }

    #[test]
    fn the_peak_is_that_of_a_step_or_of_loading() {
        let record = |loading: u64| json!({"memory": {"weights": 10, "trainable": 2, "arena": 5, "program": 1, "loading": loading}});
        assert_eq!(planned(&record(3)), Some(18));
        assert_eq!(planned(&record(30)), Some(43));
        assert_eq!(planned(&json!({})), None);
    }
}
