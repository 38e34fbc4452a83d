//! The quantizer `faulty`: keeps every weight unchanged, and decodes it itself.

use std::ops::Range;

use espalier_interface::format::{Decoding, Format, SegmentSpec};
use espalier_interface::{Component, DType, Instance, Quantizer, Result, Role};

use crate::fault::{self, FaultPoint};

struct Kept;

impl Quantizer for Kept {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let elements = shape[0].saturating_mul(shape[1]);
        Ok(Format {
            quantizer: "faulty".to_owned(),
            shape,
            segments: vec![SegmentSpec::new("weight", DType::F32, elements)],
            decoding: Decoding::Callback,
        })
    }

    fn encode(
        &self,
        weight: &[f32],
        _: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<()> {
        fault::at(FaultPoint::ENCODE);
        let (values, _) = segments[0].as_chunks_mut::<4>();
        for (value, x) in values.iter_mut().zip(weight) {
            *value = x.to_le_bytes();
        }
        Ok(())
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        fault::at(FaultPoint::DECODE);
        let (values, _) = segments[0].as_chunks::<4>();
        let places = rows.flat_map(|row| cols.clone().map(move |col| row * shape[1] + col));
        for (out, place) in out.iter_mut().zip(places) {
            *out = f32::from_le_bytes(values[place as usize]);
        }
        Ok(())
    }
}

pub const COMPONENT: Component = Component {
    name: "faulty",
    role: Role::QUANTIZER,
    doc: "keeps every weight as it is",
    options: &[],
    capabilities: &[],
    create: |_, _| {
        fault::at(FaultPoint::CREATE);
        Ok(Instance::Quantizer(Box::new(Kept)))
    },
};
