//! Checkpoints packed by hqq: transformers' files load unchanged, and ours equal its files.

mod packing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, golden_path, largest_difference, names, step_of};
use espalier_trainer::convert::quantize;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use packing::{batch, bits, keys, rig};

const LORA: (&str, &str) = ("plugins", "[\"lora\"]");
const HQQ_LORA: (&str, &str) = ("plugins", "[\"hqq\", \"lora\"]");
/// Every width of codes, both axes.
const MIXED: &str = "[{match=\"*.q_proj\", options={bits=8, group_size=32}}, \
    {match=\"*.k_proj\", options={bits=6}}, \
    {match=\"*.v_proj\", options={bits=5, axis=0}}, \
    {match=\"*.o_proj\", options={bits=3}}, \
    {match=\"*.gate_proj\", options={bits=2, group_size=16}}, \
    {match=\"*.up_proj\", options={bits=1, group_size=8, axis=0}}, \
    {match=\"*.down_proj\", options={axis=0}}]";
/// The golden checkpoints, and the config under which we write them.
const VARIANTS: [(&str, &[(&str, &str)]); 4] = [
    ("hqq", &[]),
    (
        "hqq3-bf16",
        &[
            ("quantizer.hqq.bits", "3"),
            ("quantizer.hqq.axis", "0"),
            ("quantizer.hqq.meta", "\"bf16\""),
        ],
    ),
    (
        "hqq2-floats",
        &[
            ("quantizer.hqq.bits", "2"),
            ("quantizer.hqq.group_size", "16"),
        ],
    ),
    ("hqq-mixed", &[("sites", MIXED)]),
];

/// The golden dense model, packed under config values.
fn pack(values: &[(&str, &str)]) -> TempDir {
    let place = tempfile::tempdir().expect("a folder");
    let mut sources = Sources::default()
        .set(format!("model.path={:?}", golden_path("packed/dense")))
        .set(format!("run.out={:?}", place.path().join("out")))
        .set("plugins=[\"hqq\"]");
    for (key, value) in values {
        sources = sources.set(format!("{key}={value}"));
    }
    let resolved = resolve(&sources).expect("a config");
    quantize::quantize(&resolved, &Unobserved, &StopFlag::new())
        .unwrap_or_else(|error| panic!("{values:?}: {error}"));
    place
}

fn config(model: &Path) -> Json {
    let text = fs::read_to_string(model.join("config.json")).expect("a config");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn hqq_checkpoints_load_without_encoding() {
    let golden = Golden::open("packed/hqq_logits.safetensors");
    for (variant, _) in VARIANTS {
        let rig = rig(&golden_path(&format!("packed/{variant}")), &[LORA]);
        assert_eq!(rig.loaded.encoded, 0, "{variant}");
        assert_eq!(rig.loaded.placed, rig.executor.params().len() as u64);
        let logits = rig.logits(&batch());
        let difference = largest_difference(&logits, golden.numbers(variant));
        assert!(
            difference <= 2e-5,
            "{variant}: logits differ by {difference}"
        );
    }
}

#[test]
fn training_on_a_written_checkpoint_equals_training_on_the_packed_model() {
    for (variant, values) in VARIANTS {
        let place = pack(values);
        let out = place.path().join("out");
        let curve = |model: &Path, more: &[(&str, &str)]| {
            let rig = rig(model, more);
            let batch = step_of(vec![batch()]);
            let steps = (0..2).map(|index| {
                let done = step::train(&rig.executor, &rig.config.optim, &batch, [index, 2], 42);
                done.expect("a step").loss.to_bits()
            });
            (rig.loaded.encoded, bits(&rig), steps.collect::<Vec<_>>())
        };
        let (encoded, before, losses) = curve(&out, &[LORA]);
        assert_eq!(encoded, 0, "{variant}");
        let mut more = vec![HQQ_LORA];
        more.extend(values);
        let (encoded, at_load, expected) = curve(&golden_path("packed/dense"), &more);
        assert_eq!(encoded, 7, "{variant}");
        assert!(before == at_load && losses == expected, "{variant}");
        // The same options, named again, agree with the checkpoint.
        assert!(curve(&out, &more).1 == at_load, "{variant}");
    }
}

#[test]
fn written_checkpoints_equal_those_of_transformers() {
    for (variant, values) in VARIANTS {
        let place = pack(values);
        let (out, golden) = (
            place.path().join("out"),
            golden_path(&format!("packed/{variant}")),
        );
        let read = |path: &Path| fs::read(path.join("model.safetensors")).expect("weights");
        let (ours, theirs) = (read(&out), read(&golden));
        same_tensors(variant, &ours, &theirs);
        let (mut ours, mut theirs) = (config(&out), config(&golden));
        let ours = &mut ours["quantization_config"];
        let profile = ours.as_object_mut().expect("an object");
        assert_eq!(profile.remove("solver_profile"), Some(json!("0.2.8")));
        let theirs = &mut theirs["quantization_config"];
        if variant == "hqq2-floats" {
            theirs["quant_config"]["weight_quant_params"]["view_as_float"] = json!(false);
        }
        assert_eq!(ours, theirs, "{variant}");
    }
}

/// The same names, types, shapes and bytes; scales and zeros within the difference of the solver's
/// summation orders.
fn same_tensors(variant: &str, ours: &[u8], theirs: &[u8]) {
    let ours = SafeTensors::deserialize(ours).expect("our file");
    let theirs = SafeTensors::deserialize(theirs).expect("their file");
    assert_eq!(names(&ours), names(&theirs), "{variant}");
    let viewed = variant == "hqq2-floats";
    for name in names(&theirs) {
        let (ours, theirs) = (ours.tensor(&name), theirs.tensor(&name));
        let (ours, theirs) = (ours.expect("ours"), theirs.expect("theirs"));
        let part = name.rsplit_once('.').map_or("", |(_, part)| part);
        if viewed && part == "view_as_float" {
            continue;
        }
        if !(viewed && part == "W_q") {
            // Biases are the model's own: only hqq casts them to its compute dtype.
            if variant == "hqq3-bf16" && part == "bias" {
                continue;
            }
            assert_eq!(ours.dtype(), theirs.dtype(), "{variant} {name}");
            assert_eq!(ours.shape(), theirs.shape(), "{variant} {name}");
        }
        if ["scale", "zero"].contains(&part) {
            near(&format!("{variant} {name}"), &ours, &theirs);
        } else {
            assert!(ours.data() == theirs.data(), "{variant} {name}");
        }
    }
}

fn near(name: &str, ours: &TensorView<'_>, theirs: &TensorView<'_>) {
    let numbers = |tensor: &TensorView<'_>| -> Vec<f32> {
        match tensor.dtype() {
            Dtype::F32 => {
                let numbers = tensor.data().as_chunks::<4>().0.iter();
                numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
            }
            _ => {
                let numbers = tensor.data().as_chunks::<2>().0.iter();
                numbers
                    .map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16))
                    .collect()
            }
        }
    };
    // A sum in another order may round to the next bf16.
    let tolerance = if tensor_is_short(ours) {
        1.0 / 128.0
    } else {
        1e-6
    };
    for (index, (x, y)) in numbers(ours).iter().zip(numbers(theirs)).enumerate() {
        assert!(
            (x - y).abs() <= tolerance * y.abs().max(1.0),
            "{name} {index}: {x}, expected {y}"
        );
    }
}

fn tensor_is_short(tensor: &TensorView<'_>) -> bool {
    tensor.dtype() != Dtype::F32
}

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The golden checkpoint with some tensors changed.
fn damaged(change: impl Fn(&mut Tensors, &mut Json)) -> TempDir {
    let golden = golden_path("packed/hqq");
    let bytes = fs::read(golden.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let owned = |(name, tensor): (String, TensorView<'_>)| {
        let bytes = tensor.data().to_vec();
        (name, (tensor.dtype(), tensor.shape().to_vec(), bytes))
    };
    let mut tensors: Tensors = tensors.tensors().into_iter().map(owned).collect();
    let mut config = config(&golden);
    change(&mut tensors, &mut config);
    let place = tempfile::tempdir().expect("a folder");
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor");
        (name.clone(), view)
    });
    let bytes = safetensors::serialize(views, None).expect("a file");
    fs::write(place.path().join("model.safetensors"), bytes).expect("room");
    fs::write(place.path().join("config.json"), config.to_string()).expect("room");
    place
}

const Q: &str = "model.layers.0.self_attn.q_proj";

type Change = Box<dyn Fn(&mut Tensors, &mut Json)>;

/// Replaces a part of `Q` by `bytes`.
fn set(part: &'static str, bytes: Vec<u8>) -> Change {
    Box::new(move |tensors, _| {
        tensors
            .get_mut(&format!("{Q}.{part}"))
            .expect("a tensor")
            .2
            .clone_from(&bytes);
    })
}

fn remove(part: &'static str) -> Change {
    Box::new(move |tensors, _| {
        tensors.remove(&format!("{Q}.{part}")).expect("a tensor");
    })
}

/// Expects each change to be refused with these words.
fn assert_named(cases: Vec<(Change, Vec<&str>)>) {
    for (index, (change, words)) in cases.into_iter().enumerate() {
        let place = damaged(change);
        let Err(error) = Rig::try_new(place.path(), &keys(&[LORA])) else {
            panic!("case {index} {words:?} is taken");
        };
        let error = error.to_string();
        for word in words {
            assert!(error.contains(word), "case {index}: `{word}` in {error}");
        }
    }
}

#[test]
fn damage_is_named() {
    let int = |number: i32| number.to_le_bytes().to_vec();
    let numbers = |number: f32| number.to_le_bytes().repeat(64);
    assert_named(vec![
        (set("nbits", int(7)), vec![Q, "bits", "7"]),
        (set("nbits", int(-1)), vec![Q, "`nbits`", "-1"]),
        (set("nbits", int(3)), vec!["q_proj.W_q", "expected"]),
        (set("axis", int(0)), vec!["q_proj.scale", "[1, 64]"]),
        (set("group_size", int(128)), vec!["q_proj.", "32"]),
        (set("optimize", vec![2]), vec![Q, "`optimize`", "2"]),
        (
            set("packing", b"3bit_u8".to_vec()),
            vec!["q_proj.packing", "4bit_u8", "3bit_u8"],
        ),
        (
            set("quant_zero", vec![1]),
            vec!["q_proj.quant_zero", "expected 0, found 1"],
        ),
        (
            set(
                "shape",
                [[64i64, 32].map(i64::to_le_bytes).concat()].concat(),
            ),
            vec!["q_proj.shape", "[64,64]", "[64,32]"],
        ),
        (
            set("scale", numbers(f32::NAN)),
            vec!["q_proj.scale", "element 0 is not a finite number"],
        ),
    ]);
}

#[test]
fn tensors_that_are_missing_or_of_another_form_are_named() {
    assert_named(vec![
        (remove("zero"), vec![Q, "zero"]),
        (remove("W_q"), vec!["q_proj.W_q"]),
        (remove("axis"), vec!["q_proj.axis"]),
        (
            Box::new(|tensors, _| {
                let zero = tensors.get_mut(&format!("{Q}.zero")).expect("a tensor");
                *zero = (Dtype::BF16, zero.1.clone(), zero.2[..128].to_vec());
            }),
            vec![Q, "`scale` is f32, `zero` is bf16"],
        ),
        (
            Box::new(|tensors, _| {
                let codes = tensors.get_mut(&format!("{Q}.W_q")).expect("a tensor");
                *codes = (Dtype::U8, vec![31, 64], codes.2[..31 * 64].to_vec());
            }),
            vec!["q_proj.W_q", "[32, 64]", "[31, 64]"],
        ),
    ]);
}

#[test]
fn an_unknown_config_is_named() {
    assert_named(vec![
        (
            Box::new(|_, config| {
                config["quantization_config"]["solver_profile"] = json!("2023");
            }),
            vec!["2023"],
        ),
        (
            Box::new(|_, config| {
                config["quantization_config"]["quant_method"] = json!("hqq2");
            }),
            vec!["hqq2"],
        ),
    ]);
}
