//! The params and graphs of an adapter, compared with PEFT's.

use std::sync::Arc;

use espalier_interface::{Adapter, Options, Serial};
use serde_json::{Value as Json, json};

use super::*;
use crate::{Lora, Variant};

mod modules_to_save;

/// The sites of the tiny Llama: hidden 64, feed-forward 176, keys and values 32, vocab 512, two
/// layers.
fn sites() -> Vec<Site> {
    let site = |name: String, kind, shape, tied_to| Site {
        name,
        kind,
        shape,
        tied_to,
        has_bias: false,
    };
    let table = "model.embed_tokens".to_owned();
    let mut sites = vec![site(table.clone(), SiteKind::Embedding, [512, 64], None)];
    for layer in 0..2 {
        for (name, shape) in [
            ("self_attn.q_proj", [64, 64]),
            ("self_attn.k_proj", [32, 64]),
            ("self_attn.v_proj", [32, 64]),
            ("self_attn.o_proj", [64, 64]),
            ("mlp.gate_proj", [176, 64]),
            ("mlp.up_proj", [176, 64]),
            ("mlp.down_proj", [64, 176]),
        ] {
            let name = format!("model.layers.{layer}.{name}");
            sites.push(site(name, SiteKind::Linear, shape, None));
        }
    }
    sites.push(site(
        "lm_head".to_owned(),
        SiteKind::Head,
        [512, 64],
        Some(table),
    ));
    sites
}

fn made(variant: Variant, changes: Json) -> Lora {
    let mut options = json!({
        "rank": 8, "alpha": 16, "dropout": 0.0, "targets": "all-linear", "rslora": false,
        "learning_rate_ratio": 1.0, "modules_to_save": []
    });
    for (key, value) in changes.as_object().expect("an object") {
        options[key] = value.clone();
    }
    let options: Options = serde_json::from_value(options).expect("an object");
    Lora::new(variant, &options, Arc::new(Serial)).expect("good options")
}

#[test]
fn matrices_that_begin_from_singular_vectors_change_the_base_of_every_join() {
    let zero = adapted(json!({}));
    assert_eq!(zero.base_change, None);
    for (init, iter, rounds) in [("pissa", 1, 0), ("loftq", 1, 1), ("loftq", 5, 5)] {
        let made = adapted(json!({"init": init, "init_niter": 8, "loftq_iter": iter}));
        let change = made.base_change.expect("a change");
        assert_eq!(change.joins, (0..14).collect::<Vec<_>>(), "{init}");
        assert_eq!(change.rounds, rounds, "{init}");
        assert!(
            made.params
                .iter()
                .all(|param| param.init == Init::FromWeight)
        );
        // What it computes is the same.
        assert_eq!(made.joins, zero.joins);
    }
}

fn adapted(changes: Json) -> Adaptation {
    by(Variant::Lora, changes)
}

fn by(variant: Variant, changes: Json) -> Adaptation {
    let adaptation = made(variant, changes).adapt(&sites());
    let adaptation = adaptation.expect("sites match");
    for join in &adaptation.joins {
        join.fragment.validate().expect("a whole graph");
        for (local, bound) in join.bound() {
            let (local, bound) = (&join.fragment.params[local], &adaptation.params[bound]);
            assert_eq!(local.shape, bound.shape);
            assert!(bound.name.ends_with(&local.name));
        }
    }
    adaptation
}

/// Keys and shapes of an adapter that PEFT 0.21.2 saved for the tiny Llama, rank 8, all
/// linears; one layer.
const PEFT_LAYER: [(&str, [u64; 2]); 14] = [
    ("mlp.down_proj.lora_A.weight", [8, 176]),
    ("mlp.down_proj.lora_B.weight", [64, 8]),
    ("mlp.gate_proj.lora_A.weight", [8, 64]),
    ("mlp.gate_proj.lora_B.weight", [176, 8]),
    ("mlp.up_proj.lora_A.weight", [8, 64]),
    ("mlp.up_proj.lora_B.weight", [176, 8]),
    ("self_attn.k_proj.lora_A.weight", [8, 64]),
    ("self_attn.k_proj.lora_B.weight", [32, 8]),
    ("self_attn.o_proj.lora_A.weight", [8, 64]),
    ("self_attn.o_proj.lora_B.weight", [64, 8]),
    ("self_attn.q_proj.lora_A.weight", [8, 64]),
    ("self_attn.q_proj.lora_B.weight", [64, 8]),
    ("self_attn.v_proj.lora_A.weight", [8, 64]),
    ("self_attn.v_proj.lora_B.weight", [32, 8]),
];

#[test]
fn keys_and_shapes_are_pefts() {
    let adaptation = adapted(json!({}));
    let mut found: Vec<(String, Vec<u64>)> = adaptation
        .params
        .iter()
        .map(|param| (param.name.clone(), param.shape.clone()))
        .collect();
    found.sort();
    let expected: Vec<(String, Vec<u64>)> = (0..2)
        .flat_map(|layer| {
            PEFT_LAYER.map(|(name, shape)| {
                let key = format!("base_model.model.model.layers.{layer}.{name}");
                (key, shape.to_vec())
            })
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_update_starts_at_zero() {
    let adaptation = adapted(json!({"targets": ["down_proj", "embed_tokens"]}));
    let inits: Vec<Init> = adaptation.params.iter().map(|param| param.init).collect();
    let bound = 1.0 / 176f64.sqrt();
    assert_eq!(inits[..2], [Init::Zeros, Init::Normal { std: 1.0 }]);
    assert_eq!(inits[2..4], [Init::Uniform { bound }, Init::Zeros]);
}

#[test]
fn a_linear_calls_its_base_and_adds_the_scaled_update() {
    let fragment = &adapted(json!({})).joins[0].fragment;
    let ops: Vec<_> = fragment.nodes.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["base", "linear", "linear", "add"]);
    assert_eq!(
        fragment.nodes[3].attributes.number("alpha").expect("given"),
        2.0
    );
    let rslora = adapted(json!({"rslora": true}));
    let alpha = rslora.joins[0].fragment.nodes[3].attributes.number("alpha");
    assert_eq!(alpha.expect("given"), 16.0 / 8f64.sqrt());
}

#[test]
fn sites_of_one_shape_share_a_fragment() {
    let plain = adapted(json!({})).joins;
    assert_eq!((plain[1].site, plain[2].site), (2, 3));
    assert_eq!(plain[1].fragment, plain[2].fragment);
    assert_ne!(plain[0].fragment, plain[1].fragment);
}

#[test]
fn dropout_precedes_the_first_matrix_and_not_the_base() {
    let dropped = adapted(json!({"dropout": 0.1})).joins;
    assert_eq!(dropped[1].fragment, dropped[2].fragment);
    let fragment = &dropped[0].fragment;
    let [base, dropout, down] = &fragment.nodes[..3] else {
        panic!("{} nodes", fragment.nodes.len());
    };
    assert_eq!((base.op.as_str(), dropout.op.as_str()), ("base", "dropout"));
    assert_eq!(dropout.attributes.number("p").expect("given"), 0.1);
    assert_eq!(base.inputs[0], fragment.inputs[0].value);
    assert_eq!(down.inputs[0], dropout.outputs[0]);
}

#[test]
fn embeddings_and_a_tied_head_are_as_in_peft() {
    let targets = json!({"targets": ["embed_tokens", "lm_head"], "dropout": 0.1});
    let adaptation = adapted(targets);
    let params: Vec<_> = adaptation
        .params
        .iter()
        .map(|param| (param.name.as_str(), param.shape.clone()))
        .collect();
    assert_eq!(
        params,
        [
            (
                "base_model.model.model.embed_tokens.lora_embedding_A",
                vec![8, 512]
            ),
            (
                "base_model.model.model.embed_tokens.lora_embedding_B",
                vec![64, 8]
            ),
            ("base_model.model.lm_head.lora_A.weight", vec![8, 64]),
            ("base_model.model.lm_head.lora_B.weight", vec![512, 8]),
        ]
    );
    let nodes = &adaptation.joins[0].fragment.nodes;
    let ops: Vec<_> = nodes.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["base", "embedding", "linear", "add"]);
    assert!(nodes[1].attributes.flag("transposed"));
    assert_eq!(adaptation.joins[1].fragment.nodes[1].op, "dropout");
}

#[test]
fn a_dora_also_trains_magnitudes_that_begin_from_the_weight() {
    let adaptation = by(Variant::Dora, json!({"targets": ["down_proj", "lm_head"]}));
    let names = |end: &str| {
        let params = adaptation.params.iter();
        params.filter(|param| param.name.ends_with(end)).count()
    };
    assert_eq!((names(".weight"), names(".lora_magnitude_vector")), (6, 3));
    let magnitude = &adaptation.params[8];
    let key = "base_model.model.lm_head.lora_magnitude_vector";
    assert_eq!(
        (magnitude.name.as_str(), &magnitude.shape[..]),
        (key, &[512][..])
    );
    assert_eq!(magnitude.init, Init::FromWeight);
    assert!(
        adaptation
            .joins
            .iter()
            .all(|join| join.base_weight() == Some(0))
    );
    let products = |changes: Json| {
        let nodes = by(Variant::Dora, changes).joins[0].fragment.nodes.clone();
        nodes.iter().filter(|node| node.op == "linear").count()
    };
    // With dropout the weight has a product of its own.
    assert_eq!(products(json!({"targets": ["down_proj"]})), 2);
    assert_eq!(
        products(json!({"targets": ["down_proj"], "dropout": 0.1})),
        3
    );
}

#[test]
fn a_dora_refuses_the_token_table_by_its_name() {
    for targets in [json!(["embed_tokens"]), json!(".*(q_proj|embed_tokens)")] {
        let dora = made(Variant::Dora, json!({ "targets": targets }));
        let message = dora.adapt(&sites()).expect_err("a table").message;
        assert!(message.contains("`model.embed_tokens`"), "{message}");
    }
}

#[test]
fn patterns_give_single_sites_their_rank_and_factor() {
    let changes = json!({
        "targets": ["q_proj", "v_proj"], "rank_pattern": {"layers.1.*": 2, "q_proj": 4},
        "alpha_pattern": {"v_proj": 3.0}
    });
    for variant in [Variant::Lora, Variant::Dora] {
        let adaptation = by(variant, changes.clone());
        let joins = adaptation.joins.iter();
        let found: Vec<(u64, f64)> = joins
            .map(|join| {
                let nodes = join.fragment.nodes.iter();
                let mut factors = nodes.filter(|node| node.op == "add");
                let factor = factors
                    .next()
                    .expect("an update")
                    .attributes
                    .number("alpha");
                let rank = adaptation.params[join.params[0]].shape[0];
                (rank, factor.expect("given"))
            })
            .collect();
        // q and v of the first layer, then of the second.
        assert_eq!(found, [(4, 4.0), (8, 3.0 / 8.0), (2, 8.0), (2, 1.5)]);
    }
}

#[test]
fn a_pattern_of_a_site_that_is_no_target_is_refused() {
    let lora = made(
        Variant::Lora,
        json!({"targets": ["q_proj"], "alpha_pattern": {"o_proj": 4}}),
    );
    let message = lora.adapt(&sites()).expect_err("not joined").message;
    assert!(
        message.contains("alpha_pattern `o_proj` matches no site"),
        "{message}"
    );
}

#[test]
fn lora_plus_speeds_up_all_but_the_first_matrix_and_tables() {
    let fast = |variant: Variant, targets: Json| {
        by(
            variant,
            json!({"targets": targets, "learning_rate_ratio": 16}),
        )
        .learning_rate_ratios
    };
    let found = fast(Variant::Lora, json!(["embed_tokens", "lm_head"]));
    assert_eq!(found, [1.0, 1.0, 1.0, 16.0]);
    let found = fast(Variant::Dora, json!(["lm_head"]));
    assert_eq!(found, [1.0, 16.0, 16.0]);
    assert_eq!(adapted(json!({})).learning_rate_ratios, [0.0; 0]);
}
