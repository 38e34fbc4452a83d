//! Units with a cache for attention, and units that can have none.

use espalier_interface::graph::{Graph, Source};
use espalier_interface::op::{self, AttentionShape};

use super::*;

/// `hidden` = attention of the input with itself; `loss` = twice the input.
fn unit() -> UnitGraph {
    let mut graph = Graph::new("unit");
    let rows = [Dim::Tokens, Dim::Fixed(8)];
    let x = graph.input(Source::Previous("hidden".into()), rows, DType::COMPUTE);
    let bounds = graph.batch(batch::CU_SEQLENS);
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 2,
        head_dim: 4,
        scale: 0.5,
        window: None,
        softcap: None,
    };
    let hidden = op::attention(&mut graph, x, x, x, bounds, shape);
    let loss = op::add(&mut graph, x, x, 1.0);
    graph.output("hidden", hidden);
    graph.output("loss", loss);
    UnitGraph::alone(graph)
}

#[test]
fn attention_gets_a_cache_and_the_loss_is_dropped() {
    let mut unit = unit();
    let shape = CacheShape {
        slots: 3,
        capacity: 5,
    };
    let caches = cache(&mut unit, shape, &["hidden", "logits"]).expect("causal");
    let ops: Vec<&str> = unit.nodes.iter().map(|p| p.node.op.as_str()).collect();
    assert_eq!(ops, ["attention_cached"]);
    let node = &unit.nodes[0].node;
    assert_eq!((node.inputs.len(), node.outputs.len()), (6, 3));
    assert_eq!(node.outputs[1..], caches);
    let fixed = [3, 5, 8].map(Dim::Fixed).to_vec();
    assert!(caches.iter().all(|&v| unit.graph.values[v].shape == fixed));
}

#[test]
fn attention_to_later_tokens_is_refused() {
    let mut unit = unit();
    let attributes = &mut unit.nodes[0].node.attributes;
    *attributes = std::mem::take(attributes).with("causal", false);
    let shape = CacheShape {
        slots: 1,
        capacity: 1,
    };
    let refused = cache(&mut unit, shape, &["hidden"]).expect_err("not causal");
    assert!(refused.message.contains("later tokens"), "{refused}");
}
