//! Codes of 8 bits and a scale a row, described as data or decoded by the plugin alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::saved_form::{
    SavedContent, SavedDescription, SavedForm, SavedModel, SavedTensor,
};
use espalier_interface::{
    Component, DType, Instance, OptionKind, OptionSpec, Options, Quantizer, Result, Role, Services,
};
use serde_json::{Value as Json, json};

use crate::fault;

struct Faulty {
    described: bool,
    services: Arc<dyn Services>,
    was_long: AtomicBool,
}

impl Faulty {
    fn codes() -> Codes {
        Codes {
            segment: 0,
            bits: 8,
            order: BitOrder::LowFirst,
        }
    }

    fn decoding(&self) -> Decoding {
        if !self.described {
            return Decoding::Callback;
        }
        Decoding::Codebook {
            codes: Self::codes(),
            table: (0..=255u8).map(value).collect(),
            blocks: BlockMap::Rows,
            scale: BlockValues::Stored { segment: 1 },
        }
    }
}

/// The value of a code before scaling.
fn value(code: u8) -> f32 {
    f32::from(code) / 127.0 - 1.0
}

impl Quantizer for Faulty {
    fn format(&self, [rows, cols]: [u64; 2]) -> Result<Format> {
        fault::fail_if_due("format")?;
        let is = |kind| fault::is("format", kind);
        let mut format = Format {
            quantizer: "faulty-quantizer".to_owned(),
            shape: [rows, cols],
            segments: vec![
                SegmentSpec::new("codes", DType::U8, rows * cols),
                SegmentSpec::new("scale", DType::F32, rows),
            ],
            decoding: self.decoding(),
        };
        if is("shape") {
            format.shape = [cols + 1, rows];
        }
        if is("short") {
            format.segments[1].len = 1;
        }
        if is("absent") {
            format.segments.pop();
        }
        if is("overflow") {
            format.segments[1].len = u64::MAX;
        }
        if is("absurd") {
            format.segments[0].len = 1 << 55;
        }
        Ok(format)
    }

    fn encode(
        &self,
        weight: &[f32],
        [_, cols]: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<()> {
        fault::fail_if_due("encode")?;
        if fault::is("encode", "long") && !self.was_long.swap(true, Ordering::Relaxed) {
            // Much work in small pieces.
            let piece = |_| thread::sleep(Duration::from_millis(100));
            self.services.parallel_for(60, &piece);
        }
        let [codes, scales] = segments else {
            unreachable!("two segments were described");
        };
        let rows = weight
            .chunks(cols as usize)
            .zip(codes.chunks_mut(cols as usize));
        for ((row, codes), scale) in rows.zip(scales.chunks_exact_mut(4)) {
            let most = row
                .iter()
                .fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
            for (x, code) in row.iter().zip(codes) {
                *code = ((x / most + 1.0) * 127.0).round() as u8;
            }
            let stored = if fault::is("encode", "nan") {
                f32::NAN
            } else {
                most
            };
            scale.copy_from_slice(&stored.to_le_bytes());
        }
        Ok(())
    }

    fn encode_workspace(&self, _: [u64; 2]) -> Result<u64> {
        fault::fail_if_due("encode_workspace")?;
        let huge = fault::is("encode_workspace", "huge");
        Ok(if huge { u64::MAX } else { 0 })
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        fault::fail_if_due("decode")?;
        if fault::is("decode", "silent") {
            return Ok(());
        }
        let [codes, scales] = segments else {
            unreachable!("two segments were described");
        };
        let places = rows.flat_map(|row| cols.clone().map(move |col| (row, col)));
        for ((row, col), out) in places.zip(out.iter_mut()) {
            let scale = &scales[4 * row as usize..][..4];
            let scale = f32::from_le_bytes(scale.try_into().expect("four bytes"));
            *out = value(codes[(row * shape[1] + col) as usize]) * scale;
        }
        if fault::is("decode", "nan") {
            out[0] = f32::NAN;
        }
        Ok(())
    }

    fn saved_form(&self, [rows, cols]: [u64; 2], _: DType) -> Result<SavedForm> {
        fault::fail_if_due("saved_form")?;
        let tensor = |name: &str, dtype, shape, segment| SavedTensor {
            name: name.to_owned(),
            dtype,
            shape,
            content: SavedContent::Segment(segment),
            also_stored_as: Vec::new(),
        };
        let mut tensors = vec![
            tensor("weight", DType::U8, vec![rows, cols], 0),
            tensor("weight.scale", DType::F32, vec![rows], 1),
        ];
        if fault::is("saved_form", "short") {
            tensors.pop();
        }
        Ok(SavedForm { tensors })
    }

    fn quantization_config(&self, _: &SavedModel) -> Result<Json> {
        fault::fail_if_due("quantization_config")?;
        Ok(json!({"quant_method": "faulty"}))
    }

    fn options_from_saved(&self, _: &SavedDescription) -> Result<Options> {
        fault::fail_if_due("options_from_saved")?;
        Ok(Options::default())
    }
}

pub const QUANTIZER: Component = Component {
    name: "faulty-quantizer",
    role: Role::QUANTIZER,
    doc: "8 bits and a scale a row, until it fails",
    options: &[OptionSpec {
        name: "described",
        kind: OptionKind::BOOL,
        default: "false",
        range: "",
        doc: "describe the format as data",
    }],
    capabilities: &[("quant_methods", "faulty")],
    create: |options, services| {
        fault::fail_if_due("create")?;
        Ok(Instance::Quantizer(Box::new(Faulty {
            described: options.flag("described")?,
            services,
            was_long: AtomicBool::new(false),
        })))
    },
};
