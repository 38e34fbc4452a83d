//! The plugin `nf4` against bitsandbytes' own bytes and numbers, bit for bit.

mod quantizing;

use std::sync::Arc;

use espalier_interface::format::{BlockValues, Decoding};
use espalier_interface::{ErrorCode, Serial};
use serde_json::{Value as Json, json};

use quantizing::{
    Golden, Scales, Threads, assert_bytes, assert_decoded, bytes, decode, decode_all, encode,
    floats, four_bit, four_bit_cases, int8, matrix, quantizer, weight_key,
};

#[test]
fn tables_are_the_peers() {
    let golden = Golden::open("fourbit.safetensors.gz");
    let tensors = golden.tensors();
    let to_bytes =
        |table: &[f32]| -> Vec<u8> { table.iter().flat_map(|x| x.to_le_bytes()).collect() };
    for kind in ["nf4", "fp4"] {
        let format = four_bit(kind, 64, Scales::DoubleQuant)
            .format([64, 64])
            .unwrap();
        let Decoding::Codebook {
            table,
            scale: BlockValues::Nested { table: nested, .. },
            ..
        } = &format.decoding
        else {
            panic!("{kind} is a codebook with nested scales");
        };
        let key = format!("code.{kind}");
        assert_bytes(&key, &to_bytes(table), bytes(&tensors, &key));
        assert_bytes(
            "code.dynamic_signed",
            &to_bytes(nested),
            bytes(&tensors, "code.dynamic_signed"),
        );
    }
    let Decoding::Codebook { table, .. } = int8(64).format([64, 64]).unwrap().decoding else {
        panic!("int8 is a codebook");
    };
    assert_bytes(
        "code.dynamic_signed",
        &to_bytes(&table),
        bytes(&tensors, "code.dynamic_signed"),
    );
}

#[test]
fn four_bit_weights_equal_the_peers() {
    let golden = Golden::open("fourbit.safetensors.gz");
    let tensors = golden.tensors();
    for (case, kind, block_size) in four_bit_cases() {
        let (weight, shape) = matrix(&tensors, &weight_key(&case));
        let (format, segments) =
            encode(&*four_bit(&kind, block_size, Scales::Plain), &weight, shape).unwrap();
        for (segment, key) in segments.iter().zip(["packed", "absmax"]) {
            let key = format!("{case}.{key}");
            assert_bytes(&key, segment, bytes(&tensors, &key));
        }
        assert_decoded(
            &tensors,
            &format!("{case}.deq"),
            &decode_all(&format, &segments),
        );
    }
}

#[test]
fn double_quantized_weights_equal_the_peers() {
    let golden = Golden::open("fourbit.safetensors.gz");
    let tensors = golden.tensors();
    for (case, kind, block_size) in four_bit_cases() {
        let (weight, shape) = matrix(&tensors, &weight_key(&case));
        let (format, segments) = encode(
            &*four_bit(&kind, block_size, Scales::DoubleQuant),
            &weight,
            shape,
        )
        .unwrap();
        let keys = ["packed", "dq.absmax_u8", "dq.nested_absmax", "dq.offset"];
        for (segment, key) in segments.iter().zip(keys) {
            let key = format!("{case}.{key}");
            assert_bytes(&key, segment, bytes(&tensors, &key));
        }
        let Decoding::Codebook { scale, blocks, .. } = &format.decoding else {
            panic!("{case} is a codebook");
        };
        let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let absmax: Vec<u8> = (0..blocks.count(shape))
            .flat_map(|block| format.block_value(&views, scale, block).to_le_bytes())
            .collect();
        let key = format!("{case}.dq.absmax_f32");
        assert_bytes(&key, &absmax, bytes(&tensors, &key));
        assert_decoded(
            &tensors,
            &format!("{case}.dq.deq"),
            &decode_all(&format, &segments),
        );
    }
}

#[test]
fn eight_bit_weights_equal_the_peers() {
    let golden = Golden::open("int8_blockwise.safetensors.gz");
    let tensors = golden.tensors();
    for case in [
        "normal_64x96",
        "odd_5x37",
        "zero_blocks_8x128",
        "outliers_16x64",
    ] {
        let (weight, shape) = matrix(&tensors, &format!("{case}.A"));
        for block_size in [64, 256, 4096] {
            let (format, segments) = encode(&*int8(block_size), &weight, shape).unwrap();
            let decoded: Vec<u8> = decode_all(&format, &segments)
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
            let found = [&segments[0], &segments[1], &decoded];
            for (found, key) in found.into_iter().zip(["q", "absmax", "deq"]) {
                let key = format!("{case}.signed.b{block_size}.{key}");
                assert_bytes(&key, found, bytes(&tensors, &key));
            }
        }
    }
}

#[test]
fn every_block_size_equals_the_peers() {
    let golden = Golden::open("blocks.safetensors");
    let tensors = golden.tensors();
    let (weight, shape) = matrix(&tensors, "W");
    let mut quantizers = Vec::new();
    for block_size in [32, 512, 1024, 2048, 4096] {
        for kind in ["nf4", "fp4"] {
            quantizers.push((kind, block_size, four_bit(kind, block_size, Scales::Plain)));
        }
    }
    for block_size in [128, 512, 1024, 2048] {
        quantizers.push(("int8", block_size, int8(block_size)));
    }
    for (kind, block_size, quantizer) in quantizers {
        let (_, segments) = encode(&*quantizer, &weight, shape).unwrap();
        for (segment, key) in segments.iter().zip(["packed", "absmax"]) {
            let key = format!("{kind}.b{block_size}.{key}");
            assert_bytes(&key, segment, bytes(&tensors, &key));
        }
    }
}

#[test]
fn a_checkpoints_weight_equals_the_peers() {
    let golden = Golden::open("fourbit.safetensors.gz");
    let (weight, shape) = matrix(&golden.tensors(), "normal_256x128.W");
    for kind in ["nf4", "fp4"] {
        let saved = Golden::open(&format!("linear4bit_{kind}_state_dict.safetensors"));
        let saved = saved.tensors();
        let (format, segments) =
            encode(&*four_bit(kind, 64, Scales::DoubleQuant), &weight, shape).unwrap();
        for (segment, key) in
            segments
                .iter()
                .zip(["weight", "weight.absmax", "weight.nested_absmax"])
        {
            assert_bytes(key, segment, bytes(&saved, key));
        }
        let key = format!("weight.quant_state.bitsandbytes__{kind}");
        let state: Json = serde_json::from_slice(bytes(&saved, &key)).unwrap();
        assert_eq!(state["shape"], json!(format.shape));
        assert_eq!(
            state["nested_offset"],
            json!(f64::from(floats(&segments[3])[0]))
        );
    }
}

#[test]
fn ranges_decode_as_slices_of_the_whole() {
    let golden = Golden::open("fourbit.safetensors.gz");
    let tensors = golden.tensors();
    // Row lengths that are not a multiple of a block or a byte.
    for case in ["odd_5x37", "ragged_7x50", "normal_64x96"] {
        let (weight, shape) = matrix(&tensors, &format!("{case}.W"));
        for quantizer in [
            four_bit("nf4", 64, Scales::DoubleQuant),
            four_bit("fp4", 32, Scales::Plain),
            int8(64),
        ] {
            let (format, segments) = encode(&*quantizer, &weight, shape).unwrap();
            let whole = decode_all(&format, &segments);
            let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
            let [n, m] = shape;
            let ranges = [
                (0..n, 3..m),
                (1..n, 0..m),
                (2..4, 5..6),
                (n - 1..n, m - 1..m),
                (2..2, 0..m),
            ];
            for (rows, cols) in ranges {
                let slice: Vec<f32> = rows
                    .clone()
                    .flat_map(|r| cols.clone().map(move |c| (r * m + c) as usize))
                    .map(|i| whole[i])
                    .collect();
                assert_eq!(
                    decode(&format, &segments, rows.clone(), cols.clone()),
                    slice,
                    "{case}"
                );
                let mut out = vec![f32::NAN; slice.len()];
                quantizer
                    .decode(&views, shape, rows, cols, &mut out)
                    .unwrap();
                assert_eq!(out, slice, "{case}, the plugin's own decode");
            }
        }
    }
}

/// A weight of several spans with a ragged end, [1, n].
fn long_weight() -> Vec<f32> {
    let noise = |i: u32| i.wrapping_mul(2_654_435_761) >> 8;
    (0..300_001)
        .map(|i| (noise(i) as f32 / 16_777_216.0 - 0.5) * (1.0 + (i % 7919) as f32))
        .collect()
}

#[test]
fn threads_and_their_order_change_no_bit() {
    let weight = long_weight();
    let shape = [1, weight.len() as u64];
    for component in [espalier_nf4::NF4, espalier_nf4::FP4, espalier_nf4::INT8] {
        let options = json!({ "block_size": 64, "double_quant": true });
        let alone = quantizer(&component, options.clone(), Arc::new(Serial));
        let expected = encode(&*alone, &weight, shape).unwrap();
        for threads in [1, 2, 3] {
            let together = quantizer(&component, options.clone(), Arc::new(Threads(threads)));
            let found = encode(&*together, &weight, shape).unwrap();
            assert!(found == expected, "{} on {threads} threads", component.name);
        }
    }
}

#[test]
fn the_first_number_that_is_not_finite_is_named() {
    let clean = long_weight();
    let shape = [1, clean.len() as u64];
    for component in [espalier_nf4::NF4, espalier_nf4::FP4, espalier_nf4::INT8] {
        let options = json!({ "block_size": 64, "double_quant": true });
        let quantizer = quantizer(&component, options, Arc::new(Threads(2)));
        for (value, word) in [
            (f32::NAN, "NaN"),
            (f32::INFINITY, "inf"),
            (f32::NEG_INFINITY, "-inf"),
        ] {
            for first in [0, 131_075, 300_000] {
                let mut weight = clean.clone();
                weight[first] = value;
                weight[300_000] = value;
                let error = encode(&*quantizer, &weight, shape).unwrap_err();
                assert_eq!(error.code, ErrorCode::NOT_FINITE);
                let place = format!("weight {first} of 300001 is {word},");
                assert!(error.message.contains(&place), "{error}");
            }
        }
    }
}

#[test]
fn a_shape_without_elements_is_refused() {
    for quantizer in [four_bit("nf4", 64, Scales::DoubleQuant), int8(4096)] {
        for shape in [[0, 8], [8, 0], [u64::MAX, 2]] {
            let error = quantizer.format(shape).unwrap_err();
            assert_eq!(error.code, ErrorCode::INVALID);
            assert!(error.message.contains(&format!("{shape:?}")), "{error}");
        }
    }
}
