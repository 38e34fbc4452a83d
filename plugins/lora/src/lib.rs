//! LoRA: low-rank matrices beside linears, embeddings and the head, as PEFT computes and stores
//! them.
//!
//! `y = base(x) + s B A dropout(x)` with `A [R, M]`, `B [N, R]` and `s = alpha / R`, or `alpha /
//! sqrt(R)` for rsLoRA.

mod adapt;
mod fragment;
mod saved;
mod settings;
mod targets;

use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::{
    Adapter, Component, Instance, OptionKind, OptionSpec, Options, Result, Role,
};
use serde_json::Value as Json;

pub use settings::Settings;
pub use targets::Targets;

/// The adapter `lora`.
pub struct Lora {
    settings: Settings,
}

impl Lora {
    /// The adapter with checked options.
    ///
    /// # Errors
    /// `INVALID` for targets that are not a regular expression.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Lora {
            settings: Settings::read(options)?,
        })
    }
}

impl Adapter for Lora {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        adapt::adapt(&self.settings, sites)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        saved::write(&self.settings, sites, base_model)
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }
}

const LORA: Component = Component {
    name: "lora",
    role: Role::ADAPTER,
    doc: "LoRA and rsLoRA on linears, embeddings and the head; reads and writes PEFT adapters",
    options: &[
        OptionSpec {
            name: "rank",
            kind: OptionKind::INTEGER,
            default: "16",
            range: "1..=65536",
            doc: "inner width R of the two matrices",
        },
        OptionSpec {
            name: "alpha",
            kind: OptionKind::NUMBER,
            default: "32",
            range: "0..",
            doc: "factor of the update, before it is divided by the rank",
        },
        OptionSpec {
            name: "dropout",
            kind: OptionKind::NUMBER,
            default: "0.0",
            range: "0..1",
            doc: "probability with which a channel of an update's input is dropped; not for embeddings",
        },
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "\"all-linear\"",
            range: "",
            doc: "sites: all-linear, a list of names or name endings, or one regular expression for whole names",
        },
        OptionSpec {
            name: "rslora",
            kind: OptionKind::BOOL,
            default: "false",
            range: "",
            doc: "divide alpha by the square root of the rank",
        },
    ],
    capabilities: &[("peft_types", "LORA")],
    create: |options, _| Ok(Instance::Adapter(Box::new(Lora::new(options)?))),
};

espalier_interface::declare_plugin! { name: "lora", components: &[LORA] }
