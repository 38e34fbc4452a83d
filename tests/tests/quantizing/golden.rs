//! The peer's golden files -> the expected bytes and numbers of a weight.

use espalier_tests::golden_bytes;
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;

/// A golden file.
pub struct Golden(pub Vec<u8>);

impl Golden {
    pub fn open(name: &str) -> Golden {
        Golden(golden_bytes(&format!("bnb/{name}")))
    }

    pub fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).expect("a safetensors file")
    }
}

pub fn bytes<'a>(tensors: &SafeTensors<'a>, key: &str) -> &'a [u8] {
    tensors
        .tensor(key)
        .unwrap_or_else(|e| panic!("{key}: {e}"))
        .data()
}

/// A tensor in f32, as a matrix of one row a first extent.
pub fn matrix(tensors: &SafeTensors, key: &str) -> (Vec<f32>, [u64; 2]) {
    let view = tensors.tensor(key).unwrap_or_else(|e| panic!("{key}: {e}"));
    let pairs = |decode: fn([u8; 2]) -> f32| -> Vec<f32> {
        let pairs = view.data().chunks_exact(2);
        pairs.map(|b| decode(b.try_into().unwrap())).collect()
    };
    let numbers = match view.dtype() {
        Dtype::F32 => floats(view.data()),
        Dtype::BF16 => pairs(|b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F16 => pairs(|b| f16::from_le_bytes(b).to_f32()),
        other => panic!("{key} is {other:?}"),
    };
    let shape = match *view.shape() {
        [n] => [1, n as u64],
        [rows, cols] => [rows as u64, cols as u64],
        ref other => panic!("{key} is {other:?}"),
    };
    (numbers, shape)
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[track_caller]
pub fn assert_bytes(key: &str, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{key}: bytes");
    if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!(
            "{key}: byte {i} is {:#04x}, expected {:#04x}",
            found[i], expected[i]
        );
    }
}

/// The case whose values in bf16 are left out of the file, for its size.
const DECODED_IN_F32: &str = "normal_256x128";

/// Decoded values of an fp4 weight may differ in the sign of a zero. The peer's scalar kernel reads
/// code 8 as -0, its vector kernel and its table as +0 (see the golden folder's README).
#[track_caller]
pub fn assert_decoded(tensors: &SafeTensors, key: &str, found: &[f32]) {
    let second_zero = key.contains(".fp4.")
        && ["vec_1000", "ragged_7x50"]
            .iter()
            .any(|c| key.starts_with(c));
    let (expected, _) = matrix(tensors, &format!("{key}_f32"));
    assert_eq!(found.len(), expected.len(), "{key}: elements");
    for (i, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        let same = found.to_bits() == expected.to_bits();
        assert!(
            same || (second_zero && found == 0.0 && expected == 0.0),
            "{key}: element {i} is {found:e}, expected {expected:e}"
        );
    }
    if key.starts_with(DECODED_IN_F32) {
        return;
    }
    // The peer's bf16 instruction flushes subnormal results to zero; rounding does not.
    let (expected, _) = matrix(tensors, &format!("{key}_bf16"));
    for (i, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        let rounded = bf16::from_f32(found).to_f32();
        let flushed =
            rounded.is_subnormal() && key.starts_with("outliers_16x64") && expected == 0.0;
        assert!(
            rounded == expected || flushed,
            "{key}: element {i} in bf16 is {rounded:e}, expected {expected:e}"
        );
    }
}

/// Name, 4-bit type and block size of each case.
pub fn four_bit_cases() -> Vec<(String, String, u64)> {
    let cases: Json = serde_json::from_slice(&Golden::open("fourbit.json").0).unwrap();
    let cases = cases["cases"].as_object().unwrap().iter();
    let cases: Vec<_> = cases
        .map(|(key, case)| {
            let kind = case["quant_type"].as_str().unwrap().to_owned();
            (key.clone(), kind, case["blocksize"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(cases.len(), 50);
    cases
}

pub fn weight_key(case: &str) -> String {
    format!("{}.W", case.split('.').next().unwrap())
}
