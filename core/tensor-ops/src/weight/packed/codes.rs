//! Packed codes -> a number for each, by tables of words or by integer arithmetic.

use espalier_interface::format::{BitOrder, CodeRows, Codes};
use espalier_interface::{DType, Result};

use super::Run;
use crate::launch::Launch;
use crate::{Binary, Compare, Tensors};

/// Codes, and the number that each stands for.
pub struct CodeNumbers {
    codes: Codes,
    numbers: Numbers,
}

/// Codes that fill whole bytes together.
#[derive(Clone, Copy)]
struct Group {
    codes: usize,
    bytes: usize,
}

impl Group {
    /// Eight codes of a stream, else those of a word.
    fn of(codes: &Codes) -> Self {
        match codes.run(0).codes.order {
            BitOrder::Stream => Group {
                codes: 8,
                bytes: codes.bits as usize,
            },
            _ => Group {
                codes: codes.per_word() as usize,
                bytes: codes.dtype().bytes() as usize,
            },
        }
    }
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
        // Slot by slot of one word, whatever the order of words is.
        let mut word = codes.run(0).codes;
        if matches!(word.order, BitOrder::Split { .. }) {
            word.order = BitOrder::HighFirst;
        }
        let numbers = if word.order == BitOrder::Stream || codes.dtype() != DType::U8 {
            table.map_or(Numbers::Count, |table| Numbers::OfCodes(table.to_vec()))
        } else {
            let slots = codes.per_word();
            let numbers = (0..=u8::MAX).flat_map(|byte| {
                let (word, number) = (&word, &number);
                (0..slots).map(move |slot| number(word.read(&[byte], slot)))
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
            BitOrder::Rows(rows) => self.of_rows(launch, first, rows, run),
            _ => self.following(launch, first, 0, run),
        }
    }

    /// Of codes that follow each other from a byte of the segment on.
    fn following<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        byte: usize,
        run: Run,
    ) -> Result<L::Tensor> {
        let group = Group::of(&self.codes);
        let [begin, count] = run.touched(group.codes);
        let range = [byte + begin * group.bytes, count * group.bytes];
        let bytes = self.bytes(launch, first, range)?;
        let numbers = self.of_groups(launch.library, &bytes, group)?;
        let before = run.begin - begin * group.codes;
        launch.library.narrow(&numbers, 0, before, run.len)
    }

    /// Of codes in rows that begin at bytes of their own.
    fn of_rows<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        rows: CodeRows,
        run: Run,
    ) -> Result<L::Tensor> {
        let (library, group) = (launch.library, Group::of(&self.codes));
        let (codes, width) = (rows.codes as usize, rows.bytes as usize);
        let [row, count] = run.touched(codes);
        let (byte, before) = (rows.start as usize + row * width, run.begin - row * codes);
        if count == 1 {
            let run = Run {
                begin: before,
                ..run
            };
            return self.following(launch, first, byte, run);
        }
        let groups = codes.div_ceil(group.codes);
        let bytes = self.bytes(launch, first, [byte, count * width])?;
        let mut bytes = library.reshape(&bytes, &[count, width])?;
        // Whole groups of each row.
        let held = groups * group.bytes;
        if held > width {
            let missing = library.full(0.0, &[count, held - width], DType::U8)?;
            bytes = library.concat(&[bytes, missing], 1)?;
        }
        let bytes = library.narrow(&bytes, 1, 0, held)?;
        let bytes = library.reshape(&bytes, &[count * held])?;
        let numbers = self.of_groups(library, &bytes, group)?;
        let numbers = library.reshape(&numbers, &[count, groups * group.codes])?;
        let numbers = library.narrow(&numbers, 1, 0, codes)?;
        let numbers = library.reshape(&numbers, &[count * codes])?;
        library.narrow(&numbers, 0, before, run.len)
    }

    /// `len` bytes of the segment from `begin` on, with zeros behind its last.
    fn bytes<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        first: usize,
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        let segment = launch.param(first + self.codes.segment).as_bytes();
        let stored = len.min(segment.elements() - begin);
        let bytes = launch.read(&segment.narrowed(0, begin, stored))?;
        if stored == len {
            return Ok(bytes);
        }
        let missing = launch.library.full(0.0, &[len - stored], DType::U8)?;
        launch.library.concat(&[bytes, missing], 0)
    }

    /// The numbers of the codes in whole groups of bytes.
    fn of_groups<L: Tensors>(
        &self,
        library: &L,
        bytes: &L::Tensor,
        group: Group,
    ) -> Result<L::Tensor> {
        let count = library.shape(bytes)[0] / group.bytes;
        let all = [count * group.codes];
        if let Numbers::OfBytes(numbers) = &self.numbers {
            let table = library.floats(numbers, &[256, group.codes])?;
            return library.reshape(&library.select(&table, 0, bytes)?, &all);
        }
        let bytes = library.reshape(bytes, &[count, group.bytes])?;
        let slots: Result<Vec<_>> = (0..group.codes)
            .map(|slot| self.slot_of_group(library, &bytes, slot))
            .collect();
        let codes = library.concat(&slots?, 1)?;
        self.of_codes(library, library.reshape(&codes, &all)?)
    }

    /// Code `slot` of every group, of `bytes`, `[count, bytes]`, as `[count, 1]` of f32.
    fn slot_of_group<L: Tensors>(
        &self,
        library: &L,
        bytes: &L::Tensor,
        slot: usize,
    ) -> Result<L::Tensor> {
        let (bits, mask) = (self.codes.bits as usize, self.codes.wide_mask());
        let (byte, shift) = (slot * bits / 8, slot * bits % 8);
        let count = library.shape(bytes)[0];
        let mut code = None;
        // What each byte holds of the code, by a table of bytes.
        for at in 0..(shift + bits).div_ceil(8) {
            let part = |byte: u32| (byte << (8 * at) >> shift) as u16 & mask;
            let table: Vec<f32> = (0..256).map(|byte| f32::from(part(byte))).collect();
            let column = library.narrow(bytes, 1, byte + at, 1)?;
            let column = library.reshape(&column, &[count])?;
            let part = library.select(&library.floats(&table, &[256])?, 0, &column)?;
            code = Some(match code.take() {
                None => part,
                Some(code) => library.add(&code, &part)?,
            });
        }
        let code = code.expect("a code has bits");
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
