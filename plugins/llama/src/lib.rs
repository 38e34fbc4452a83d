//! Llama 1, 2 and 3, and models that share their `config.json`: the file -> a model as data. Biases
//! where the config asks for them.

use espalier_decoder::{AttentionBias, Dialect};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const DIALECT: Dialect = Dialect {
    attention_bias: AttentionBias::Configured,
    mlp_bias: true,
    ..Dialect::plain("llama")
};

/// The family of Llama 1, 2 and 3, and models that share their `config.json`.
pub struct Llama;

impl Family for Llama {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const LLAMA: Component = Component {
    name: "llama",
    role: Role::FAMILY,
    doc: "Llama 1, 2 and 3: grouped-query attention, RoPE (default, linear, llama3, longrope), tied or untied head",
    options: &[],
    capabilities: &[
        ("model_types", "llama"),
        ("sample_config", espalier_decoder::sample_config!("llama")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Llama))),
};

espalier_interface::declare_plugin! { name: "llama", components: &[LLAMA] }
