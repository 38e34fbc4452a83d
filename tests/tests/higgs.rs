//! The sample quantizer `higgs`, a third party's whose grid is part of its description, against
//! transformers' HIGGS.

use espalier_conformance::{largest, largest_difference};
use espalier_interface::{Quantizer, Serial};
use espalier_registry::{Registry, SearchPath};
use espalier_samples::{library, put};
use espalier_tests::Golden;
use serde_json::Map;
use tempfile::TempDir;

/// The weight of the golden data.
const SHAPE: [u64; 2] = [2, 1024];

/// Largest difference of decoded numbers, relative to the largest: sums of 512 in another order.
const ROUNDED: f64 = 2e-6;

/// The quantizer with its defaults, and the folder of its library.
fn higgs() -> (Box<dyn Quantizer>, TempDir) {
    let library = library("higgs");
    let folder = tempfile::tempdir().expect("a folder");
    let name = library.file_name().expect("a library is a file");
    let bytes = std::fs::read(&library).expect("just built");
    put(&folder.path().join(name), &bytes);
    let dirs = [("--plugin-dir", folder.path().to_owned())];
    let registry = Registry::discover(&SearchPath::new(dirs).without_linked());
    let made = registry.create_quantizer("higgs", &Map::new(), &Serial);
    (made.expect("it loads").0, folder)
}

#[test]
fn codes_scales_and_values_are_those_of_transformers() {
    let golden = Golden::open("higgs/quantizer.safetensors");
    let (higgs, _folder) = higgs();
    let format = higgs.format(SHAPE).expect("a shape that it takes");
    let weight: Vec<f32> = golden.numbers("weight").iter().map(|&x| x as f32).collect();
    let mut codes = vec![0xa5; 1024];
    let mut scales = vec![0xa5; 4 * 4];
    let bytes: Vec<u64> = format.segments.iter().map(|one| one.bytes()).collect();
    // A scale for each 512 elements, and no segment for the grid.
    assert_eq!(bytes, [1024, 16]);
    let encoded = higgs.encode(&weight, SHAPE, &mut [&mut codes, &mut scales], &mut []);
    encoded.expect("a finite weight");

    let expected = golden.numbers("codes");
    let same = codes
        .iter()
        .zip(expected)
        .filter(|(x, y)| f64::from(**x) == **y);
    assert_eq!(same.count(), 1024, "codes that are those of transformers");
    // Theirs are repeated for each group of 256, before the rotation's factor.
    let factor = 512f64.sqrt();
    for (scale, expected) in scales
        .as_chunks::<4>()
        .0
        .iter()
        .zip(golden.numbers("scales").chunks(2))
    {
        let scale = f64::from(f32::from_le_bytes(*scale)) * factor;
        assert!(
            (scale / expected[0] - 1.0).abs() < 1e-6,
            "{scale}, {expected:?}"
        );
    }

    let mut found = vec![0.0f32; 2048];
    let decoded = format.decode(&[&codes, &scales], 0..2, 0..1024, &mut found);
    decoded.expect("a description");
    let expected = golden.numbers("decoded");
    let error = largest_difference(&found, expected);
    let most = ROUNDED * largest(expected.iter().map(|x| x.abs()));
    assert!(error <= most, "{error:e}, expected at most {most:e}");
}
