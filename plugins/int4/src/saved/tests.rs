//! The forms of every kind of file, and options read from configs.

use std::sync::Arc;

use espalier_interface::saved_form::StoredTensor;
use espalier_interface::{ErrorCode, Serial};

use super::*;
use crate::grid::GridSpec;

fn quantizer(files: Files, symmetry: Symmetry) -> Int4Quantizer {
    Int4Quantizer {
        grid: GridSpec {
            bits: 4,
            symmetry,
            number: Number::F16,
        },
        group_size: 32,
        files,
        services: Arc::new(Serial),
    }
}

fn described(config: Json) -> SavedDescription {
    let stored = StoredTensor {
        dtype: DType::BF16,
        shape: vec![2, 24],
    };
    SavedDescription {
        config,
        stored: [("scales".to_owned(), stored)].into(),
        ..SavedDescription::default()
    }
}

#[test]
fn forms_hold_every_segment_once_in_the_shapes_of_the_files() {
    for (files, symmetry, shapes) in [
        (
            Files::Gptq,
            Symmetry::Asymmetric,
            vec![vec![8, 24], vec![2, 3], vec![2, 24], vec![64]],
        ),
        (
            Files::GptqModel,
            Symmetry::Asymmetric,
            vec![vec![8, 24], vec![2, 3], vec![2, 24], vec![64]],
        ),
        (
            Files::GptqV2,
            Symmetry::Symmetric,
            vec![vec![8, 24], vec![2, 3], vec![2, 24], vec![64]],
        ),
        (
            Files::Awq,
            Symmetry::Asymmetric,
            vec![vec![64, 3], vec![2, 3], vec![2, 24]],
        ),
    ] {
        let quantizer = quantizer(files, symmetry);
        let format = quantizer.format([24, 64]).expect("whole groups");
        format.validate().expect("it fits itself");
        let form = form(&quantizer, [24, 64]).expect("a form");
        form.validate(&format).expect("it fits");
        let found: Vec<Vec<u64>> = form.tensors.iter().map(|one| one.shape.clone()).collect();
        assert_eq!(found, shapes, "{files:?}");
    }
}

#[test]
fn weights_without_a_place_in_the_files_have_no_form() {
    let three = Int4Quantizer {
        grid: GridSpec {
            bits: 3,
            ..quantizer(Files::Gptq, Symmetry::Asymmetric).grid
        },
        ..quantizer(Files::Gptq, Symmetry::Asymmetric)
    };
    for (quantizer, shape, expected) in [
        (three, [24, 64], "set bits = 4"),
        (
            quantizer(Files::Gptq, Symmetry::Asymmetric),
            [20, 64],
            "eight codes of rows",
        ),
        (
            quantizer(Files::Awq, Symmetry::Symmetric),
            [24, 64],
            "set symmetric = false",
        ),
    ] {
        let error = form(&quantizer, shape).expect_err(expected);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(expected), "{error}");
    }
}

#[test]
fn options_come_back_from_the_config() {
    let model = SavedModel {
        dtype: DType::BF16,
        dense_modules: vec![
            "lm_head".to_owned(),
            "model.layers.0.mlp.down_proj".to_owned(),
        ],
        configs: Default::default(),
    };
    for (files, symmetry) in [
        (Files::Gptq, Symmetry::Asymmetric),
        (Files::GptqModel, Symmetry::Asymmetric),
        (Files::GptqModel, Symmetry::Symmetric),
        (Files::GptqV2, Symmetry::Symmetric),
        (Files::Awq, Symmetry::Asymmetric),
    ] {
        let config = config(&quantizer(files, symmetry), &model).expect("a config");
        let found = options(&described(config)).expect("its own").0;
        let expected = json!({
            "bits": 4, "group_size": 32, "symmetric": symmetry == Symmetry::Symmetric,
            "scale_dtype": "bf16", "files": files.name(),
        });
        assert_eq!(Json::Object(found), expected);
    }
    let rows = json!({"quant_method": "gptq", "bits": 4, "group_size": -1});
    let found = options(&described(rows)).expect("whole rows").0;
    assert_eq!(found["group_size"], json!(LARGEST_GROUP));
    let rows = Int4Quantizer {
        group_size: LARGEST_GROUP,
        ..quantizer(Files::Awq, Symmetry::Asymmetric)
    };
    let config = config(&rows, &model).expect("a config");
    assert_eq!(config["group_size"], json!(-1));
}

#[test]
fn the_producer_says_how_zero_points_are_saved() {
    let files = |key: &str, value: Json| {
        let mut config = json!({"quant_method": "gptq", "bits": 4, "group_size": 128});
        config[key] = value;
        let found = options(&described(config)).expect("a sound config").0;
        found["files"].clone()
    };
    for (quantizer, expected) in [
        (json!(["gptqmodel:7.7.0"]), "gptqmodel"),
        (json!(["optimum:1.24.0", "GPTQModel:0.9.0"]), "gptqmodel"),
        (json!("gptqmodel:1.4.2-dev"), "gptqmodel"),
        (json!(["gptqmodel:0.8.7"]), "gptq"),
        (json!(["autogptq:0.7.1"]), "gptq"),
    ] {
        let found = files("meta", json!({"quantizer": quantizer}));
        assert_eq!(found, expected, "{quantizer}");
    }
    assert_eq!(files("format", json!("gptq_v2")), "gptq_v2");
    let mut ordered =
        json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true});
    options(&described(ordered.clone())).expect_err("groups of other columns");
    ordered["meta"] = json!({"static_groups": true});
    options(&described(ordered)).expect("groups of the original weight");
}

#[test]
fn files_that_are_packed_in_another_way_are_refused_by_key() {
    let gptq = json!({"quant_method": "gptq", "bits": 4, "group_size": 128});
    let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128});
    for (config, key, value) in [
        (&gptq, "bits", json!(3)),
        (&gptq, "group_size", json!(0)),
        (&gptq, "desc_act", json!(true)),
        (&gptq, "checkpoint_format", json!("marlin")),
        (&gptq, "checkpoint_format", json!("awq")),
        (&gptq, "checkpoint_format", json!("gptqmodel")),
        (&gptq, "rotation", json!("hadamard")),
        (&gptq, "sym", json!("yes")),
        (&gptq, "quant_method", json!("hqq")),
        (&awq, "version", json!("gemv")),
        (&awq, "zero_point", json!(false)),
    ] {
        let mut config = config.clone();
        options(&described(config.clone())).expect("a sound config");
        config[key] = value;
        let error = options(&described(config)).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(&format!("`{key}`")), "{error}");
    }
}
