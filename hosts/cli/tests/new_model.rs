//! `host quantize` and `host merge`: refusals, their messages, and the remaining files.

mod place;

use std::fs;
use std::process::Command;

use place::{RunFolder, Weights, copy_directory};
use serde_json::json;

const UP: &str = "model.layers.0.mlp.up_proj";

/// Refusals of `quantize`: the model, what follows it, the exit code and the words.
const PACKING: [(&str, &str, i32, &str); 11] = [
    (
        "dense",
        "--plugins nf4 --out taken",
        2,
        "taken exists already",
    ),
    (
        "dense",
        "--out out",
        2,
        "no quantizer was named | --plugins nf4",
    ),
    ("dense", "--plugins nf4", 2, "--out"),
    (
        "dense",
        "--plugins int8 --out out",
        5,
        "int8 | LLM.int8 | nf4 or fp4",
    ),
    (
        "dense",
        "--plugins nf4 --set sites=[{match=\"*.up_proj\",quantizer=\"fp4\"}] --out out",
        2,
        "packed by one quantizer | `nf4` and `fp4`",
    ),
    (
        "dense",
        "--plugins nf4 --set sites=[{match=\"*.embed_tokens\",quantizer=\"nf4\"}] --out out",
        2,
        "embed_tokens` is a token table",
    ),
    (
        "packed",
        "--plugins nf4 --out out",
        2,
        "packed already, by `nf4`",
    ),
    (
        "nan",
        "--plugins nf4 --out out",
        4,
        "nan/model.safetensors | up_proj.weight`: element 0",
    ),
    (
        "norm",
        "--plugins nf4 --out out",
        4,
        "norm/model.safetensors | `model.norm.weight`: element 0",
    ),
    (
        "short",
        "--plugins nf4 --out out",
        4,
        "has no tensor `model.layers.0.mlp.up_proj.weight`",
    ),
    ("nowhere", "--plugins nf4 --out out", 2, "nowhere"),
];

/// Refusals of `merge`: the arguments, the exit code and the words.
const MERGING: [(&str, i32, &str); 13] = [
    (
        "--model dense --adapter lora --out taken",
        2,
        "taken exists already",
    ),
    (
        "--model dense --out out",
        2,
        "no adapter to merge | --adapter DIR",
    ),
    (
        "--model dense --plugins lora --out out",
        2,
        "no directory of a trained one",
    ),
    ("--model dense --adapter lora", 2, "--out"),
    (
        "--model packed --adapter lora --base original --out out",
        2,
        "packed by `nf4` | leave --base out",
    ),
    (
        "--model dense --adapter lora --base decoded --out out",
        2,
        "no quantizer | --plugins nf4",
    ),
    (
        "--model dense --adapter foreign --out out",
        4,
        "foreign | layers.1. | belongs to no site",
    ),
    (
        "--model dense --adapter turned --out out",
        4,
        "up_proj.lora_A.weight` has shape [64, 4], expected [4, 64]",
    ),
    (
        "--model dense --adapter nan --out out",
        4,
        "up_proj.lora_A.weight`: element 0 is not a finite",
    ),
    (
        "--model dense --adapter empty --out out",
        4,
        "empty has no adapter_model.safetensors",
    ),
    (
        "--model short --adapter lora --out out",
        4,
        "has no tensor `model.layers.0.mlp.up_proj.weight`",
    ),
    (
        "--model huge --adapter lora --dtype f16 --out out",
        7,
        "up_proj.weight` | beyond the largest of f16 | --dtype",
    ),
    ("--model dense --adapter lora --dtype f8 --out out", 2, "f8"),
];

/// A copy of the dense checkpoint called `name`, with a tensor's first number replaced.
fn dense_with(place: &RunFolder, name: &str, tensor: &str, number: f32) {
    place.packed("dense", name);
    Weights::edit(&place.path(name).join("model.safetensors"), |weights| {
        weights.data(tensor)[..4].copy_from_slice(&number.to_le_bytes());
    });
}

/// A copy of the dense checkpoint called `short`, which lacks a weight.
fn short(place: &RunFolder) {
    place.packed("dense", "short");
    Weights::edit(&place.path("short/model.safetensors"), |weights| {
        weights.rename(&format!("{UP}.weight"), "stray");
    });
}

/// Adapters of the dense checkpoint: a whole one, damaged ones and foreign ones.
fn adapters(place: &RunFolder) {
    type Damage<'a> = &'a dyn Fn(&mut Weights);
    let tensor = format!("base_model.model.{UP}.lora_A.weight");
    let nan = |weights: &mut Weights| {
        weights.data(&tensor)[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    };
    let turned = |weights: &mut Weights| {
        weights.header(|header| header[&tensor]["shape"] = json!([64, 4]));
    };
    let cases: [(&str, Damage<'_>); 4] = [
        ("lora", &|_| ()),
        ("nan", &nan),
        ("turned", &turned),
        ("empty", &|_| ()),
    ];
    for (name, damage) in cases {
        place.packed("dense-lora", name);
        Weights::edit(&place.path(name).join("adapter_model.safetensors"), damage);
    }
    fs::remove_file(place.path("empty/adapter_model.safetensors")).expect("removed");
    copy_directory("adapter_init", &place.path("foreign"));
}

#[test]
fn a_refused_quantize_leaves_no_files() {
    let place = RunFolder::new();
    place.packed("dense", "dense");
    place.packed("nf4", "packed");
    dense_with(&place, "nan", &format!("{UP}.weight"), f32::NAN);
    dense_with(&place, "norm", "model.norm.weight", f32::INFINITY);
    short(&place);
    fs::create_dir(place.path("taken")).expect("a folder");
    let before = place.names(".");
    for (model, more, code, words) in PACKING {
        let outcome = place.host(&format!("quantize --model {model} {more}"));
        outcome.refused(&format!("{model} {more}"), code, words);
        assert_eq!(place.names("."), before, "{model} {more}");
    }
    on_a_full_disk(&place, "quantize --model dense --plugins nf4 --out out");
    assert_eq!(place.names("."), before);
    place
        .host("quantize --model dense --plugins nf4 --out out")
        .succeeded();
    assert_eq!(place.names("out"), "config.json model.safetensors");
}

/// A limit on the file size, which any user can set, simulates a full disk.
fn on_a_full_disk(place: &RunFolder, arguments: &str) {
    let script = format!("trap '' XFSZ; ulimit -f 16; exec \"$0\" {arguments}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_host")]);
    let outcome = place.run(&mut shell);
    outcome.refused(arguments, 8, "model.safetensors | make room");
}

#[test]
fn a_refused_merge_leaves_no_files() {
    let place = RunFolder::new();
    place.packed("dense", "dense");
    place.packed("nf4", "packed");
    dense_with(&place, "huge", &format!("{UP}.weight"), 1e6);
    short(&place);
    adapters(&place);
    fs::create_dir(place.path("taken")).expect("a folder");
    let before = place.names(".");
    for (arguments, code, words) in MERGING {
        place
            .host(&format!("merge {arguments}"))
            .refused(arguments, code, words);
        assert_eq!(place.names("."), before, "{arguments}");
    }
    on_a_full_disk(&place, "merge --model dense --adapter lora --out out");
    assert_eq!(place.names("."), before);
    place
        .host("merge --model packed --adapter lora --out out")
        .succeeded();
    assert_eq!(place.names("out"), "config.json model.safetensors");
    // A merged model is usable like any other.
    place
        .train("out", "--plugins nf4,lora --out run")
        .succeeded();
}
