//! A token table and a head: the smallest possible model.

use espalier_interface::graph::{Dim, Graph, Source, batch};
use espalier_interface::model::{Model, ParamKind, ParamSpec, Unit, UnitKind};
use espalier_interface::op::{self, EmbeddingLayout};
use espalier_interface::{Component, DType, Family, Init, Instance, Result, Role};
use serde_json::Value as Json;

use crate::fault;

const VOCAB: u64 = 512;
const WIDTH: u64 = 64;

struct Faulty;

fn embedding() -> Graph {
    let mut graph = Graph::new("faulty.embedding");
    let tokens = graph.batch(batch::TOKENS);
    let table = graph.param("model.embed_tokens.weight", [VOCAB, WIDTH]);
    let hidden = op::embedding(&mut graph, tokens, table, EmbeddingLayout::ByRow);
    graph.output("hidden", hidden);
    graph
}

fn head() -> Graph {
    let mut graph = Graph::new("faulty.head");
    let shape = [Dim::Tokens, Dim::Fixed(WIDTH)];
    let hidden = graph.input(Source::Previous("hidden".into()), shape, DType::COMPUTE);
    let weight = graph.param("lm_head.weight", [VOCAB, WIDTH]);
    let logits = op::linear(&mut graph, hidden, weight, None);
    let labels = graph.batch(batch::LABELS);
    let [loss, _, correct] = op::cross_entropy(&mut graph, logits, labels);
    for (name, value) in [("logits", logits), ("loss", loss), ("correct", correct)] {
        graph.output(name, value);
    }
    graph
}

impl Family for Faulty {
    fn describe(&self, _: &Json) -> Result<Model> {
        fault::fail_if_due("describe")?;
        let param = |name: &str, kind| ParamSpec {
            name: name.to_owned(),
            aliases: Vec::new(),
            shape: vec![VOCAB, WIDTH],
            kind,
            init: Init::Zeros,
        };
        let unit = |name: &str, kind, index| Unit {
            name: name.to_owned(),
            kind,
            graph: index,
            prefix: String::new(),
            params: vec![index],
        };
        let mut model = Model {
            family: "faulty".to_owned(),
            hidden_size: WIDTH,
            vocab_size: VOCAB,
            max_positions: 512,
            params: vec![
                param("model.embed_tokens.weight", ParamKind::Embedding),
                param("lm_head.weight", ParamKind::Head),
            ],
            graphs: vec![embedding(), head()],
            units: vec![
                unit("embedding", UnitKind::Embedding, 0),
                unit("head", UnitKind::Head, 1),
            ],
        };
        if let Some(kind) = fault::of("describe") {
            falsify(&mut model, &kind);
        }
        Ok(model)
    }
}

fn falsify(model: &mut Model, kind: &str) {
    let head = &mut model.graphs[1];
    match kind {
        "overflow" => {
            model.params[1].shape = vec![u64::MAX, 3];
            head.params[0].shape = vec![u64::MAX, 3];
        }
        "vector" => {
            model.params[1].shape = vec![VOCAB];
            head.params[0].shape = vec![VOCAB];
        }
        "param" => model.units[1].params[0] = 9,
        "graph" => model.units[1].graph = 9,
        "units" => drop(model.units.pop()),
        "operands" => drop(head.nodes[1].inputs.pop()),
        "outputs" => head.nodes[0].outputs.clear(),
        "loss" => head.outputs.retain(|output| output.name != "loss"),
        "batch" => head.inputs[1].source = Source::Batch("weather".to_owned()),
        "value" => head.values[0].shape[1] = Dim::Fixed(u64::MAX),
        "op" => head.nodes[0].op = "summon".to_owned(),
        _ => {}
    }
}

pub const FAMILY: Component = Component {
    name: "faulty-family",
    role: Role::FAMILY,
    doc: "a token table and a head, until it fails",
    options: &[],
    capabilities: &[("model_types", "faulty")],
    create: |_, _| Ok(Instance::Family(Box::new(Faulty))),
};
