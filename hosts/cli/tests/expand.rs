//! `host expand`, and runs that train only the added layers.

mod place;

use espalier_system::files::{TensorEntry, TensorStore};
use espalier_torture::training;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use place::{RunFolder, copy_directory};
use serde_json::json;
use training::Training;

const ONLY: &str = "--set model.train_only=expanded --set run.keep_last=3";

/// The golden model `name` with an added layer, or more, in a folder.
fn expanded(name: &str, rate: &str) -> RunFolder {
    let place = RunFolder::new();
    copy_directory(&format!("../{name}"), &place.path("model"));
    place
        .host(&format!("expand --model model --rate {rate} --out more"))
        .succeeded();
    place
}

/// The bytes of every tensor of a model.
fn tensors(model: &Path) -> BTreeMap<String, Vec<u8>> {
    let store = TensorStore::open(&model.join("model.safetensors")).expect("weights");
    let pair = |entry: &TensorEntry| {
        let mut bytes = vec![0; (entry.bytes.end - entry.bytes.start) as usize];
        let read = store.read_tensor_bytes(&entry.name, &mut bytes);
        read.expect("a tensor");
        (entry.name.clone(), bytes)
    };
    store.entries().iter().map(pair).collect()
}

#[test]
fn only_the_added_layers_change_and_a_resumed_run_has_the_same_bits() {
    for (model, rate, quantizer, added) in [
        ("llama/tiny", "0.5", "", "model.layers.2."),
        ("llama/tiny", "0.5", "--plugins nf4", "model.layers.2."),
        ("llama/tiny", "0.5", "--plugins hqq", "model.layers.2."),
        ("packed/nf4", "1", "", "model.layers.1."),
        ("packed/hqq", "1", "", "model.layers.1."),
    ] {
        let case = format!("{model} {quantizer}");
        let place = expanded(model, rate);
        let (before, more) = (tensors(&place.path("more")), place.path("more"));
        let training = Training::on(&more, &format!("{ONLY} {quantizer}"));
        let whole = training.succeed("whole", "");
        let after = tensors(&training.path("whole/model"));
        assert!(before.keys().eq(after.keys()), "{case}");
        for (name, bytes) in &after {
            let changed = *bytes != before[name];
            assert_eq!(changed, name.starts_with(added), "{case}: {name}");
        }
        training.unfinished("whole", "again");
        let again = training.succeed("again", "--resume=step-4 --threads 2");
        assert_eq!(again.metrics, whole.metrics, "{case}");
        assert!(again.files == whole.files, "{case}");
        // The result is a model like any other; a packed one can be made dense.
        let run = training.path("whole").display().to_string();
        place
            .host(&format!("eval --data rows.jsonl --model {run}/model"))
            .succeeded();
        if model.starts_with("packed") {
            let [plain, check] = [format!("{run}-plain"), format!("{run}/model")];
            let merge = format!("merge --model {check} --out {plain} --check");
            place.host(&merge).succeeded();
            let dense = tensors(Path::new(&plain));
            assert!(
                dense
                    .keys()
                    .all(|name| !name.contains("absmax") && !name.contains("W_q"))
            );
            let same = |(name, bytes): (&String, &Vec<u8>)| {
                !name.starts_with(added) || dense[name] == *bytes
            };
            assert!(after.iter().all(same), "{case}: trained weights stay");
        }
    }
}

#[test]
fn two_ranks_train_what_one_trains() {
    let place = expanded("llama/tiny", "0.5");
    let numbers = "--set model.compute=f64";
    let training = Training::on(&place.path("more"), &format!("{ONLY} {numbers}"));
    let one = training.succeed("one", "--plugins nf4");
    for (out, more) in [
        ("fsdp", "--plugins nf4,fsdp --ranks 2"),
        ("ddp", "--plugins nf4,ddp --ranks 2"),
        (
            "offload",
            "--plugins nf4,fsdp --ranks 2 --set sharding.fsdp.offload=params+optimizer",
        ),
    ] {
        let two = training.succeed(out, more);
        two.assert_close(&one, out);
        training.unfinished(out, "again");
        let again = training.succeed("again", &format!("{more} --resume=step-4"));
        assert!(again == two, "{out}");
        fs::remove_dir_all(training.path("again")).expect("removed");
    }
}

#[test]
fn what_cannot_be_trained_in_part_is_refused_before_the_run() {
    let place = expanded("llama/tiny", "0.5");
    let training = Training::on(&place.path("more"), "");
    for (more, code, words) in [
        (
            "--set model.train_only=expanded --plugins lora",
            2,
            "`model.train_only` names weights | leave one of them out",
        ),
        (
            "--set model.train_only=*.down_porj.weight",
            2,
            "matches no parameter | nearest is \"*down_proj.weight\"",
        ),
        (
            "--set model.train_only=expanded --set model.init=random",
            2,
            "trains a part of a checkpoint",
        ),
        (
            "--model model --set model.train_only=expanded",
            2,
            "`expanded_layers` of config.json lists, found no such key | host expand",
        ),
    ] {
        let plain = place.path("model").display().to_string();
        let more = more.replace("--model model", &format!("--model {plain}"));
        training.refuse("out", &more, code, words);
        assert!(!training.path("out").exists(), "{more}");
    }
    let packed = expanded("packed/nf4", "1");
    let training = Training::on(
        &packed.path("more"),
        "--set model.train_only=model.layers.0.*",
    );
    training.refuse(
        "out",
        "",
        2,
        "packed by `nf4` | cannot be trained themselves",
    );
}

#[test]
fn a_refused_expansion_leaves_no_files() {
    let place = RunFolder::new();
    place.model("dense");
    place.packed("dense-lora", "lora");
    fs::create_dir(place.path("taken")).expect("a folder");
    place.model("odd");
    place.edit("odd/config.json", |config| {
        config["num_hidden_layers"] = json!(3);
    });
    let before = place.names(".");
    for (arguments, code, words) in [
        (
            "--model dense --rate 0.5 --out taken",
            2,
            "taken exists already",
        ),
        ("--model dense --rate 0.5", 2, "--out"),
        (
            "--model dense --out out",
            2,
            "adds no layer to 2 | 0.5 (1 more)",
        ),
        ("--model dense --rate -1 --out out", 2, "adds no layer"),
        (
            "--model dense --rate 0.5 --plugins nf4 --out out",
            2,
            "a quantizer was named",
        ),
        (
            "--model dense --rate 0.5 --set model.adapter=\"lora\" --out out",
            2,
            "`model.adapter` (--set) changes nothing of `host expand`",
        ),
        (
            "--model odd --rate 1 --out out",
            4,
            "no tensor `model.layers.2.",
        ),
    ] {
        let outcome = place.host(&format!("expand {arguments}"));
        outcome.refused(arguments, code, words);
        assert_eq!(place.names("."), before, "{arguments}");
    }
    place
        .host("expand --model dense --rate 0.5 --out out")
        .succeeded();
    assert_eq!(place.names("out"), place.names("dense"));
}
