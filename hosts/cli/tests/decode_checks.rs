//! Weights that decode to other values -> one warning, and its number in the record. Correct
//! weights -> no warning.
#![cfg(feature = "embedded")]

mod place;
use espalier_torture::training;

use std::fs;
use std::process::{Command, Output};

use place::{Weights, copy_directory};
use serde_json::Value as Json;
use training::Training;

/// Warnings of a successful run, and the decode checks in its record.
fn trained(training: &Training, out: &str, more: &str) -> (Vec<String>, Vec<Json>) {
    let output = training.run(out, more);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{more}: {}",
        printed_lines(&output)
    );
    let warnings = printed_lines(&output)
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .map(str::to_owned)
        .collect();
    let record = fs::read_to_string(training.path(out).join("run.json")).expect("a record");
    let record: Json = serde_json::from_str(&record).expect("JSON");
    (
        warnings,
        record["decode_checks"].as_array().expect("checks").clone(),
    )
}

fn printed_lines(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A run with the sample plugin `planted` in its plugin folder.
fn planted() -> Training {
    let training = Training::new("--plugin-dir plugins");
    fs::create_dir(training.path("plugins")).expect("a folder");
    let library = espalier_samples::library("planted");
    let name = library.file_name().expect("a library is a file");
    fs::copy(&library, training.path("plugins").join(name)).expect("a copy");
    training
}

#[test]
fn a_misplaced_nibble_is_reported_once_and_recorded() {
    let training = planted();
    for bug in ["shifted-nibbles", "swapped-nibbles"] {
        for ranks in ["", ",ddp --ranks 2"] {
            let out = format!("{bug}{}", ranks.len());
            let (warnings, checks) =
                trained(&training, &out, &format!("--plugins {bug},lora{ranks}"));
            assert_eq!(warnings.len(), 1, "{bug} {ranks}: {warnings:?}");
            let words = [
                bug,
                "model.layers.",
                "decodes with a relative error",
                "host plugins check",
            ];
            assert!(
                words.iter().all(|word| warnings[0].contains(word)),
                "{}",
                warnings[0]
            );
            assert_eq!(checks.len(), 1, "{checks:?}");
            let error = checks[0]["error"].as_f64().expect("a figure");
            assert!((1.0..2.0).contains(&error), "{bug}: {error}");
            let report =
                fs::read_to_string(training.path(&out).join("report.html")).expect("a report");
            assert!(
                report.contains("decodes with a relative error"),
                "{bug}: not in the report"
            );
        }
    }
}

#[test]
fn a_description_that_contradicts_its_decode_is_reported() {
    let (warnings, checks) = trained(&planted(), "out", "--plugins other-table,lora");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("has a format description that disagrees with `decode`"),
        "{}",
        warnings[0]
    );
    let difference = checks[0]["difference"].as_f64().expect("a figure");
    assert!((0.001..0.1).contains(&difference), "{difference}");
}

#[test]
fn quantizers_that_decode_what_they_encode_are_recorded_without_a_warning() {
    let training = planted();
    let cases = [
        ("nf4", "", 0.05..0.15),
        ("fp4", "", 0.05..0.2),
        ("int8", "", 0.001..0.03),
        ("sound", "", 0.05..0.2),
        ("hqq", "--set quantizer.hqq.bits=2", 0.2..0.8),
        ("hqq", "--set quantizer.hqq.bits=1", 0.4..1.4),
    ];
    for (index, (name, more, expected)) in cases.into_iter().enumerate() {
        let (warnings, checks) = trained(
            &training,
            &index.to_string(),
            &format!("--plugins {name},lora {more}"),
        );
        assert!(warnings.is_empty(), "{name} {more}: {warnings:?}");
        assert!(!checks.is_empty(), "{name} {more}: nothing on record");
        for check in checks {
            let error = check["error"].as_f64().expect("a figure");
            assert!(expected.contains(&error), "{name} {more}: {check}");
        }
    }
}

#[test]
fn a_weight_of_zeros_gives_no_warning_and_the_next_weight_is_checked() {
    let projections = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
    ];
    let others = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];
    let names = |all: &[&str]| -> Vec<String> {
        let in_layer = |layer| {
            all.iter()
                .map(move |name| format!("model.layers.{layer}.{name}.weight"))
        };
        (0..2).flat_map(in_layer).collect()
    };
    for (zeroed, reported) in [
        (names(&projections), true),
        (names(&[&projections[..], &others[..]].concat()), false),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let model = folder.path().join("model");
        copy_directory("tiny-trained", &model);
        Weights::edit(&model.join("model.safetensors"), |weights| {
            zeroed.iter().for_each(|name| weights.data(name).fill(0));
        });
        let training = Training::on(&model, "--plugins nf4,lora");
        let (warnings, checks) = trained(&training, "out", "");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(checks.len(), 1, "{checks:?}");
        assert_eq!(checks[0]["error"].is_number(), reported, "{checks:?}");
        assert_eq!(
            checks[0]["not_checkable"].is_string(),
            !reported,
            "{checks:?}"
        );
    }
}

#[test]
fn prepacked_weights_are_recorded_as_not_checkable() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, packed) = (folder.path().join("model"), folder.path().join("packed"));
    copy_directory("tiny-trained", &model);
    let mut quantize = Command::new(env!("CARGO_BIN_EXE_host"));
    quantize.args(["quantize", "--quiet", "--plugins", "nf4", "--model"]);
    let output = quantize.arg(&model).arg("--out").arg(&packed).output();
    let output = output.expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", printed_lines(&output));
    let training = Training::on(&packed, "--plugins nf4,lora");
    let (warnings, checks) = trained(&training, "out", "");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(checks.len(), 1, "{checks:?}");
    assert_eq!(checks[0]["not_checkable"], "the files hold it packed");
    assert!(checks[0]["error"].is_null(), "{checks:?}");
}
