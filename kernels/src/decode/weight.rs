//! A packed weight: a format's decoder and segments -> values, with vectors.
//!
//! The result has the bits of `Format::decode`: the same products and sums, each rounded once.

use std::ops::Range;

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Step, ValueSource,
};

use super::TileDecoder;
use super::codes::{look_up_16, look_up_packed, unpack};
use super::format::{CodeTable, FormatDecoder, Rotated};
use super::hadamard::hadamard_runs;
use crate::matmul::{BlockScales, Isa, Nibbles};
use crate::simd::vectorized;

/// Elements of the largest block that has no table of scaled numbers.
pub(super) const SMALL_BLOCK: usize = 32;
/// Elements decoded at a time.
pub(super) const RUN: usize = 256;
/// Elements of which whole runs are multiplied by Hadamard matrices at a time.
const WHOLE: usize = Step::LARGEST_HADAMARD as usize;

/// A [`FormatDecoder`] and the segments of one weight.
#[derive(Clone, Copy, Debug)]
pub struct PackedWeight<'a> {
    pub(super) decoder: &'a FormatDecoder,
    pub(super) segments: &'a [&'a [u8]],
    pub(super) isa: Isa,
}

impl FormatDecoder {
    /// The weight in `segments`, in the format's order.
    ///
    /// # Panics
    /// Where a segment is shorter than the format says.
    pub fn weight<'a>(&'a self, segments: &'a [&'a [u8]]) -> PackedWeight<'a> {
        let specs = &self.format.segments;
        assert_eq!(
            segments.len(),
            specs.len(),
            "a packed weight has other segments"
        );
        for (segment, spec) in segments.iter().zip(specs) {
            assert!(
                segment.len() as u64 >= spec.bytes(),
                "segment `{}` is too short",
                spec.name
            );
        }
        PackedWeight {
            decoder: self,
            segments,
            isa: Isa::detect().vectors(),
        }
    }
}

impl TileDecoder for PackedWeight<'_> {
    fn size(&self) -> (usize, usize) {
        let [rows, cols] = self.decoder.format.shape;
        (rows as usize, cols as usize)
    }

    fn decode(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let width = cols.len();
        if width == 0 {
            return;
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            self.rotated(&self.decoder.rotations, row, cols.start, out);
        }
    }

    fn nibbles(&self) -> Option<Nibbles<'_>> {
        let (codes, blocks, has_zeros) = match &self.decoder.format.decoding {
            Decoding::Codebook { codes, blocks, .. } => (codes, blocks, false),
            Decoding::Affine { codes, blocks, .. } => (codes, blocks, true),
            Decoding::Steps { .. } | Decoding::Callback => return None,
        };
        if !self.decoder.steps.is_empty() || !self.decoder.rotations.is_empty() {
            return None;
        }
        let table = match &self.decoder.table {
            CodeTable::Small(table) => table,
            CodeTable::Large(_) => return None,
            CodeTable::Count => &COUNT,
        };
        let (block, width) = (self.piece(*blocks)?, self.size().1);
        let lie_side_by_side = match codes.order {
            BitOrder::Split { words } => codes.bits != 3 && words.is_multiple_of(width as u64),
            BitOrder::Rows(_) => false,
            _ => codes.bits == 4,
        };
        let whole = block.is_multiple_of(16) && width > 0 && width.is_multiple_of(block);
        (codes.bits <= 4 && lie_side_by_side && whole).then(|| Nibbles {
            bytes: self.segments[codes.segment],
            codes,
            table,
            block,
            scales: self,
            has_zeros,
        })
    }
}

/// The codes of up to four bits as numbers.
pub(super) static COUNT: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

impl BlockScales for PackedWeight<'_> {
    fn scales(&self, first: usize, out: &mut [f32]) {
        let (Decoding::Codebook { scale, .. } | Decoding::Affine { scale, .. }) =
            &self.decoder.format.decoding
        else {
            unreachable!("refused by `new`");
        };
        self.numbers_of(scale, first, out);
    }

    fn zeros(&self, first: usize, out: &mut [f32]) {
        let Decoding::Affine { zero, .. } = &self.decoder.format.decoding else {
            unreachable!("blocks of a codebook have no zero points");
        };
        self.numbers_of(zero, first, out);
    }
}

impl PackedWeight<'_> {
    /// `[N, M]`.
    pub(super) fn shape(&self) -> [u64; 2] {
        self.decoder.format.shape
    }

    /// The bytes of a segment.
    pub(super) fn segment(&self, index: usize) -> &[u8] {
        self.segments[index]
    }

    /// The type of a segment's elements.
    pub(super) fn dtype(&self, segment: usize) -> DType {
        self.decoder.format.segments[segment].dtype
    }

    /// The instruction set that decodes it.
    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// The numbers of the blocks from `first` on.
    fn numbers_of(&self, values: &BlockValues, first: usize, out: &mut [f32]) {
        for (idx, out) in out.chunks_mut(RUN).enumerate() {
            self.values(values, first + idx * RUN, out);
        }
    }

    /// Decodes elements of `row` from `col` on, after the last of `rotations`: by whole runs of its
    /// Hadamard matrix, each after the rotations before.
    fn rotated(&self, rotations: &[Rotated], row: usize, col: usize, out: &mut [f32]) {
        let Some((rotated, before)) = rotations.split_last() else {
            return self.steps(row, col, out);
        };
        let end = col + out.len();
        let (first, last) = (col / rotated.size, end.div_ceil(rotated.size));
        let whole = first * rotated.size..last * rotated.size;
        let mut values = [0.0; WHOLE];
        for start in whole.clone().step_by(WHOLE) {
            let values = &mut values[..WHOLE.min(whole.end - start)];
            self.rotated(before, row, start, values);
            hadamard_runs(self.isa, rotated.size, values);
            let part = start.max(col)..(start + values.len()).min(end);
            let out = &mut out[part.start - col..part.end - col];
            out.copy_from_slice(&values[part.start - start..part.end - start]);
            for (col, out) in part.step_by(RUN).zip(out.chunks_mut(RUN)) {
                for step in &rotated.steps {
                    self.step(step, row, col, out);
                }
            }
        }
    }

    /// Decodes elements of `row` from `col` on, before a Hadamard matrix.
    fn steps(&self, row: usize, col: usize, out: &mut [f32]) {
        for (col, out) in (col..).step_by(RUN).zip(out.chunks_mut(RUN)) {
            self.run(row, col, out);
            for step in &self.decoder.steps {
                self.step(step, row, col, out);
            }
        }
    }

    /// Decodes at most [`RUN`] elements of `row` from `col` on, without the steps.
    fn run(&self, row: usize, col: usize, out: &mut [f32]) {
        match &self.decoder.format.decoding {
            Decoding::Codebook {
                codes,
                blocks,
                scale,
                ..
            } => {
                if let (CodeTable::Small(table), Some(size)) =
                    (&self.decoder.table, self.piece(*blocks))
                {
                    let flat = row * self.size().1 + col;
                    if size <= SMALL_BLOCK {
                        return self.small_blocks(codes, scale, (table, size), flat, out);
                    }
                    let (mut scales, len) = ([0.0; RUN], out.len());
                    let scales = self.numbers_of_run(scale, (0, flat), (size, len), &mut scales);
                    return self.block_tables(codes, size, flat, out, |block| {
                        table.map(|x| x * scales[block])
                    });
                }
                self.numbers(codes, row, col, out);
                let mut scales = [0.0; RUN];
                let scales = &mut scales[..out.len()];
                self.spread(*blocks, scale, row, col, scales);
                vectorized(
                    #[inline(always)]
                    || {
                        out.iter_mut()
                            .zip(scales.iter())
                            .for_each(|(x, &scale)| *x *= scale)
                    },
                );
            }
            Decoding::Affine {
                codes,
                blocks,
                scale,
                zero,
            } => {
                self.affine(codes, *blocks, [scale, zero], (row, col), out);
            }
            Decoding::Steps { source, .. } => match source {
                ValueSource::Table { codes, .. } | ValueSource::Count { codes } => {
                    self.numbers(codes, row, col, out);
                }
                ValueSource::Vectors { .. } | ValueSource::SharedVectors { .. } => {
                    let flat = row * self.size().1 + col;
                    let vectors = source.vectors().expect("a source of vectors");
                    self.vectors(vectors, flat, out);
                }
            },
            Decoding::Callback => unreachable!("refused by `new`"),
        }
    }

    /// Elements of a row that share a block, where they are many.
    pub(super) fn piece(&self, blocks: BlockMap) -> Option<usize> {
        match blocks {
            BlockMap::Flat { size } => Some(size as usize),
            BlockMap::Rows => Some(self.size().1),
            BlockMap::Strided { .. } | BlockMap::Columns | BlockMap::Groups { .. } => None,
        }
    }

    /// Decodes block by block of `size` elements from the numbers of all codes of each block, which
    /// `table` gives for each that the elements touch, counted from the first. That takes
    /// arithmetic for 16 codes instead of for every element, with the same results.
    pub(super) fn block_tables(
        &self,
        codes: &Codes,
        size: usize,
        flat: usize,
        out: &mut [f32],
        table: impl Fn(usize) -> [f32; 16],
    ) {
        let bytes = self.segments[codes.segment];
        let mut done = 0;
        while done < out.len() {
            let block = (flat + done) / size;
            let end = ((block + 1) * size - flat).min(out.len());
            let out = &mut out[done..end];
            let table = table(block - flat / size);
            look_up_packed(self.isa, bytes, codes, flat + done, &table, out);
            done = end;
        }
    }

    /// The unscaled values of the codes.
    pub(super) fn numbers(&self, layout: &Codes, row: usize, col: usize, out: &mut [f32]) {
        let mut codes = [0u8; RUN];
        let codes = &mut codes[..out.len()];
        let (bytes, flat) = (self.segments[layout.segment], row * self.size().1 + col);
        vectorized(
            #[inline(always)]
            || unpack(bytes, layout, flat, codes),
        );
        match &self.decoder.table {
            CodeTable::Small(table) => look_up_16(self.isa, table, codes, out),
            CodeTable::Large(table) => {
                for (out, &code) in out.iter_mut().zip(codes.iter()) {
                    *out = table[usize::from(code)];
                }
            }
            CodeTable::Count => vectorized(
                #[inline(always)]
                || {
                    out.iter_mut()
                        .zip(codes.iter())
                        .for_each(|(x, &code)| *x = f32::from(code))
                },
            ),
        }
    }
}
