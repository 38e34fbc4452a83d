//! Llama's `config.json` -> a model as data: params, units and graphs of Llama 1, 2 and 3.

mod config;
mod fields;
mod graphs;
mod model;
mod rope;

use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

pub use config::LlamaConfig;
pub use rope::{Rope, RopeScaling};

/// The family of Llama 1, 2 and 3, and of models that share their `config.json`.
pub struct Llama;

impl Family for Llama {
    fn describe(&self, config: &Json) -> Result<Model> {
        model::build(&LlamaConfig::read(config)?)
    }
}

const LLAMA: Component = Component {
    name: "llama",
    role: Role::FAMILY,
    doc: "Llama 1, 2 and 3: grouped-query attention, RoPE (default, linear, llama3), tied or untied head",
    options: &[],
    capabilities: &[("model_types", "llama")],
    create: |_, _| Ok(Instance::Family(Box::new(Llama))),
};

espalier_interface::declare_plugin! { name: "llama", components: &[LLAMA] }
