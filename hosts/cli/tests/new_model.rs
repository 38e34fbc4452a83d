//! `host quantize`, `host merge` and packed checkpoints: what is refused, with which words, and what is left behind.
#![allow(dead_code)]

mod place;

use std::fs;
use std::process::Command;

use place::{Place, Weights, copy_directory};
use serde_json::json;

const UP: &str = "model.layers.0.mlp.up_proj";

/// A copy of a golden packed checkpoint called `name`.
fn packed(place: &Place, variant: &str, name: &str) {
    copy_directory(&format!("../packed/{variant}"), &place.path(name));
}

/// Replaces bytes of a tensor by as many others.
fn replace(weights: &mut Weights, tensor: &str, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let data = weights.data(tensor);
    let found = data
        .windows(from.len())
        .position(|part| part == from.as_bytes());
    let at = found.expect("the text is there");
    data[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn every_damaged_tensor_of_a_packed_weight_is_named() {
    let name = |tensor: &str| format!("{UP}.weight.{tensor}");
    let state = "quant_state.bitsandbytes__nf4";
    let rename = |tensor: &str| {
        let tensor = name(tensor);
        Box::new(move |w: &mut Weights| w.rename(&tensor, "stray")) as Box<dyn Fn(&mut Weights)>
    };
    let nan = |tensor: &str| {
        let tensor = name(tensor);
        Box::new(move |w: &mut Weights| {
            w.data(&tensor)[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }) as Box<dyn Fn(&mut Weights)>
    };
    let text = |from: &'static str, to: &'static str| {
        let tensor = name(state);
        Box::new(move |w: &mut Weights| replace(w, &tensor, from, to)) as Box<dyn Fn(&mut Weights)>
    };
    let header = |tensor: &str, key: &'static str, value: serde_json::Value| {
        let tensor = name(tensor);
        Box::new(move |w: &mut Weights| w.header(|h| h[&tensor][key] = value.clone()))
            as Box<dyn Fn(&mut Weights)>
    };
    let codes = format!("{UP}.weight");
    let shape = {
        let codes = codes.clone();
        Box::new(move |w: &mut Weights| w.header(|h| h[&codes]["shape"] = json!([1, 3072])))
            as Box<dyn Fn(&mut Weights)>
    };
    let lost =
        Box::new(move |w: &mut Weights| w.rename(&codes, "stray")) as Box<dyn Fn(&mut Weights)>;
    let cases = [
        (
            "codes",
            lost,
            "has no tensor `model.layers.0.mlp.up_proj.weight`",
        ),
        (
            "absmax",
            rename("absmax"),
            "has no tensor | up_proj.weight.absmax`",
        ),
        (
            "map",
            rename("quant_map"),
            "has no tensor | up_proj.weight.quant_map`",
        ),
        (
            "nested",
            rename("nested_absmax"),
            "has no tensor | up_proj.weight.nested_absmax`",
        ),
        (
            "state",
            rename(state),
            "has no tensor | quant_state.bitsandbytes__nf4`",
        ),
        (
            "shape",
            shape,
            "up_proj.weight`: expected 3072 bytes of shape [3072, 1] | [1, 3072]",
        ),
        (
            "dtype",
            header("absmax", "dtype", json!("I8")),
            "weight.absmax`: expected u8, found I8",
        ),
        (
            "nan",
            nan("nested_absmax"),
            "nested_absmax`: element 0 is not a finite number",
        ),
        (
            "table",
            nan("nested_quant_map"),
            "nested_quant_map`: element 0: expected",
        ),
        (
            "json",
            text("{\"quant_type\"", "x\"quant_type\""),
            "expected a JSON object",
        ),
        (
            "size",
            text("\"blocksize\": 64", "\"blocksize\": 32"),
            "weight.absmax`: expected 192 bytes",
        ),
        (
            "block",
            text("\"blocksize\": 64", "\"blocksize\": 63"),
            "found 63",
        ),
        (
            "type",
            text("\"nf4\"", "\"fp4\""),
            "`quant_type`: expected \"nf4\", found \"fp4\"",
        ),
        (
            "turned",
            text("[96, 64]", "[64, 96]"),
            "`shape`: expected [96,64], found [64,96]",
        ),
        (
            "offset",
            text("\"nested_offset\"", "\"nested_offsat\""),
            "`nested_offset`: expected a finite",
        ),
    ];
    let place = Place::new();
    for (case, damage, words) in cases {
        packed(&place, "nf4", case);
        Weights::edit(&place.path(case).join("model.safetensors"), |weights| {
            damage(weights)
        });
        let outcome = place.train(case, "--plugins lora --out out");
        outcome.refused(
            case,
            4,
            &format!("{case}/model.safetensors | up_proj | {words}"),
        );
        assert_eq!(place.names("out"), "", "{case}");
    }
    packed(&place, "nf4", "whole");
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
            json!({"quant_method": "gptq"}),
            5,
            "quant_method `gptq` | bitsandbytes (nf4)",
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
    let place = Place::new();
    for (case, config, code, words) in cases {
        packed(&place, "nf4", case);
        place.edit(&format!("{case}/config.json"), |json| json[key] = config);
        let outcome = place.train(case, "--plugins lora --out out");
        outcome.refused(case, code, words);
    }
    // Packed weights are told from dense ones by their tensors, not by the config alone.
    copy_directory("../packed/dense", &place.path("dense"));
    let config =
        json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"});
    place.edit("dense/config.json", |json| json[key] = config);
    let outcome = place.train("dense", "--plugins lora --out out");
    outcome.refused("dense", 4, "config.json | no tensor is one of `nf4`'s");
}

#[test]
fn a_config_that_contradicts_the_checkpoint_is_refused() {
    let place = Place::new();
    packed(&place, "nf4", "model");
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

#[test]
fn what_cannot_be_packed_leaves_nothing_behind() {
    let place = Place::new();
    copy_directory("../packed/dense", &place.path("dense"));
    packed(&place, "nf4", "packed");
    copy_directory("../packed/dense", &place.path("nan"));
    Weights::edit(&place.path("nan/model.safetensors"), |weights| {
        weights.data(&format!("{UP}.weight"))[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    copy_directory("../packed/dense", &place.path("norm"));
    Weights::edit(&place.path("norm/model.safetensors"), |weights| {
        weights.data("model.norm.weight")[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    });
    copy_directory("../packed/dense", &place.path("short"));
    Weights::edit(&place.path("short/model.safetensors"), |weights| {
        weights.rename(&format!("{UP}.weight"), "stray");
    });
    fs::create_dir(place.path("taken")).expect("a folder");
    let cases = [
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
    let before = place.names(".");
    for (model, more, code, words) in cases {
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

/// A limit on the size of files, which every user may set, is a full disk to the writer.
fn on_a_full_disk(place: &Place, arguments: &str) {
    let script = format!("trap '' XFSZ; ulimit -f 16; exec \"$0\" {arguments}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_host")]);
    let outcome = place.run(&mut shell);
    outcome.refused(arguments, 8, "model.safetensors | make room");
}

#[test]
fn what_cannot_be_merged_leaves_nothing_behind() {
    let place = Place::new();
    let adapter = |name: &str, damage: &dyn Fn(&mut Weights)| {
        copy_directory("../packed/dense-lora", &place.path(name));
        Weights::edit(&place.path(name).join("adapter_model.safetensors"), damage);
    };
    let tensor = format!("base_model.model.{UP}.lora_A.weight");
    copy_directory("../packed/dense", &place.path("dense"));
    packed(&place, "nf4", "packed");
    copy_directory("../packed/dense", &place.path("huge"));
    Weights::edit(&place.path("huge/model.safetensors"), |weights| {
        weights.data(&format!("{UP}.weight"))[..4].copy_from_slice(&1e6f32.to_le_bytes());
    });
    copy_directory("../packed/dense", &place.path("short"));
    Weights::edit(&place.path("short/model.safetensors"), |weights| {
        weights.rename(&format!("{UP}.weight"), "stray");
    });
    adapter("lora", &|_| ());
    adapter("nan", &|weights| {
        weights.data(&tensor)[..4].copy_from_slice(&f32::NAN.to_le_bytes())
    });
    adapter("turned", &|weights| {
        weights.header(|header| header[&tensor]["shape"] = json!([64, 4]))
    });
    adapter("empty", &|_| ());
    fs::remove_file(place.path("empty/adapter_model.safetensors")).expect("removed");
    copy_directory("adapter_init", &place.path("foreign"));
    fs::create_dir(place.path("taken")).expect("a folder");
    let cases = [
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
    let before = place.names(".");
    for (arguments, code, words) in cases {
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
    // What was merged is a model like any other.
    place
        .train("out", "--plugins nf4,lora --out run")
        .succeeded();
}
