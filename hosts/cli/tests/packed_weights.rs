//! Packed checkpoints that are damaged, unknown to every quantizer or in conflict with a config ->
//! refusals and their words.

mod place;

use place::{RunFolder, Weights};
use serde_json::{Value as Json, json};

/// The packed weight that the cases damage.
const UP: &str = "model.layers.0.mlp.up_proj.weight";
/// The tensor of its quantizer's state.
const STATE: &str = ".quant_state.bitsandbytes__nf4";

/// A fault of a tensor of the packed weight. The tensor's name here is the suffix after the
/// weight's name.
enum Damage {
    /// The tensor has another name.
    Lost(&'static str),
    /// Its first number is NaN.
    Nan(&'static str),
    /// A key of the tensor's header entry has another value.
    Header(&'static str, &'static str, &'static str),
    /// A text of the quantizer's state is another text of the same length.
    Text(&'static str, &'static str),
}

/// Damages by name, and the expected words for each.
const DAMAGES: [(&str, Damage, &str); 15] = [
    (
        "codes",
        Damage::Lost(""),
        "has no tensor `model.layers.0.mlp.up_proj.weight`",
    ),
    (
        "absmax",
        Damage::Lost(".absmax"),
        "has no tensor | up_proj.weight.absmax`",
    ),
    (
        "map",
        Damage::Lost(".quant_map"),
        "has no tensor | up_proj.weight.quant_map`",
    ),
    (
        "nested",
        Damage::Lost(".nested_absmax"),
        "has no tensor | up_proj.weight.nested_absmax`",
    ),
    (
        "state",
        Damage::Lost(STATE),
        "has no tensor | quant_state.bitsandbytes__nf4`",
    ),
    (
        "shape",
        Damage::Header("", "shape", "[1, 3072]"),
        "up_proj.weight`: expected 3072 bytes of shape [3072, 1] | [1, 3072]",
    ),
    (
        "dtype",
        Damage::Header(".absmax", "dtype", "\"I8\""),
        "weight.absmax`: expected u8, found I8",
    ),
    (
        "nan",
        Damage::Nan(".nested_absmax"),
        "nested_absmax`: element 0 is not a finite number",
    ),
    (
        "table",
        Damage::Nan(".nested_quant_map"),
        "nested_quant_map`: element 0: expected",
    ),
    (
        "json",
        Damage::Text("{\"quant_type\"", "x\"quant_type\""),
        "expected a JSON object",
    ),
    (
        "size",
        Damage::Text("\"blocksize\": 64", "\"blocksize\": 32"),
        "weight.absmax`: expected 192 bytes",
    ),
    (
        "block",
        Damage::Text("\"blocksize\": 64", "\"blocksize\": 63"),
        "found 63",
    ),
    (
        "type",
        Damage::Text("\"nf4\"", "\"fp4\""),
        "`quant_type`: expected \"nf4\", found \"fp4\"",
    ),
    (
        "turned",
        Damage::Text("[96, 64]", "[64, 96]"),
        "`shape`: expected [96,64], found [64,96]",
    ),
    (
        "offset",
        Damage::Text("\"nested_offset\"", "\"nested_offsat\""),
        "`nested_offset`: expected a finite",
    ),
];

impl Damage {
    fn change(&self, weights: &mut Weights) {
        let name = |tensor: &str| format!("{UP}{tensor}");
        match self {
            Damage::Lost(tensor) => weights.rename(&name(tensor), "stray"),
            Damage::Nan(tensor) => {
                weights.data(&name(tensor))[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            Damage::Header(tensor, key, value) => {
                let value: Json = serde_json::from_str(value).expect("JSON");
                weights.header(|header| header[name(tensor)][*key] = value);
            }
            Damage::Text(from, to) => replace(weights.data(&name(STATE)), from, to),
        }
    }
}

/// Replaces bytes of a tensor by the same number of others.
fn replace(data: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let found = data
        .windows(from.len())
        .position(|part| part == from.as_bytes());
    let at = found.expect("the text is there");
    data[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn every_damaged_tensor_of_a_packed_weight_is_named() {
    let place = RunFolder::new();
    for (case, damage, words) in DAMAGES {
        place.packed("nf4", case);
        Weights::edit(&place.path(case).join("model.safetensors"), |weights| {
            damage.change(weights)
        });
        let outcome = place.train(case, "--plugins lora --out out");
        outcome.refused(
            case,
            4,
            &format!("{case}/model.safetensors | up_proj | {words}"),
        );
        assert_eq!(place.names("out"), "", "{case}");
    }
    place.packed("nf4", "whole");
    place.train("whole", "--plugins lora --out out").succeeded();
    assert!(
        place
            .read("out/run.json")
            .contains("\"packed_by\": \"nf4\"")
    );
}

#[test]
fn a_quantization_config_that_no_quantizer_reads_is_refused() {
    let key = "quantization_config";
    let cases = [
        (
            "none",
            json!({"load_in_4bit": true}),
            4,
            "config.json | names no `quant_method`",
        ),
        (
            "other",
            json!({"quant_method": "aqlm"}),
            5,
            "quant_method `aqlm` | bitsandbytes (nf4)",
        ),
        (
            "int8",
            json!({"quant_method": "bitsandbytes", "load_in_8bit": true}),
            4,
            "config.json | `load_in_4bit` of its quantization_config is null",
        ),
        (
            "type",
            json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}),
            4,
            "model.safetensors has no tensor | quant_state.bitsandbytes__fp4`",
        ),
    ];
    let place = RunFolder::new();
    for (case, config, code, words) in cases {
        place.packed("nf4", case);
        place.edit(&format!("{case}/config.json"), |json| json[key] = config);
        let outcome = place.train(case, "--plugins lora --out out");
        outcome.refused(case, code, words);
    }
    // Packed weights are recognized by their tensors, not by the config alone.
    place.packed("dense", "dense");
    let config =
        json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"});
    place.edit("dense/config.json", |json| json[key] = config);
    let outcome = place.train("dense", "--plugins lora --out out");
    outcome.refused("dense", 4, "config.json | no tensor is one of `nf4`'s");
}

#[test]
fn a_config_that_contradicts_the_checkpoint_is_refused() {
    let place = RunFolder::new();
    place.packed("nf4", "model");
    let own = "the checkpoint's own is taken";
    for (more, words) in [
        (
            "",
            "packed by `nf4` | cannot be trained themselves | --plugins lora",
        ),
        (
            "--plugins fp4,lora",
            "q_proj` | quantizer `fp4` | packed by `nf4`",
        ),
        (
            "--plugins nf4,lora --set quantizer.nf4.block_size=128",
            "block_size = 128 | with 64",
        ),
        (
            "--plugins lora --set sites=[{match=\"*.up_proj\",quantizer=\"none\"}]",
            "up_proj` | [[sites]] asks for quantizer `none` | packed by `nf4`",
        ),
    ] {
        let outcome = place.train("model", &format!("{more} --out out"));
        let words = if more.is_empty() {
            words.to_owned()
        } else {
            format!("{words} | {own}")
        };
        outcome.refused(more, 2, &words);
        assert_eq!(place.names("out"), "", "{more}");
    }
}
