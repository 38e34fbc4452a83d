//! Packed codes -> a number for each, by tables of words or by integer arithmetic.

use espalier_interface::format::{BitOrder, Codes};
use espalier_interface::{DType, Result};

use super::Run;
use crate::launch::Launch;
use crate::{Binary, Compare, Tensors};

/// Codes of a stream that fill whole bytes together, of any number of bits.
const STREAMED: usize = 8;

/// Codes, and the number that each stands for.
pub struct CodeNumbers {
    codes: Codes,
    numbers: Numbers,
}

/// The numbers of codes.
enum Numbers {
    /// For each byte the numbers of its slots, in the order of codes: of codes within a byte.
    OfBytes(Vec<f32>),
    /// The numbers of all codes.
    OfCodes(Vec<f32>),
    /// The codes themselves.
    Count,
}

impl CodeNumbers {
    /// Codes that stand for the numbers of a table.
    pub fn table(codes: &Codes, table: &[f32]) -> Self {
        Self::new(codes, Some(table))
    }

    /// Codes that stand for themselves.
    pub fn count(codes: &Codes) -> Self {
        Self::new(codes, None)
    }

    fn new(codes: &Codes, table: Option<&[f32]>) -> Self {
        let number = |code: u8| table.map_or(f32::from(code), |table| table[usize::from(code)]);
        let numbers = if codes.order == BitOrder::Stream || codes.dtype() != DType::U8 {
            table.map_or(Numbers::Count, |table| Numbers::OfCodes(table.to_vec()))
        } else {
            // Slot by slot of one word, whatever the order of words is.
            let one_word = Codes {
                order: match codes.order {
                    BitOrder::Split { .. } => BitOrder::HighFirst,
                    order => order,
                },
                ..codes.clone()
            };
            let slots = codes.per_word();
            let numbers = (0..=u8::MAX).flat_map(|byte| {
                let (one_word, number) = (&one_word, &number);
                (0..slots).map(move |slot| number(one_word.read(&[byte], slot)))
            });
            Numbers::OfBytes(numbers.collect())
        };
        CodeNumbers {
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
        match self.codes.order {
            BitOrder::Split { words } => self.split(launch, first, words as usize, run),
            BitOrder::Stream => self.streamed(launch, first, run),
            _ => self.of_bytes(launch, first, run),
        }
    }

    /// Of codes that fill one byte after the other.
    fn of_bytes<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let (library, slots) = (launch.library, self.codes.per_word() as usize);
        let [byte, count] = run.touched(slots);
        let segment = launch.param(first + self.codes.segment);
        let bytes = launch.read(&segment.narrowed(0, byte, count))?;
        let table = library.floats(self.of_slots(), &[256, slots])?;
        let numbers = library.select(&table, 0, &bytes)?;
        let numbers = library.reshape(&numbers, &[count * slots])?;
        library.narrow(&numbers, 0, run.begin - byte * slots, run.len)
    }

    /// Of codes that straddle bytes: every eight of them fill `bits` bytes.
    fn streamed<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let (library, bits) = (launch.library, self.codes.bits as usize);
        let [group, count] = run.touched(STREAMED);
        let segment = launch.param(first + self.codes.segment);
        let stored = (count * bits).min(segment.elements() - group * bits);
        let mut bytes = launch.read(&segment.narrowed(0, group * bits, stored))?;
        if stored < count * bits {
            // The last codes are fewer than eight.
            let missing = library.full(0.0, &[count * bits - stored], DType::U8)?;
            bytes = library.concat(&[bytes, missing], 0)?;
        }
        let bytes = library.reshape(&bytes, &[count, bits])?;
        let slots: Result<Vec<_>> = (0..STREAMED)
            .map(|slot| self.streamed_slot(library, &bytes, slot))
            .collect();
        let codes = library.concat(&slots?, 1)?;
        let codes = library.reshape(&codes, &[count * STREAMED])?;
        let codes = library.narrow(&codes, 0, run.begin - group * STREAMED, run.len)?;
        self.of_codes(library, codes)
    }

    /// Code `slot` of every eight, of `bytes`, `[count, bits]`, as `[count, 1]` of f32.
    fn streamed_slot<L: Tensors>(
        &self,
        library: &L,
        bytes: &L::Tensor,
        slot: usize,
    ) -> Result<L::Tensor> {
        let (bits, mask) = (self.codes.bits as usize, u16::from(self.codes.mask()));
        let (byte, shift) = (slot * bits / 8, slot * bits % 8);
        let count = library.shape(bytes)[0];
        // What a byte holds of the code, by a table of bytes.
        let part = |byte: usize, bits_of: &dyn Fn(u16) -> u16| {
            let column = library.reshape(&library.narrow(bytes, 1, byte, 1)?, &[count])?;
            let table: Vec<f32> = (0..256)
                .map(|byte| f32::from(bits_of(byte) & mask))
                .collect();
            library.select(&library.floats(&table, &[256])?, 0, &column)
        };
        let low = part(byte, &|byte| byte >> shift)?;
        let code = if shift + bits > 8 {
            library.add(&low, &part(byte + 1, &|byte| byte << (8 - shift))?)?
        } else {
            low
        };
        library.reshape(&code, &[count, 1])
    }

    /// Of codes that are cut into runs, one for each slot of the words.
    fn split<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        words: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let segment = launch.param(first + self.codes.segment);
        let (mut parts, mut at) = (Vec::new(), run.begin);
        while at < run.end() {
            let (slot, word) = (at / words, at % words);
            let len = (words - word).min(run.end() - at);
            let part = launch.read(&segment.narrowed(0, word, len))?;
            parts.push(self.split_slot(launch.library, &part, slot)?);
            at += len;
        }
        launch.library.concat(&parts, 0)
    }

    /// The numbers of the codes in one slot of each word.
    fn split_slot<L: Tensors>(
        &self,
        library: &L,
        words: &L::Tensor,
        slot: usize,
    ) -> Result<L::Tensor> {
        if self.codes.dtype() == DType::U8 {
            let slots = self.codes.per_word() as usize;
            let table = self.of_slots().iter().skip(slot).step_by(slots);
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
        self.of_codes(library, library.sub(&from, &above)?)
    }

    /// For each byte the numbers of its slots.
    fn of_slots(&self) -> &[f32] {
        match &self.numbers {
            Numbers::OfBytes(numbers) => numbers,
            _ => panic!("codes beyond a byte have no table of bytes"),
        }
    }

    /// The numbers of codes, `[n]` of f32 or i64.
    fn of_codes<L: Tensors>(&self, library: &L, codes: L::Tensor) -> Result<L::Tensor> {
        let Numbers::OfCodes(numbers) = &self.numbers else {
            return library.cast(&codes, DType::F32);
        };
        let table = library.floats(numbers, &[numbers.len()])?;
        library.select(&table, 0, &library.cast(&codes, DType::I64)?)
    }
}
