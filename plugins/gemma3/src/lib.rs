//! Gemma 3, models of text: their `config.json` -> a model as data. As Gemma 2, with normed queries
//! and keys, no caps, five layers with a window to one without, and a rotary embedding for each
//! kind.

use espalier_decoder::{AttentionBias, Defaults, Dialect, GemmaLine, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, PluginError, Result, Role};
use serde_json::Value as Json;

const PLAIN: Dialect = Dialect::plain("gemma3_text");

/// Values that are left out are those of transformers 5, `Gemma3TextConfig`.
const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::Configured,
    head_norms: true,
    window: Window::AllBut {
        default: 4096,
        every: 6,
        key: Some("sliding_window_pattern"),
    },
    defaults: Defaults {
        head_dim: Some(256),
        num_kv_heads: Some(4),
        max_positions: 131_072,
        tied_head: true,
        rope_theta: 1_000_000.0,
        ..PLAIN.defaults
    },
    gemma: Some(GemmaLine {
        logits_softcap: None,
        attention_softcap: None,
        local_rope_theta: Some(10_000.0),
    }),
    // What `sliding_window_pattern` said; transformers writes the layers themselves beside it.
    harmless_keys: &["_sliding_window_pattern"],
    ..PLAIN
};

/// The family of Gemma 3's models of text.
pub struct Gemma3;

impl Family for Gemma3 {
    fn describe(&self, config: &Json) -> Result<Model> {
        if config.get("model_type").and_then(Json::as_str) == Some("gemma3") {
            return Err(PluginError::unsupported(
                "config.json: `model_type` is `gemma3`, a model of images and text; this family \
                 reads models of text, `gemma3_text`. Save the text part by itself: load it with \
                 transformers' `Gemma3ForCausalLM` and call `save_pretrained`",
            ));
        }
        espalier_decoder::describe(config, &DIALECT)
    }
}

const GEMMA3: Component = Component {
    name: "gemma3",
    role: Role::FAMILY,
    doc: "Gemma 3, models of text: normed queries and keys, a rotary embedding for each kind of layer",
    options: &[],
    capabilities: &[
        ("model_types", "gemma3_text,gemma3"),
        (
            "sample_config",
            espalier_decoder::sample_config!("gemma3_text", "gelu_pytorch_tanh"),
        ),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Gemma3))),
};

espalier_interface::declare_plugin! { name: "gemma3", components: &[GEMMA3] }
