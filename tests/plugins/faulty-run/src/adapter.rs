//! A full matrix beside every query projection.

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{Adapter, Component, DType, Init, Instance, Options, Result, Role, op};
use serde_json::{Value as Json, json};

use crate::fault;

struct Faulty;

/// `x` -> `base(x) + W x`.
fn fragment(site: &Site) -> Graph {
    let mut graph = Graph::new("faulty");
    let [rows, cols] = site.shape;
    let source = Source::Previous("input".to_owned());
    let x = graph.input(source, [Dim::Tokens, Dim::Fixed(cols)], DType::COMPUTE);
    let weight = graph.param("delta", [rows, cols]);
    let base = op::base(&mut graph, x, rows);
    let update = op::linear(&mut graph, x, weight, None);
    let out = op::add(&mut graph, base, update, 1.0);
    graph.output("output", out);
    graph
}

impl Adapter for Faulty {
    fn adapt(&self, sites: &[Site]) -> Result<Adaptation> {
        fault::fail_if_due("adapt")?;
        let mut made = Adaptation::default();
        let wanted = |site: &&Site| site.name.ends_with("q_proj");
        for (index, site) in sites.iter().enumerate().filter(|(_, site)| wanted(site)) {
            made.params.push(AdapterParam {
                name: format!("base_model.model.{}.delta", site.name),
                shape: site.shape.to_vec(),
                init: Init::Zeros,
            });
            made.joins.push(Join {
                site: index,
                fragment: fragment(site),
                params: vec![made.params.len() - 1],
            });
        }
        if let Some(kind) = fault::of("adapt") {
            falsify(&mut made, &kind);
        }
        Ok(made)
    }

    fn saved_config(&self, _: &[Site], _: &str) -> Result<Json> {
        fault::fail_if_due("saved_config")?;
        Ok(json!({"peft_type": "FAULTY"}))
    }

    fn options_from_saved(&self, _: &Json) -> Result<Options> {
        fault::fail_if_due("options_from_saved")?;
        Ok(Options::default())
    }
}

fn falsify(made: &mut Adaptation, kind: &str) {
    let join = &mut made.joins[0];
    match kind {
        "site" => join.site = 999,
        "twice" => made.joins[1].site = join.site,
        "param" => join.params[0] = 999,
        "unbound" => join.params.clear(),
        "idle" => made.joins.truncate(1),
        "absurd" => {
            made.params[0].shape = vec![u64::MAX, 3];
            join.fragment.params[0].shape = vec![u64::MAX, 3];
        }
        "name" => made.params[1].name = made.params[0].name.clone(),
        "shape" => {
            made.params[0].shape[0] += 1;
            join.fragment.params[0].shape[0] += 1;
        }
        "width" => {
            let output = join.fragment.outputs[0].value;
            join.fragment.values[output].shape[1] = Dim::Fixed(7);
        }
        "operands" => drop(join.fragment.nodes[2].inputs.pop()),
        "value" => join.fragment.values[0].shape[1] = Dim::Fixed(u64::MAX),
        _ => {}
    }
}

pub const ADAPTER: Component = Component {
    name: "faulty-adapter",
    role: Role::ADAPTER,
    doc: "a full matrix beside every query projection, until it fails",
    options: &[],
    capabilities: &[("peft_types", "FAULTY")],
    create: |_, _| Ok(Instance::Adapter(Box::new(Faulty))),
};
