//! This CPU -> the widest micro-kernels that it can run.

use std::sync::OnceLock;

use half::bf16;

use super::block::{multiply_into, space};
use super::source::{Dense, Operand};
#[cfg(target_arch = "x86_64")]
use super::tiles;
use super::{Isa, Update};

/// What was found of this CPU.
struct Found {
    widest: Isa,
    /// Why wider instructions that the CPU has are not used.
    unused: Option<&'static str>,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            find()
        }
        #[cfg(not(target_arch = "x86_64"))]
        Found {
            widest: Isa::Portable,
            unused: None,
        }
    })
}

#[cfg(target_arch = "x86_64")]
fn find() -> Found {
    let found = |widest, unused| Found { widest, unused };
    if !crate::simd::has_avx512() {
        let widest = if crate::simd::has_avx2() {
            Isa::Avx2
        } else {
            Isa::Portable
        };
        return found(widest, None);
    }
    if !crate::simd::has_avx512_bf16() {
        return found(Isa::Avx512, None);
    }
    if !equals_its_model(Isa::Avx512Bf16, Isa::Bf16Model, 15) {
        let why = "AVX-512-BF16 is not used: its products differ from their model";
        return found(Isa::Avx512, Some(why));
    }
    if !tiles::is_there() {
        return found(Isa::Avx512Bf16, None);
    }
    // Processors with tiles multiply pairs in vectors at 0.7 of the rate of f32.
    if !tiles::is_permitted() {
        let why = "AMX is not used: the system does not permit it";
        return found(Isa::Avx512, Some(why));
    }
    if !equals_its_model(Isa::AmxBf16, Isa::AmxModel, 31) {
        let why = "AMX is not used: its products differ from their model";
        return found(Isa::Avx512, Some(why));
    }
    found(Isa::AmxBf16, None)
}

impl Isa {
    /// The widest of this CPU.
    ///
    /// The instructions for bf16 are chosen where some products with them have the bits of their
    /// model, which is tried once a process.
    pub fn detect() -> Isa {
        found().widest
    }

    /// Why instructions that this CPU has are not used, if some are not.
    pub fn unused() -> Option<&'static str> {
        found().unused
    }

    /// All that this CPU can run, the widest first.
    pub fn available() -> &'static [Isa] {
        const ALL: [Isa; 5] = [
            Isa::AmxBf16,
            Isa::Avx512Bf16,
            Isa::Avx512,
            Isa::Avx2,
            Isa::Portable,
        ];
        let widest = ALL.iter().position(|&isa| isa == Isa::detect());
        &ALL[widest.expect("the widest is one of all")..]
    }

    /// `self`.
    ///
    /// # Panics
    /// Where this CPU lacks it.
    pub(crate) fn checked(self) -> Isa {
        let is_model = matches!(self, Isa::Bf16Model | Isa::AmxModel);
        let known = is_model || Isa::available().contains(&self);
        assert!(known, "this processor has no {}", self.name());
        self
    }
}

/// True where products of bf16 by `isa` have the bits of those by `model`, with so many
/// rows.
///
/// Their operands are ordinary, tiny, huge and zero, in bf16 and in f32, read along and across the
/// depth, of an odd depth and with edges.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn equals_its_model(isa: Isa, model: Isa, rows: usize) -> bool {
    let [cols, depth] = [49, 67];
    let (x, w) = (numbers(rows * depth, 1), numbers(cols * depth, 2));
    let halves = |from: &[f32]| from.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (xh, wh) = (halves(&x), halves(&w));
    let mut memory = vec![0.0; space::<f32>()];
    let mut same = |left: Operand<'_, f32>, right: Operand<'_, f32>| {
        let [found, expected] = [isa, model].map(|isa| {
            let mut out = vec![0.0f32; rows * cols];
            let to = (&mut out[..], cols);
            multiply_into(isa, (left, right), to, Update::Overwrite, &mut memory);
            out
        });
        let mut pairs = found.iter().zip(&expected);
        pairs.all(|(found, expected)| found.to_bits() == expected.to_bits())
    };
    same(
        Operand::over_cols(&Dense::new(&xh, rows, depth)),
        Operand::over_cols(&Dense::new(&wh, cols, depth)),
    ) && same(
        Operand::over_rows(&Dense::new(&xh, depth, rows)),
        Operand::over_rows(&Dense::new(&wh, depth, cols)),
    ) && same(
        Operand::over_cols(&Dense::new(&x, rows, depth)),
        Operand::over_rows(&Dense::new(&w, depth, cols)),
    ) && same(
        Operand::over_rows(&Dense::new(&x, depth, rows)),
        Operand::over_cols(&Dense::new(&w, cols, depth)),
    )
}

/// Numbers of either sign: most below 1, some so small or large that products of them are not
/// normal numbers. None overflows, since the bits of NaN are no part of the model.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let number = |_| {
        let unit = next() as f32 / (1 << 23) as f32 - 1.0;
        match next() % 16 {
            0 => unit * 1e-19,
            1 => unit * 1e-39,
            2 => unit * 1e15,
            3 => 0.0,
            _ => unit,
        }
    };
    (0..len).map(number).collect()
}
