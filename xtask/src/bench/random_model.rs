//! A shape -> the `config.json` of a Llama with random weights, rows of tokens for it, and
//! trainings on both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::metrics;
use crate::workspace::run;

/// Steps at the start of each run whose numbers do not count: they touch memory for the first time.
pub const UNCOUNTED_STEPS: usize = 2;

/// The sizes of a Llama.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Numbers of a token's vector.
    width: u64,
    /// Layers.
    layers: u64,
    /// Heads of queries.
    heads: u64,
    /// Heads of keys and values.
    kv_heads: u64,
    /// Width of the feed-forward part.
    feed_forward: u64,
    /// Tokens that there are.
    vocabulary: u64,
}

impl Shape {
    /// Width, layers, heads, key heads, feed-forward and vocabulary.
    pub const fn new(sizes: [u64; 6]) -> Self {
        let [width, layers, heads, kv_heads, feed_forward, vocabulary] = sizes;
        Shape {
            width,
            layers,
            heads,
            kv_heads,
            feed_forward,
            vocabulary,
        }
    }

    fn config(&self) -> Value {
        json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "hidden_size": self.width, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.feed_forward, "vocab_size": self.vocabulary,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "rope_theta": 10000.0, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 1
        })
    }

    /// Writes `model/config.json` and `rows.jsonl` of `rows` rows of `sequence` tokens to `folder`,
    /// which is cleared before.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn make_inputs(&self, folder: &Path, rows: u64, sequence: u64) -> Result<()> {
        if folder.exists() {
            let cleared = fs::remove_dir_all(folder);
            cleared.with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        let model = folder.join("model");
        fs::create_dir_all(&model)?;
        fs::write(model.join("config.json"), self.config().to_string())?;
        let ids = self.vocabulary - 3;
        let row = |row: u64| {
            let ids = (0..sequence).map(move |at| 3 + (31 * row + 17 * at) % ids);
            json!({"input_ids": ids.collect::<Vec<u64>>()}).to_string()
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        fs::write(folder.join("rows.jsonl"), rows.join("\n") + "\n")?;
        Ok(())
    }
}

/// A training on the inputs that a shape has made.
pub struct Training<'a> {
    /// The folder of the inputs, and of the run.
    pub folder: &'a Path,
    /// What is trained.
    pub plugins: &'a str,
    /// Number type of products and activations.
    pub dtype: &'a str,
    /// Steps.
    pub steps: usize,
    /// Rows of a step.
    pub batch: u64,
    /// Tokens of a row.
    pub sequence: u64,
}

impl Training<'_> {
    /// Trains by `host` with further options, and returns the run's folder, which is cleared
    /// before.
    ///
    /// # Errors
    /// Where the run fails.
    pub fn run(&self, mut host: Command, options: &[&str]) -> Result<PathBuf> {
        let out = self.folder.join("run");
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
        }
        host.args(["train", "--quiet", "--plugins", self.plugins, "--model"])
            .arg(self.folder.join("model"))
            .arg("--data")
            .arg(self.folder.join("rows.jsonl"))
            .arg("--out")
            .arg(&out)
            .args(options);
        for setting in [
            "model.init=random".to_owned(),
            "model.recompute=none".to_owned(),
            "data.shuffle=false".to_owned(),
            format!("data.batch_size={}", self.batch),
            format!("data.micro_batch={}", self.batch),
            format!("data.max_seq_len={}", self.sequence),
            format!("model.compute={}", self.dtype),
            format!("run.max_steps={}", self.steps),
        ] {
            host.args(["--set", &setting]);
        }
        run(host.stdout(Stdio::null()))?;
        Ok(out)
    }
}

/// The numbers of `key` of a run's steps that count.
///
/// # Errors
/// Where the run's metrics have none.
pub fn counted(out: &Path, key: &str) -> Result<Vec<f64>> {
    let numbers = metrics::numbers(out, key)?;
    Ok(numbers.into_iter().skip(UNCOUNTED_STEPS).collect())
}
