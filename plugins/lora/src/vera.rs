//! The adapter `vera` (Kopiczko et al. 2024): two random matrices that all sites share, and trained
//! factors for their rows, as PEFT computes and stores it.
//!
//! `y = base(x) + b * B (d * A dropout(x))`, with the trained `d [R]` and `b [N]` by channels. A
//! site with a weight `[N, M]` reads the first `M` columns of A and the first `N` rows of B.

mod saved;

use espalier_interface::adaptation::{Adaptation, AdapterParam, FrozenParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, OptionKind, OptionSpec, Options, PluginError,
    Result, Role, op,
};
use serde_json::Value as Json;

use crate::config_file::PREFIX;
use crate::targets::Targets;

/// PEFT's keys of the shared matrices: A `[R, M]` and B `[N, R]`, with the most columns and the
/// most rows that a joined site has.
const SHARED: [&str; 2] = ["base_model.vera_A", "base_model.vera_B"];

/// PEFT's names of a site's factors: `b [N]` and `d [R]`.
const FACTORS: [&str; 2] = ["vera_lambda_b", "vera_lambda_d"];

/// The adapter `vera`.
pub struct Vera {
    rank: u64,
    /// The factors `d` at the beginning.
    d_initial: f64,
    dropout: f64,
    targets: Targets,
    /// The seed of A and B.
    key: u64,
}

impl Vera {
    /// The adapter with checked options.
    ///
    /// # Errors
    /// `INVALID` for targets that are not a regular expression.
    pub fn new(options: &Options) -> Result<Self> {
        Ok(Vera {
            rank: options.count("rank")?,
            d_initial: options.number("d_initial")?,
            dropout: options.number("dropout")?,
            targets: Targets::read(options.0.get("targets").unwrap_or(&Json::Null))?,
            key: options.count("projection_prng_key")?,
        })
    }

    /// Indices of the joined sites.
    ///
    /// # Errors
    /// `INVALID` as [`Targets::pick`], and for a token table.
    fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let chosen = self.targets.pick(sites)?;
        let mut joined = chosen.iter().map(|&index| &sites[index]);
        match joined.find(|site| site.kind == SiteKind::Embedding) {
            None => Ok(chosen),
            Some(table) => Err(PluginError::invalid(format!(
                "the targets name the token table `{}`: `vera` joins linears and the head alone; \
                 leave it out",
                table.name
            ))),
        }
    }

    /// Initial values of A and B for so many columns of A.
    ///
    /// # Source
    /// PEFT, `VeraModel._init_vera_A_vera_B`: `kaiming_uniform_` is uniform within `sqrt(3)
    /// sqrt(2) / sqrt(fan)`, with the columns of the matrix for its fan. B is drawn after A.
    fn inits(&self, cols: u64) -> [Init; 2] {
        let drawn = |fan: u64, skip: u64| Init::TorchUniform {
            bound: 3f64.sqrt() * (2f64.sqrt() / (fan as f64).sqrt()),
            key: self.key,
            skip,
        };
        [drawn(cols, 0), drawn(self.rank, self.rank * cols)]
    }

    /// `x` `[T, M]` -> `base(x) + b * B (d * A dropout(x))` `[T, N]`.
    fn fragment(&self, [rows, cols]: [u64; 2]) -> Graph {
        let mut graph = Graph::new("vera.linear");
        let source = Source::Previous("input".to_owned());
        let x = graph.input(source, [Dim::Tokens, Dim::Fixed(cols)], DType::COMPUTE);
        let down = graph.param("vera_A", [self.rank, cols]);
        let up = graph.param("vera_B", [rows, self.rank]);
        let of_rows = graph.param(FACTORS[0], [rows]);
        let of_rank = graph.param(FACTORS[1], [self.rank]);
        let base = op::base(&mut graph, x, rows);
        let kept = match self.dropout {
            0.0 => x,
            dropout => op::dropout(&mut graph, x, dropout),
        };
        let narrow = op::linear(&mut graph, kept, down, None);
        let narrow = op::scale_channels(&mut graph, narrow, of_rank);
        let wide = op::linear(&mut graph, narrow, up, None);
        let update = op::scale_channels(&mut graph, wide, of_rows);
        let out = op::add(&mut graph, base, update, 1.0);
        graph.output("output", out);
        graph
    }
}

/// The adaptation while it is made.
#[derive(Default)]
struct Making {
    made: Adaptation,
}

impl Making {
    /// Adds a param; returns its index.
    fn add(&mut self, name: String, shape: Vec<u64>, init: Init) -> usize {
        self.made.params.push(AdapterParam { name, shape, init });
        self.made.params.len() - 1
    }

    /// The index of param number `whole`, or of its part of this shape, which is added where no
    /// site has it yet.
    fn part(&mut self, whole: usize, shape: [u64; 2]) -> usize {
        let AdapterParam { name, init, .. } = self.made.params[whole].clone();
        let params = &self.made.params;
        let known = self.made.frozen.iter().find(|frozen| {
            let is_of_it = frozen.param == whole || frozen.part_of == Some(whole);
            is_of_it && params[frozen.param].shape == shape
        });
        if let Some(known) = known {
            return known.param;
        }
        let [rows, cols] = shape;
        let param = self.add(format!("{name}[:{rows}, :{cols}]"), shape.to_vec(), init);
        let part_of = Some(whole);
        self.made.frozen.push(FrozenParam { param, part_of });
        param
    }
}

impl Adapter for Vera {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let chosen = self.pick(sites)?;
        let most = |extent: usize| chosen.iter().map(|&index| sites[index].shape[extent]).max();
        let [rows, cols] = [0, 1].map(|extent| most(extent).expect("`pick` picks a site"));
        let mut making = Making::default();
        let shapes = [[self.rank, cols], [rows, self.rank]];
        let inits = self.inits(cols);
        for ((name, shape), init) in SHARED.into_iter().zip(shapes).zip(inits) {
            let param = making.add(name.to_owned(), shape.to_vec(), init);
            let part_of = None;
            making.made.frozen.push(FrozenParam { param, part_of });
        }
        for index in chosen {
            let site = &sites[index];
            let [rows, cols] = site.shape;
            let d_initial = Init::Constant {
                value: self.d_initial,
            };
            let [of_rows, of_rank] = FACTORS.map(|name| format!("{PREFIX}{}.{name}", site.name));
            let params = vec![
                making.part(0, [self.rank, cols]),
                making.part(1, [rows, self.rank]),
                making.add(of_rows, vec![rows], Init::Zeros),
                making.add(of_rank, vec![self.rank], d_initial),
            ];
            making.made.joins.push(Join {
                site: index,
                fragment: self.fragment(site.shape),
                params,
            });
        }
        Ok(making.made)
    }

    fn saved_config(&self, sites: &[Site], base_model: &str) -> Result<Json> {
        saved::write(self, sites, base_model)
    }

    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        saved::read(config)
    }
}

/// The component `vera`.
pub const VERA: Component = Component {
    name: "vera",
    role: Role::ADAPTER,
    doc: "VeRA on linears and the head: random matrices that all sites share, and trained factors; \
          reads and writes PEFT adapters",
    options: &[
        OptionSpec {
            name: "rank",
            kind: OptionKind::INTEGER,
            default: "256",
            range: "1..=65536",
            doc: "inner width R of the two shared matrices",
        },
        OptionSpec {
            name: "d_initial",
            kind: OptionKind::NUMBER,
            default: "0.1",
            range: "",
            doc: "the factors of the inner channels at the beginning; those of the outputs are 0",
        },
        OptionSpec {
            name: "dropout",
            kind: OptionKind::NUMBER,
            default: "0.0",
            range: "0..1",
            doc: "probability with which a channel of an update's input is dropped",
        },
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "\"all-linear\"",
            range: "",
            doc: "sites: all-linear, a list of names or name endings, or one regular expression for whole names",
        },
        OptionSpec {
            name: "projection_prng_key",
            kind: OptionKind::INTEGER,
            default: "0",
            range: "0..",
            doc: "seed of the shared matrices, which are drawn as PyTorch draws them on a CPU",
        },
    ],
    capabilities: &[("peft_types", "VERA")],
    create: |options, _| Ok(Instance::Adapter(Box::new(Vera::new(options)?))),
};

#[cfg(test)]
mod tests;
