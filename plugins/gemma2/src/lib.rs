//! Gemma 2: its `config.json` -> a model as data. Norms with `1 + w` before and after attention and
//! the feed-forward part, gates by GELU, caps of scores and logits, a window in every other layer.

use espalier_decoder::{AttentionBias, Defaults, Dialect, GemmaLine, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const PLAIN: Dialect = Dialect::plain("gemma2");

/// Values that are left out are those of transformers 5, `Gemma2Config`.
const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::Configured,
    window: Window::AllBut {
        default: 4096,
        every: 2,
        key: None,
    },
    defaults: Defaults {
        head_dim: Some(256),
        num_kv_heads: Some(4),
        max_positions: 8192,
        tied_head: true,
        ..PLAIN.defaults
    },
    gemma: Some(GemmaLine {
        logits_softcap: Some(30.0),
        attention_softcap: Some(50.0),
        local_rope_theta: None,
    }),
    // Google's files have the window under this key, too.
    harmless_keys: &["sliding_window_size"],
    ..PLAIN
};

/// The family of Gemma 2.
pub struct Gemma2;

impl Family for Gemma2 {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const GEMMA2: Component = Component {
    name: "gemma2",
    role: Role::FAMILY,
    doc: "Gemma 2: norms with 1 + w around each part, GELU gates, soft caps, alternating windows",
    options: &[],
    capabilities: &[
        ("model_types", "gemma2"),
        (
            "sample_config",
            espalier_decoder::sample_config!("gemma2", "gelu_pytorch_tanh"),
        ),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Gemma2))),
};

espalier_interface::declare_plugin! { name: "gemma2", components: &[GEMMA2] }
