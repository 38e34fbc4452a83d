//! The adapter `scaled`, a trained factor for each channel, which reads and writes PEFT's IA3 (Liu
//! et al. 2022). The smallest adapter of a third party; it builds against interface 0.4.
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

/// PEFT's prefix of a module's name.
const PREFIX: &str = "base_model.model.";

/// Which sites are scaled, by the ends of their names.
struct Scaled {
    targets: Vec<String>,
    /// Those of the targets that scale their input.
    feedforward: Vec<String>,
}

/// The position of a factor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scales {
    Input,
    Output,
}

impl Scaled {
    fn new(options: &Options) -> Result<Self> {
        let targets = options.texts("targets")?;
        let feedforward = options.texts("feedforward")?;
        match feedforward.iter().find(|name| !targets.contains(name)) {
            None => Ok(Scaled {
                targets,
                feedforward,
            }),
            Some(name) => Err(PluginError::invalid(format!(
                "feedforward module `{name}` is not among the targets: {}",
                targets.join(", ")
            ))),
        }
    }

    /// The indices of the scaled sites.
    fn pick(&self, sites: &[Site]) -> Result<Vec<(usize, Scales)>> {
        let linear = |site: &Site| site.kind != SiteKind::Embedding;
        let named = |site: &Site, names: &[String]| names.iter().any(|name| ends(site, name));
        for name in &self.targets {
            if !sites.iter().any(|site| linear(site) && ends(site, name)) {
                let known: Vec<&str> = sites
                    .iter()
                    .filter(|site| linear(site))
                    .map(|site| site.name.as_str())
                    .collect();
                return Err(PluginError::invalid(format!(
                    "target `{name}` ends the name of no linear; there are {}",
                    known.join(", ")
                )));
            }
        }
        let scales = |site: &Site| match named(site, &self.feedforward) {
            true => Scales::Input,
            false => Scales::Output,
        };
        let chosen = sites.iter().enumerate();
        let chosen = chosen.filter(|(_, site)| linear(site) && named(site, &self.targets));
        Ok(chosen.map(|(index, site)| (index, scales(site))).collect())
    }
}

/// Matches like PEFT: the whole name, or the part after a dot.
fn ends(site: &Site, name: &str) -> bool {
    let before = site.name.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

impl Adapter for Scaled {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let mut made = Adaptation::default();
        for (index, scales) in self.pick(sites)? {
            let site = &sites[index];
            let [rows, cols] = site.shape;
            made.joins.push(Join {
                site: index,
                fragment: fragment(site.shape, scales),
                params: vec![made.params.len()],
            });
            made.params.push(AdapterParam {
                name: format!("{PREFIX}{}.ia3_l", site.name),
                shape: match scales {
                    Scales::Input => vec![1, cols],
                    Scales::Output => vec![rows, 1],
                },
                init: Init::Ones,
            });
        }
        Ok(made)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        self.pick(sites)?;
        Ok(saved::write(&self.targets, &self.feedforward, base_model))
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }
}

fn fragment([rows, cols]: [u64; 2], scales: Scales) -> Graph {
    let mut graph = Graph::new("scaled");
    let source = Source::Previous("input".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(cols)], DType::COMPUTE);
    let out = match scales {
        Scales::Input => {
            let factor = graph.param("ia3_l", [1, cols]);
            let scaled = op::scale_channels(&mut graph, x, factor);
            op::base(&mut graph, scaled, rows)
        }
        Scales::Output => {
            let factor = graph.param("ia3_l", [rows, 1]);
            let base = op::base(&mut graph, x, rows);
            op::scale_channels(&mut graph, base, factor)
        }
    };
    graph.output("output", out);
    graph
}

const SCALED: Component = Component {
    name: "scaled",
    role: Role::ADAPTER,
    doc: "a trained factor for each channel; reads and writes PEFT's IA3",
    options: &[
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "[\"k_proj\", \"v_proj\", \"down_proj\"]",
            range: "",
            doc: "linears by the ends of their names",
        },
        OptionSpec {
            name: "feedforward",
            kind: OptionKind::TEXTS,
            default: "[\"down_proj\"]",
            range: "",
            doc: "those of the targets whose input is scaled, not their output",
        },
    ],
    capabilities: &[("peft_types", "IA3")],
    create: |options, _| Ok(Instance::Adapter(Box::new(Scaled::new(options)?))),
};

espalier_interface::declare_plugin! { name: "scaled", components: &[SCALED] }
