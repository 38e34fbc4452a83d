//! Weights of `mxfp4` and `nvfp4` beside those of compressed-tensors, and of `int4` beside files in
//! the layout of GPTQ and AWQ: the same bytes, the same numbers, the same logits.

mod packages;

use std::fs;
use std::path::Path;

use espalier_config::{Sources, resolve};
use espalier_interface::{Quantizer, Serial};
use espalier_registry::{Registry, SearchPath};
use espalier_tests::{Rig, golden_path, largest_difference};
use half::bf16;
use safetensors::SafeTensors;
use serde_json::{Map, Value as Json};
use tempfile::TempDir;

use crate::packing::{batch, bits, keys, rig};
use crate::{LORA, pack};

const KINDS: [&str; 2] = ["mxfp4", "nvfp4"];

fn golden(name: &str) -> Vec<u8> {
    fs::read(golden_path(&format!("packed/{name}"))).expect("the golden file")
}

fn registry() -> Registry {
    let resolved = resolve(&Sources::default()).expect("a config");
    Registry::discover(&SearchPath::of(&resolved))
}

fn quantizer(name: &str) -> Box<dyn Quantizer> {
    let made = registry().create_quantizer(name, &Map::new(), &Serial);
    made.expect("it is shipped").0
}

#[test]
fn weights_with_edges_have_the_bytes_and_numbers_of_compressed_tensors() {
    let file = golden("compressed_tensors.safetensors");
    let tensors = SafeTensors::deserialize(&file).expect("safetensors");
    let tensor = |name: &str| tensors.tensor(name).unwrap_or_else(|_| panic!("{name}"));
    for (kind, part) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, "edges"), (kind, "usual")])
    {
        let weight: Vec<f32> = numbers(tensor(part).data(), f32::from_le_bytes);
        let shape = [
            tensor(part).shape()[0] as u64,
            tensor(part).shape()[1] as u64,
        ];
        let quantizer = quantizer(kind);
        let format = quantizer.format(shape).expect("whole blocks");
        let mut segments: Vec<Vec<u8>> = format
            .segments
            .iter()
            .map(|spec| vec![0; spec.bytes() as usize])
            .collect();
        let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
        let encoded = quantizer.encode(&weight, shape, &mut views, &mut []);
        encoded.expect("finite numbers");
        let names = ["weight_packed", "weight_scale", "weight_global_scale"];
        for (segment, name) in segments.iter().zip(names) {
            let name = format!("{kind}.{part}.{name}");
            assert_eq!(segment, tensor(&name).data(), "{name}");
        }
        let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let mut decoded = vec![0.0; weight.len()];
        let done = quantizer.decode(&views, shape, 0..shape[0], 0..shape[1], &mut decoded);
        done.expect("its own segments");
        let expected = tensor(&format!("{kind}.{part}.decoded"));
        let expected = numbers(expected.data(), bf16::from_le_bytes);
        for (at, (found, expected)) in decoded.into_iter().zip(expected).enumerate() {
            let found = bf16::from_f32(found);
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{kind}, {part}, element {at}"
            );
        }
    }
}

fn numbers<T, const BYTES: usize>(bytes: &[u8], read: impl Fn([u8; BYTES]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().copied().map(read).collect()
}

/// The golden dense model packed under config values; its tensors are those of a golden file that
/// begin with `KIND.model.`, of which there are `count`.
fn compare_written(file: &[u8], kind: &str, values: &[&str], count: usize) -> TempDir {
    let theirs = SafeTensors::deserialize(file).expect("safetensors");
    let (place, done) = pack(values);
    done.unwrap_or_else(|error| panic!("{kind}: {error}"));
    let ours = fs::read(place.path().join("out/model.safetensors")).expect("weights");
    let ours = SafeTensors::deserialize(&ours).expect("our file");
    let prefix = format!("{kind}.model.");
    let mut compared = 0;
    for (name, expected) in theirs.tensors() {
        let Some(name) = name.strip_prefix(&prefix) else {
            continue;
        };
        let found = ours.tensor(&format!("model.{name}"));
        let found = found.unwrap_or_else(|_| panic!("{kind}: {name} is missing"));
        assert_eq!(found.dtype(), expected.dtype(), "{kind}, {name}");
        assert_eq!(found.shape(), expected.shape(), "{kind}, {name}");
        assert!(found.data() == expected.data(), "{kind}, {name}");
        compared += 1;
    }
    assert_eq!(compared, count, "{kind}");
    place
}

/// What is packed in the files of `out` has the numbers of the model that is packed at load, and
/// the golden logits.
fn compare_loaded(file: &[u8], kind: &str, out: &Path, at_load: &[(&str, &str)]) {
    let packed = rig(out, &[LORA]);
    assert_eq!(packed.loaded.encoded, 0, "{kind}");
    let encoded = rig(&golden_path("packed/dense"), at_load);
    assert!(encoded.loaded.encoded > 0);
    assert_eq!(bits(&packed), bits(&encoded), "{kind}");
    let theirs = SafeTensors::deserialize(file).expect("safetensors");
    let expected = theirs.tensor(&format!("{kind}.logits")).expect("logits");
    let expected = numbers(expected.data(), |x| f64::from(f32::from_le_bytes(x)));
    let difference = largest_difference(&packed.logits(&batch()), &expected);
    assert!(difference <= 2e-5, "{kind}: logits differ by {difference}");
}

fn config_of(model: &Path) -> Json {
    let config = fs::read_to_string(model.join("config.json")).expect("a config");
    serde_json::from_str(&config).expect("JSON")
}

#[test]
fn written_checkpoints_equal_those_of_compressed_tensors_and_load_without_encoding() {
    let file = golden("compressed_tensors.safetensors");
    let configs = fs::read_to_string(golden_path("packed/compressed_tensors.json"));
    let configs: Json = serde_json::from_str(&configs.expect("the configs")).expect("JSON");
    for (kind, per_weight) in [("mxfp4", 2), ("nvfp4", 3)] {
        let values = format!("plugins=[\"{kind}\"]");
        let place = compare_written(&file, kind, &[&values], 7 * per_weight);
        let out = place.path().join("out");
        let config = config_of(&out);
        assert!(
            holds(&configs[kind], &config["quantization_config"]),
            "{kind}: {config:#}"
        );
        let plugins = format!("[\"{kind}\", \"lora\"]");
        compare_loaded(&file, kind, &out, &[("plugins", &plugins)]);
    }
}

#[test]
fn written_checkpoints_have_the_layout_of_gptq_and_awq_and_load_without_encoding() {
    let file = golden("int4.safetensors");
    let plugins = "plugins=[\"int4\"]";
    let group = ("quantizer.int4.group_size", "32");
    let size = "quantizer.int4.group_size=32";
    for (kind, more, per_weight) in [
        ("gptq", "quantizer.int4.files=\"gptq\"", 4),
        ("awq", "quantizer.int4.files=\"awq\"", 3),
    ] {
        let place = compare_written(&file, kind, &[plugins, size, more], 7 * per_weight);
        let out = place.path().join("out");
        assert_eq!(config_of(&out)["quantization_config"]["quant_method"], kind);
        let at_load = [("plugins", "[\"int4\", \"lora\"]"), group];
        compare_loaded(&file, kind, &out, &at_load);
    }
    let symmetric = "quantizer.int4.symmetric=true";
    let place = compare_written(&file, "gptq-sym", &[plugins, size, symmetric], 4);
    let packed = rig(&place.path().join("out"), &[LORA]);
    assert_eq!(packed.loaded.encoded, 0);
}

#[test]
fn groups_in_the_order_of_activations_are_refused() {
    let plugins = "plugins=[\"int4\"]";
    let (place, done) = pack(&[plugins, "quantizer.int4.group_size=32"]);
    done.expect("packed");
    let out = place.path().join("out");
    let refusal = || {
        let refused = Rig::try_new(&out, &keys(&[LORA]));
        refused.err().expect("groups of other columns").to_string()
    };
    let name = "model.layers.0.mlp.up_proj.g_idx";
    change_byte(&out.join("model.safetensors"), name, 4, 1);
    let message = refusal();
    let expected = format!("tensor `{name}`: element 1: expected 0, found 1");
    assert!(message.contains(&expected), "{message}");
    let mut config = config_of(&out);
    config["quantization_config"]["desc_act"] = Json::Bool(true);
    fs::write(out.join("config.json"), config.to_string()).expect("a config");
    let message = refusal();
    assert!(message.contains("`desc_act`"), "{message}");
}

/// Sets a byte of a tensor in a safetensors file.
fn change_byte(path: &Path, name: &str, index: usize, byte: u8) {
    let mut file = fs::read(path).expect("weights");
    let header = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let told: Json = serde_json::from_slice(&file[8..8 + header]).expect("a header");
    let begin = told[name]["data_offsets"][0].as_u64().expect("a number") as usize;
    file[8 + header + begin + index] = byte;
    fs::write(path, file).expect("a file");
}

/// Whether what is said in `expected` is said in `found`; nothing is as good as null.
fn holds(expected: &Json, found: &Json) -> bool {
    match expected {
        Json::Object(fields) => fields
            .iter()
            .all(|(key, expected)| holds(expected, found.get(key).unwrap_or(&Json::Null))),
        expected => expected == found,
    }
}

#[test]
fn a_scale_that_is_no_number_is_refused_by_tensor_and_element() {
    for (kind, code) in [("mxfp4", 255u8), ("nvfp4", 0x7f)] {
        let (place, done) = pack(&[&format!("plugins=[\"{kind}\"]")]);
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let path = place.path().join("out/model.safetensors");
        let name = "model.layers.0.mlp.up_proj.weight_scale";
        change_byte(&path, name, 5, code);
        let out = place.path().join("out");
        let error = Rig::try_new(&out, &keys(&[LORA]));
        let message = error.err().expect("a damaged scale").to_string();
        let expected = format!("tensor `{name}`: element 5: code {code} stands for no number");
        assert!(message.contains(&expected), "{message}");
    }
}
