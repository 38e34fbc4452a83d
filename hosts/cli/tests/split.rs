//! `host split`, and runs on the base and the adapter that it writes.

mod place;

use espalier_torture::training;

use std::fs;

use place::{RunFolder, contents, copy_directory};
use serde_json::Value as Json;
use training::Training;

/// A model that is split into `out`, in a folder.
fn parted(arguments: &str) -> RunFolder {
    let place = RunFolder::new();
    copy_directory("tiny", &place.path("model"));
    let fixed = "split --model model --out out --set adapter.lora.rank=4";
    place.host(&format!("{fixed} {arguments}")).succeeded();
    place
}

/// A run on what was split.
fn training(place: &RunFolder, more: &str) -> Training {
    let adapter = place.path("out/adapter").display().to_string();
    let more = format!("--adapter {adapter} --set run.keep_last=3 {more}");
    Training::on(&place.path("out/base"), &more)
}

const STARTS: [(&str, &str); 4] = [
    ("--plugins lora --set adapter.lora.init=pissa", ""),
    (
        "--plugins lora --set adapter.lora.init=pissa",
        "--plugins nf4",
    ),
    ("--plugins nf4,lora --set adapter.lora.init=pissa", ""),
    (
        "--plugins hqq,lora --set quantizer.hqq.bits=2 --set adapter.lora.init=loftq",
        "",
    ),
];

#[test]
fn a_resumed_run_has_the_same_bits_and_its_model_is_evaluated_and_merged() {
    for (start, more) in STARTS {
        let case = format!("{start} {more}");
        let place = parted(start);
        let before = contents(&place.path("out"));
        let training = training(&place, more);
        let whole = training.succeed("whole", "");
        training.unfinished("whole", "again");
        let again = training.succeed("again", "--resume=step-4 --threads 2");
        assert_eq!(again.metrics, whole.metrics, "{case}");
        assert!(again.files == whole.files, "{case}");
        assert!(
            contents(&place.path("out")) == before,
            "{case}: the base is only read"
        );
        let run = training.path("whole");
        let record = fs::read_to_string(run.join("run.json")).expect("a record");
        let record: Json = serde_json::from_str(&record).expect("JSON");
        let hashed = |key: &str, name: &str| {
            let files = record["model"][key].as_array().expect("a list");
            files
                .iter()
                .any(|file| file["file"] == name && file["sha256"].is_string())
        };
        assert!(hashed("files", "model.safetensors"), "{case}");
        assert!(
            hashed("adapter_files", "adapter_model.safetensors"),
            "{case}"
        );
        let used = format!("--model out/base --adapter {}/adapter", run.display());
        place
            .host(&format!("eval --data rows.jsonl {used} {more}"))
            .succeeded();
        let base = if more.is_empty() {
            ""
        } else {
            "--base decoded"
        };
        place
            .host(&format!("merge {used} {more} {base} --out merged --check"))
            .succeeded();
        let words = format!(
            "generate --run {} --prompt begin --max-tokens 2",
            run.display()
        );
        place.host(&words).succeeded();
        // The base of the run is the one that was split off.
        place
            .host(&format!("eval --data rows.jsonl --run {}", run.display()))
            .succeeded();
    }
}

#[test]
fn two_ranks_train_what_one_trains() {
    for start in [STARTS[0].0, STARTS[3].0] {
        let place = parted(start);
        let training = training(&place, "--set model.compute=f64");
        let one = training.succeed("one", "");
        for (out, more) in [
            ("fsdp", "--plugins fsdp --ranks 2"),
            ("ddp", "--plugins ddp --ranks 2"),
        ] {
            let two = training.succeed(out, more);
            two.assert_close(&one, out);
            training.unfinished(out, "again");
            let again = training.succeed("again", &format!("{more} --resume=step-4"));
            assert!(again == two, "{start} {out}");
            fs::remove_dir_all(training.path("again")).expect("removed");
        }
    }
}

#[test]
fn a_refused_split_leaves_no_files() {
    let place = RunFolder::new();
    place.model("dense");
    place.packed("nf4", "packed");
    place.packed("dense-lora", "lora");
    fs::create_dir(place.path("taken")).expect("a folder");
    let before = place.names(".");
    let pissa = "--plugins lora --set adapter.lora.init=pissa";
    for (arguments, words) in [
        (
            format!("--model dense {pissa} --out taken"),
            "taken exists already",
        ),
        (format!("--model dense {pissa}"), "--out"),
        (
            "--model dense --plugins lora --out out".to_owned(),
            "nothing to split | host plugins inspect lora",
        ),
        (
            "--model dense --plugins nf4 --out out".to_owned(),
            "no adapter was named",
        ),
        (
            format!("--model dense {pissa} --set model.adapter=\"lora\" --out out"),
            "model.adapter is a saved adapter | leave model.adapter out",
        ),
        (
            format!("--model packed {pissa} --out out"),
            "the model is packed already, by `nf4` | original weights",
        ),
        (
            "--model dense --plugins lora --set adapter.lora.init=loftq --out out".to_owned(),
            "adapter.lora.init | no quantizer packs | --plugins nf4,lora",
        ),
        (
            "--model dense --plugins dora --set adapter.dora.init=pissa --out out".to_owned(),
            "adapter.dora.init",
        ),
        (
            format!("--model dense {pissa} --set adapter.lora.rank=65 --out out"),
            "init = pissa and rank = 65 | to 64 at most",
        ),
        (
            format!("--model dense {pissa} --set optim.learning_rate=1 --out out"),
            "`optim.learning_rate` (--set) changes nothing of `host split`",
        ),
    ] {
        let outcome = place.host(&format!("split {arguments}"));
        outcome.refused(&arguments, 2, words);
        assert_eq!(place.names("."), before, "{arguments}");
    }
}
