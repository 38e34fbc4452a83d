//! `tests/golden/bf16/summary.json` -> the models that the peers ran in bf16, as rigs, and the
//! peers' own distances between bf16 and f32.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use espalier_tests::{Golden, OwnKernel, Rig, golden_path, largest};
use half::bf16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value as Json;

/// A base of the golden runs.
pub struct Base {
    /// Its name in files and messages.
    pub name: &'static str,
    plugins: &'static str,
}

/// All of them; HQQ packs in 4 bits, in groups of 64 along axis 1, its defaults.
pub const BASES: [Base; 3] = [
    Base {
        name: "dense",
        plugins: "[\"lora\"]",
    },
    Base {
        name: "nf4",
        plugins: "[\"nf4\", \"lora\"]",
    },
    Base {
        name: "hqq",
        plugins: "[\"hqq\", \"lora\"]",
    },
];

impl Base {
    /// The peers' numbers, `CASE.QUANTITY`.
    pub fn golden(&self) -> Golden {
        Golden::open(&format!("bf16/{}.safetensors", self.name))
    }

    /// The case's model on `backend`, computing in `compute`, with the first adapter.
    pub fn rig(&self, backend: &str, case: &Case, compute: &str) -> Rig {
        self.made(backend, case, compute, Rig::new)
    }

    /// The case's model in bf16 with the first adapter, where `own` is the kernel of `op` of `cpu`.
    pub fn rig_with_own_op(&self, case: &Case, op: &str, own: OwnKernel) -> Rig {
        self.made("cpu", case, "bf16", |directory, keys| {
            Rig::with_own_op(directory, keys, op, own)
        })
    }

    /// The rig that `make` makes of the case's model and config keys.
    fn made(
        &self,
        backend: &str,
        case: &Case,
        compute: &str,
        make: impl FnOnce(&Path, &[(&str, &str)]) -> Rig,
    ) -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        case.write_model(directory.path());
        let targets = format!("{:?}", case.targets);
        let folder = format!("[{:?}]", libraries(directory.path(), backend));
        let (backend, compute) = (format!("{backend:?}"), format!("{compute:?}"));
        let keys = [
            ("run.plugin_dirs", folder.as_str()),
            ("plugins", self.plugins),
            ("run.backend", &backend),
            ("model.compute", &compute),
            ("adapter.lora.targets", &targets),
            ("adapter.lora.rank", "8"),
            ("adapter.lora.alpha", "16"),
            // The evaluation rows are 2 of 48 tokens, those of a step 4 of 32.
            ("data.max_seq_len", "48"),
            ("data.micro_batch", "4"),
            ("optim.learning_rate", "2e-3"),
            ("optim.weight_decay", "0.01"),
            ("optim.clip_norm", "0.0"),
        ];
        let rig = make(directory.path(), &keys);
        let first = Golden::open("bf16/first_adapter.safetensors");
        rig.set_some_params(&first, &case.params());
        rig
    }
}

/// A folder in `directory` with the library of `backend`, unless it is a shipped one.
fn libraries(directory: &Path, backend: &str) -> PathBuf {
    let folder = directory.join("plugins");
    fs::create_dir(&folder).expect("a folder");
    if backend != "cpu" {
        let library = espalier_samples::library(backend);
        let name = library.file_name().expect("a file");
        fs::copy(&library, folder.join(name)).expect("copied");
    }
    folder
}

/// A model made of `llama/tiny-trained`, and where its adapter is.
#[derive(Deserialize)]
pub struct Case {
    /// Its name in files and messages.
    #[serde(skip)]
    pub name: String,
    layers: u64,
    /// Factors of weights by their linear's name, powers of two or 0.
    factors: BTreeMap<String, f32>,
    targets: Vec<String>,
}

impl Case {
    /// The names of the adapter's params, sorted.
    pub fn params(&self) -> Vec<String> {
        let first = Golden::open("bf16/first_adapter.safetensors");
        let names = first.names().filter(|name| {
            self.has(name) && self.targets.iter().any(|target| name.contains(target))
        });
        names.map(str::to_owned).collect()
    }

    /// Whether a param is in a layer that the model has, or in none.
    fn has(&self, name: &str) -> bool {
        let (_, rest) = name.split_once(".layers.").unwrap_or(("", "0."));
        let (layer, _) = rest.split_once('.').expect("a layer's number");
        layer.parse::<u64>().expect("a number") < self.layers
    }

    /// Writes the model in bf16, as models are published.
    fn write_model(&self, directory: &Path) {
        let from = golden_path("llama/tiny-trained");
        let bytes = fs::read(from.join("model.safetensors")).expect("weights");
        let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let kept = tensors.iter().filter(|(name, _)| self.has(name));
        let scaled: Vec<_> = kept
            .map(|(name, view)| {
                let factors = self.factors.iter();
                let mut factors = factors.filter(|(linear, _)| name.contains(*linear));
                let factor = factors.next().map_or(1.0, |(_, &factor)| factor);
                let values = view.data().chunks_exact(4);
                let values = values.map(|x| f32::from_le_bytes(x.try_into().expect("4 bytes")));
                let bytes = values.flat_map(|x| bf16::from_f32(x * factor).to_le_bytes());
                (name, view.shape().to_vec(), bytes.collect::<Vec<u8>>())
            })
            .collect();
        let views = scaled.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::BF16, shape.clone(), bytes);
            (name, view.expect("whole tensors"))
        });
        safetensors::serialize_to_file(views, None, &directory.join("model.safetensors"))
            .expect("a written model");
        let text = fs::read(from.join("config.json")).expect("a config");
        let mut config: Json = serde_json::from_slice(&text).expect("JSON");
        config["num_hidden_layers"] = self.layers.into();
        config["dtype"] = "bfloat16".into();
        fs::write(directory.join("config.json"), config.to_string()).expect("a written config");
    }
}

/// The cases, and how far the peers' bf16 numbers are from their f32 numbers.
#[derive(Deserialize)]
pub struct Summary {
    cases: BTreeMap<String, Case>,
    /// By base, case and what they are measured from: a number a quantity, `gradient` by param.
    distances: BTreeMap<String, BTreeMap<String, Json>>,
}

impl Summary {
    /// Reads the file.
    pub fn read() -> Self {
        let text = fs::read(golden_path("bf16/summary.json")).expect("a summary");
        let mut summary: Summary = serde_json::from_slice(&text).expect("a summary");
        for (name, case) in &mut summary.cases {
            case.name.clone_from(name);
        }
        summary
    }

    /// The cases that the peers ran on `base`.
    pub fn cases_of(&self, base: &Base) -> impl Iterator<Item = &Case> {
        self.distances[base.name]
            .keys()
            .map(|case| &self.cases[case])
    }

    /// The peers' distance between bf16 and f32 in `quantity`.
    pub fn distance(&self, base: &Base, case: &Case, quantity: &str) -> f64 {
        number(&self.distances[base.name][&case.name]["f32"][quantity])
    }

    /// The same of one param's gradient.
    pub fn gradient_distance(&self, base: &Base, case: &Case, param: &str) -> f64 {
        number(&self.distances[base.name][&case.name]["f32"]["gradient"][param])
    }

    /// The largest distance in `quantity` of all bases and cases.
    pub fn largest(&self, quantity: &str) -> f64 {
        let cases = self.distances.values().flat_map(BTreeMap::values);
        largest(cases.map(|case| number(&case["f32"][quantity])))
    }
}

/// A distance; two dtypes are never at the same place.
fn number(distance: &Json) -> f64 {
    let found = distance.as_f64().expect("a distance");
    assert!(found > 0.0, "the peers' bf16 and f32 numbers are equal");
    found
}
