//! The adapter `dora` (Liu et al. 2024), as PEFT computes and stores it: a low-rank update of each
//! weight's direction, and a trained magnitude for each of its rows.
//!
//! `W' = m / ||W + s B A|| (W + s B A)`, row by row, with `m` `[N]` beginning as `||W||`.

mod fragment;
mod saved;
mod targets;

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site};
use espalier_interface::{
    Adapter, Component, Init, InitialiseCall, Instance, OptionKind, OptionSpec, Options,
    PluginError, Result, Role,
};
use serde_json::Value as Json;

use targets::Targets;

/// PEFT's prefix of a module's name.
const PREFIX: &str = "base_model.model.";

/// The options.
struct Dora {
    /// `R`, the inner width of the update.
    rank: u64,
    /// Factor of the update before the division by the rank or its root.
    alpha: f64,
    /// Probability of dropping a channel of the input.
    dropout: f64,
    targets: Targets,
    /// Alpha is divided by the square root of the rank.
    rslora: bool,
}

impl Dora {
    fn new(options: &Options) -> Result<Self> {
        let targets = options.0.get("targets").unwrap_or(&Json::Null);
        Ok(Dora {
            rank: options.count("rank")?,
            alpha: options.number("alpha")?,
            dropout: options.number("dropout")?,
            targets: Targets::read(targets)?,
            rslora: options.flag("rslora")?,
        })
    }

    /// `s`, the factor of `B A`.
    fn factor(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }
}

impl Adapter for Dora {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let mut made = Adaptation::default();
        for index in self.targets.pick(sites)? {
            let site = &sites[index];
            let [rows, cols] = site.shape;
            let first = made.params.len();
            // As torch's `kaiming_uniform_` with `a = sqrt(5)`.
            let bound = (cols as f64).sqrt().recip();
            for (name, shape, init) in [
                (
                    "lora_A.weight",
                    vec![self.rank, cols],
                    Init::Uniform { bound },
                ),
                ("lora_B.weight", vec![rows, self.rank], Init::Zeros),
                ("lora_magnitude_vector", vec![rows], Init::FromWeight),
            ] {
                made.params.push(AdapterParam {
                    name: format!("{PREFIX}{}.{name}", site.name),
                    shape,
                    init,
                });
            }
            made.joins.push(Join {
                site: index,
                fragment: fragment::build(site, self),
                params: (first..first + 3).collect(),
            });
        }
        Ok(made)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        let targets = self.targets.saved(sites)?;
        Ok(saved::write(self, &targets, base_model))
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }

    /// The magnitudes: the update begins as zero, so the norms are those of the weight.
    fn initialise(&self, call: InitialiseCall<'_>) -> Result<()> {
        let [rows, cols] = call.site.shape.map(|extent| extent as usize);
        for param in call.params {
            if param.values.len() != rows {
                let message = format!("`{}` is no magnitude of {rows} rows", param.name);
                return Err(PluginError::invalid(message));
            }
            for (norm, row) in param.values.iter_mut().zip(call.weight.chunks_exact(cols)) {
                let sum: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                *norm = sum.sqrt() as f32;
            }
        }
        Ok(())
    }
}

const DORA: Component = Component {
    name: "dora",
    role: Role::ADAPTER,
    doc: "DoRA: low-rank directions and trained magnitudes; reads and writes PEFT adapters",
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
            doc: "probability with which a channel of the adapted input is dropped",
        },
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "\"all-linear\"",
            range: "",
            doc: "linears: all-linear, those of the layers, or a list of names or name endings",
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
    create: |options, _| Ok(Instance::Adapter(Box::new(Dora::new(options)?))),
};

espalier_interface::declare_plugin! { name: "dora", components: &[DORA] }
