//! Bytes as packed weights: through the boundary of the plugins that pack them, and by a possible
//! description.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use espalier_interface::format::{Decoding, Format};
use espalier_interface::saved_form::SavedDescription;
use espalier_interface::{DType, ErrorCode, Quantizer, Serial};
use espalier_kernels::decode::{FormatDecoder, TileDecoder};
use espalier_registry::{Registry, SearchPath};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::place::first_line;

/// Most elements of a decoded weight.
const MOST_ELEMENTS: u64 = 1 << 13;

/// The first line of an input of [`quantizer`].
#[derive(Deserialize)]
struct Asked {
    /// A quantizer that ships, such as `nf4`.
    component: String,
    #[serde(default)]
    options: Map<String, Json>,
    shape: [u64; 2],
    #[serde(default)]
    rows: [u64; 2],
    #[serde(default)]
    cols: [u64; 2],
    dtype: Option<DType>,
    saved: Option<SavedDescription>,
}

/// A quantizer behind its boundary: creates it, describes, encodes the bytes as numbers, decodes
/// the bytes as a weight.
pub fn quantizer(data: &[u8]) {
    let (head, bytes) = first_line(data);
    let Ok(asked) = serde_json::from_slice::<Asked>(head) else {
        return;
    };
    let Some(quantizer) = made(&asked.component, &asked.options) else {
        return;
    };
    if let Some(saved) = &asked.saved
        && let Ok(options) = quantizer.options_from_saved(saved)
    {
        let options: Map<String, Json> = serde_json::to_value(options)
            .ok()
            .and_then(|options| options.as_object().cloned())
            .expect("options are an object");
        assert!(made(&asked.component, &options).is_some(), "{options:?}");
    }
    let _ = quantizer.saved_form(asked.shape, asked.dtype.unwrap_or(DType::BF16));
    let workspace = quantizer.encode_workspace(asked.shape);
    let Ok(format) = quantizer.format(asked.shape) else {
        return;
    };
    format
        .validate()
        .expect("a quantizer describes what it can decode");
    assert_eq!(format.shape, asked.shape);
    let [rows, cols] = asked.shape;
    if rows.saturating_mul(cols) > MOST_ELEMENTS {
        return;
    }
    let workspace = workspace.expect("the shape fits");
    encode(quantizer.as_ref(), &format, bytes, workspace);
    let segments = segments(&format, bytes);
    let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let (rows, cols) = (within(asked.rows, rows), within(asked.cols, cols));
    let mut out = vec![0.0; ((rows.end - rows.start) * (cols.end - cols.start)) as usize];
    quantizer
        .decode(&views, asked.shape, rows.clone(), cols.clone(), &mut out)
        .expect("segments of the sizes that it gave");
    if !matches!(format.decoding, Decoding::Callback) {
        agree(&format, &views, (rows, cols), &out);
    }
}

/// A description of a packed weight, a line of JSON, and the bytes of its segments.
pub fn format(data: &[u8]) {
    let (head, bytes) = first_line(data);
    let Ok(format) = serde_json::from_slice::<Format>(head) else {
        return;
    };
    let [rows, cols] = format.shape;
    // Both accept the same descriptions.
    let decoder = FormatDecoder::new(&format);
    let is_whole = format.validate().is_ok();
    let is_described = !matches!(format.decoding, Decoding::Callback);
    assert_eq!(decoder.is_ok(), is_whole && is_described);
    if decoder.is_err() || rows * cols > MOST_ELEMENTS {
        return;
    }
    let segments = segments(&format, bytes);
    let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let mut out = vec![0.0; (rows * cols) as usize];
    format
        .decode(&views, 0..rows, 0..cols, &mut out)
        .expect("the description is whole");
    agree(&format, &views, (0..rows, 0..cols), &out);
}

fn made(component: &str, options: &Map<String, Json>) -> Option<Box<dyn Quantizer>> {
    static REGISTRY: LazyLock<Registry> =
        LazyLock::new(|| Registry::discover(&SearchPath::new([] as [(&str, PathBuf); 0])));
    let made = REGISTRY.create_quantizer(component, options, &Serial);
    made.ok().map(|(quantizer, _)| quantizer)
}

/// Encodes `bytes`, repeated, as numbers; the encoded weight decodes to numbers.
fn encode(quantizer: &dyn Quantizer, format: &Format, bytes: &[u8], workspace: u64) {
    let [rows, cols] = format.shape;
    let numbers = repeated(bytes, rows * cols * 4);
    let weight: Vec<f32> = numbers
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().expect("4 bytes")))
        .collect();
    let mut segments = segments(format, &[]);
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let mut workspace = vec![0; workspace as usize];
    let encoded = quantizer.encode(&weight, format.shape, &mut views, &mut workspace);
    match encoded {
        Ok(()) => assert!(
            weight.iter().all(|number| number.is_finite()),
            "numbers that are not finite were encoded"
        ),
        Err(error) => {
            // Sums and products of extreme numbers overflow, which is refused.
            let is_usual = |&number: &f32| number == 0.0 || (1e-9..1e9).contains(&number.abs());
            let known = [ErrorCode::NOT_FINITE, ErrorCode::INVALID].contains(&error.code);
            assert!(
                known && !weight.iter().all(is_usual),
                "usual numbers were refused: {error}"
            );
        }
    }
}

/// Asserts that the kernels decode a packed weight as its description defines, bit for bit.
fn agree(
    format: &Format,
    views: &[&[u8]],
    (rows, cols): (Range<u64>, Range<u64>),
    expected: &[f32],
) {
    let decoder = FormatDecoder::new(format).expect("the description is whole");
    let weight = decoder.weight(views);
    let mut found = vec![0.0; expected.len()];
    let of = |range: Range<u64>| range.start as usize..range.end as usize;
    weight.decode(of(rows), of(cols), &mut found);
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(
            same,
            "element {at}: {found} by the kernel, {expected} by the description"
        );
    }
}

/// The segments that the format describes, filled with repeated `bytes`.
fn segments(format: &Format, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut at = 0;
    let mut segments = Vec::new();
    for spec in &format.segments {
        let rest = &bytes[at..];
        segments.push(repeated(rest, spec.bytes()));
        at = (at + spec.bytes() as usize).min(bytes.len());
    }
    segments
}

/// `count` bytes: repeated `bytes`, or zeros if it is empty.
fn repeated(bytes: &[u8], count: u64) -> Vec<u8> {
    match bytes.is_empty() {
        true => vec![0; count as usize],
        false => bytes.iter().copied().cycle().take(count as usize).collect(),
    }
}

/// A range within `0..end` of any two numbers; all of it if they are equal.
fn within([a, b]: [u64; 2], end: u64) -> Range<u64> {
    let (a, b) = (a % (end + 1), b % (end + 1));
    match a == b {
        true => 0..end,
        false => a.min(b)..a.max(b),
    }
}
