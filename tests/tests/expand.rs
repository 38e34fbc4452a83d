//! `host expand` against the original rule, and training of the added layers alone against torch.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_interface::WeightLayout;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, golden_path, largest_difference, micro_batch, step_of};
use espalier_trainer::Error;
use espalier_trainer::convert::expand;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

const EXPANDED: (&str, &str) = ("model.train_only", "[\"expanded\"]");
/// Dense models of every family, and rates that work.
const DENSE: [(&str, f64); 6] = [
    ("llama/tiny-trained", 0.5),
    ("families/mistral", 1.0),
    ("families/qwen2", 0.5),
    ("families/qwen2", 1.0),
    ("families/qwen3", 0.5),
    ("packed/tied", 1.0),
];
/// Packed models of one layer.
const PACKED: [&str; 4] = [
    "packed/nf4",
    "packed/nf4-bf16",
    "packed/hqq",
    "packed/hqq-mixed",
];

/// An expanded model in a folder of its own.
struct Expanded(TempDir);

impl Expanded {
    fn path(&self) -> PathBuf {
        self.0.path().join("out")
    }
}

fn expand(model: &Path, rate: f64, values: &[&str]) -> Result<Expanded, Error> {
    let place = tempfile::tempdir().expect("a folder");
    let mut sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("run.out={:?}", place.path().join("out")));
    for value in values {
        sources = sources.set(*value);
    }
    let resolved = resolve(&sources).expect("a config");
    expand::expand(&resolved, rate, &Unobserved, &StopFlag::new()).map(|_| Expanded(place))
}

/// The logits of `rows` in f32.
fn logits(model: &Path, rows: &[Vec<i32>], more: &[(&str, &str)]) -> Vec<f64> {
    let mut keys = vec![
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "64"),
        ("data.micro_batch", "2"),
    ];
    keys.extend(more);
    Rig::new(model, &keys).logits(&micro_batch(rows, rows))
}

fn golden() -> Golden {
    Golden::open("expand/expected.safetensors")
}

fn config(model: &Path) -> Json {
    let text = fs::read_to_string(model.join("config.json")).expect("a config");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_weights_are_those_of_the_original_script() {
    let model = golden_path("expand/model");
    let place = expand(&model, 0.5, &[]).expect("expanded");
    let found = Golden::read(&place.path().join("model.safetensors"));
    let expected = Golden::open("expand/expanded.safetensors");
    assert_eq!(
        found.names().collect::<Vec<_>>(),
        expected.names().collect::<Vec<_>>()
    );
    for name in expected.names() {
        assert_eq!(found.numbers(name), expected.numbers(name), "{name}");
    }
    let written = config(&place.path());
    assert_eq!(golden().numbers("added"), [2.0, 5.0]);
    let mut before = config(&model);
    before["num_hidden_layers"] = json!(6);
    before["expanded_layers"] = json!([2, 5]);
    assert_eq!(written, before);
}

#[test]
fn logits_are_those_of_the_original_model() {
    let golden = golden();
    let rows = golden.rows("tokens");
    let model = golden_path("expand/model");
    for rate in [0.25, 0.5, 1.0] {
        let place = expand(&model, rate, &[]).expect("expanded");
        let found = logits(&place.path(), &rows, &[]);
        assert_eq!(found, logits(&model, &rows, &[]), "rate {rate}");
        let difference = largest_difference(&found, golden.numbers("logits"));
        assert!(difference <= 2e-5, "{rate}: off by {difference}");
    }
    for (model, rate) in DENSE {
        let model = golden_path(model);
        let rows = Golden::open("expand/expected.safetensors").rows("tokens");
        let place = expand(&model, rate, &[]).expect("expanded");
        let found = logits(&place.path(), &rows, &[]);
        assert_eq!(found, logits(&model, &rows, &[]), "{}", model.display());
    }
}

#[test]
fn packed_models_get_dense_layers() {
    let rows = Golden::open("packed/logits.safetensors").rows("tokens");
    for name in PACKED {
        let model = golden_path(name);
        let place = expand(&model, 1.0, &[]).expect("expanded");
        // An adapter that changes nothing: a packed model is loaded as for training.
        let lora = [("plugins", "[\"lora\"]")];
        let found = logits(&place.path(), &rows, &lora);
        assert_eq!(found, logits(&model, &rows, &lora), "{name}");
        let keys = [EXPANDED, ("plugins", "[]")];
        for param in Rig::new(&place.path(), &keys).executor.params() {
            let added = param.name.starts_with("model.layers.1.");
            let packed = matches!(param.layout, WeightLayout::Packed(_));
            let linear = param.name.ends_with("_proj.weight");
            assert_eq!(param.trainable, added, "{name}: {}", param.name);
            assert_eq!(packed, linear && !added, "{name}: {}", param.name);
        }
        let written = config(&place.path())["quantization_config"].clone();
        let mut before = config(&model)["quantization_config"].clone();
        let skipped = ["llm_int8_skip_modules", "skip_modules"];
        let key = skipped.iter().find(|&&key| written.get(key).is_some());
        let key = *key.expect("a list of dense modules");
        let modules = written[key].as_array().expect("a list");
        assert_eq!(modules.len(), 8, "{name}: {modules:?}");
        assert!(modules.contains(&json!("model.layers.1.mlp.down_proj")));
        before[key] = written[key].clone();
        assert_eq!(written, before, "{name}: the other keys stay");
    }
}

#[test]
fn training_the_added_layers_follows_torch() {
    let golden = golden();
    let place = expand(&golden_path("expand/model"), 0.5, &[]).expect("expanded");
    let keys = [
        ("plugins", "[]"),
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "24"),
        ("data.micro_batch", "2"),
        ("optim.learning_rate", "1e-2"),
        ("optim.clip_norm", "0.0"),
        EXPANDED,
    ];
    let rig = Rig::new(&place.path(), &keys);
    let trained = rig.executor.params().iter().filter(|param| param.trainable);
    let trained: Vec<&str> = trained.map(|param| param.name.as_str()).collect();
    assert_eq!(trained.len(), 2 * 16, "{trained:?}");
    let of_added =
        |name: &&str| name.starts_with("model.layers.2.") || name.starts_with("model.layers.5.");
    assert!(trained.iter().all(of_added), "{trained:?}");
    let (losses, norms) = (golden.numbers("losses"), golden.numbers("norms"));
    let rows = golden.rows("train_tokens");
    for (index, rows) in rows.chunks(2).enumerate() {
        let batch = step_of(vec![micro_batch(rows, rows)]);
        let at = [index as u64, losses.len() as u64];
        let found = step::train(&rig.executor, &rig.config.optim, &batch, at, 42).expect("a step");
        let distance = (found.loss - losses[index]).abs();
        assert!(distance <= 1e-5, "step {index}: off by {distance}");
        let distance = (found.grad_norm / norms[index] - 1.0).abs();
        assert!(
            distance <= 1e-4,
            "step {index}: the norm is off by {distance}"
        );
    }
    let rows = golden.rows("tokens");
    let found = rig.logits(&micro_batch(&rows, &rows));
    let difference = largest_difference(&found, golden.numbers("trained_logits"));
    assert!(difference <= 1e-3, "logits off by {difference}");
}

#[test]
fn added_layers_stay_dense_where_the_others_are_packed() {
    let place = expand(&golden_path("llama/tiny-trained"), 0.5, &[]).expect("expanded");
    for quantizer in ["[\"nf4\"]", "[\"hqq\"]"] {
        let keys = [
            ("plugins", quantizer),
            ("model.compute", "\"f32\""),
            EXPANDED,
        ];
        let rig = Rig::new(&place.path(), &keys);
        for param in rig.executor.params() {
            let linear = param.name.ends_with("_proj.weight");
            let added = param.name.starts_with("model.layers.2.");
            assert_eq!(param.trainable, added, "{}", param.name);
            let packed = matches!(param.layout, WeightLayout::Packed(_));
            assert_eq!(packed, linear && !added, "{}", param.name);
        }
    }
}

#[test]
fn what_cannot_be_expanded_is_refused() {
    let words = |model: &str, rate: f64, values: &[&str]| {
        let refused = expand(&golden_path(model), rate, values).map(|_| ());
        let refused = refused.expect_err("refused");
        format!("{refused} | {}", refused.next_step())
    };
    let found = words("llama/tiny-trained", 0.1, &[]);
    assert!(found.contains("adds no layer to 2"), "{found}");
    assert!(found.contains("0.5 (1 more), 1 (2 more)"), "{found}");
    let found = words("expand/model", 0.75, &[]);
    assert!(found.contains("add 3 layers to 4"), "{found}");
    let found = words("expand/model", 0.5, &["plugins=[\"nf4\"]"]);
    assert!(found.contains("a quantizer was named"), "{found}");
}
