//! A shape -> the `config.json` of a Llama with random weights, and rows of tokens for it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The sizes of a Llama.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Numbers of a token's vector.
    pub width: u64,
    /// Layers.
    pub layers: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of the feed-forward part.
    pub feed_forward: u64,
    /// Tokens that there are.
    pub vocabulary: u64,
}

impl Shape {
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
