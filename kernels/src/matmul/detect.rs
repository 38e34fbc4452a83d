//! This CPU -> the widest micro-kernels that it can run.

use std::sync::OnceLock;

use half::bf16;

use super::block::{multiply_into, space};
use super::source::{Dense, Operand};
use super::{Isa, Update};

impl Isa {
    /// The widest of this CPU.
    ///
    /// The instructions for bf16 are chosen where some products with them have the bits of their
    /// model, which is tried once a process.
    pub fn detect() -> Isa {
        static WIDEST: OnceLock<Isa> = OnceLock::new();
        *WIDEST.get_or_init(|| {
            #[cfg(target_arch = "x86_64")]
            {
                if crate::simd::has_avx512_bf16() && equals_its_model(Isa::Avx512Bf16) {
                    return Isa::Avx512Bf16;
                }
                if crate::simd::has_avx512() {
                    return Isa::Avx512;
                }
                if crate::simd::has_avx2() {
                    return Isa::Avx2;
                }
            }
            Isa::Portable
        })
    }

    /// All that this CPU can run, the widest first.
    pub fn available() -> &'static [Isa] {
        const ALL: [Isa; 4] = [Isa::Avx512Bf16, Isa::Avx512, Isa::Avx2, Isa::Portable];
        let widest = ALL.iter().position(|&isa| isa == Isa::detect());
        &ALL[widest.expect("the widest is one of all")..]
    }

    /// `self`.
    ///
    /// # Panics
    /// Where this CPU lacks it.
    pub(crate) fn checked(self) -> Isa {
        let known = self == Isa::Bf16Model || Isa::available().contains(&self);
        assert!(known, "this processor has no {}", self.name());
        self
    }
}

/// True where products of bf16 by `isa` have the bits of their model.
///
/// Their operands are ordinary, tiny, huge and zero, in bf16 and in f32, read along and across the
/// depth, of an odd depth and with edges.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn equals_its_model(isa: Isa) -> bool {
    const SHAPE: [usize; 3] = [15, 49, 67];
    let [rows, cols, depth] = SHAPE;
    let (x, w) = (numbers(rows * depth, 1), numbers(cols * depth, 2));
    let halves = |from: &[f32]| from.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (xh, wh) = (halves(&x), halves(&w));
    let mut memory = vec![0.0; space::<f32>()];
    let mut same = |left: Operand<'_, f32>, right: Operand<'_, f32>| {
        let [found, expected] = [isa, Isa::Bf16Model].map(|isa| {
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
