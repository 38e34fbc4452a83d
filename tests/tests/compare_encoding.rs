//! A comparison under several seeds: each weight is encoded once, and every run has the bits of one
//! that encodes for itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_interface::format::Format;
use espalier_interface::{Component, Instance, Quantizer, Result as PluginResult, Role};
use espalier_system::files::Continue;
use espalier_system::stop::StopFlag;
use espalier_tests::golden_path;
use espalier_trainer::train;
use serde_json::Value as Json;

/// Packed weights of the tiny Llama: seven in each of two layers.
const WEIGHTS: usize = 14;

static ENCODED: AtomicUsize = AtomicUsize::new(0);

/// NF4, which counts the weights that it encodes.
struct Counted(Box<dyn Quantizer>);

impl Quantizer for Counted {
    fn format(&self, shape: [u64; 2]) -> PluginResult<Format> {
        let format = self.0.format(shape)?;
        let quantizer = "counted".to_owned();
        Ok(Format {
            quantizer,
            ..format
        })
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> PluginResult<()> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        self.0.encode(weight, shape, segments, workspace)
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> PluginResult<u64> {
        self.0.encode_workspace(shape)
    }
}

const COUNTED: Component = Component {
    name: "counted",
    role: Role::QUANTIZER,
    doc: "for tests",
    options: espalier_nf4::NF4.options,
    capabilities: &[],
    create: |options, services| match (espalier_nf4::NF4.create)(options, services)? {
        Instance::Quantizer(made) => Ok(Instance::Quantizer(Box::new(Counted(made)))),
        _ => unreachable!("nf4 is a quantizer"),
    },
};

espalier_interface::declare_plugin! { name: "counted", components: &[COUNTED] }

/// Weights encoded since the last call.
fn encoded() -> usize {
    ENCODED.swap(0, Ordering::Relaxed)
}

fn config(folder: &Path, out: &Path, more: &[&str]) -> ResolvedConfig {
    let (model, rows) = (golden_path("llama/tiny-trained"), folder.join("rows.jsonl"));
    let fixed = [
        format!("model.path={model:?}"),
        format!("data.files=[{rows:?}]"),
        format!("run.out={out:?}"),
        "model.compute=\"f32\"".to_owned(),
        "data.eval_split=2".to_owned(),
        "data.split_seed=42".to_owned(),
        "data.batch_size=2".to_owned(),
        "run.max_steps=2".to_owned(),
        "run.threads=2".to_owned(),
    ];
    let sources = fixed.into_iter().fold(Sources::default(), Sources::set);
    let sources = more.iter().fold(sources, |sources, key| sources.set(*key));
    resolve(&sources).expect("a config")
}

/// The losses, the decode checks and the adapter of a run.
fn results(run: &Path) -> (Vec<Json>, Json, Vec<u8>) {
    let read = |name: &str| fs::read(run.join(name)).expect("a file");
    let metrics = String::from_utf8(read("metrics.jsonl")).expect("text");
    let lines = metrics.lines().map(|line| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        Json::from_iter(
            ["step", "loss", "grad_norm", "eval_loss"].map(|key| (key, line[key].clone())),
        )
    });
    let record: Json = serde_json::from_slice(&read("run.json")).expect("JSON");
    let checks = record["decode_checks"].clone();
    assert!(checks[0]["error"].is_f64(), "{checks}");
    (
        lines.collect(),
        checks,
        read("adapter/adapter_model.safetensors"),
    )
}

#[test]
fn a_base_is_encoded_once_for_all_seeds_with_the_same_results() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path();
    let rows = (0..8).map(|row| format!("{{\"input_ids\": [{row}, 7, 9, {row}, 11]}}\n"));
    fs::write(folder.join("rows.jsonl"), rows.collect::<String>()).expect("written");
    let seeds = [42, 43, 44, 45];
    let alone: Vec<PathBuf> = Vec::from(seeds.map(|seed| folder.join(format!("alone-{seed}"))));
    for (out, seed) in alone.iter().zip(seeds) {
        let seed = format!("run.seed={seed}");
        let resolved = config(folder, out, &["plugins=[\"counted\", \"lora\"]", &seed]);
        train::run(&resolved, &Unobserved, &StopFlag::new()).expect("a run");
        assert_eq!(encoded(), WEIGHTS);
    }
    for schedule in ["interleaved", "sequential"] {
        let out = folder.join(schedule);
        let compare = |seeds: &str, existing| {
            let more = [
                "plugins=[\"lora\"]",
                "arms=[{name=\"counted\", plugins=[\"counted\"]}]",
                &format!("compare.schedule={schedule:?}"),
                seeds,
            ];
            let resolved = config(folder, &out, &more);
            let compared =
                espalier_compare::run(&resolved, existing, &Unobserved, &StopFlag::new());
            compared
                .expect("compared")
                .check_failures()
                .expect("no failure");
        };
        compare("compare.seeds=3", Continue::Refuse);
        assert_eq!(encoded(), WEIGHTS, "{schedule}");
        // Another process has only the last seed left.
        compare("compare.seeds=4", Continue::Resume);
        assert_eq!(encoded(), WEIGHTS, "{schedule}");
        let arm = out.join("arms/counted");
        for (alone, seed) in alone.iter().zip(seeds) {
            let found = results(&arm.join(format!("seed-{seed}")));
            assert!(found == results(alone), "{schedule}, seed {seed}");
        }
        let base = fs::read(arm.join("base.json")).expect("a record");
        let base: Json = serde_json::from_slice(&base).expect("JSON");
        assert_eq!(base["encoded"], WEIGHTS, "{schedule}");
        assert!(base["encode_secs"].as_f64() > Some(0.0), "{schedule}");
        assert_eq!(base["weights"].as_array().map(Vec::len), Some(WEIGHTS));
    }
}
