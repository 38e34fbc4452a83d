//! Two runs of one base that a quantizer packs with statistics of rows -> the second calibrates
//! nothing, and gives the bits of the first.

mod place;

use std::fs;
use std::path::PathBuf;

use place::{Outcome, RunFolder, Weights};
use serde_json::{Value as Json, json};

/// Packed weights of the golden model: seven in each of two layers.
const PACKED: u64 = 14;

/// What a run tells of rows that run through the base.
const CALIBRATING: &str = "note: calibrating `";

struct Place(RunFolder);

impl Place {
    fn new() -> Self {
        let place = RunFolder::new();
        place.model("m");
        Place(place)
    }

    fn host(&self, line: &str) -> Outcome {
        let mut command = self.0.command();
        command.args(line.split_whitespace());
        command.env("HOST_CACHE_DIR", self.0.path("cache"));
        let outcome = self.0.run(&mut command);
        outcome.succeeded();
        outcome
    }

    /// Trains to `out`; returns how many weights were encoded and how many were cached, and what
    /// was told.
    fn train(&self, quantizer: &str, out: &str, more: &str) -> ([u64; 2], Outcome) {
        let more = format!(
            "--plugins {quantizer},lora --out {out} --set quantizer.{quantizer}.group_size=16 {more}"
        );
        let outcome = self.host(&RunFolder::words("m", &more).join(" "));
        let run: Json =
            serde_json::from_str(&self.0.read(&format!("{out}/run.json"))).expect("JSON");
        let count = |key: &str| run["packed_weights"][key].as_u64().expect("a count");
        let counts = ["encoded", "cached"].map(count);
        assert_eq!(outcome.told(CALIBRATING), counts[0] > 0, "{out}");
        (counts, outcome)
    }

    /// A run like `out`, of which nothing is cached, has its bits.
    fn assert_bits(&self, quantizer: &str, out: &str, more: &str) {
        let alone = format!("{out}-alone");
        let more = format!("{more} --set run.weight_cache_gb=0");
        let (counts, _) = self.train(quantizer, &alone, &more);
        assert_eq!(counts[1], 0);
        assert_eq!(self.result(out), self.result(&alone), "{out}");
    }

    /// All that a run's bits show in.
    fn result(&self, out: &str) -> (Vec<u8>, Vec<Json>, Json) {
        let adapter = format!("{out}/adapter/adapter_model.safetensors");
        let metrics = self.0.read(&format!("{out}/metrics.jsonl"));
        let steps = metrics.lines().map(|line| {
            let step: Json = serde_json::from_str(line).expect("JSON");
            json!([step["loss"], step["grad_norm"]])
        });
        let run: Json =
            serde_json::from_str(&self.0.read(&format!("{out}/run.json"))).expect("JSON");
        let adapter = fs::read(self.0.path(&adapter)).expect("an adapter");
        let errors = json!([run["packed_weights"]["errors"], run["decode_checks"]]);
        (adapter, steps.collect(), errors)
    }

    /// The cache's entry of a weight.
    fn entry(&self, weight: &str) -> PathBuf {
        let folder = fs::read_dir(self.0.path("cache/weights")).expect("entries");
        let mut paths = folder.map(|entry| entry.expect("one").path());
        let is_of = |path: &PathBuf| {
            let bytes = fs::read(path).expect("an entry");
            String::from_utf8_lossy(&bytes).contains(&format!("\"{weight}\""))
        };
        paths.find(is_of).expect("an entry of the weight")
    }

    fn flip(&self, weight: &str) {
        Weights::edit(&self.0.path("m/model.safetensors"), |weights| {
            weights.data(weight)[1] ^= 1;
        });
    }
}

#[test]
fn a_second_run_calibrates_nothing_and_gives_the_same_bits() {
    let place = Place::new();
    for quantizer in ["awq", "gptq"] {
        let out = |name: &str| format!("{quantizer}-{name}");
        let train = |name: &str, more: &str| place.train(quantizer, &out(name), more).0;
        assert_eq!(train("first", ""), [PACKED, 0]);
        place.assert_bits(quantizer, &out("first"), "");
        assert_eq!(train("second", ""), [0, PACKED]);
        assert_eq!(place.result(&out("second")), place.result(&out("first")));
        let eval = format!("eval --run {} --data rows.jsonl", out("second"));
        let outcome = place.host(&eval);
        assert!(outcome.told(&format!("took {PACKED} of {PACKED} packed weights")));
        assert!(!outcome.told(CALIBRATING));
    }
    let ranks = "--ranks 2 --plugins ddp";
    assert_eq!(place.train("gptq", "ranks", ranks).0, [0, PACKED]);
}

#[test]
fn what_the_statistics_follow_from_is_calibrated_again() {
    let place = Place::new();
    let train = |out: &str, more: &str| place.train("gptq", out, more);
    assert_eq!(train("first", "").0, [PACKED, 0]);
    assert_eq!(
        train("options", "--set quantizer.gptq.damping=0.02").0,
        [PACKED, 0]
    );
    assert_eq!(
        train("fewer", "--set data.calibration_rows=1").0,
        [PACKED, 0]
    );
    assert_eq!(
        train(
            "shorter",
            "--set data.max_seq_len=8 --set data.too_long=truncate"
        )
        .0,
        [PACKED, 0]
    );
    // Its inputs are those of the other sites of its layer, and a layer later.
    let site = r#"--set sites=[{match="model.layers.1.mlp.down_proj",quantizer="none"}]"#;
    assert_eq!(train("sites", site).0, [PACKED / 2 - 1, PACKED / 2]);
    // No statistic follows from the head.
    place.flip("lm_head.weight");
    assert_eq!(train("head", "").0, [0, PACKED]);
    place.assert_bits("gptq", "head", "");
    place.flip("model.layers.1.input_layernorm.weight");
    let (counts, outcome) = train("norm", "");
    assert_eq!(counts, [PACKED / 2, PACKED / 2]);
    assert!(outcome.told("on: the cache has the 7 weights before it"));
    place.assert_bits("gptq", "norm", "");
    place.flip("model.embed_tokens.weight");
    assert_eq!(train("table", "").0, [PACKED, 0]);
}

#[test]
fn a_missing_weight_alone_is_encoded_again() {
    let place = Place::new();
    let train = |out: &str| place.train("gptq", out, "");
    assert_eq!(train("first").0, [PACKED, 0]);
    fs::remove_file(place.entry("model.layers.0.mlp.up_proj.weight")).expect("removed");
    assert_eq!(train("evicted").0, [1, PACKED - 1]);
    assert_eq!(place.result("evicted"), place.result("first"));
    let damaged = place.entry("model.layers.1.mlp.down_proj.weight");
    let mut bytes = fs::read(&damaged).expect("an entry");
    *bytes.last_mut().expect("bytes") ^= 0x10;
    fs::write(&damaged, bytes).expect("damaged");
    let (counts, outcome) = train("damaged");
    assert!(outcome.told("a cached weight is damaged and is packed again"));
    assert_eq!(counts, [1, PACKED - 1]);
    assert_eq!(place.result("damaged"), place.result("first"));
    assert_eq!(train("third").0, [0, PACKED]);
}

#[test]
fn a_written_model_and_a_comparison_share_the_weights() {
    let place = Place::new();
    let quantize = |out: &str| {
        place.host(&format!(
            "quantize --model m --plugins gptq --set quantizer.gptq.group_size=16 \
             --data rows.jsonl --out {out}"
        ))
    };
    assert!(quantize("q1").told(&format!("packed weights kept: {PACKED}")));
    let second = quantize("q2");
    assert!(second.told(&format!("took {PACKED} of {PACKED} packed weights")));
    assert!(!second.told(CALIBRATING));
    let weights = ["q1", "q2"].map(|folder| place.0.path(&format!("{folder}/model.safetensors")));
    let [first, second] = weights.map(|path| fs::read(path).expect("weights"));
    assert!(first == second);
    assert_eq!(place.train("gptq", "trained", "").0, [0, PACKED]);
    let outcome = place.host(
        "compare --eval-only --model m --data rows.jsonl --set model.compute=f32 \
         --set data.eval_files=[\"rows.jsonl\"] --arms gptq:group_size=16 --out compared",
    );
    assert!(!outcome.told(CALIBRATING));
    let base: Json =
        serde_json::from_str(&place.0.read("compared/arms/gptq-group_size=16/base.json"))
            .expect("JSON");
    assert_eq!(base["encoded"], PACKED);
    assert!(base["encode_secs"].as_f64() > Some(0.0), "{base}");
    assert_eq!(
        base["weights"].as_array().map(Vec::len),
        Some(PACKED as usize)
    );
}
