//! The numbers of a weight's blocks -> one per element of a run, or one per block.

use espalier_interface::DType;
use espalier_interface::format::{BlockMap, BlockValues, Codes, TableScale};
use half::{bf16, f16};

use super::PackedWeight;
use super::codes::{look_up_packed, unpack};
use super::weight::RUN;
use crate::element::Element;
use crate::simd::vectorized;

impl PackedWeight<'_> {
    /// The numbers of the blocks of the elements of `row` from `col` on, one per element.
    pub(super) fn spread(
        &self,
        map: BlockMap,
        values: &BlockValues,
        row: usize,
        col: usize,
        out: &mut [f32],
    ) {
        let flat = row * self.shape()[1] as usize + col;
        match map {
            BlockMap::Flat { size } => self.spread_blocks(values, (0, flat), size as usize, out),
            BlockMap::Strided { count } => {
                let count = count as usize;
                let mut done = 0;
                while done < out.len() {
                    let block = (flat + done) % count;
                    let end = (done + count - block).min(out.len());
                    self.values(values, block, &mut out[done..end]);
                    done = end;
                }
            }
            BlockMap::Rows => out.fill(self.value(values, row)),
            BlockMap::Columns => self.values(values, col, out),
            BlockMap::Groups { size } => {
                let first = row * (self.shape()[1] as usize).div_ceil(size as usize);
                self.spread_blocks(values, (first, col), size as usize, out);
            }
        }
    }

    /// The numbers of blocks of `size` elements from block `first` on, one per element: at most
    /// [`RUN`] elements, of which the first is element `at` of these blocks.
    fn spread_blocks(
        &self,
        values: &BlockValues,
        (first, at): (usize, usize),
        size: usize,
        out: &mut [f32],
    ) {
        let mut numbers = [0.0; RUN];
        let numbers = self.numbers_of_run(values, (first, at), (size, out.len()), &mut numbers);
        let head = ((at / size + 1) * size - at).min(out.len());
        let (head, rest) = out.split_at_mut(head);
        if let Some((number, numbers)) = numbers.split_first() {
            head.fill(*number);
            for (block, &number) in rest.chunks_mut(size).zip(numbers) {
                block.fill(number);
            }
        }
    }

    /// The numbers of the blocks of `size` elements that `len` elements touch, from block `first`
    /// on: at most [`RUN`] elements, of which the first is element `at` of these blocks.
    pub(super) fn numbers_of_run<'n>(
        &self,
        values: &BlockValues,
        (first, at): (usize, usize),
        (size, len): (usize, usize),
        numbers: &'n mut [f32; RUN],
    ) -> &'n [f32] {
        let (begin, end) = (at / size, (at + len).div_ceil(size));
        let numbers = &mut numbers[..end - begin];
        self.values(values, first + begin, numbers);
        numbers
    }

    /// The number of one block.
    pub(super) fn value(&self, values: &BlockValues, block: usize) -> f32 {
        let mut value = [0.0];
        self.values(values, block, &mut value);
        value[0]
    }

    /// The numbers of the blocks from `first` on, at most [`RUN`].
    pub(super) fn values(&self, values: &BlockValues, first: usize, out: &mut [f32]) {
        match values {
            BlockValues::Stored { segment } => self.stored(*segment, first, out),
            BlockValues::Interleaved {
                segment,
                dtype,
                start,
                bytes,
            } => {
                let begin = *start as usize + first * *bytes as usize;
                let numbers = &self.segment(*segment)[begin..];
                interleaved(numbers, *dtype, *bytes as usize, out);
            }
            BlockValues::Product {
                values,
                factors,
                size,
            } => {
                let mut factor = [0.0; RUN];
                let factor = &mut factor[..out.len()];
                // The blocks as a weight of one row.
                let groups = BlockMap::Flat { size: *size };
                self.spread(groups, factors, 0, first, factor);
                self.values(values, first, out);
                vectorized(
                    #[inline(always)]
                    || {
                        for (out, &factor) in out.iter_mut().zip(factor.iter()) {
                            *out *= factor;
                        }
                    },
                );
            }
            BlockValues::Nested {
                codes,
                table,
                scales,
                size,
                offset,
            } => {
                let codes = &self.segment(*codes)[first..first + out.len()];
                let (offset, size) = (self.number(*offset, 0), *size as usize);
                let mut done = 0;
                while done < out.len() {
                    let group = (first + done) / size;
                    let end = ((group + 1) * size - first).min(out.len());
                    let scale = self.number(*scales, group);
                    for (out, &code) in out[done..end].iter_mut().zip(&codes[done..end]) {
                        *out = table[usize::from(code)] * scale + offset;
                    }
                    done = end;
                }
            }
            BlockValues::Affine {
                codes,
                groups,
                scales,
                zeros,
            } => {
                let (mut scale, mut zero) = ([0.0; RUN], [0.0; RUN]);
                let (scale, zero) = (&mut scale[..out.len()], &mut zero[..out.len()]);
                // The blocks' own numbers are stored as if the blocks were a weight of one row.
                let stored = |segment| BlockValues::Stored { segment };
                self.spread(*groups, &stored(*scales), 0, first, scale);
                self.spread(*groups, &stored(*zeros), 0, first, zero);
                let codes = &self.segment(*codes)[first..first + out.len()];
                vectorized(
                    #[inline(always)]
                    || {
                        let numbers = codes.iter().zip(scale.iter().zip(zero.iter()));
                        for (out, (&code, (&scale, &zero))) in out.iter_mut().zip(numbers) {
                            *out = (f32::from(code) - zero) * scale;
                        }
                    },
                );
            }
            BlockValues::Table {
                codes,
                table,
                scale,
                ..
            } => self.looked_up((codes, table), *scale, first, out),
        }
    }

    /// The numbers that the codes of the blocks from `first` on stand for, at most [`RUN`].
    fn looked_up(
        &self,
        (codes, table): (&Codes, &[f32]),
        scale: Option<TableScale>,
        first: usize,
        out: &mut [f32],
    ) {
        let bytes = self.segment(codes.segment);
        if let Ok(table) = table.try_into() {
            look_up_packed(self.isa(), bytes, codes, first, table, out);
        } else {
            let mut unpacked = [0u8; RUN];
            let unpacked = &mut unpacked[..out.len()];
            unpack(bytes, codes, first, unpacked);
            for (out, &code) in out.iter_mut().zip(unpacked.iter()) {
                *out = table[usize::from(code)];
            }
        }
        let Some(scale) = scale else {
            return;
        };
        let number = self.number(scale.segment(), 0);
        vectorized(
            #[inline(always)]
            || {
                out.iter_mut()
                    .for_each(|out| *out = scale.apply(*out, number))
            },
        );
    }

    /// The numbers of a segment from number `first` on.
    fn stored(&self, segment: usize, first: usize, out: &mut [f32]) {
        let bytes = self.segment(segment);
        match self.dtype(segment) {
            DType::F32 => stored(bytes, first, out, f32::from_le_bytes),
            DType::BF16 => stored(bytes, first, out, |x| bf16::from_le_bytes(x).load()),
            _ => stored(bytes, first, out, |x| f16::from_le_bytes(x).load()),
        }
    }

    /// One number of a segment.
    pub(super) fn number(&self, segment: usize, at: usize) -> f32 {
        let mut value = [0.0];
        self.stored(segment, at, &mut value);
        value[0]
    }
}

/// Reads numbers of `dtype`, each `distance` bytes after the one before.
fn interleaved(bytes: &[u8], dtype: DType, distance: usize, out: &mut [f32]) {
    match dtype {
        DType::F32 => apart(bytes, distance, out, f32::from_le_bytes),
        DType::BF16 => apart(bytes, distance, out, |x| bf16::from_le_bytes(x).load()),
        _ => apart(bytes, distance, out, |x| f16::from_le_bytes(x).load()),
    }
}

/// Reads numbers of `BYTES` bytes, each `distance` bytes after the one before.
#[inline(always)]
fn apart<const BYTES: usize>(
    bytes: &[u8],
    distance: usize,
    out: &mut [f32],
    read: impl Fn([u8; BYTES]) -> f32,
) {
    for (out, bytes) in out.iter_mut().zip(bytes.chunks(distance)) {
        *out = read(*bytes.first_chunk().expect("a format that was validated"));
    }
}

/// Reads numbers of `BYTES` bytes from number `first` on.
#[inline(always)]
fn stored<const BYTES: usize>(
    bytes: &[u8],
    first: usize,
    out: &mut [f32],
    read: impl Fn([u8; BYTES]) -> f32,
) {
    let bytes = &bytes[first * BYTES..(first + out.len()) * BYTES];
    vectorized(
        #[inline(always)]
        || {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
                *out = read(*bytes);
            }
        },
    );
}
