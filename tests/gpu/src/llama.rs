//! The shape of a Llama -> its `config.json`, and rows of tokens for it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

/// The sizes of a Llama.
#[derive(Clone, Copy, Debug)]
pub struct Llama {
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

impl Llama {
    /// Llama 3 8B with that many layers.
    pub const fn of_8b(layers: u64) -> Self {
        Llama {
            width: 4096,
            layers,
            heads: 32,
            kv_heads: 8,
            feed_forward: 14_336,
            vocabulary: 128_256,
        }
    }

    /// Llama 3 70B with that many layers.
    pub const fn of_70b(layers: u64) -> Self {
        Llama {
            width: 8192,
            layers,
            heads: 64,
            kv_heads: 8,
            feed_forward: 28_672,
            vocabulary: 128_256,
        }
    }

    /// A model that a card trains in a moment.
    pub const SMALL: Llama = Llama {
        width: 256,
        layers: 4,
        heads: 4,
        kv_heads: 2,
        feed_forward: 512,
        vocabulary: 1024,
    };

    /// A model that a model of a card trains in a moment.
    pub const TINY: Llama = Llama {
        width: 64,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        feed_forward: 128,
        vocabulary: 128,
    };

    /// Writes `model/config.json` and `rows.jsonl` of `rows` rows of `sequence` tokens to `folder`.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn make_inputs(&self, folder: &Path, rows: u64, sequence: u64) -> Result<()> {
        let model = folder.join("model");
        fs::create_dir_all(&model)?;
        let config = json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "hidden_size": self.width, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.feed_forward, "vocab_size": self.vocabulary,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "rope_theta": 500_000.0, "initializer_range": 0.02,
            "bos_token_id": 0, "eos_token_id": 1
        });
        fs::write(model.join("config.json"), config.to_string())?;
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
