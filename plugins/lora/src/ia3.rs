//! The adapter `ia3` (Liu et al. 2022): a trained factor for each channel, as PEFT computes and
//! stores it.
//!
//! `y = base(x) * l` with `l [N, 1]`; at feed-forward modules `y = base(x * l)` with `l [1, M]`.

mod saved;

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, OptionKind, OptionSpec, Options, PluginError,
    Result, Role, op,
};
use serde_json::Value as Json;

use crate::config_file::PREFIX;
use crate::targets::Targets;

/// The adapter `ia3`.
pub struct Ia3 {
    /// Sites that it joins.
    targets: Targets,
    /// Which of them scale their input.
    feedforward: Targets,
}

/// A joined site.
struct Scaled {
    /// Its index among the sites.
    site: usize,
    /// Where its factors are.
    place: Factors,
}

/// The place of a site's factors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    /// Before its operation, one for each channel of the input.
    Input,
    /// After it, one for each channel of the output.
    Output,
}

impl Ia3 {
    /// The adapter with checked options.
    ///
    /// # Errors
    /// `INVALID` for names that are not a regular expression.
    pub fn new(options: &Options) -> Result<Self> {
        let names = |option: &str| Targets::read(options.0.get(option).unwrap_or(&Json::Null));
        let feedforward = names("feedforward")?;
        match feedforward {
            Targets::AllLinear => Err(PluginError::invalid(
                "feedforward: expected a list of names or a regular expression, found `all-linear`",
            )),
            feedforward => Ok(Ia3 {
                targets: names("targets")?,
                feedforward,
            }),
        }
    }

    /// The joined sites.
    ///
    /// # Errors
    /// `INVALID` as [`Targets::pick`]; for a token table; and for a feed-forward module that is not
    /// among the joined sites.
    fn pick(&self, sites: &[Site]) -> Result<Vec<Scaled>> {
        let chosen = self.targets.pick(sites)?;
        let joined: Vec<&Site> = chosen.iter().map(|&index| &sites[index]).collect();
        let mut tables = joined.iter();
        if let Some(table) = tables.find(|site| site.kind == SiteKind::Embedding) {
            return Err(PluginError::invalid(format!(
                "the targets name the token table `{}`: `ia3` joins linears and the head alone; \
                 leave it out",
                table.name
            )));
        }
        if let Targets::Names(names) = &self.feedforward {
            let idle = |name: &&String| !joined.iter().any(|site| site.name.ends_with(*name));
            if let Some(name) = names.iter().find(idle) {
                let joined: Vec<&str> = joined.iter().map(|site| site.name.as_str()).collect();
                return Err(PluginError::invalid(format!(
                    "feedforward module `{name}` is not among the sites that the targets select: \
                     {}; leave it out",
                    joined.join(", ")
                )));
            }
        }
        let scaled = |index: usize| Scaled {
            site: index,
            place: self.place(&sites[index]),
        };
        Ok(chosen.into_iter().map(scaled).collect())
    }

    /// # Source
    /// PEFT, `IA3Model._check_target_module_feedforward`: an entry of a list is the end of a name,
    /// after a dot or not.
    fn place(&self, site: &Site) -> Factors {
        let before = match &self.feedforward {
            Targets::AllLinear => false,
            Targets::Names(names) => names.iter().any(|name| site.name.ends_with(name)),
            Targets::Pattern(pattern, _) => pattern.is_match(&site.name),
        };
        if before {
            Factors::Input
        } else {
            Factors::Output
        }
    }
}

impl Adapter for Ia3 {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let mut made = Adaptation::default();
        for Scaled { site: index, place } in self.pick(sites)? {
            let site = &sites[index];
            let [rows, cols] = site.shape;
            made.joins.push(Join {
                site: index,
                fragment: fragment(site.shape, place),
                params: vec![made.params.len()],
            });
            made.params.push(AdapterParam {
                name: format!("{PREFIX}{}.ia3_l", site.name),
                shape: match place {
                    Factors::Input => vec![1, cols],
                    Factors::Output => vec![rows, 1],
                },
                init: Init::Ones,
            });
        }
        Ok(made)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        Ok(saved::write(&self.pick(sites)?, sites, base_model))
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }
}

/// `x` `[T, M]` -> the scaled output `[T, N]`.
fn fragment([rows, cols]: [u64; 2], place: Factors) -> Graph {
    let mut graph = Graph::new("ia3.linear");
    let source = Source::Previous("input".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(cols)], DType::COMPUTE);
    let out = match place {
        Factors::Input => {
            let factors = graph.param("ia3_l", [1, cols]);
            let scaled = op::scale_channels(&mut graph, x, factors);
            op::base(&mut graph, scaled, rows)
        }
        Factors::Output => {
            let factors = graph.param("ia3_l", [rows, 1]);
            let base = op::base(&mut graph, x, rows);
            op::scale_channels(&mut graph, base, factors)
        }
    };
    graph.output("output", out);
    graph
}

/// The component `ia3`.
pub const IA3: Component = Component {
    name: "ia3",
    role: Role::ADAPTER,
    doc: "IA3 on linears and the head: a trained factor for each channel; reads and writes PEFT \
          adapters",
    options: &[
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "[\"k_proj\", \"v_proj\", \"down_proj\"]",
            range: "",
            doc: "sites: all-linear, a list of names or name endings, or one regular expression for whole names",
        },
        OptionSpec {
            name: "feedforward",
            kind: OptionKind::TEXTS,
            default: "[\"down_proj\"]",
            range: "",
            doc: "those of the targets whose input is scaled, not their output, likewise",
        },
    ],
    capabilities: &[("peft_types", "IA3")],
    create: |options, _| Ok(Instance::Adapter(Box::new(Ia3::new(options)?))),
};

#[cfg(test)]
mod tests;
