//! Packed codes -> a number for each, by tables of words or by integer arithmetic.

use espalier_interface::format::{BitOrder, Codes};
use espalier_interface::{DType, Result};

use super::Run;
use crate::launch::Launch;
use crate::{Binary, Compare, Tensors};

/// The first stage: codes, and the number that each stands for.
pub struct Source {
    codes: Codes,
    /// Of words of a byte: for each byte the numbers of its slots, in the order of codes. Of wider
    /// words: the numbers of all codes.
    numbers: Vec<f32>,
}

impl Source {
    /// Codes that stand for `number` of them.
    pub fn table(codes: &Codes, number: impl Fn(u8) -> f32) -> Self {
        let numbers = if codes.dtype() == DType::U8 {
            // Slot by slot of one word, whatever the order of words is.
            let one_word = Codes {
                order: match codes.order {
                    BitOrder::Split { .. } => BitOrder::HighFirst,
                    order => order,
                },
                ..codes.clone()
            };
            let slots = 0..codes.per_word();
            let mut numbers = Vec::new();
            for byte in 0..=u8::MAX {
                numbers.extend(
                    slots
                        .clone()
                        .map(|slot| number(one_word.read(&[byte], slot))),
                );
            }
            numbers
        } else {
            (0..=codes.mask()).map(number).collect()
        };
        Source {
            codes: codes.clone(),
            numbers,
        }
    }

    /// The numbers of a run, `[len]` of f32.
    pub fn values<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let library = launch.library;
        let segment = launch.param(first + self.codes.segment);
        let slots = self.codes.per_word() as usize;
        let BitOrder::Split { words } = self.codes.order else {
            let (word, end) = (run.begin / slots, (run.begin + run.len).div_ceil(slots));
            let words = launch.read(&segment.narrowed(0, word, end - word))?;
            let table = library.floats(&self.numbers, &[256, slots])?;
            let numbers = library.select(&table, 0, &words)?;
            let numbers = library.reshape(&numbers, &[(end - word) * slots])?;
            return library.narrow(&numbers, 0, run.begin - word * slots, run.len);
        };
        let (words, mut parts, mut at) = (words as usize, Vec::new(), run.begin);
        while at < run.begin + run.len {
            let (slot, word) = (at / words, at % words);
            let len = (words - word).min(run.begin + run.len - at);
            let part = launch.read(&segment.narrowed(0, word, len))?;
            parts.push(self.slot(library, &part, slot)?);
            at += len;
        }
        match &parts[..] {
            [part] => Ok(part.clone()),
            parts => library.concat(parts, 0),
        }
    }

    /// The numbers of the codes in one slot of each word.
    fn slot<L: Tensors>(&self, library: &L, words: &L::Tensor, slot: usize) -> Result<L::Tensor> {
        if self.codes.dtype() == DType::U8 {
            let slots = self.codes.per_word() as usize;
            let table = self.numbers.iter().skip(slot).step_by(slots);
            let table: Vec<f32> = table.copied().collect();
            return library.select(&library.floats(&table, &[256])?, 0, words);
        }
        let shift = self.codes.place(slot as u64 * self.codes.words(0)).1;
        let words = library.cast(words, DType::I64)?;
        let integer = |value: f64| library.full(value, &[1], DType::I64);
        // As words without a sign.
        let negative = library.compare(Compare::Less, &words, &integer(0.0)?)?;
        let wrapped = library.affine(&words, 1.0, 2f64.powi(32))?;
        let words = library.choose(&negative, &wrapped, &words)?;
        // The code is what is left without the bits above it.
        let from = library.binary(Binary::Div, &words, &integer(2f64.powi(shift as i32))?)?;
        let codes = integer(2f64.powi(self.codes.bits as i32))?;
        let above = library.binary(Binary::Div, &from, &codes)?;
        let above = library.binary(Binary::Mul, &above, &codes)?;
        let code = library.sub(&from, &above)?;
        let table = library.floats(&self.numbers, &[self.numbers.len()])?;
        library.select(&table, 0, &code)
    }
}
