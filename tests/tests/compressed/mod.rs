//! Weights of `mxfp4` and `nvfp4` beside those of compressed-tensors: the same bytes, the same
//! numbers, the same logits.

use std::fs;

use espalier_config::{Sources, resolve};
use espalier_interface::{Quantizer, Serial};
use espalier_registry::{Registry, SearchPath};
use espalier_tests::{Rig, golden_path, largest_difference};
use half::bf16;
use safetensors::SafeTensors;
use serde_json::{Map, Value as Json};

use crate::packing::{batch, bits, keys, rig};
use crate::{LORA, pack};

const KINDS: [&str; 2] = ["mxfp4", "nvfp4"];

fn golden() -> Vec<u8> {
    fs::read(golden_path("packed/compressed_tensors.safetensors")).expect("the golden file")
}

fn quantizer(name: &str) -> Box<dyn Quantizer> {
    let resolved = resolve(&Sources::default()).expect("a config");
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let made = registry.create_quantizer(name, &Map::new(), &Serial);
    made.expect("it is shipped").0
}

#[test]
fn weights_with_edges_have_the_bytes_and_numbers_of_compressed_tensors() {
    let file = golden();
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

#[test]
fn written_checkpoints_equal_those_of_compressed_tensors_and_load_without_encoding() {
    let file = golden();
    let theirs = SafeTensors::deserialize(&file).expect("safetensors");
    let configs = fs::read_to_string(golden_path("packed/compressed_tensors.json"));
    let configs: Json = serde_json::from_str(&configs.expect("the configs")).expect("JSON");
    for kind in KINDS {
        let (place, done) = pack(&[&format!("plugins=[\"{kind}\"]")]);
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let out = place.path().join("out");
        let ours = fs::read(out.join("model.safetensors")).expect("weights");
        let ours = SafeTensors::deserialize(&ours).expect("our file");
        let mut compared = 0;
        for (name, expected) in theirs.tensors() {
            let prefix = format!("{kind}.model.");
            let Some(name) = name.strip_prefix(&prefix) else {
                continue;
            };
            let found = ours.tensor(&format!("model.{name}")).expect("its tensor");
            let described = |tensor: &safetensors::tensor::TensorView<'_>| {
                (
                    tensor.dtype(),
                    tensor.shape().to_vec(),
                    tensor.data().to_vec(),
                )
            };
            assert!(described(&found) == described(&expected), "{kind}, {name}");
            compared += 1;
        }
        let per_weight = if kind == "mxfp4" { 2 } else { 3 };
        assert_eq!(compared, 7 * per_weight, "{kind}");
        let config = fs::read_to_string(out.join("config.json")).expect("a config");
        let config: Json = serde_json::from_str(&config).expect("JSON");
        assert!(
            holds(&configs[kind], &config["quantization_config"]),
            "{kind}: {config:#}"
        );
        let packed = rig(&out, &[LORA]);
        assert_eq!(packed.loaded.encoded, 0, "{kind}");
        let plugins = format!("[\"{kind}\", \"lora\"]");
        let encoded = rig(&golden_path("packed/dense"), &[("plugins", &plugins)]);
        assert!(encoded.loaded.encoded > 0);
        assert_eq!(bits(&packed), bits(&encoded), "{kind}");
        let expected = theirs.tensor(&format!("{kind}.logits")).expect("logits");
        let expected = numbers(expected.data(), |x| f64::from(f32::from_le_bytes(x)));
        let difference = largest_difference(&packed.logits(&batch()), &expected);
        assert!(difference <= 2e-5, "{kind}: logits differ by {difference}");
    }
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
        let mut file = fs::read(&path).expect("weights");
        let name = "model.layers.0.mlp.up_proj.weight_scale";
        let header = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
        let told: Json = serde_json::from_slice(&file[8..8 + header]).expect("a header");
        let begin = told[name]["data_offsets"][0].as_u64().expect("a number") as usize;
        file[8 + header + begin + 5] = code;
        fs::write(&path, file).expect("a file");
        let out = place.path().join("out");
        let error = Rig::try_new(&out, &keys(&[LORA]));
        let message = error.err().expect("a damaged scale").to_string();
        let expected = format!("tensor `{name}`: element 5: code {code} stands for no number");
        assert!(message.contains(&expected), "{message}");
    }
}
