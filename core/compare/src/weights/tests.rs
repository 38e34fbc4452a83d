//! Errors of weights of several parts, on several threads.

use std::sync::Arc;

use espalier_conformance::largest;
use espalier_interface::format::{Decoding, Format, SegmentSpec};
use espalier_interface::model::ParamKind;
use espalier_interface::{DType, Init, PluginError, Quantizer};
use espalier_registry::Chosen;
use espalier_system::failure::chain;
use half::bf16;

use super::*;

#[test]
fn windows_cover_every_element_once_and_none_is_too_large() {
    for shape in [
        [7, 3],
        [1, 1],
        [3, PART],
        [5, PART - 1],
        [2, 2 * PART + 5],
        [PART, 2],
    ] {
        let windows = Windows::of(shape);
        let mut next = 0;
        for WeightWindow { rows, cols } in (0..windows.count()).map(|index| windows.at(index)) {
            assert_eq!(rows.start * shape[1] + cols.start, next, "{shape:?}");
            let count = (rows.end - rows.start) * (cols.end - cols.start);
            assert!(count <= PART, "{shape:?}");
            assert!(cols.end - cols.start == shape[1] || rows.end - rows.start == 1);
            next += count;
        }
        assert_eq!(next, shape[0] * shape[1], "{shape:?}");
    }
}

/// Rounds to bf16, and decodes nothing of row `fails_at`.
struct Rounding {
    fails_at: u64,
}

impl Quantizer for Rounding {
    fn format(&self, shape: [u64; 2]) -> Result<Format, PluginError> {
        Ok(Format {
            quantizer: "rounding".to_owned(),
            shape,
            segments: vec![SegmentSpec::new(
                "rounded",
                DType::BF16,
                shape[0] * shape[1],
            )],
            decoding: Decoding::Callback,
        })
    }

    fn encode(
        &self,
        weight: &[f32],
        _: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<(), PluginError> {
        let rounded = weight.iter().map(|&x| bf16::from_f32(x).to_le_bytes());
        let (codes, _) = segments[0].as_chunks_mut();
        codes.iter_mut().zip(rounded).for_each(|(to, x)| *to = x);
        Ok(())
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<(), PluginError> {
        if rows.contains(&self.fails_at) {
            return Err(PluginError::invalid(format!("row {}", rows.start)));
        }
        let (codes, _) = segments[0].as_chunks();
        let width = (cols.end - cols.start) as usize;
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            let first = (row * shape[1] + cols.start) as usize;
            for (out, x) in out.iter_mut().zip(&codes[first..]) {
                *out = bf16::from_le_bytes(*x).to_f32();
            }
        }
        Ok(())
    }
}

const SHAPE: [u64; 2] = [1300, 501];

/// The measured error of a weight of several parts, on `threads` threads.
fn found(threads: usize, fails_at: u64) -> Result<(WeightError, Vec<f32>), Error> {
    let quantizer = Rounding { fails_at };
    let format = quantizer.format(SHAPE).expect("a format");
    let elements = SHAPE[0] * SHAPE[1];
    let dense: Vec<f32> = (0..elements).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut codes = vec![0; 2 * elements as usize];
    let encoded = quantizer.encode(&dense, SHAPE, &mut [&mut codes], &mut []);
    encoded.expect("encoded");
    let errors = WeightErrors {
        services: HostServices::start(Some(threads)).expect("threads"),
        layers: 1..3,
        order: HashMap::new(),
        found: Mutex::default(),
        spare: Mutex::default(),
    };
    let param = Param {
        name: "model.layers.1.mlp.up_proj.weight".to_owned(),
        aliases: Vec::new(),
        shape: SHAPE.to_vec(),
        kind: Some(ParamKind::Linear),
        trainable: false,
        layout: WeightLayout::Packed(Box::new(format.clone())),
        init: Init::Zeros,
        unit: 2,
        part_of: None,
        learning_rate_ratio: 1.0,
    };
    let weight = EncodedWeight {
        name: &param.name,
        quantizer: &Chosen {
            plugin: Arc::new(quantizer),
            identity: serde_json::from_value(serde_json::json!({
                "component": "rounding", "role": "quantizer", "plugin": "test",
                "version": "1.0.0", "abi": [0, 0],
            }))
            .expect("an identity"),
            options: Default::default(),
        },
        format: &format,
        dense: &dense,
        segments: &[&codes],
    };
    errors.inspect(&param, &weight)?;
    Ok((errors.take_found().remove(0), dense))
}

#[test]
fn the_error_is_that_of_all_elements_on_any_number_of_threads() {
    let (one, dense) = found(1, u64::MAX).expect("an error");
    let error = |&x: &f32| f64::from(bf16::from_f32(x).to_f32()) - f64::from(x);
    let expected: f64 = dense.iter().map(|x| error(x) * error(x)).sum();
    assert!((one.squared_error / expected - 1.0).abs() < 1e-12);
    let norm: f64 = dense.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    assert!((one.squared_norm / norm - 1.0).abs() < 1e-12);
    let largest = largest(dense.iter().map(|x| error(x).abs()));
    assert_eq!(one.largest_error, largest);
    assert_eq!((one.layer, one.kind.as_str()), (Some(1), "up_proj"));
    assert_eq!((one.elements, one.bytes), (651_300, 1_302_600));
    for threads in [2, 3] {
        assert_eq!(found(threads, u64::MAX).expect("an error").0, one);
    }
}

#[test]
fn a_failing_decoder_is_reported_with_its_first_part() {
    for threads in [1, 3] {
        let refused = found(threads, 600).expect_err("a part fails");
        let said = chain(&refused);
        // Parts of 523 rows.
        assert!(said.contains("`rounding` failed in decode"), "{said}");
        assert!(said.contains("up_proj.weight`: row 523"), "{said}");
    }
}

#[test]
fn a_projection_is_the_last_module() {
    assert_eq!(
        projection("model.layers.0.self_attn.q_proj.weight"),
        "q_proj"
    );
    assert_eq!(projection("lm_head.weight"), "lm_head");
    assert_eq!(projection("odd"), "odd");
}
