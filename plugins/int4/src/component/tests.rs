//! Options that `int4` refuses, the sizes of its formats, and weights too large for a scale.

use espalier_interface::{Quantizer, Serial};
use serde_json::{Value as Json, json};

use super::*;

fn create(given: Json) -> Result<Box<dyn Quantizer>> {
    let mut options = Options::default();
    for spec in INT4.options {
        let default = serde_json::from_str(spec.default).expect("JSON text");
        options.0.insert(spec.name.to_owned(), default);
    }
    let Json::Object(given) = given else {
        panic!("options are an object");
    };
    options.0.extend(given);
    match (INT4.create)(&options, Arc::new(Serial))? {
        Instance::Quantizer(quantizer) => Ok(quantizer),
        _ => panic!("int4 is a quantizer"),
    }
}

#[test]
fn unsupported_options_are_refused_with_a_message() {
    for (given, words) in [
        (json!({"bits": 5}), "4, 3 or 2, found 5"),
        (json!({"group_size": 0}), "8 to 1048576, found 0"),
        (json!({"scale_dtype": "f8"}), "f16, bf16 or f32, found f8"),
        (
            json!({"files": "gguf"}),
            "gptqmodel, gptq_v2 or awq, found gguf",
        ),
    ] {
        let Err(error) = create(given.clone()) else {
            panic!("{given} is taken");
        };
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn sizes_are_those_of_the_options() {
    for (given, bits) in [
        (json!({}), 4.0 + 20.0 / 128.0),
        (json!({"symmetric": true}), 4.0 + 16.0 / 128.0),
        (json!({"bits": 2, "group_size": 64}), 2.0 + 20.0 / 64.0),
        (json!({"bits": 3, "scale_dtype": "f32"}), 3.2 + 36.0 / 128.0),
    ] {
        let format = create(given.clone()).expect("options").format([1024, 1024]);
        let format = format.expect("it fits");
        format.validate().expect("it agrees with itself");
        let found = 8.0 * format.bytes() as f64 / f64::from(1024 * 1024);
        assert!((found - bits).abs() < 2e-4, "{given}: {found} bits");
    }
}

#[test]
fn a_weight_too_large_for_its_scale_is_refused_with_a_way_out() {
    let quantizer = create(json!({})).expect("options");
    let shape = [1, 4];
    let weight = [1e9, 0.0, -1e9, 1.0];
    let bytes = quantizer.encode_workspace(shape).expect("bytes");
    let mut workspace = vec![0; bytes as usize];
    let segments = quantizer.format(shape).expect("it fits").segments;
    let mut memory: Vec<_> = segments
        .iter()
        .map(|one| vec![0; one.bytes() as usize])
        .collect();
    let mut segments: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    let done = quantizer.encode(&weight, shape, &mut segments, &mut workspace);
    let error = done.expect_err("f16 ends at 65504");
    assert!(error.message.contains("set scale_dtype"), "{error}");
}
