//! The shared matrices, the factors and the files of a VeRA, as PEFT has them.

use espalier_interface::ErrorCode;
use serde_json::json;

use super::*;

fn sites() -> Vec<Site> {
    let site = |name: &str, kind, shape| Site {
        name: name.to_owned(),
        kind,
        shape,
        tied_to: None,
        has_bias: false,
    };
    vec![
        site("model.embed_tokens", SiteKind::Embedding, [512, 64]),
        site("model.layers.0.q_proj", SiteKind::Linear, [64, 64]),
        site("model.layers.0.v_proj", SiteKind::Linear, [32, 64]),
        site("model.layers.0.down_proj", SiteKind::Linear, [64, 176]),
        site("model.layers.1.q_proj", SiteKind::Linear, [64, 64]),
        site("lm_head", SiteKind::Head, [512, 64]),
    ]
}

fn vera(changes: Json) -> Result<Vera> {
    let mut options = json!({
        "rank": 8, "d_initial": 0.1, "dropout": 0.0, "targets": "all-linear",
        "projection_prng_key": 5
    });
    for (key, value) in changes.as_object().expect("an object") {
        options[key] = value.clone();
    }
    Vera::new(&serde_json::from_value(options).expect("an object"))
}

fn adapted(changes: Json) -> Adaptation {
    let adapter = vera(changes).expect("good options");
    let made = adapter.adapt(&sites()).expect("sites match");
    for join in &made.joins {
        join.fragment.validate().expect("a whole graph");
        for (local, bound) in join.bound() {
            let (local, bound) = (&join.fragment.params[local], &made.params[bound]);
            assert_eq!(local.shape, bound.shape);
            assert!(bound.name.contains(&local.name));
        }
    }
    made
}

#[test]
fn sites_share_the_matrices_and_each_part_of_them_is_there_once() {
    let made = adapted(json!({}));
    let frozen = made.frozen.iter().map(|frozen| {
        let param = &made.params[frozen.param];
        (param.name.as_str(), param.shape.clone(), frozen.part_of)
    });
    let frozen: Vec<_> = frozen.collect();
    assert_eq!(
        frozen,
        [
            ("base_model.vera_A", vec![8, 176], None),
            ("base_model.vera_B", vec![64, 8], None),
            ("base_model.vera_A[:8, :64]", vec![8, 64], Some(0)),
            ("base_model.vera_B[:32, :8]", vec![32, 8], Some(1)),
        ]
    );
    let [query, value, down, next] = &made.joins[..] else {
        panic!("{} joins", made.joins.len());
    };
    assert_eq!(query.params[..2], next.params[..2]);
    assert_eq!(query.fragment, next.fragment);
    assert_eq!(value.params[0], query.params[0]);
    assert_eq!(down.params[..2], [0, 1]);
    let bounds = [6.0 / 176.0, 6.0 / 8.0].map(f64::sqrt);
    for (index, (bound, skip)) in bounds.into_iter().zip([0, 8 * 176]).enumerate() {
        let Init::TorchUniform {
            bound: found,
            key: 5,
            skip: behind,
        } = made.params[index].init
        else {
            panic!("{:?}", made.params[index].init);
        };
        assert!((found - bound).abs() < 1e-15, "{found}, expected {bound}");
        assert_eq!(behind, skip);
    }
}

#[test]
fn factors_begin_such_that_the_update_is_zero() {
    let made = adapted(json!({"targets": ["v_proj"], "d_initial": 0.25}));
    let trained = (0..made.params.len()).filter(|&index| made.frozen(index).is_none());
    let trained = trained.map(|index| &made.params[index]);
    let trained: Vec<_> = trained
        .map(|param| (param.name.as_str(), param.shape.clone(), param.init))
        .collect();
    let prefix = "base_model.model.model.layers.0.v_proj.";
    let [b, d] = FACTORS.map(|name| format!("{prefix}{name}"));
    let quarter = Init::Constant { value: 0.25 };
    assert_eq!(
        trained,
        [
            (b.as_str(), vec![32], Init::Zeros),
            (d.as_str(), vec![8], quarter)
        ]
    );
}

#[test]
fn dropout_precedes_the_first_matrix_and_not_the_base() {
    let fragment = &adapted(json!({"dropout": 0.1})).joins[0].fragment;
    let ops: Vec<&str> = fragment.nodes.iter().map(|node| node.op.as_str()).collect();
    let update = [
        "linear",
        "scale_channels",
        "linear",
        "scale_channels",
        "add",
    ];
    assert_eq!(ops, [&["base", "dropout"][..], &update].concat());
    assert_eq!(fragment.nodes[0].inputs[0], fragment.inputs[0].value);
    assert_eq!(fragment.nodes[2].inputs[0], fragment.nodes[1].outputs[0]);
}

#[test]
fn what_is_saved_gives_the_same_adapter() {
    for changes in [
        json!({}),
        json!({"targets": ["v_proj", "lm_head"], "dropout": 0.25, "projection_prng_key": 7}),
    ] {
        let adapter = vera(changes).expect("good options");
        let saved = adapter.saved_config(&sites(), "m").expect("sites match");
        let read = adapter.options_from_saved(&saved).expect("our own");
        let again = Vera::new(&read).expect("good options").adapt(&sites());
        assert_eq!(again, adapter.adapt(&sites()));
    }
    // PEFT's own defaults where a key is left out.
    let bare = json!({"peft_type": "VERA", "target_modules": ["v_proj"]});
    let read = saved::read(&bare).expect("PEFT's defaults");
    let found = Vera::new(&read).expect("good options");
    assert_eq!((found.rank, found.d_initial, found.key), (256, 0.1, 0));
}

#[test]
fn what_it_does_not_do_is_named() {
    for (key, value) in [
        ("modules_to_save", json!(["lm_head"])),
        ("fan_in_fan_out", json!(true)),
        ("layers_to_transform", json!([1])),
        ("bias", json!("all")),
        ("peft_type", json!("LORA")),
        ("task_type", json!("SEQ_CLS")),
    ] {
        let mut config = json!({"peft_type": "VERA", "target_modules": ["v_proj"]});
        config[key] = value;
        let error = saved::read(&config).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(&format!("`{key}` is ")), "{error}");
    }
    let refused = vera(json!({"targets": ["embed_tokens"]})).and_then(|one| one.adapt(&sites()));
    let error = refused.expect_err("a token table");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(error.message.contains("token table"), "{error}");
}
