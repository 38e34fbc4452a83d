//! Groups and options -> the segments of a packed weight and how they are decoded.

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec, Step,
};

use crate::grid::{GridSpec, Symmetry};
use crate::grouping::Grouping;

/// The codes of a weight: in the order of its elements, the first in the lowest bits. Three bits
/// are packed ten to a word, as the format of the interface has them.
pub fn codes(spec: GridSpec, groups: Grouping) -> Codes {
    let mut codes = Codes {
        segment: 0,
        bits: spec.bits,
        order: BitOrder::LowFirst,
    };
    if spec.bits == 3 {
        codes.order = BitOrder::Split { words: 0 };
        let words = groups.elements().div_ceil(codes.per_word() as usize);
        codes.order = BitOrder::Split {
            words: words as u64,
        };
    }
    codes
}

/// The zeros of groups: whole numbers of 4 bits, the first of two in the lowest.
pub fn zeros() -> Codes {
    Codes {
        segment: 2,
        bits: 4,
        order: BitOrder::LowFirst,
    }
}

/// The format of a weight, named after the component `quantizer`.
///
/// # Shapes
/// `codes`: `[N, M]` row major. `scales`, and for asymmetric grids `zeros`, 4 bits each:
/// `[N, M / group]`.
pub fn format(quantizer: &str, spec: GridSpec, groups: Grouping) -> Format {
    let codes = codes(spec, groups);
    let words = codes.words(groups.elements() as u64);
    let numbers = |name| SegmentSpec::new(name, spec.number.dtype(), groups.count() as u64);
    let mut segments = vec![
        SegmentSpec::new("codes", codes.dtype(), words),
        numbers("scales"),
    ];
    let blocks = BlockMap::Flat {
        size: groups.size as u64,
    };
    let scale = BlockValues::Stored { segment: 1 };
    let decoding = match spec.symmetry {
        Symmetry::Asymmetric => {
            let zeros = zeros();
            let words = zeros.words(groups.count() as u64);
            segments.push(SegmentSpec::new("zeros", zeros.dtype(), words));
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero: BlockValues::Table {
                    codes: zeros,
                    table: (0..16u8).map(f32::from).collect(),
                    not_numbers: Vec::new(),
                    scale: None,
                },
            }
        }
        // All zeros are the same number: it is part of the table.
        Symmetry::Symmetric => {
            let zero = spec.between(-1.0, 1.0).zero;
            Decoding::Codebook {
                table: (0..1u32 << spec.bits).map(|q| q as f32 - zero).collect(),
                codes,
                blocks,
                scale,
            }
        }
    };
    Format {
        quantizer: quantizer.to_owned(),
        shape: [groups.rows as u64, groups.cols as u64],
        segments,
        decoding,
    }
}

/// A format of [`format()`] whose values are then times a factor for each column: `factors`, `[M]`
/// f32, in a last segment.
pub fn with_factors(mut format: Format) -> Format {
    let segment = format.segments.len();
    let cols = format.shape[1];
    let (source, mut steps) = format.stages().expect("it describes its decoding");
    steps.push(Step::Times {
        blocks: BlockMap::Columns,
        values: BlockValues::Stored { segment },
    });
    let factors = SegmentSpec::new("factors", DType::F32, cols);
    format.segments.push(factors);
    format.decoding = Decoding::Steps { source, steps };
    format
}
