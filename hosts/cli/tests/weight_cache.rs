//! Two runs of one base -> the second takes the packed weights of the first, and gives its bits.

mod place;

use std::fs;

use place::{Outcome, RunFolder, Weights};
use serde_json::{Value as Json, json};

/// Caches the weights of every quantizer, however fast it packs.
const ALL: &str = "--set run.weight_cache_gb=1";
/// Packed weights of the golden model: seven in each of two layers.
const PACKED: u64 = 14;

struct Place(RunFolder);

impl Place {
    fn new() -> Self {
        let place = RunFolder::new();
        place.model("m");
        Place(place)
    }

    fn host(&self, words: &[String]) -> (Outcome, String) {
        let mut command = self.0.command();
        command
            .args(words)
            .env("HOST_CACHE_DIR", self.0.path("cache"));
        command.env("XDG_DATA_HOME", self.0.path("data"));
        let output = command.output().expect("the program starts");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        (Outcome::new(&output), out)
    }

    /// Trains to `out`; returns how many weights were encoded and how many were cached.
    fn train(&self, out: &str, more: &str) -> [u64; 2] {
        let more = format!("--plugins nf4,lora --out {out} {more}");
        let (outcome, _) = self.host(&RunFolder::words("m", &more));
        outcome.succeeded();
        assert!(outcome.told(&format!("{PACKED} packed weights are 0.")));
        self.counts(out)
    }

    fn counts(&self, out: &str) -> [u64; 2] {
        let run: Json =
            serde_json::from_str(&self.0.read(&format!("{out}/run.json"))).expect("JSON");
        ["encoded", "cached"].map(|key| run["packed_weights"][key].as_u64().expect("a count"))
    }

    /// All that a run's bits show in.
    fn result(&self, out: &str) -> (Vec<u8>, Vec<Json>) {
        let adapter = format!("{out}/adapter/adapter_model.safetensors");
        let metrics = self.0.read(&format!("{out}/metrics.jsonl"));
        let steps = metrics.lines().map(|line| {
            let step: Json = serde_json::from_str(line).expect("JSON");
            json!([step["loss"], step["grad_norm"]])
        });
        (
            fs::read(self.0.path(&adapter)).expect("an adapter"),
            steps.collect(),
        )
    }

    fn cached_bytes(&self) -> Json {
        let (outcome, listed) = self.host(&words("cache --json"));
        outcome.succeeded();
        serde_json::from_str(&listed).expect("JSON")
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_second_run_encodes_nothing_and_gives_the_same_bits() {
    let place = Place::new();
    assert_eq!(
        place.train("off", "--set run.weight_cache_gb=0"),
        [PACKED, 0]
    );
    assert!(!place.0.path("cache").exists(), "0 keeps nothing");
    assert_eq!(place.train("first", ALL), [PACKED, 0]);
    assert_eq!(place.train("second", ALL), [0, PACKED]);
    assert_eq!(place.result("first"), place.result("off"));
    assert_eq!(place.result("second"), place.result("off"));
    let run = |out: &str| -> Json {
        let text = place.0.read(&format!("{out}/run.json"));
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(run("second")["decode_checks"], run("off")["decode_checks"]);
    // Ranks that load together share it, and so do other commands.
    assert_eq!(
        place.train("ranks", &format!("{ALL} --ranks 2 --plugins ddp")),
        [0, PACKED]
    );
    let eval = format!("eval --plugins nf4 --model m --data rows.jsonl {ALL}");
    let (outcome, _) = place.host(&words(&eval));
    outcome.succeeded();
    let expected = format!("took {PACKED} of {PACKED} packed weights");
    assert!(outcome.told(&expected), "no {expected:?}");
    // Errors are those of the run that packed.
    let errors = |out: &str| run(out)["packed_weights"]["errors"].clone();
    assert_eq!(errors("second"), errors("off"));
    let errors = errors("off");
    let errors = errors.as_array().expect("errors");
    assert_eq!(errors.len() as u64, PACKED);
    let known = errors
        .iter()
        .map(|one| one["error"].as_f64().expect("a number"));
    assert!(known.into_iter().all(|error| (0.05..0.12).contains(&error)));
}

#[test]
fn what_differs_is_packed_again() {
    let place = Place::new();
    place.train("first", ALL);
    let other = format!("{ALL} --set quantizer.nf4.block_size=128");
    assert_eq!(place.train("options", &other), [PACKED, 0]);
    Weights::edit(&place.0.path("m/model.safetensors"), |weights| {
        weights.data("model.layers.1.mlp.up_proj.weight")[0] ^= 1;
    });
    assert_eq!(place.train("weight", ALL), [1, PACKED - 1]);
    let reference = place.train("off", "--set run.weight_cache_gb=0");
    assert_eq!(reference, [PACKED, 0]);
    assert_eq!(place.result("weight"), place.result("off"));
}

#[test]
fn a_damaged_entry_is_told_of_and_packed_again() {
    let place = Place::new();
    place.train("first", ALL);
    let folder = fs::read_dir(place.0.path("cache/weights")).expect("entries");
    let mut entries: Vec<_> = folder.map(|entry| entry.expect("one").path()).collect();
    entries.sort();
    let entry = &entries[3];
    let mut bytes = fs::read(entry).expect("an entry");
    *bytes.last_mut().expect("bytes") ^= 0x10;
    fs::write(entry, bytes).expect("damaged");
    let more = format!("--plugins nf4,lora --out second {ALL}");
    let (outcome, _) = place.host(&RunFolder::words("m", &more));
    outcome.succeeded();
    assert!(outcome.told("a cached weight is damaged and is packed again"));
    assert_eq!(place.counts("second"), [1, PACKED - 1]);
    assert_eq!(place.result("second"), place.result("first"));
    assert_eq!(place.train("third", ALL), [0, PACKED]);
}

#[test]
fn the_cache_is_listed_and_cleared() {
    let place = Place::new();
    let (outcome, listed) = place.host(&words("cache"));
    outcome.succeeded();
    assert!(listed.starts_with("0 packed weights"), "{listed}");
    place.train("first", ALL);
    let found = place.cached_bytes();
    let base = &found["bases"][0];
    assert_eq!(
        (&base["quantizer"], &base["weights"]),
        (&json!("nf4"), &json!(PACKED))
    );
    assert_eq!(base["bytes"], found["bytes"]);
    let (_, told) = place.host(&words("cache clear --older-than 1"));
    assert!(told.starts_with("removed 0 "), "{told}");
    let (_, told) = place.host(&words("cache clear --quantizer hqq"));
    assert!(told.starts_with("removed 0 "), "{told}");
    let (_, told) = place.host(&words("cache clear"));
    assert!(
        told.starts_with(&format!("removed {PACKED} packed weights")),
        "{told}"
    );
    assert_eq!(place.cached_bytes()["bytes"], 0);
    assert_eq!(place.train("again", ALL), [PACKED, 0]);
}

#[test]
fn decoded_weights_are_written_under_the_names_of_the_dense_model() {
    assert_decoded("nf4");
}

#[test]
fn decoded_weights_are_calibrated_on_the_rows_of_the_command() {
    assert_decoded("gptq --set quantizer.gptq.group_size=16 --data rows.jsonl");
}

fn assert_decoded(quantizer: &str) {
    let place = Place::new();
    let quantize = |more: &str| {
        let line = format!("quantize --model m --plugins {quantizer} {more}");
        let (outcome, told) = place.host(&words(&line));
        outcome.succeeded();
        told
    };
    let told = quantize("--decoded --out decoded");
    assert!(
        told.starts_with(&format!("{PACKED} weights decoded")),
        "{told}"
    );
    // The packed model, unpacked in the same dtype, has the same weights.
    quantize("--out packed");
    let line = "merge --model packed --dtype f32 --out unpacked";
    let (outcome, _) = place.host(&words(line));
    outcome.succeeded();
    let weights = |folder: &str| {
        let path = place.0.path(&format!("{folder}/model.safetensors"));
        let mut weights = Weights(fs::read(path).expect("weights"));
        let mut names = Vec::new();
        weights.header(|header| {
            let tensors = header.as_object().expect("a header").keys();
            names.extend(tensors.filter(|name| *name != "__metadata__").cloned());
        });
        let tensors = names
            .into_iter()
            .map(|name| (weights.data(&name).to_vec(), name));
        let mut tensors: Vec<_> = tensors.collect();
        tensors.sort();
        tensors
    };
    let (decoded, unpacked) = (weights("decoded"), weights("unpacked"));
    assert_eq!(decoded.len(), 21);
    assert!(decoded == unpacked);
    let config: Json = serde_json::from_str(&place.0.read("decoded/config.json")).expect("JSON");
    assert_eq!(config["quantization_config"], Json::Null);
    let (outcome, _) = place.host(&words("quantize --model m --decoded --out none"));
    outcome.refused("no quantizer", 2, "no quantizer was named");
}
