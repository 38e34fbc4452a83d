//! Which numbers are refused, and how a weight is decoded on threads.

use std::ops::Range;
use std::sync::Arc;

use espalier_interface::format::{BitOrder, Codes, SegmentSpec, ValueSource};
use espalier_system::failure::chain;
use espalier_system::threads::HostServices;

use super::*;

#[test]
fn numbers_that_are_not_finite_are_found_in_every_dtype() {
    let f32s: Vec<u8> = [1.0, -f32::MAX, f32::NEG_INFINITY]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(not_finite(&f32s, DType::F32), Some(2));
    let bf16s: Vec<u8> = [half::bf16::MAX, half::bf16::NAN]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(not_finite(&bf16s, DType::BF16), Some(1));
    let f16s: Vec<u8> = [half::f16::MAX, half::f16::MIN, half::f16::INFINITY]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(not_finite(&f16s, DType::F16), Some(2));
}

#[test]
fn numbers_of_every_step_are_checked() {
    let codes = Codes {
        segment: 0,
        bits: 1,
        order: BitOrder::LowFirst,
    };
    let segment = |name: &str, dtype, len| SegmentSpec::new(name, dtype, len);
    let format = Format {
        quantizer: "q".to_owned(),
        shape: [2, 4],
        segments: vec![
            segment("codes", DType::U8, 1),
            segment("codebook", DType::F32, 4),
            segment("scales", DType::F32, 4),
            segment("factors", DType::F32, 4),
            segment("places", DType::U8, 2),
            segment("outliers", DType::F32, 2),
        ],
        decoding: Decoding::Steps {
            source: ValueSource::Vectors {
                codes: vec![codes],
                codebooks: vec![1],
                len: 2,
            },
            steps: vec![
                Step::Times {
                    blocks: BlockMap::Groups { size: 2 },
                    values: BlockValues::Stored { segment: 2 },
                },
                Step::Times {
                    blocks: BlockMap::Columns,
                    values: BlockValues::Stored { segment: 3 },
                },
                Step::Outliers {
                    size: 4,
                    count: 1,
                    positions: 4,
                    values: 5,
                },
            ],
        },
    };
    format.validate().expect("it agrees with itself");
    let check = |wrong: Option<usize>| {
        let segments = format.segments.iter().enumerate().map(|(index, segment)| {
            let mut bytes = vec![0; segment.bytes() as usize];
            if wrong == Some(index) {
                // The last number of the segment.
                let at = bytes.len() - 4;
                bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            bytes
        });
        let segments: Vec<Vec<u8>> = segments.collect();
        let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        check_numbers(&format, &segments)
    };
    check(None).expect("all are finite");
    for (segment, words) in [
        (1, "number 3 of segment `codebook`"),
        (2, "factor of block 3 is NaN"),
        (3, "factor of block 3 is NaN"),
        (5, "number 1 of segment `outliers`"),
    ] {
        let error = check(Some(segment)).expect_err(words);
        assert!(error.message.contains(words), "{error}");
    }
}

/// Decodes element `[n, m]` to `n`, and nothing of row `fails_at`.
struct RowNumbers {
    fails_at: u64,
}

impl Quantizer for RowNumbers {
    fn format(&self, shape: [u64; 2]) -> PluginResult<Format> {
        Ok(Format {
            quantizer: "row-numbers".to_owned(),
            shape,
            segments: Vec::new(),
            decoding: Decoding::Callback,
        })
    }

    fn encode(
        &self,
        _: &[f32],
        _: [u64; 2],
        _: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> PluginResult<()> {
        Ok(())
    }

    fn decode(
        &self,
        _: &[&[u8]],
        _: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> PluginResult<()> {
        if rows.contains(&self.fails_at) {
            return Err(PluginError::invalid(format!("row {}", rows.start)));
        }
        let width = (cols.end - cols.start) as usize;
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            out.fill(row as f32);
        }
        Ok(())
    }
}

/// All elements of a weight of [`RowNumbers`], decoded on `threads` threads.
fn decoded(threads: usize, fails_at: u64) -> Result<Vec<f32>, Error> {
    let quantizer = RowNumbers { fails_at };
    let format = quantizer.format([1000, 500]).expect("a format");
    let chosen: Chosen<dyn Quantizer> = Chosen {
        plugin: Arc::new(quantizer),
        identity: serde_json::from_value(serde_json::json!({
            "component": "row-numbers", "role": "quantizer", "plugin": "test",
            "version": "1.0.0", "abi": [0, 0],
        }))
        .expect("an identity"),
        options: Default::default(),
    };
    let services = HostServices::start(Some(threads)).expect("threads");
    let mut out = vec![f32::NAN; 500_000];
    decode_all(services, (&chosen, "w", &format), &[], &mut out)?;
    Ok(out)
}

#[test]
fn a_weight_is_decoded_whole_on_any_number_of_threads() {
    for threads in [1, 3] {
        let found = decoded(threads, u64::MAX).expect("all rows");
        assert!((0..500_000).all(|at| found[at] == (at / 500) as f32));
        // Parts of 131 rows.
        let said = chain(&decoded(threads, 400).expect_err("a part fails"));
        assert!(said.contains("`row-numbers` failed in decode"), "{said}");
        assert!(said.contains("`w`: row 393"), "{said}");
    }
}
