//! The tiny Llama and options of `lora` -> what `host split` writes, and what PEFT has for it.

use std::fs;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, relative_norm};
use espalier_trainer::Error;
use espalier_trainer::convert::split::{self, Split};
use tempfile::TempDir;

use super::adapting::model;

/// The sites of the golden adapters and their weights' rows and columns.
pub const SITES: [(&str, usize, usize); 4] = [
    ("model.layers.0.self_attn.q_proj", 64, 64),
    ("model.layers.0.self_attn.v_proj", 32, 64),
    ("model.layers.1.self_attn.q_proj", 64, 64),
    ("model.layers.1.self_attn.v_proj", 32, 64),
];
pub const RANK: usize = 8;
/// Columns and rows of a product in the golden files.
const KEPT: usize = 2;
pub const FIXED: [&str; 3] = [
    "adapter.lora.rank=8",
    "adapter.lora.targets=[\"q_proj\", \"v_proj\"]",
    "adapter.lora.init_niter=0",
];

/// A golden beginning.
pub struct Case {
    /// The ending of its golden file.
    pub name: &'static str,
    /// `s`, alpha over the rank.
    pub factor: f64,
    pub keys: &'static [&'static str],
}

pub const CASES: [Case; 5] = [
    Case {
        name: "pissa_f32",
        factor: 2.0,
        keys: &["plugins=[\"lora\"]", "adapter.lora.alpha=16", PISSA],
    },
    Case {
        name: "pissa_nf4",
        factor: 2.0,
        keys: &[
            "plugins=[\"nf4\", \"lora\"]",
            "adapter.lora.alpha=16",
            PISSA,
        ],
    },
    Case {
        name: "pissa_hqq",
        factor: 2.0,
        keys: &[
            "plugins=[\"hqq\", \"lora\"]",
            "adapter.lora.alpha=16",
            PISSA,
        ],
    },
    Case {
        name: "loftq_nf4",
        factor: 1.0,
        keys: &[
            "plugins=[\"nf4\", \"lora\"]",
            "quantizer.nf4.double_quant=false",
            "adapter.lora.alpha=8",
            LOFTQ,
            "adapter.lora.loftq_iter=2",
        ],
    },
    Case {
        name: "loftq_hqq",
        factor: 2.0,
        keys: &[
            "plugins=[\"hqq\", \"lora\"]",
            "adapter.lora.alpha=16",
            LOFTQ,
            "adapter.lora.loftq_iter=2",
        ],
    },
];
pub const PISSA: &str = "adapter.lora.init=\"pissa\"";
pub const LOFTQ: &str = "adapter.lora.init=\"loftq\"";

impl Case {
    pub fn golden(&self) -> Golden {
        Golden::open(&format!("split/expected_{}.safetensors", self.name))
    }

    pub fn split(&self) -> (TempDir, Split) {
        split(&[self.keys, &FIXED].concat()).expect(self.name)
    }

    /// `s B A` of a site, of the params that `of` gives.
    fn product(&self, site: (&str, usize, usize), of: &dyn Fn(&str) -> Vec<f64>) -> Vec<f64> {
        let [down, up] = params(site.0);
        product(&of(&up), &of(&down), site, self.factor)
    }

    /// Compares the products with the golden ones of a prefix.
    pub fn compare(&self, prefix: &str, most: f64, of: &dyn Fn(&str) -> Vec<f64>) {
        let golden = self.golden();
        for site in SITES {
            let expected = golden.numbers(&format!("{prefix}{}", site.0));
            let distance = relative_norm(&kept(&self.product(site, of), site), expected);
            let name = self.name;
            assert!(
                distance <= most,
                "{name}: {prefix}{} is off by {distance}",
                site.0
            );
        }
    }
}

/// The names of a site's two matrices, A first.
pub fn params(site: &str) -> [String; 2] {
    ["A", "B"].map(|matrix| format!("base_model.model.{site}.lora_{matrix}.weight"))
}

/// `factor` times `up` `[rows, R]` times `down` `[R, cols]`.
pub fn product(
    up: &[f64],
    down: &[f64],
    (_, rows, cols): (&str, usize, usize),
    factor: f64,
) -> Vec<f64> {
    let mut out = vec![0.0; rows * cols];
    for (out, up) in out.chunks_exact_mut(cols).zip(up.chunks_exact(RANK)) {
        for (up, down) in up.iter().zip(down.chunks_exact(cols)) {
            out.iter_mut()
                .zip(down)
                .for_each(|(out, down)| *out += factor * up * down);
        }
    }
    out
}

/// The first columns of a product and its first rows, which the golden files have.
pub fn kept(product: &[f64], (_, _, cols): (&str, usize, usize)) -> Vec<f64> {
    let columns = product.chunks_exact(cols).flat_map(|row| &row[..KEPT]);
    columns.chain(&product[..KEPT * cols]).copied().collect()
}

/// Splits the tiny Llama; `base` and `adapter` are in `out` of the folder.
pub fn split(keys: &[&str]) -> Result<(TempDir, Split), Error> {
    split_model(&model(), keys)
}

pub fn split_model(model: &Path, keys: &[&str]) -> Result<(TempDir, Split), Error> {
    let place = tempfile::tempdir().expect("a folder");
    let named = [
        format!("model.path={model:?}"),
        format!("run.out={:?}", place.path().join("out")),
    ];
    let all = named.iter().map(String::as_str).chain(keys.iter().copied());
    let resolved = resolve(&all.fold(Sources::default(), Sources::set)).expect("a config");
    let done = split::split(&resolved, &Unobserved, &StopFlag::new());
    if done.is_err() {
        let mut left = fs::read_dir(place.path()).expect("a folder");
        assert!(left.next().is_none(), "files are left");
    }
    done.map(|done| (place, done))
}

/// The config keys to train with what was split.
pub fn adapter_of(place: &TempDir) -> String {
    format!("{:?}", place.path().join("out/adapter"))
}

/// What was split, on one rank.
pub fn rig(place: &TempDir) -> Rig {
    let adapter = adapter_of(place);
    let keys = [&ROWS[..], &[("model.adapter", &adapter[..])]].concat();
    Rig::new(&place.path().join("out/base"), &keys)
}

/// The sizes of the golden rows, in f32.
pub const ROWS: [(&str, &str); 3] = [
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "48"),
    ("data.micro_batch", "2"),
];
