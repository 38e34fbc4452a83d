//! The plugin `hqq` against the hqq library's own bytes and numbers, of 0.2.8 and of March 2024.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use std::collections::BTreeSet;
use std::sync::Arc;

use espalier_conformance::{Order, Threads};
use espalier_interface::format::{Codes, Decoding, Format};
use espalier_interface::{DType, ErrorCode, Instance, Options, PluginError, Quantizer, Services};
use espalier_tests::golden_bytes;
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::{Value as Json, json};

fn quantizer(given: &Json, threads: impl Services + 'static) -> Box<dyn Quantizer> {
    let mut options = Options::default();
    for spec in espalier_hqq::HQQ.options {
        let default = serde_json::from_str(spec.default).expect("JSON text");
        options.0.insert(spec.name.to_owned(), default);
    }
    options
        .0
        .extend(given.as_object().expect("options").clone());
    match (espalier_hqq::HQQ.create)(&options, Arc::new(threads)) {
        Ok(Instance::Quantizer(quantizer)) => quantizer,
        Ok(_) => panic!("hqq is not a quantizer"),
        Err(error) => panic!("{given}: {error}"),
    }
}

fn encode(quantizer: &dyn Quantizer, weight: &[f32], shape: [u64; 2]) -> (Format, Vec<Vec<u8>>) {
    try_encode(quantizer, weight, shape).expect("finite weights")
}

fn try_encode(
    quantizer: &dyn Quantizer,
    weight: &[f32],
    shape: [u64; 2],
) -> Result<(Format, Vec<Vec<u8>>), PluginError> {
    let format = quantizer.format(shape).expect("it fits");
    format.validate().expect("it agrees with itself");
    let bytes = format.segments.iter().map(|spec| spec.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = bytes.map(|bytes| vec![0xa5; bytes]).collect();
    let mut workspace = vec![0x5a; quantizer.encode_workspace(shape).expect("bytes") as usize];
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    quantizer.encode(weight, shape, &mut views, &mut workspace)?;
    Ok((format, segments))
}

#[test]
fn a_scale_that_overflows_is_a_number_that_is_not_finite() {
    let quantizer = quantizer(&json!({ "bits": 4, "group_size": 64 }), Threads::new(2));
    let mut weight = counted(4 * 64);
    weight[130] = f32::MAX;
    weight[140] = f32::MIN;
    let error = try_encode(&*quantizer, &weight, [4, 64]).expect_err("no scale");
    assert_eq!(error.code, ErrorCode::NOT_FINITE, "{error}");
    assert!(error.message.contains("group 2 of 4"), "{error}");
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let numbers = bytes.as_chunks::<4>().0.iter();
    numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The weight that `make_hqq.py` calls `counted`.
fn counted(elements: u64) -> Vec<f32> {
    let even = |i: u64| (((i * 2_654_435_761) % (1 << 32)) >> 8) as f64 / f64::from(1 << 24);
    let sum = |i: u64| ((even(4 * i) + even(4 * i + 1)) + even(4 * i + 2)) + even(4 * i + 3);
    (0..elements)
        .map(|i| ((sum(i) - 2.0) * 0.03) as f32)
        .collect()
}

/// A golden case: `name|bits|group size|axis|optimize|version or meta`.
struct Case<'a> {
    key: &'a str,
    options: Json,
    weight: Vec<f32>,
    shape: [u64; 2],
}

impl<'a> Case<'a> {
    fn of(key: &'a str, weights: &SafeTensors) -> Self {
        let parts: Vec<&str> = key.split('|').collect();
        let number = |at: usize| parts[at].parse::<u64>().expect("a number");
        let mut options = json!({
            "bits": number(1), "group_size": number(2), "axis": number(3), "optimize": parts[4] == "1",
        });
        if parts[5] != "0.2.8" {
            options["profile"] = json!("2024-03");
            options["meta"] = json!(parts[5]);
        }
        let shape: Vec<u64> = parts[0]
            .rsplit('_')
            .next()
            .expect("a shape")
            .split('x')
            .map(|n| n.parse().expect("an extent"))
            .collect();
        let weight = match weights.tensor(parts[0]) {
            Ok(view) => floats(view.data()),
            Err(_) => counted(shape[0] * shape[1]),
        };
        Case {
            key,
            options,
            weight,
            shape: [shape[0], shape[1]],
        }
    }
}

/// Differences from the golden numbers, over all cases.
#[derive(Default)]
struct Differences {
    codes: u64,
    numbers: u64,
    differing: Vec<String>,
}

impl Differences {
    fn codes(&mut self, key: &str, codes: &Codes, elements: u64, found: &[u8], expected: &[u8]) {
        self.codes += elements;
        if found == expected {
            return;
        }
        let differs = |&i: &u64| codes.read(found, i) != codes.read(expected, i);
        let differing = (0..elements).filter(differs);
        self.differing
            .extend(differing.map(|i| format!("{key}: code {i}")));
        assert!(!self.differing.is_empty(), "{key}: padding differs");
    }

    fn numbers<T: PartialEq + std::fmt::Debug>(&mut self, key: &str, found: &[T], expected: &[T]) {
        assert_eq!(found.len(), expected.len(), "{key}: numbers");
        self.numbers += found.len() as u64;
        let pairs = found.iter().zip(expected).enumerate();
        let differing = pairs.filter(|(_, (found, expected))| found != expected);
        self.differing
            .extend(differing.map(|(i, (f, e))| format!("{key}: {i} is {f:?}, expected {e:?}")));
    }
}

fn compare(case: &Case, golden: &SafeTensors, differences: &mut Differences) {
    let quantizer = quantizer(&case.options, Threads::new(2));
    let (format, segments) = encode(quantizer.as_ref(), &case.weight, case.shape);
    let Decoding::Affine { codes, .. } = &format.decoding else {
        panic!("{}: {:?}", case.key, format.decoding);
    };
    let expected =
        |what: &str| -> Option<TensorView> { golden.tensor(&format!("{}|{what}", case.key)).ok() };
    for (spec, found) in format.segments.iter().zip(&segments) {
        let key = format!("{}|{}", case.key, spec.name);
        let expected = expected(&spec.name).unwrap_or_else(|| panic!("no tensor {key}"));
        assert_eq!(found.len(), expected.data().len(), "{key}: bytes");
        match spec.name.as_str() {
            "codes" => {
                let elements = case.weight.len() as u64;
                differences.codes(&key, codes, elements, found, expected.data());
            }
            _ if spec.dtype == DType::U8 => differences.numbers(&key, found, expected.data()),
            _ => differences.numbers(&key, &floats(found), &floats(expected.data())),
        }
    }
    if let Some(expected) = expected("decoded") {
        let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let mut decoded = vec![f32::NAN; case.weight.len()];
        let [rows, cols] = case.shape;
        let done = format.decode(&views, 0..rows, 0..cols, &mut decoded);
        done.expect("described");
        let key = format!("{}|decoded", case.key);
        differences.numbers(&key, &decoded, &floats(expected.data()));
    }
}

/// Packed bytes, scales, zeros and decoded values equal the library's bit for bit: the solver adds
/// in torch's order.
#[test]
fn codes_and_numbers_equal_those_of_the_library() {
    let today = golden_bytes("hqq/quantizer.safetensors.gz");
    let weights = SafeTensors::deserialize(&today).expect("a safetensors file");
    let mut differences = Differences::default();
    let mut cases = 0;
    for file in [
        today.clone(),
        golden_bytes("hqq/quantizer_2024.safetensors.gz"),
    ] {
        let golden = SafeTensors::deserialize(&file).expect("a safetensors file");
        let keys: BTreeSet<&str> = golden
            .names()
            .into_iter()
            .filter_map(|name| name.strip_suffix("|codes"))
            .collect();
        cases += keys.len();
        for key in keys {
            compare(&Case::of(key, &weights), &golden, &mut differences);
        }
    }
    let Differences {
        codes,
        numbers,
        differing,
    } = &differences;
    println!(
        "{cases} cases, {codes} codes, {numbers} numbers: {} differ",
        differing.len()
    );
    let some = &differing[..differing.len().min(20)];
    assert!(
        some.is_empty(),
        "{} differ: {}",
        differing.len(),
        some.join("\n")
    );
    assert!(cases > 100, "{cases} cases");
}

#[test]
fn threads_and_their_order_change_no_byte() {
    let shape = [160, 1024];
    let weight = counted(shape[0] * shape[1]);
    for options in [
        json!({"bits": 2}),
        json!({"bits": 3, "axis": 0}),
        json!({"bits": 4, "axis": 0, "group_size": 40}),
        json!({"profile": "2024-03", "meta": "8bit"}),
    ] {
        let encoded = |threads| encode(quantizer(&options, threads).as_ref(), &weight, shape);
        let alone = encoded(Threads::new(1));
        for count in [2, 3] {
            assert_eq!(
                encoded(Threads::new(count)),
                alone,
                "{options}: {count} threads"
            );
        }
        let backward = Threads {
            count: 1,
            order: Order::Backward,
        };
        assert_eq!(encoded(backward), alone, "{options}: backward");
    }
}
