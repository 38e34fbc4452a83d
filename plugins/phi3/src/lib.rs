//! Phi 3 and models that share its `config.json`: the file -> a model as data. Queries, keys and
//! values are one projection, gate and up another; a part of a head's channels may stay unturned.

use espalier_decoder::{Defaults, Dialect, Window};
use espalier_interface::model::Model;
use espalier_interface::{Component, Family, Instance, Result, Role};
use serde_json::Value as Json;

const PLAIN: Dialect = Dialect::plain("phi3");

/// Values that are left out are those of transformers 5, `Phi3Config`.
const DIALECT: Dialect = Dialect {
    window: Window::EveryLayer { default: None },
    defaults: Defaults {
        max_positions: 4096,
        original_positions: Some(4096),
        norm_eps: 1e-5,
        ..PLAIN.defaults
    },
    fused_projections: true,
    partial_rotary: true,
    longrope_names: &["su"],
    ..PLAIN
};

/// The family of Phi 3 and models that share its `config.json`.
pub struct Phi3;

impl Family for Phi3 {
    fn describe(&self, config: &Json) -> Result<Model> {
        espalier_decoder::describe(config, &DIALECT)
    }
}

const PHI3: Component = Component {
    name: "phi3",
    role: Role::FAMILY,
    doc: "Phi 3, 3.5 and 4: fused projections, rotary embeddings of a part of each head",
    options: &[],
    capabilities: &[
        ("model_types", "phi3"),
        ("sample_config", espalier_decoder::sample_config!("phi3")),
    ],
    create: |_, _| Ok(Instance::Family(Box::new(Phi3))),
};

espalier_interface::declare_plugin! { name: "phi3", components: &[PHI3] }
