//! The adapter `my-plugin`: two thin matrices beside linears, `y = base(x) + alpha / rank * B A x`,
//! as in LoRA.
//!
//! An adapter names the params that it adds and gives, for each place that it joins, a small graph
//! of the host's ops. The host replaces the linear by the graph, derives the gradients, trains the
//! params, and saves them. An adapter that reads the weight it adapts, as DoRA does, takes
//! `op::base_weight`; a param may begin from that weight by `Init::FromWeight` and `initialise`.
//!
//! Letters in shapes: `T` tokens, `M` width in, `N` width out, `R` rank.

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, OptionKind, OptionSpec, Options, PluginError,
    Result, Role, op,
};
use serde_json::{Value as Json, json};

/// The name by which users choose it: `--plugins my-plugin`.
const NAME: &str = "my-plugin";

/// The value of `peft_type` in its `adapter_config.json`; the host uses it to find this plugin for
/// `--adapter DIR`.
const PEFT_TYPE: &str = "MY_PLUGIN";

/// The adapter with its options.
struct LowRank {
    rank: u64,
    alpha: f64,
    /// Endings of the names of the linears that it joins; empty: all linears inside layers.
    targets: Vec<String>,
}

impl LowRank {
    fn new(options: &Options) -> Result<Self> {
        Ok(LowRank {
            rank: options.count("rank")?,
            alpha: options.number("alpha")?,
            targets: options.texts("targets")?,
        })
    }

    /// Whether it joins `site`, such as `model.layers.0.self_attn.q_proj`.
    fn joins(&self, site: &Site) -> bool {
        let is_named =
            |target: &String| site.name == *target || site.name.ends_with(&format!(".{target}"));
        match self.targets.is_empty() {
            true => site.kind == SiteKind::Linear,
            // A token table takes token ids, not numbers: the graph below does not fit it.
            false => site.kind != SiteKind::Embedding && self.targets.iter().any(is_named),
        }
    }

    /// The graph that replaces a site: `x` `[T, M]` -> `[T, N]`. Sites of one shape get equal
    /// graphs, which then share kernels: keep names and numbers of single sites out of it.
    fn fragment(&self, [width, from]: [u64; 2]) -> Graph {
        let mut graph = Graph::new("low_rank");
        let shape = [Dim::Tokens, Dim::Fixed(from)];
        let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
        let down = graph.param("A", [self.rank, from]);
        let up = graph.param("B", [width, self.rank]);
        // `base` is the replaced graph: the frozen linear, packed or not, with its bias.
        let base = op::base(&mut graph, x, width);
        let narrow = op::linear(&mut graph, x, down, None);
        let update = op::linear(&mut graph, narrow, up, None);
        let sum = op::add(&mut graph, base, update, self.alpha / self.rank as f64);
        graph.output("output", sum);
        graph
    }
}

impl Adapter for LowRank {
    /// The params and the graphs for `sites`: all linears, the token table and the head of the
    /// model. Each site has its name and the shape of its weight `[N, M]`.
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        let mut adaptation = Adaptation::default();
        for (index, site) in sites.iter().enumerate() {
            if !self.joins(site) {
                continue;
            }
            let [width, from] = site.shape;
            let first = adaptation.params.len();
            // A starts as random numbers and B as zeros, so that training starts at the base model.
            let bound = (from as f64).sqrt().recip();
            adaptation.params.push(AdapterParam {
                name: format!("{}.A", site.name), // its key in adapter_model.safetensors
                shape: vec![self.rank, from],
                init: Init::Uniform { bound },
            });
            adaptation.params.push(AdapterParam {
                name: format!("{}.B", site.name),
                shape: vec![width, self.rank],
                init: Init::Zeros,
            });
            adaptation.joins.push(Join {
                site: index,
                fragment: self.fragment(site.shape),
                params: vec![first, first + 1], // for A and B of the fragment
            });
        }
        if adaptation.joins.is_empty() {
            let names: Vec<_> = sites.iter().map(|site| site.name.as_str()).collect();
            return Err(PluginError::invalid(format!(
                "targets {:?} fit no site; the model has {}",
                self.targets,
                names.join(", ")
            )));
        }
        Ok(adaptation)
    }

    /// The contents of `adapter_config.json` beside the trained params.
    fn saved_config(&self, _sites: &[Site], base_model: &str) -> Result<Json> {
        Ok(json!({
            "peft_type": PEFT_TYPE,
            "base_model_name_or_path": base_model,
            "rank": self.rank,
            "alpha": self.alpha,
            "targets": self.targets,
        }))
    }

    /// The inverse: the options of a saved adapter, independent of this instance's options.
    fn options_from_saved(&self, config: &Json) -> Result<Options> {
        if config["peft_type"] != PEFT_TYPE {
            return Err(PluginError::unsupported(format!(
                "adapter_config.json: `peft_type` is {}, expected \"{PEFT_TYPE}\"",
                config["peft_type"]
            )));
        }
        let mut options = Options::default();
        for key in ["rank", "alpha", "targets"] {
            let value = config.get(key).cloned().ok_or_else(|| {
                PluginError::invalid(format!("adapter_config.json: `{key}` is missing"))
            })?;
            options.0.insert(key.to_owned(), value);
        }
        Ok(options)
    }
}

/// What users can choose. The host reads this from the file without running it, checks every value
/// against type and range, and fills in the defaults.
pub const COMPONENT: Component = Component {
    name: NAME,
    role: Role::ADAPTER,
    doc: "two thin matrices beside linears, as in LoRA",
    options: &[
        OptionSpec {
            name: "rank",
            kind: OptionKind::INTEGER,
            default: "8",
            range: "1..=65536",
            doc: "inner width R of the two matrices",
        },
        OptionSpec {
            name: "alpha",
            kind: OptionKind::NUMBER,
            default: "16",
            range: "0..",
            doc: "factor of the update, before it is divided by the rank",
        },
        OptionSpec {
            name: "targets",
            kind: OptionKind::TEXTS,
            default: "[]",
            range: "",
            doc: "endings of names, such as q_proj; none: all linears inside layers",
        },
    ],
    capabilities: &[("peft_types", PEFT_TYPE)],
    create: |options, _services| Ok(Instance::Adapter(Box::new(LowRank::new(options)?))),
};

// The library's description, and the one function that it exports.
espalier_interface::declare_plugin! {
    name: "my-plugin",
    components: &[COMPONENT],
}
