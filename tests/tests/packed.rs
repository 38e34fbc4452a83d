//! Checkpoints with packed weights: bitsandbytes' and compressed-tensors' files load unchanged, and
//! ours equal their files.

mod compressed;
mod packing;

use std::fs;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, golden_path, largest_difference, names, step_of};
use espalier_trainer::Error;
use espalier_trainer::convert::quantize;
use safetensors::SafeTensors;
use serde_json::Value as Json;

use packing::{batch, bits, rig};

const LORA: (&str, &str) = ("plugins", "[\"lora\"]");
const NF4_LORA: (&str, &str) = ("plugins", "[\"nf4\", \"lora\"]");

/// Packs the golden dense model under config values.
fn pack(values: &[&str]) -> (tempfile::TempDir, Result<(), Error>) {
    let place = tempfile::tempdir().expect("a folder");
    let model = golden_path("packed/dense");
    let mut sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("run.out={:?}", place.path().join("out")));
    for value in values {
        sources = sources.set(*value);
    }
    let resolved = resolve(&sources).expect("a config");
    let done = quantize::quantize(&resolved, &Unobserved, &StopFlag::new()).map(|_| ());
    (place, done)
}

#[test]
fn bitsandbytes_checkpoints_load_without_encoding() {
    let golden = Golden::open("packed/logits.safetensors");
    let encoded = |double_quant| {
        let option = ("quantizer.nf4.double_quant", double_quant);
        bits(&rig(&golden_path("packed/dense"), &[NF4_LORA, option]))
    };
    let (nested, plain) = (encoded("true"), encoded("false"));
    for (variant, same_as) in [
        ("nf4", Some(&nested)),
        ("nf4-bf16", Some(&nested)),
        ("nf4-f16", Some(&nested)),
        ("nf4-plain", Some(&plain)),
        ("nf4-f32", Some(&plain)),
        ("fp4", None),
    ] {
        let rig = rig(&golden_path(&format!("packed/{variant}")), &[LORA]);
        assert_eq!(rig.loaded.encoded, 0, "{variant}");
        assert_eq!(rig.loaded.placed, rig.executor.params().len() as u64);
        let logits = rig.logits(&batch());
        let difference = largest_difference(&logits, golden.numbers(variant));
        assert!(
            difference <= 2e-5,
            "{variant}: logits differ by {difference}"
        );
        if let Some(encoded) = same_as {
            assert_eq!(&bits(&rig), encoded, "{variant} and encoding at load");
        }
    }
}

#[test]
fn training_on_a_packed_checkpoint_equals_training_on_the_packed_model() {
    let curve = |model: &str, plugins| {
        let rig = rig(&golden_path(model), &[plugins]);
        let batch = step_of(vec![batch()]);
        let steps = (0..4).map(|index| {
            let optim = &rig.config.optim;
            let done = step::train(&rig.executor, optim, &batch, [index, 4], 42);
            let done = done.expect("a step");
            (done.loss.to_bits(), done.grad_norm.to_bits())
        });
        steps.collect::<Vec<_>>()
    };
    let packed = curve("packed/nf4", LORA);
    assert_eq!(packed, curve("packed/dense", NF4_LORA));
    // Naming the checkpoint's own quantizer changes nothing.
    assert_eq!(packed, curve("packed/nf4", NF4_LORA));
}

#[test]
fn written_checkpoints_equal_those_of_bitsandbytes() {
    let cases: [(&str, &[&str]); 3] = [
        ("nf4", &["plugins=[\"nf4\"]"]),
        ("fp4", &["plugins=[\"fp4\"]"]),
        (
            "nf4-plain",
            &["plugins=[\"nf4\"]", "quantizer.nf4.double_quant=false"],
        ),
    ];
    for (variant, values) in cases {
        let (place, done) = pack(values);
        done.unwrap_or_else(|error| panic!("{variant}: {error}"));
        let ours = fs::read(place.path().join("out/model.safetensors")).expect("weights");
        let golden = golden_path(&format!("packed/{variant}"));
        let theirs = fs::read(golden.join("model.safetensors")).expect("weights");
        same_tensors(variant, &ours, &theirs);
        let config = |path: &Path| -> Json {
            let text = fs::read_to_string(path.join("config.json")).expect("a config");
            serde_json::from_str(&text).expect("JSON")
        };
        let (mut ours, theirs) = (config(&place.path().join("out")), config(&golden));
        // Defaults of transformers are written explicitly.
        let skipped = ours["quantization_config"]["llm_int8_skip_modules"].take();
        assert_eq!(skipped, serde_json::json!(["lm_head"]), "{variant}");
        assert_eq!(ours, theirs, "{variant}");
    }
}

/// The same tensors bit for bit; JSON as values.
fn same_tensors(variant: &str, ours: &[u8], theirs: &[u8]) {
    let ours = SafeTensors::deserialize(ours).expect("our file");
    let theirs = SafeTensors::deserialize(theirs).expect("their file");
    assert_eq!(names(&ours), names(&theirs), "{variant}");
    for name in names(&theirs) {
        let (ours, theirs) = (
            ours.tensor(&name).expect("ours"),
            theirs.tensor(&name).expect("theirs"),
        );
        if name.contains("quant_state") {
            let json = |bytes: &[u8]| serde_json::from_slice::<Json>(bytes).expect("JSON");
            assert_eq!(json(ours.data()), json(theirs.data()), "{variant} {name}");
            continue;
        }
        assert_eq!(ours.dtype(), theirs.dtype(), "{variant} {name}");
        assert_eq!(ours.shape(), theirs.shape(), "{variant} {name}");
        assert!(ours.data() == theirs.data(), "{variant} {name}");
    }
}

#[test]
fn exceptions_and_options_of_sites_round_trip() {
    let values = [
        "plugins=[\"nf4\"]",
        "sites=[{match=\"*.down_proj\", quantizer=\"none\"}, \
         {match=\"*.up_proj\", options={block_size=32, double_quant=false}}, \
         {match=\"lm_head\", quantizer=\"nf4\"}]",
    ];
    let (place, done) = pack(&values);
    done.expect("packed");
    let out = place.path().join("out");
    let config = fs::read_to_string(out.join("config.json")).expect("a config");
    let config: Json = serde_json::from_str(&config).expect("JSON");
    let skipped = &config["quantization_config"]["llm_int8_skip_modules"];
    assert_eq!(
        skipped,
        &serde_json::json!(["model.layers.0.mlp.down_proj"])
    );
    let sites = values[1].strip_prefix("sites=").expect("the key");
    let dense = golden_path("packed/dense");
    let at_load = bits(&rig(&dense, &[NF4_LORA, ("sites", sites)]));
    assert_eq!(bits(&rig(&out, &[LORA])), at_load);
    // The same exceptions, named again, agree with the checkpoint.
    assert_eq!(bits(&rig(&out, &[NF4_LORA, ("sites", sites)])), at_load);
}
