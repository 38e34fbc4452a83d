//! The sample quantizers `q8-0` and `q4-k`, a third party's whose numbers lie between their codes,
//! against the package gguf.

use espalier_interface::format::{BitOrder, Codes, Format};
use espalier_interface::{Quantizer, Serial};
use espalier_registry::{Registry, SearchPath};
use espalier_samples::{library, put};
use espalier_tests::Golden;
use serde_json::Map;
use tempfile::TempDir;

/// A quantizer of the sample, and the folder of its library.
fn quantizer(name: &str) -> (Box<dyn Quantizer>, TempDir) {
    let library = library("gguf");
    let folder = tempfile::tempdir().expect("a folder");
    let file = library.file_name().expect("a library is a file");
    let bytes = std::fs::read(&library).expect("just built");
    put(&folder.path().join(file), &bytes);
    let dirs = [("--plugin-dir", folder.path().to_owned())];
    let registry = Registry::discover(&SearchPath::new(dirs).without_linked());
    let made = registry.create_quantizer(name, &Map::new(), &Serial);
    (made.expect("it loads").0, folder)
}

/// A block of q4_K with its scales, minima and codes each as one stream, in as many bytes. GGUF has
/// the highest two bits of the last four scales and minima above those of the first four, and the
/// codes of 32 elements below those of the next 32.
fn in_streams(block: &[u8]) -> Vec<u8> {
    let (factors, packed, codes) = (&block[..4], &block[4..16], &block[16..]);
    let numbers = |kind: usize| -> Vec<u8> {
        let first = (0..4).map(|k| packed[4 * kind + k] & 63);
        let last = (0..4).map(|k| {
            let low = packed[8 + k] >> (4 * kind) & 15;
            low | packed[4 * kind + k] >> 6 << 4
        });
        first.chain(last).collect()
    };
    let stream = |bits, codes: &[u8]| {
        let layout = Codes {
            segment: 0,
            bits,
            order: BitOrder::Stream,
        };
        let mut bytes = vec![0; layout.words(codes.len() as u64) as usize];
        layout.pack(codes, &mut bytes);
        bytes
    };
    let in_order: Vec<u8> = codes
        .chunks(32)
        .flat_map(|run| {
            let low = run.iter().map(|byte| byte & 15);
            low.chain(run.iter().map(|byte| byte >> 4))
        })
        .collect();
    let parts = [
        factors.to_vec(),
        stream(6, &numbers(0)),
        stream(6, &numbers(1)),
        stream(4, &in_order),
    ];
    parts.concat()
}

/// Requires the bits of the golden numbers.
fn assert_decodes(format: &Format, blocks: &[u8], expected: &[f64]) {
    let [rows, cols] = format.shape;
    let mut found = vec![0.0f32; expected.len()];
    let decoded = format.decode(&[blocks], 0..rows, 0..cols, &mut found);
    decoded.expect("a description");
    for (at, (found, &expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected as f32;
        assert_eq!(found.to_bits(), expected.to_bits(), "element {at}");
    }
}

fn bytes(golden: &Golden, name: &str) -> Vec<u8> {
    golden.numbers(name).iter().map(|&x| x as u8).collect()
}

#[test]
fn blocks_of_q8_0_lie_as_in_gguf_files() {
    let golden = Golden::open("gguf/blocks.safetensors");
    let ((q8_0, _folder), shape) = (quantizer("q8-0"), [4, 256]);
    let format = q8_0.format(shape).expect("a shape that it takes");
    let weight: Vec<f32> = golden.numbers("weight").iter().map(|&x| x as f32).collect();
    let mut blocks = vec![0xa5; format.bytes() as usize];
    let encoded = q8_0.encode(&weight, shape, &mut [&mut blocks], &mut []);
    encoded.expect("a finite weight");
    assert_eq!(blocks, bytes(&golden, "q8_0"));
    assert_decodes(&format, &blocks, golden.numbers("q8_0_decoded"));
}

#[test]
fn blocks_of_q4_k_have_the_values_of_gguf_in_as_many_bytes() {
    let golden = Golden::open("gguf/blocks.safetensors");
    let (q4_k, _folder) = quantizer("q4-k");
    let format = q4_k.format([3, 512]).expect("a shape that it takes");
    let blocks = bytes(&golden, "q4_k");
    let in_streams: Vec<u8> = blocks.chunks(144).flat_map(in_streams).collect();
    assert_eq!(blocks.len() as u64, format.bytes());
    assert_decodes(&format, &in_streams, golden.numbers("q4_k_decoded"));
}
