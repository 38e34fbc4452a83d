//! A quantizer of the plugin `nf4` -> encoded and decoded weights.

mod golden;
mod threads;

pub use golden::{
    Golden, assert_bytes, assert_decoded, bytes, floats, four_bit_cases, matrix, weight_key,
};
pub use threads::Threads;

use std::ops::Range;
use std::sync::Arc;

use espalier_interface::format::Format;
use espalier_interface::{Component, Instance, Quantizer, Result, Serial, Services};
use serde_json::{Value as Json, json};

pub fn quantizer(
    component: &Component,
    options: Json,
    services: Arc<dyn Services>,
) -> Box<dyn Quantizer> {
    let options = serde_json::from_value(options).unwrap();
    match (component.create)(&options, services) {
        Ok(Instance::Quantizer(quantizer)) => quantizer,
        Ok(_) => panic!("{} is not a quantizer", component.name),
        Err(error) => panic!("{}: {error}", component.name),
    }
}

/// How the scales of blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// As numbers.
    Plain,
    /// Quantized themselves.
    DoubleQuant,
}

pub fn four_bit(kind: &str, block_size: u64, scales: Scales) -> Box<dyn Quantizer> {
    let component = match kind {
        "nf4" => espalier_nf4::NF4,
        "fp4" => espalier_nf4::FP4,
        other => panic!("no 4-bit type {other}"),
    };
    let double_quant = scales == Scales::DoubleQuant;
    let options = json!({ "block_size": block_size, "double_quant": double_quant });
    quantizer(&component, options, Arc::new(Serial))
}

pub fn int8(block_size: u64) -> Box<dyn Quantizer> {
    let options = json!({ "block_size": block_size });
    quantizer(&espalier_nf4::INT8, options, Arc::new(Serial))
}

/// A weight's format and the bytes of its segments.
pub fn encode(
    quantizer: &dyn Quantizer,
    weight: &[f32],
    shape: [u64; 2],
) -> Result<(Format, Vec<Vec<u8>>)> {
    let format = quantizer.format(shape)?;
    format.validate()?;
    // Previous contents of a segment must not affect the result.
    let mut segments: Vec<Vec<u8>> = format
        .segments
        .iter()
        .map(|spec| vec![0xa5; spec.bytes() as usize])
        .collect();
    let mut workspace = vec![0x5a; quantizer.encode_workspace(shape).expect("bytes") as usize];
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    quantizer.encode(weight, shape, &mut views, &mut workspace)?;
    Ok((format, segments))
}

pub fn decode(
    format: &Format,
    segments: &[Vec<u8>],
    rows: Range<u64>,
    cols: Range<u64>,
) -> Vec<f32> {
    let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let mut out = vec![f32::NAN; ((rows.end - rows.start) * (cols.end - cols.start)) as usize];
    format.decode(&views, rows, cols, &mut out).unwrap();
    out
}

pub fn decode_all(format: &Format, segments: &[Vec<u8>]) -> Vec<f32> {
    decode(format, segments, 0..format.shape[0], 0..format.shape[1])
}
