//! The components `lora` and `dora`: options -> an adapter.

use std::sync::Arc;

use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::{
    Adapter, Component, InitialiseCall, Instance, OptionKind, OptionSpec, Options, Result, Role,
    Services,
};
use serde_json::Value as Json;

use crate::settings::{Settings, Variant};
use crate::{adapt, initialise, saved};

/// The adapters `lora` and `dora`.
pub struct Lora {
    settings: Settings,
    services: Arc<dyn Services>,
}

impl Lora {
    /// The adapter with checked options.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn new(variant: Variant, options: &Options, services: Arc<dyn Services>) -> Result<Self> {
        Ok(Lora {
            settings: Settings::read(variant, options)?,
            services,
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

    fn takes_norms(&self) -> Result<bool> {
        Ok(true)
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(self.settings.variant, config)
    }

    fn initialise(&self, call: InitialiseCall<'_>) -> Result<()> {
        initialise::initialise(&self.settings, self.services.as_ref(), call)
    }
}

/// The component `lora`.
pub const LORA: Component = Component {
    name: "lora",
    role: Role::ADAPTER,
    doc: "LoRA and rsLoRA on linears, embeddings and the head; reads and writes PEFT adapters",
    options: &[
        RANK,
        ALPHA,
        OptionSpec {
            name: "dropout",
            kind: OptionKind::NUMBER,
            default: "0.0",
            range: "0..1",
            doc: "probability with which a channel of an update's input is dropped; not for embeddings",
        },
        TARGETS,
        RSLORA,
        RANK_PATTERN,
        ALPHA_PATTERN,
        MODULES_TO_SAVE,
        LEARNING_RATE_RATIO,
        OptionSpec {
            name: "init",
            kind: OptionKind::TEXT,
            default: "\"zero\"",
            range: "zero | pissa | loftq",
            doc: "first update: none, the weight's largest singular vectors, or those of what packing loses; for host split",
        },
        OptionSpec {
            name: "init_niter",
            kind: OptionKind::INTEGER,
            default: "8",
            range: "0..=1000",
            doc: "iterations of the randomised SVD of pissa and loftq; 0: the exact SVD, which takes far longer",
        },
        OptionSpec {
            name: "loftq_iter",
            kind: OptionKind::INTEGER,
            default: "1",
            range: "1..=1000",
            doc: "rounds of loftq: packing, and an SVD of what it lost",
        },
    ],
    capabilities: &[("peft_types", "LORA")],
    create: |options, services| {
        let lora = Lora::new(Variant::Lora, options, services)?;
        Ok(Instance::Adapter(Box::new(lora)))
    },
};

/// The component `dora`.
pub const DORA: Component = Component {
    name: "dora",
    role: Role::ADAPTER,
    doc: "DoRA on linears and the head: low-rank directions and trained magnitudes; reads and writes \
          PEFT adapters",
    options: &[
        RANK,
        ALPHA,
        OptionSpec {
            name: "dropout",
            kind: OptionKind::NUMBER,
            default: "0.0",
            range: "0..1",
            doc: "probability with which a channel of the adapted input is dropped",
        },
        TARGETS,
        RSLORA,
        RANK_PATTERN,
        ALPHA_PATTERN,
        MODULES_TO_SAVE,
        LEARNING_RATE_RATIO,
    ],
    capabilities: &[("peft_types", "LORA")],
    create: |options, services| {
        let dora = Lora::new(Variant::Dora, options, services)?;
        Ok(Instance::Adapter(Box::new(dora)))
    },
};

const RANK: OptionSpec = OptionSpec {
    name: "rank",
    kind: OptionKind::INTEGER,
    default: "16",
    range: "1..=65536",
    doc: "inner width R of the two matrices",
};

const ALPHA: OptionSpec = OptionSpec {
    name: "alpha",
    kind: OptionKind::NUMBER,
    default: "32",
    range: "0..",
    doc: "factor of the update, before it is divided by the rank",
};

const TARGETS: OptionSpec = OptionSpec {
    name: "targets",
    kind: OptionKind::TEXTS,
    default: "\"all-linear\"",
    range: "",
    doc: "sites: all-linear, a list of names or name endings, or one regular expression for whole names",
};

const RSLORA: OptionSpec = OptionSpec {
    name: "rslora",
    kind: OptionKind::BOOL,
    default: "false",
    range: "",
    doc: "divide alpha by the square root of the rank",
};

const RANK_PATTERN: OptionSpec = OptionSpec {
    name: "rank_pattern",
    kind: OptionKind::INTEGER_TABLE,
    default: "{}",
    range: "1..=65536",
    doc: "ranks of single sites by name endings or regular expressions for them; the first that matches, by the alphabet",
};

const ALPHA_PATTERN: OptionSpec = OptionSpec {
    name: "alpha_pattern",
    kind: OptionKind::NUMBER_TABLE,
    default: "{}",
    range: "0..",
    doc: "alphas of single sites, likewise",
};

const LEARNING_RATE_RATIO: OptionSpec = OptionSpec {
    name: "learning_rate_ratio",
    kind: OptionKind::NUMBER,
    default: "1.0",
    range: "1..",
    doc: "LoRA+: learning rate of B, and of magnitudes, over that of A; not for embeddings",
};

const MODULES_TO_SAVE: OptionSpec = OptionSpec {
    name: "modules_to_save",
    kind: OptionKind::TEXTS,
    default: "[]",
    range: "",
    doc: "token table, head, norms or linears that are trained whole, by the ends of their names",
};
