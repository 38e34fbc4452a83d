//! Numbers between other bytes of a segment -> tensors of f32, by tables of what bytes stand for.

use espalier_interface::{DType, Result};
use half::{bf16, f16};

use crate::launch::Launch;
use crate::memory::Memory;
use crate::{Binary, Tensors};

/// Numbers that begin at bytes `start`, `start + distance` and so on.
pub struct Interleaved {
    segment: usize,
    dtype: DType,
    start: usize,
    distance: usize,
    /// The numbers whose low bits are 0, one for each of their high bits: those of the highest
    /// byte, and but for f16 of the highest bit of the byte before.
    bases: Vec<f32>,
    /// What the lowest bit adds to each.
    units: Vec<f32>,
}

impl Interleaved {
    /// The numbers of `dtype` in `segment`.
    pub fn new(segment: usize, dtype: DType, start: u64, distance: u64) -> Self {
        // The bits of a number, those above its low bits.
        let of = |high: u32, low: u32| match dtype {
            DType::F32 => f32::from_bits(high << 23 | low),
            DType::BF16 => bf16::from_bits((high << 7 | low) as u16).to_f32(),
            _ => f16::from_bits((high << 8 | low) as u16).to_f32(),
        };
        let count = if dtype == DType::F16 { 1 << 8 } else { 1 << 9 };
        let bases: Vec<f32> = (0..count).map(|high| of(high, 0)).collect();
        let units = (0..count)
            .zip(&bases)
            .map(|(high, base)| of(high, 1) - base);
        Interleaved {
            segment,
            dtype,
            start: start as usize,
            distance: distance as usize,
            units: units.collect(),
            bases,
        }
    }

    /// The numbers of `len` blocks from `begin` on, `[len]` of f32.
    pub fn numbers<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        let (library, width) = (launch.library, self.dtype.bytes() as usize);
        let segment = launch.param(first + self.segment).as_bytes();
        let from = segment.narrowed(0, self.start + begin * self.distance, width);
        let records = Memory::new(from.address(), DType::U8, &[len, self.distance]);
        let bytes = launch.read(&records.narrowed(1, 0, width))?;
        // What byte `at` stands for, by a table.
        let of_byte = |at: usize, number: &dyn Fn(u8) -> f32| {
            let byte = library.reshape(&library.narrow(&bytes, 1, at, 1)?, &[len])?;
            let table: Vec<f32> = (0..=u8::MAX).map(number).collect();
            library.select(&library.floats(&table, &[256])?, 0, &byte)
        };
        let (mut high, mut low);
        if self.dtype == DType::F16 {
            high = of_byte(1, &|byte| f32::from(byte))?;
            low = of_byte(0, &|byte| f32::from(byte))?;
        } else {
            high = of_byte(width - 1, &|byte| 2.0 * f32::from(byte))?;
            high = library.add(&high, &of_byte(width - 2, &|byte| f32::from(byte >> 7))?)?;
            // Sums of bits, exact in f32.
            let place = |at: usize| 2f32.powi(8 * at as i32);
            low = of_byte(width - 2, &|byte| f32::from(byte & 0x7f) * place(width - 2))?;
            for at in 0..width - 2 {
                low = library.add(&low, &of_byte(at, &|byte| f32::from(byte) * place(at))?)?;
            }
        }
        let high = library.cast(&high, DType::I64)?;
        let look_up = |table: &[f32]| {
            let table = library.floats(table, &[table.len()])?;
            library.select(&table, 0, &high)
        };
        let added = library.binary(Binary::Mul, &look_up(&self.units)?, &low)?;
        library.add(&look_up(&self.bases)?, &added)
    }
}
