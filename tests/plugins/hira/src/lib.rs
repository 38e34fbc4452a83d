//! The adapter `hira` (Huang et al., ICLR 2025), as PEFT computes and stores it: an update of high
//! rank, the weight itself times a low-rank matrix, element by element.
//!
//! `W' = W + W * (B A)`. Legend: `T` tokens, `M` width in, `N` width out, `R` rank.

mod saved;

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::op::{self, Read};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, OptionKind, OptionSpec, Options, PluginError,
    Result, Role,
};
use serde_json::Value as Json;

/// PEFT's prefix of a module's name.
const PREFIX: &str = "base_model.model.";

/// The options.
struct Hira {
    rank: u64,
    /// Probability of dropping a channel of the update's input.
    dropout: f64,
    /// Names of linears, or their endings.
    targets: Vec<String>,
}

impl Hira {
    fn new(options: &Options) -> Result<Self> {
        Ok(Hira {
            rank: options.count("rank")?,
            dropout: options.number("dropout")?,
            targets: options.texts("targets")?,
        })
    }

    /// The indices of the sites that it joins.
    fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let linear = |site: &Site| site.kind != SiteKind::Embedding;
        for name in &self.targets {
            if !sites.iter().any(|site| linear(site) && ends(site, name)) {
                let known: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
                return Err(PluginError::invalid(format!(
                    "target `{name}` ends the name of no linear; the sites are {}",
                    known.join(", ")
                )));
            }
        }
        let named = |site: &Site| self.targets.iter().any(|name| ends(site, name));
        let chosen = sites.iter().enumerate();
        let chosen = chosen.filter(|(_, site)| linear(site) && named(site));
        Ok(chosen.map(|(index, _)| index).collect())
    }

    /// `x` `[T, M]` -> `base(x) + x' (W * (B A))^T` `[T, N]`, with `x' = dropout(x)`.
    fn fragment(&self, [rows, cols]: [u64; 2]) -> Graph {
        let mut graph = Graph::new("hira");
        let shape = [Dim::Tokens, Dim::Fixed(cols)];
        let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
        let a = graph.param("hira_A", [self.rank, cols]);
        let b = graph.param("hira_B", [rows, self.rank]);
        let weight = op::base_weight(&mut graph, [rows, cols]);
        let base = op::base(&mut graph, x, rows);
        let [weight, a, b] =
            [weight, a, b].map(|param| op::param_value(&mut graph, param, DType::COMPUTE));
        let product = op::matmul(&mut graph, b, Read::Plain, a, Read::Plain);
        let update = op::mul(&mut graph, weight, product);
        let dropped = if self.dropout > 0.0 {
            op::dropout(&mut graph, x, self.dropout)
        } else {
            x
        };
        let more = op::matmul(&mut graph, dropped, Read::Plain, update, Read::Transposed);
        let out = op::add(&mut graph, base, more, 1.0);
        graph.output("output", out);
        graph
    }
}

/// Matches like PEFT: the whole name, or the part after a dot.
fn ends(site: &Site, name: &str) -> bool {
    let before = site.name.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

impl Adapter for Hira {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let mut made = Adaptation::default();
        for index in self.pick(sites)? {
            let site = &sites[index];
            let [rows, cols] = site.shape;
            let first = made.params.len();
            // As torch's `kaiming_uniform_` with `a = sqrt(5)`.
            let bound = (cols as f64).sqrt().recip();
            for (name, shape, init) in [
                ("hira_A", [self.rank, cols], Init::Uniform { bound }),
                ("hira_B", [rows, self.rank], Init::Zeros),
            ] {
                made.params.push(AdapterParam {
                    name: format!("{PREFIX}{}.{name}", site.name),
                    shape: shape.to_vec(),
                    init,
                });
            }
            made.joins.push(Join {
                site: index,
                fragment: self.fragment(site.shape),
                params: vec![first, first + 1],
            });
        }
        Ok(made)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        self.pick(sites)?;
        Ok(saved::write(self, base_model))
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }
}

const HIRA: Component = Component {
    name: "hira",
    role: Role::ADAPTER,
    doc: "HiRA: the weight times a low-rank matrix, by element; reads and writes PEFT adapters",
    options: &[
        OptionSpec {
            name: "rank",
            kind: OptionKind::INTEGER,
            default: "32",
            range: "1..=65536",
            doc: "inner width R of the two matrices",
        },
        OptionSpec {
            name: "dropout",
            kind: OptionKind::NUMBER,
            default: "0.0",
            range: "0..1",
            doc: "probability with which a channel of the update's input is dropped",
        },
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "[\"q_proj\", \"v_proj\"]",
            range: "",
            doc: "linears by the ends of their names",
        },
    ],
    capabilities: &[("peft_types", "HIRA")],
    create: |options, _| Ok(Instance::Adapter(Box::new(Hira::new(options)?))),
};

espalier_interface::declare_plugin! { name: "hira", components: &[HIRA] }
