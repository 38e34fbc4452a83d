//! An adapter, shipped or a third party's, on the tiny Llama: its runs, and comparisons with what
//! PEFT computes.
#![allow(dead_code)] // Each test takes what it needs.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_config::{Sources, resolve};
use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::executor::StatePart;
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_registry::{Registry, SearchPath};
use espalier_system::stop::StopFlag;
use espalier_tests::{
    Golden, Named, Rig, TeamRig, golden_path, largest_difference, micro_batch, relative_norm,
    step_of,
};
use espalier_trainer::Error;
use espalier_trainer::conformance::{self, Target, check};
use espalier_trainer::convert::merge::{self, MergeOptions};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Bases of golden numbers, with the plugins that they need.
pub const BASES: [(&str, &[&str]); 3] = [("f32", &[]), ("nf4", &["nf4"]), ("hqq", &["hqq"])];

/// Tokens that the tiny Llama knows.
const VOCAB: usize = 512;

/// AdamW's settings of the golden curves, and the rows' sizes.
const KEYS: [(&str, &str); 6] = [
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "48"),
    ("data.batch_size", "4"),
    ("optim.learning_rate", "2e-3"),
    ("optim.weight_decay", "0.01"),
    ("optim.clip_norm", "0.0"),
];

/// Config keys with their values.
pub type Keys<'a> = &'a [(&'a str, &'a str)];

/// An adapter with golden files.
pub struct Subject {
    name: &'static str,
    /// The folder of its golden files.
    golden: &'static str,
    /// Params that it adds to the tiny Llama in the golden files.
    params: usize,
    /// The bases among [`BASES`] that the golden files have.
    pub bases: &'static [(&'static str, &'static [&'static str])],
    /// Has its library, where it is a third party's.
    folder: TempDir,
}

impl Subject {
    /// A shipped adapter; it has golden files of all bases in the folder of its name.
    pub fn shipped(name: &'static str, params: usize) -> Self {
        Subject {
            name,
            golden: name,
            params,
            bases: &BASES,
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    /// A third party's adapter of `tests/plugins`; it has golden files of the first two bases.
    pub fn third_party(name: &'static str, params: usize) -> Self {
        let found = Subject::shipped(name, params).on_bases(2);
        let library = espalier_samples::library(name);
        let file = library.file_name().expect("a library is a file");
        fs::copy(&library, found.folder.path().join(file)).expect("a copy");
        found
    }

    /// This adapter with the golden files in `folder`.
    pub fn with_golden(self, folder: &'static str) -> Self {
        Subject {
            golden: folder,
            ..self
        }
    }

    /// This adapter with golden files of the first `count` of [`BASES`].
    pub fn on_bases(self, count: usize) -> Self {
        Subject {
            bases: &BASES[..count],
            ..self
        }
    }

    /// What PEFT computes on a base.
    pub fn expected(&self, base: &str) -> Golden {
        Golden::open(&format!("{}/expected_{base}.safetensors", self.golden))
    }

    /// The golden directory `name` of an adapter, as a config value.
    pub fn saved(&self, name: &str) -> String {
        format!("{:?}", golden_path(&format!("{}/{name}", self.golden)))
    }

    /// The value of `run.plugin_dirs`.
    pub fn dirs(&self) -> String {
        format!("[{:?}]", self.folder.path())
    }

    /// The tiny Llama on one rank.
    pub fn try_rig(&self, plugins: &[&str], more: Keys<'_>) -> Result<Rig, Error> {
        let (dirs, plugins) = (self.dirs(), format!("{plugins:?}"));
        let fixed = [
            ("run.plugin_dirs", dirs.as_str()),
            ("plugins", plugins.as_str()),
            ("data.micro_batch", "4"),
        ];
        Rig::try_new(&model(), &[&fixed, &KEYS[..], more].concat())
    }

    pub fn rig(&self, plugins: &[&str], more: Keys<'_>) -> Rig {
        let made = self.try_rig(plugins, more);
        made.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// The model in `model` on so many ranks, sharded where there are several.
    pub fn team(&self, model: &Path, ranks: u32, plugins: &[&str], more: Keys<'_>) -> TeamRig {
        let sharding: &[&str] = if ranks > 1 { &["fsdp"] } else { &[] };
        let plugins = format!("{:?}", [plugins, sharding].concat());
        let (dirs, ranks) = (self.dirs(), ranks.to_string());
        let fixed = [
            ("run.plugin_dirs", dirs.as_str()),
            ("plugins", plugins.as_str()),
            ("run.ranks", ranks.as_str()),
            ("data.micro_batch", "1"),
        ];
        TeamRig::new(model, &[&fixed, &KEYS[..], more].concat())
    }

    /// Compares loss, logits and gradients of the golden adapter under every recompute policy, on
    /// one and three ranks.
    pub fn computes_as_peft(&self) {
        let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
        let adapter = self.saved("adapter");
        for &(base, plugins) in self.bases {
            let golden = self.expected(base);
            for recompute in ["\"none\"", "\"selective\"", "\"layer\""] {
                let more = [
                    ("model.adapter", &adapter[..]),
                    ("model.recompute", recompute),
                ];
                let rig = self.rig(plugins, &more);
                let chosen = rig.components.adapter.as_ref().expect("an adapter");
                assert_eq!(chosen.identity.component, self.name);
                let found = rig.loss_and_gradients(&step_of(vec![eval_batch()]));
                assert_near(found, golden.numbers("loss")[0], 1e-6, base);
                self.compare(&golden, "grad.", 1e-5, &|name| rig.gradient(name));
                assert_logits(&rig, &golden, base);
                let three = self.team(&model(), 3, plugins, &more);
                let found = three.loss_and_gradients(&row_by_row(&rows));
                assert_near(found, golden.numbers("loss")[0], 1e-6, base);
                let gradients = named(three.gradients());
                self.compare(&golden, "grad.", 1e-5, &|name| gradients(name));
                let each = rows.iter().map(std::slice::from_ref);
                let logits: Vec<f64> = each
                    .flat_map(|row| three.logits(&micro_batch(row, row)))
                    .collect();
                assert_same_logits(&logits, &golden, base);
            }
        }
    }

    /// Trains the golden steps on one and three ranks.
    pub fn trains_as_peft(&self) {
        self.trains_as_peft_with(&[]);
    }

    /// As [`Subject::trains_as_peft`], with further keys.
    pub fn trains_as_peft_with(&self, more: Keys<'_>) {
        let adapter = self.saved("adapter");
        let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
        let total = rows.len() as u64 / 4;
        for &(base, plugins) in self.bases {
            let golden = self.expected(base);
            let more = [&[("model.adapter", &adapter[..])], more].concat();
            let alone = self.rig(plugins, &more);
            let three = self.team(&model(), 3, plugins, &more);
            let optim = &alone.config.optim;
            for (index, rows) in rows.chunks(4).enumerate() {
                let at = [index as u64, total];
                let batch = step_of(vec![micro_batch(rows, rows)]);
                let one = step::train(&alone.executor, optim, &batch, at, 42);
                let of_three = three.team.train(optim, &row_by_row(rows), at, 42);
                for found in [one, of_three] {
                    let found = found.expect("a step");
                    let what = format!("{base}, step {index}");
                    assert_near(found.loss, golden.numbers("curve.loss")[index], 1e-5, &what);
                    let norm = golden.numbers("curve.norm")[index];
                    assert_near(found.grad_norm / norm, 1.0, 1e-4, &what);
                }
            }
            self.compare(&golden, "last.", 2e-4, &|name| alone.values(name));
            let three = values(&three);
            self.compare(&golden, "last.", 2e-4, &|name| three(name));
        }
    }

    /// Asserts that the tensors of `golden` with a prefix are as `of` gives them.
    pub fn compare(&self, golden: &Golden, prefix: &str, most: f64, of: &dyn Fn(&str) -> Vec<f64>) {
        let names = golden.names().filter_map(|name| name.strip_prefix(prefix));
        let names: Vec<&str> = names.collect();
        assert_eq!(names.len(), self.params, "{prefix}");
        for name in names {
            let expected = golden.numbers(&format!("{prefix}{name}"));
            let distance = relative_norm(&of(name), expected);
            assert!(distance <= most, "{prefix}{name} is off by {distance}");
        }
    }

    /// Merges a golden adapter into a golden model; the result is `out` in the folder.
    pub fn merged(
        &self,
        [model, adapter]: [&str; 2],
        options: MergeOptions,
        more: &[&str],
    ) -> TempDir {
        let place = tempfile::tempdir().expect("a folder");
        let sources = [
            format!("run.plugin_dirs={}", self.dirs()),
            format!("model.path={:?}", golden_path(model)),
            format!("model.adapter={}", self.saved(adapter)),
            format!("run.out={:?}", place.path().join("out")),
        ];
        let sources = sources
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied());
        let sources = sources.fold(Sources::default(), Sources::set);
        let resolved = resolve(&sources).expect("a config");
        merge::merge(&resolved, options, &Unobserved, &StopFlag::new()).expect("merged");
        place
    }

    /// As [`Subject::merged`]; the weights that the golden file of `base` has are compared.
    pub fn merges_as_peft(&self, model: &str, adapter: &str, base: &str) -> TempDir {
        let place = self.merged([model, adapter], MergeOptions::default(), &[]);
        let ours = Golden::read(&place.path().join("out/model.safetensors"));
        let golden = self.expected(base);
        let names = golden
            .names()
            .filter_map(|name| name.strip_prefix("merged."));
        let names: Vec<&str> = names.collect();
        assert!(!names.is_empty(), "{base}: nothing to compare");
        for name in names {
            let theirs = golden.numbers(&format!("merged.{name}"));
            let difference = largest_difference(ours.numbers(name), theirs);
            assert!(difference <= 1e-6, "{base} {name}: {difference}");
        }
        place
    }

    /// Compares each key of the config that it saves with PEFT's. PEFT's keys of features that are
    /// not used may be left out.
    pub fn saves_the_config_of_peft(&self) {
        let adapter = self.saved("adapter");
        let rig = self.rig(&[], &[("model.adapter", &adapter)]);
        let plugin = &rig.components.adapter.as_ref().expect("an adapter").plugin;
        let saved = plugin.saved_config(&rig.sites, "llama/tiny-trained");
        let mut saved = saved.expect("a config");
        let path = golden_path(&format!("{}/adapter/adapter_config.json", self.golden));
        let theirs = fs::read_to_string(path).expect("a config");
        let theirs: Json = serde_json::from_str(&theirs).expect("JSON");
        let targets = saved["target_modules"].as_array_mut().expect("a list");
        targets.sort_by_key(ToString::to_string);
        for (key, value) in saved.as_object().expect("an object") {
            assert_eq!(value, &theirs[key], "{key}");
        }
    }

    /// Runs the conformance kit on a third party's library as `host plugins check FILE` does.
    pub fn passes_the_kit(&self) {
        let library = espalier_samples::library(self.name);
        let library = library.to_str().expect("a path in UTF-8");
        let target = Target::find(library, &[], Sources::default()).expect("a sound library");
        let resolved = resolve(&target.sources).expect("a config");
        let registry = Registry::discover(&SearchPath::of(&resolved));
        let subject = conformance::Subject {
            registry: &registry,
            sources: &target.sources,
            name: self.name,
            config: None,
        };
        check(&subject, |_| ())
            .expect("it is there")
            .assert_passed();
    }
}

pub fn model() -> PathBuf {
    golden_path("llama/tiny-trained")
}

/// The tiny Llama with a tied head, in a new folder.
pub fn tied_model() -> TempDir {
    let place = tempfile::tempdir().expect("a folder");
    let config = golden_path("llama/variant_tied.config.json");
    fs::copy(config, place.path().join("config.json")).expect("a config");
    let weights = model().join("model.safetensors");
    fs::copy(weights, place.path().join("model.safetensors")).expect("weights");
    place
}

pub fn eval_batch() -> MicroBatch {
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    micro_batch(&rows, &rows)
}

/// A step with a micro-batch for each row.
pub fn row_by_row(rows: &[Vec<i32>]) -> StepBatch {
    let rows = rows.iter().enumerate().map(|(index, row)| {
        let row = std::slice::from_ref(row);
        MicroBatch {
            sequences: vec![index as i32],
            ..micro_batch(row, row)
        }
    });
    step_of(rows.collect())
}

/// The trained params of a team by name.
pub fn values(team: &TeamRig) -> impl Fn(&str) -> Vec<f64> + use<> {
    named(team.state(StatePart::Values))
}

/// The numbers of each of `all` by its name.
fn named(all: Named) -> impl Fn(&str) -> Vec<f64> {
    move |name| {
        let found = all.iter().find(|(known, _)| known == name);
        found
            .unwrap_or_else(|| panic!("no param `{name}`"))
            .1
            .clone()
    }
}

pub fn assert_logits(rig: &Rig, golden: &Golden, what: &str) {
    assert_same_logits(&rig.logits(&eval_batch()), golden, what);
}

/// Logits of all tokens beside golden ones, which may be those of every so many tokens.
fn assert_same_logits(found: &[f64], golden: &Golden, what: &str) {
    let expected = golden.numbers("logits");
    let apart = found.len() / expected.len();
    let found = found.chunks(VOCAB).step_by(apart);
    let found: Vec<f64> = found.flatten().copied().collect();
    let difference = largest_difference(&found, expected);
    assert!(difference <= 2e-5, "{what}: logits differ by {difference}");
}

pub fn assert_near(found: f64, expected: f64, most: f64, what: &str) {
    let distance = (found - expected).abs();
    assert!(distance <= most, "{what}: {found}, expected {expected}");
}
