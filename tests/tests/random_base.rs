//! A packed base that begins with random numbers: it has the bytes of the same numbers read from
//! files, on any number of ranks.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_interface::{Stream, WeightLayout};
use espalier_system::stop::StopFlag;
use espalier_tests::{Rig, TeamRig, golden_path, micro_batch};
use espalier_trainer::train;
use tempfile::TempDir;

const CONFIG: &str = "llama/tiny/config.json";
const RANDOM: (&str, &str) = ("model.init", "\"random\"");
const KEYS: [(&str, &str); 3] = [
    ("model.compute", "\"f32\""),
    ("data.max_seq_len", "16"),
    ("data.micro_batch", "2"),
];

/// A model without weights, and the same with the random numbers of a run in a file.
struct Models {
    drawn: PathBuf,
    saved: PathBuf,
    _place: TempDir,
}

impl Models {
    /// Of the golden config `config`.
    fn new(config: &str) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let [drawn, rows, out] = ["drawn", "rows.jsonl", "out"].map(|name| place.path().join(name));
        fs::create_dir(&drawn).expect("a folder");
        fs::copy(golden_path(config), drawn.join("config.json")).expect("a copy");
        fs::write(&rows, "{\"input_ids\": [1, 2, 3]}\n").expect("written");
        let keys = [
            format!("model.path={drawn:?}"),
            format!("data.files=[{rows:?}]"),
            format!("run.out={out:?}"),
            "run.max_steps=0".to_owned(),
            "model.init=\"random\"".to_owned(),
            "model.compute=\"f32\"".to_owned(),
        ];
        let sources = keys.into_iter().fold(Sources::default(), Sources::set);
        let resolved = resolve(&sources).expect("a config");
        train::run(&resolved, &Unobserved, &StopFlag::new()).expect("saved untrained");
        Models {
            drawn,
            saved: out.join("model"),
            _place: place,
        }
    }
}

/// The segments of every packed weight.
fn packed(rig: &Rig) -> BTreeMap<String, Vec<Vec<u8>>> {
    let (device, _) = rig.executor.device();
    let params = rig.executor.params().iter().enumerate();
    let packed = params.filter(|(_, param)| matches!(param.layout, WeightLayout::Packed(_)));
    let segments = packed.map(|(index, param)| {
        let ranges = rig.executor.storage().param(index).iter();
        let segments = ranges.map(|&range| {
            let mut bytes = vec![0; range.bytes as usize];
            device.download(range, &mut bytes, Stream(0)).expect("read");
            bytes
        });
        (param.name.clone(), segments.collect())
    });
    segments.collect()
}

fn rows() -> Vec<Vec<i32>> {
    vec![(5..16).collect(), (100..116).collect()]
}

#[test]
fn every_quantizer_packs_the_bytes_of_the_same_numbers_from_files() {
    let models = Models::new(CONFIG);
    let sites = "[{match=\"*.down_proj\", quantizer=\"hqq\"}, \
                 {match=\"*.up_proj\", quantizer=\"none\"}, \
                 {match=\"*.q_proj\", options={block_size=32}}]";
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("nf4", &[]),
        ("fp4", &[]),
        ("int8", &[]),
        ("hqq", &[]),
        ("nf4", &[("sites", sites)]),
    ];
    for (quantizer, more) in cases {
        let plugins = format!("[{quantizer:?}, \"lora\"]");
        let plugins = [("plugins", plugins.as_str())];
        let keys = [&KEYS[..], &plugins, more].concat();
        let drawn = Rig::new(&models.drawn, &[&keys[..], &[RANDOM]].concat());
        let saved = Rig::new(&models.saved, &keys);
        assert!(drawn.loaded.encoded > 0, "{quantizer}");
        assert_eq!(drawn.loaded.encoded, saved.loaded.encoded, "{quantizer}");
        let checks = &drawn.loaded.decode_checks;
        assert_eq!(checks, &saved.loaded.decode_checks, "{quantizer}");
        let errors = checks.iter().map(|check| check.error.expect("checked"));
        assert!(errors.into_iter().all(|error| error < 0.2), "{checks:?}");
        same_model(&drawn, &saved);
    }
}

fn same_model(drawn: &Rig, saved: &Rig) {
    assert!(packed(drawn) == packed(saved), "other packed bytes");
    let micro = micro_batch(&rows(), &rows());
    assert!(drawn.logits(&micro) == saved.logits(&micro), "other logits");
}

#[test]
fn a_tied_table_is_drawn_once_beside_packed_weights() {
    let models = Models::new("llama/variant_tied.config.json");
    let keys = [&KEYS[..], &[("plugins", "[\"nf4\", \"lora\"]")]].concat();
    let drawn = Rig::new(&models.drawn, &[&keys[..], &[RANDOM]].concat());
    same_model(&drawn, &Rig::new(&models.saved, &keys));
}

#[test]
fn every_strategy_has_the_base_of_one_rank() {
    let models = Models::new(CONFIG);
    let logits = |plugins: &str, more: &[(&str, &str)]| {
        let keys = [&KEYS[..], &[RANDOM, ("plugins", plugins)], more].concat();
        let team = TeamRig::new(&models.drawn, &keys);
        assert!(team.loaded.encoded > 0);
        team.logits(&micro_batch(&rows(), &rows()))
    };
    let one = logits("[\"nf4\", \"lora\"]", &[]);
    let offload = ("sharding.fsdp.offload", "\"params\"");
    for (strategy, ranks, more) in [
        ("ddp", "2", &[][..]),
        ("fsdp", "2", &[]),
        ("fsdp", "3", &[offload]),
        ("fsdp", "1", &[offload]),
    ] {
        let plugins = format!("[\"nf4\", \"lora\", {strategy:?}]");
        let more = [&[("run.ranks", ranks)], more].concat();
        assert!(logits(&plugins, &more) == one, "{strategy} on {ranks}");
    }
}
