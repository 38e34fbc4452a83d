//! The quantizer `higgs`: runs of a row are multiplied by a Hadamard matrix, after which their
//! elements are nearly normal, and pairs are rounded to a grid for normal numbers, 4 bits each
//! (HIGGS, as `quantize_with_higgs` of transformers has it). The grid is part of the description,
//! so that all weights share it, and the host decodes and multiplies with its own kernels.

mod grid;

use std::sync::{Arc, Mutex};

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec, Step, ValueSource,
    hadamard,
};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, OptionKind, OptionSpec, PluginError, Quantizer, Result,
    Role, Services,
};
use grid::GRID;

/// Elements of a vector.
const LEN: usize = 2;

/// Runs that one call of a parallel loop encodes.
const RUNS_AT_ONCE: usize = 16;

struct Higgs {
    hadamard_size: u64,
    services: Arc<dyn Services>,
}

impl Higgs {
    /// Elements of a run: as many as asked for, and fewer where rows are no multiple of that.
    fn run(&self, cols: u64) -> u64 {
        self.hadamard_size.min(1 << cols.trailing_zeros())
    }
}

impl Quantizer for Higgs {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let size = self.run(shape[1]);
        if size < LEN as u64 {
            return Err(PluginError::invalid(format!(
                "rows of {} elements, expected an even number: `higgs` rounds pairs of a row",
                shape[1]
            )));
        }
        let elements = shape[0].saturating_mul(shape[1]);
        let blocks = BlockMap::Flat { size };
        let scale = Step::Times {
            blocks,
            values: BlockValues::Stored { segment: 1 },
        };
        let format = Format {
            quantizer: "higgs".to_owned(),
            shape,
            segments: vec![
                SegmentSpec::new("codes", DType::U8, elements / LEN as u64),
                SegmentSpec::new("scales", DType::F32, elements / size),
            ],
            decoding: Decoding::Steps {
                source: ValueSource::SharedVectors {
                    codes: vec![Codes {
                        segment: 0,
                        bits: 8,
                        order: BitOrder::LowFirst,
                    }],
                    codebooks: vec![GRID.to_vec()],
                    len: LEN as u64,
                },
                steps: vec![scale, Step::Hadamard { size }],
            },
        };
        format.validate()?;
        Ok(format)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<()> {
        let size = self.run(shape[1]) as usize;
        for (index, run) in weight.chunks(size).enumerate() {
            refuse_large(run, index * size)?;
        }
        let [codes, scales] = segments else {
            return Err(PluginError::invalid("expected two segments"));
        };
        let piece = size * RUNS_AT_ONCE;
        let pieces: Vec<_> = weight
            .chunks(piece)
            .zip(codes.chunks_mut(piece / LEN))
            .zip(scales.chunks_mut(4 * RUNS_AT_ONCE))
            .map(Mutex::new)
            .collect();
        self.services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each is taken once");
            let ((weight, codes), scales) = &mut *piece;
            let runs = weight.chunks(size).zip(codes.chunks_mut(size / LEN));
            for ((run, codes), scale) in runs.zip(scales.chunks_exact_mut(4)) {
                scale.copy_from_slice(&encode_run(run, codes).to_le_bytes());
            }
        });
        Ok(())
    }
}

/// Length of a run as a vector.
fn norm(run: &[f32]) -> f64 {
    let squares = run.iter().map(|&x| f64::from(x) * f64::from(x));
    squares.sum::<f64>().sqrt()
}

/// Refuses a run from element `first` on that has numbers which are not finite, or so large that
/// sums of its decoded values may be none.
fn refuse_large(run: &[f32], first: usize) -> Result<()> {
    if let Some(at) = run.iter().position(|x| !x.is_finite()) {
        let message = format!("element {} is not finite", first + at);
        return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
    }
    // The largest number of the grid is 3.3, and the sums have at most that times the length.
    if 4.0 * norm(run) > f64::from(f32::MAX) {
        let message = format!(
            "the {} elements from {first} on are too large: their values after packing would not \
             be finite",
            run.len()
        );
        return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
    }
    Ok(())
}

/// Writes the codes of a run's pairs and returns its scale.
fn encode_run(run: &[f32], codes: &mut [u8]) -> f32 {
    let norm = norm(run);
    let divisor = if norm > 0.0 { norm } else { 1.0 };
    let mut rotated: Vec<f32> = run
        .iter()
        .map(|&x| (f64::from(x) / divisor) as f32)
        .collect();
    hadamard(&mut rotated);
    for (pair, code) in rotated.chunks_exact(LEN).zip(codes) {
        *code = nearest(pair[0], pair[1]);
    }
    // Twice the matrix is its size.
    (norm / run.len() as f64) as f32
}

/// The vector of the grid with the least squared distance, of several the first.
fn nearest(x: f32, y: f32) -> u8 {
    let (mut best, mut code) = (f32::NEG_INFINITY, 0);
    for (index, vector) in GRID.chunks_exact(LEN).enumerate() {
        let (a, b) = (vector[0], vector[1]);
        let score = 2.0 * (x * a + y * b) - (a * a + b * b);
        if score > best {
            (best, code) = (score, index as u8);
        }
    }
    code
}

const HIGGS: Component = Component {
    name: "higgs",
    role: Role::QUANTIZER,
    doc: "pairs of rotated weights rounded to a grid for normal numbers, 4 bits",
    options: &[OptionSpec {
        name: "hadamard_size",
        kind: OptionKind::INTEGER,
        default: "512",
        range: "64..=512, power of two",
        doc: "weights of a row that are rotated together; fewer where rows are no multiple",
    }],
    capabilities: &[],
    create: |options, services| {
        Ok(Instance::Quantizer(Box::new(Higgs {
            hadamard_size: options.count("hadamard_size")?,
            services,
        })))
    },
};

espalier_interface::declare_plugin! { name: "higgs", components: &[HIGGS] }
