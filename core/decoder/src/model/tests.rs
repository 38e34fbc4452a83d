//! The model that a config describes: its params, graphs and order of ops.

use serde_json::{Value as Json, json};

use super::*;
use crate::{AttentionBias, Defaults, Dialect, FeedForward, GemmaLine, Norm, Window, describe};

fn tiny() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "head_dim": 16,
        "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
        "intermediate_size": 176, "max_position_embeddings": 512, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": false, "vocab_size": 512
    })
}

fn model(config: &Json) -> Model {
    let model = describe(config, &PLAIN).expect("a whole config");
    model.validate().expect("it agrees with itself");
    model
}

fn shape<'a>(model: &'a Model, name: &str) -> &'a [u64] {
    let found = model.params.iter().find(|param| param.name == name);
    &found.unwrap_or_else(|| panic!("no param `{name}`")).shape
}

#[test]
fn params_are_those_of_the_checkpoint() {
    let model = model(&tiny());
    let mut names: Vec<_> = model
        .params
        .iter()
        .map(|param| param.name.clone())
        .collect();
    let mut expected = vec!["model.embed_tokens.weight".to_owned()];
    for layer in 0..2 {
        let inner = [
            "input_layernorm",
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.o_proj",
            "post_attention_layernorm",
            "mlp.gate_proj",
            "mlp.up_proj",
            "mlp.down_proj",
        ];
        expected.extend(inner.map(|name| format!("model.layers.{layer}.{name}.weight")));
    }
    expected.extend(["model.norm.weight", "lm_head.weight"].map(str::to_owned));
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(
        shape(&model, "model.layers.1.self_attn.k_proj.weight"),
        [32, 64]
    );
    assert_eq!(
        shape(&model, "model.layers.0.mlp.down_proj.weight"),
        [64, 176]
    );
    assert_eq!(shape(&model, "lm_head.weight"), [512, 64]);
}

#[test]
fn layers_share_a_graph_and_bind_their_own_params() {
    let model = model(&tiny());
    let names: Vec<_> = model.units.iter().map(|unit| unit.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "model.embed_tokens",
            "model.layers.0",
            "model.layers.1",
            "lm_head"
        ]
    );
    assert_eq!(model.graphs.len(), 3);
    assert_eq!(model.units[1].graph, model.units[2].graph);
    let local = &model.graphs[1].params[1].name;
    assert_eq!(local, "self_attn.q_proj.weight");
    for layer in [1, 2] {
        let unit = &model.units[layer];
        let global = &model.params[unit.params[1]].name;
        assert_eq!(*global, format!("{}{local}", unit.prefix));
    }
}

#[test]
fn a_tied_head_is_the_token_table_under_a_second_name() {
    let mut config = tiny();
    config["tie_word_embeddings"] = json!(true);
    let model = model(&config);
    assert_eq!(model.params[0].aliases, ["lm_head.weight"]);
    let head = model.units.last().expect("a head");
    assert_eq!(model.graphs[head.graph].params[1].name, "lm_head.weight");
    assert_eq!(head.params[1], 0);
    assert!(
        model
            .params
            .iter()
            .all(|param| param.name != "lm_head.weight")
    );
}

#[test]
fn biases_join_their_projections() {
    let mut config = tiny();
    config["attention_bias"] = json!(true);
    config["mlp_bias"] = json!(true);
    let model = model(&config);
    assert_eq!(shape(&model, "model.layers.0.self_attn.v_proj.bias"), [32]);
    assert_eq!(shape(&model, "model.layers.1.mlp.up_proj.bias"), [176]);
    let linears = model.graphs[1]
        .nodes
        .iter()
        .filter(|node| node.op == "linear");
    assert_eq!(
        linears.map(|node| node.params.len()).collect::<Vec<_>>(),
        [2; 7]
    );
    let bias = model
        .params
        .iter()
        .find(|param| param.kind == ParamKind::Bias);
    assert_eq!(bias.expect("there are some").init, Init::Zeros);
}

#[test]
fn a_layer_does_what_llama_does_in_order() {
    let model = model(&tiny());
    let ops: Vec<_> = model.graphs[1]
        .nodes
        .iter()
        .map(|node| node.op.as_str())
        .collect();
    assert_eq!(
        ops,
        [
            "rms_norm",
            "linear",
            "linear",
            "linear",
            "rope",
            "rope",
            "attention",
            "linear",
            "add",
            "rms_norm",
            "linear",
            "linear",
            "swiglu",
            "linear",
            "add"
        ]
    );
    let attention = &model.graphs[1].nodes[6].attributes;
    assert_eq!(attention.count("kv_heads").expect("given"), 2);
    assert_eq!(attention.number("scale").expect("given"), 0.25);
    let head: Vec<_> = model.graphs[2]
        .outputs
        .iter()
        .map(|out| out.name.as_str())
        .collect();
    assert_eq!(head, ["loss", "correct", "logits"]);
}

#[test]
fn layers_that_see_as_far_share_a_graph() {
    let mut config = tiny();
    config["num_hidden_layers"] = json!(3);
    config["use_sliding_window"] = json!(true);
    config["sliding_window"] = json!(8);
    config["max_window_layers"] = json!(1);
    let switched = Dialect {
        window: Window::Switched,
        ..PLAIN
    };
    let model = describe(&config, &switched).expect("allowed");
    let graphs: Vec<_> = model.units.iter().map(|unit| unit.graph).collect();
    assert_eq!(graphs, [0, 1, 2, 2, 3]);
    let window = |graph: usize| {
        let nodes = model.graphs[graph].nodes.iter();
        let mut attention = nodes.filter(|node| node.op == "attention");
        attention.next().expect("a layer attends").attributes.0["window"].clone()
    };
    assert_eq!([window(1), window(2)], [json!(null), json!(8)]);
}

#[test]
fn head_norms_stand_between_projection_and_rotation() {
    let normed = Dialect {
        attention_bias: AttentionBias::QueryKeyValue,
        head_norms: true,
        defaults: Defaults {
            head_dim: Some(32),
            ..PLAIN.defaults
        },
        ..PLAIN
    };
    let mut config = tiny();
    config
        .as_object_mut()
        .expect("an object")
        .remove("head_dim");
    let model = describe(&config, &normed).expect("allowed");
    let q_norm = shape(&model, "model.layers.0.self_attn.q_norm.weight");
    assert_eq!(q_norm, [32]);
    assert_eq!(
        shape(&model, "model.layers.0.self_attn.k_proj.weight"),
        [64, 64]
    );
    let has = |name: &str| model.params.iter().any(|param| param.name == name);
    assert!(has("model.layers.0.self_attn.v_proj.bias"));
    assert!(!has("model.layers.0.self_attn.o_proj.bias"));
    let ops: Vec<_> = model.graphs[1]
        .nodes
        .iter()
        .map(|n| n.op.as_str())
        .collect();
    assert_eq!(
        ops[4..9],
        ["rms_norm", "rms_norm", "rope", "rope", "attention"]
    );
}

#[test]
fn layer_norms_have_biases_and_a_part_without_a_gate_has_two_projections() {
    let dialect = Dialect {
        attention_bias: AttentionBias::UseBias,
        mlp_bias: false,
        norm: Norm::Layer,
        feed_forward: FeedForward::Gelu,
        ..Dialect::plain("llama")
    };
    let mut config = tiny();
    config["hidden_act"] = json!("gelu");
    config["rms_norm_eps"] = json!(null);
    let model = describe(&config, &dialect).expect("allowed");
    model.validate().expect("it agrees with itself");
    let layer = "layer_norm linear linear linear rope rope attention linear add layer_norm linear \
                 gelu linear add";
    assert_eq!(ops(&model.graphs[1]).join(" "), layer);
    let gelu = &model.graphs[1].nodes[11].attributes;
    assert_eq!(gelu.text("approximate"), Some("none"));
    for (name, found) in [
        ("model.layers.1.input_layernorm.bias", &[64][..]),
        ("model.layers.1.self_attn.o_proj.bias", &[64]),
        ("model.layers.1.mlp.c_fc.bias", &[176]),
        ("model.layers.1.mlp.c_proj.weight", &[64, 176]),
        ("model.norm.bias", &[64]),
    ] {
        assert_eq!(shape(&model, name), found, "{name}");
    }
    config["use_bias"] = json!(false);
    let model = describe(&config, &dialect).expect("allowed");
    let biases = model
        .params
        .iter()
        .filter(|param| param.name.ends_with(".bias"));
    assert!(
        biases
            .clone()
            .all(|param| param.name.ends_with("norm.bias"))
    );
    assert_eq!(biases.count(), 5);
    config["attention_bias"] = json!(true);
    let error = describe(&config, &dialect).expect_err("another key");
    assert!(
        error.message.contains("`attention_bias` is true"),
        "{error}"
    );
}

const GEMMA: Dialect = Dialect {
    window: Window::AllBut {
        default: 8,
        every: 2,
        key: None,
    },
    gemma: Some(GemmaLine {
        logits_softcap: Some(30.0),
        attention_softcap: Some(50.0),
        local_rope_theta: None,
    }),
    ..PLAIN
};

fn gemma(dialect: &Dialect) -> Model {
    let mut config = tiny();
    config["hidden_act"] = json!("gelu_pytorch_tanh");
    config["rope_parameters"] = json!(null);
    let model = describe(&config, dialect).expect("allowed");
    model.validate().expect("it agrees with itself");
    model
}

fn ops(graph: &Graph) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.op.as_str()).collect()
}

#[test]
fn gemma_norms_around_both_parts_and_caps_scores_and_logits() {
    let model = gemma(&GEMMA);
    assert_eq!(ops(&model.graphs[0]), ["embedding", "scale"]);
    assert!(model.graphs[0].nodes[1].attributes.flag("rounded"));
    let layer = ops(&model.graphs[1]);
    assert_eq!(
        layer[6..11],
        [
            "attention",
            "linear",
            "rms_norm_offset",
            "add",
            "rms_norm_offset"
        ]
    );
    assert_eq!(
        layer[13..],
        ["geglu_tanh", "linear", "rms_norm_offset", "add"]
    );
    let attention = &model.graphs[1].nodes[6].attributes;
    assert_eq!(attention.number("softcap"), Ok(50.0));
    assert_eq!(attention.number("scale"), Ok(1.0 / 16.0), "1 / sqrt(256)");
    let head = ops(model.graphs.last().expect("a head"));
    assert_eq!(
        head[1..],
        ["linear", "scale", "tanh", "scale", "cross_entropy"]
    );
    let norms = model
        .params
        .iter()
        .filter(|param| param.kind == ParamKind::Norm);
    let norms: Vec<_> = norms.map(|norm| norm.init).collect();
    assert_eq!(norms, vec![Init::Zeros; 9]);
}

#[test]
fn layers_with_a_window_may_have_a_rotary_embedding_of_their_own() {
    let line = GEMMA.gemma.map(|line| GemmaLine {
        local_rope_theta: Some(100.0),
        ..line
    });
    let model = gemma(&Dialect {
        gemma: line,
        ..GEMMA
    });
    let second = |layer: usize| {
        let graph = &model.graphs[model.units[layer].graph];
        let rope = graph.nodes.iter().find(|node| node.op == "rope");
        let frequencies = rope.expect("a rotation").attributes.numbers("inv_freq");
        frequencies.expect("numbers")[1]
    };
    // The first layer has a window, the second has none: 100^(-1/8) and 10000^(-1/8).
    assert!((second(1) - 0.562_341_3).abs() < 1e-6, "{}", second(1));
    assert!((second(2) - 0.316_227_8).abs() < 1e-6, "{}", second(2));
}

#[test]
fn fused_projections_are_cut_into_their_parts() {
    let fused = Dialect {
        fused_projections: true,
        partial_rotary: true,
        attention_bias: AttentionBias::Never,
        ..PLAIN
    };
    let mut config = tiny();
    config["rope_parameters"]["partial_rotary_factor"] = json!(0.75);
    let model = describe(&config, &fused).expect("allowed");
    model.validate().expect("it agrees with itself");
    let of = |name: &str| shape(&model, &format!("model.layers.0.{name}.weight"));
    assert_eq!(of("self_attn.qkv_proj"), [128, 64]);
    assert_eq!(of("mlp.gate_up_proj"), [352, 64]);
    let slices = model.graphs[1].nodes.iter();
    let slices = slices.filter(|node| node.op == "slice_columns");
    let slices = slices.map(|node| {
        let first = node.attributes.count("first").unwrap_or(0);
        [first, node.attributes.count("width").expect("a width")]
    });
    let expected = [[0, 64], [64, 32], [96, 32], [0, 176], [176, 176]];
    assert_eq!(slices.collect::<Vec<_>>(), expected);
    let rope = model.graphs[1].nodes.iter().find(|node| node.op == "rope");
    let frequencies = rope.expect("a rotation").attributes.numbers("inv_freq");
    assert_eq!(frequencies.expect("numbers").len(), 6, "pairs of 12 of 16");
    config["rope_parameters"]["partial_rotary_factor"] = json!(0.2);
    let error = describe(&config, &fused).expect_err("3 channels are no pairs");
    assert!(error.message.contains("turns 3 channels"), "{error}");
}
