//! This CPU -> the micro-kernels that it can run, the fastest first.

use std::sync::OnceLock;

use half::bf16;
#[cfg(target_arch = "x86_64")]
use raw_cpuid::CpuId;

use super::block::{multiply_into, space};
use super::source::{Dense, Operand};
#[cfg(target_arch = "x86_64")]
use super::tiles;
use super::{Isa, Update};

/// What was found of this CPU.
struct Found {
    /// What it can run, the fastest first.
    available: Vec<Isa>,
    /// Why instructions that the CPU has cannot be used.
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
            available: vec![Isa::Portable],
            unused: None,
        }
    })
}

#[cfg(target_arch = "x86_64")]
fn find() -> Found {
    let mut found = Found {
        available: vec![Isa::Portable],
        unused: None,
    };
    let Found { available, unused } = &mut found;
    if crate::simd::has_avx2() {
        available.insert(0, Isa::Avx2);
    }
    if crate::simd::has_avx512() {
        available.insert(0, Isa::Avx512);
    }
    if !crate::simd::has_avx512_bf16() {
        return found;
    }
    if !equals_its_model(Isa::Avx512Bf16, Isa::Bf16Model, 15) {
        *unused = Some("AVX-512-BF16 is not used: its products differ from their model");
        return found;
    }
    available.insert(usize::from(multiplies_pairs_slowly()), Isa::Avx512Bf16);
    if !tiles::is_there() {
        return found;
    }
    if !tiles::is_permitted() {
        *unused = Some("AMX is not used: the system does not permit it");
    } else if !equals_its_model(Isa::AmxBf16, Isa::AmxModel, 31) {
        *unused = Some("AMX is not used: its products differ from their model");
    } else {
        available.insert(0, Isa::AmxBf16);
    }
    found
}

/// True for Intel's processors since Sapphire Rapids, also where the system hides their tiles.
///
/// They begin `vdpbf16ps` every second cycle and two fused multiply-adds of f32 in each, so that
/// pairs of bf16 are multiplied at half of the rate of f32 (85 and 172 GFLOP/s on a core of an
/// Emerald Rapids). On a Zen 4 products of pairs are about twice as fast as those of f32.
#[cfg(target_arch = "x86_64")]
fn multiplies_pairs_slowly() -> bool {
    let cpu = CpuId::new();
    let vendor = cpu.get_vendor_info();
    let features = cpu.get_extended_feature_info();
    vendor.is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
        && features.is_some_and(|features| features.has_avx512_fp16())
}

impl Isa {
    /// The fastest of this CPU.
    ///
    /// The instructions for bf16 are chosen where some products with them have the bits of their
    /// model, which is tried once a process.
    pub fn detect() -> Isa {
        found().available[0]
    }

    /// Why instructions that this CPU has cannot be used, if some cannot.
    pub fn unused() -> Option<&'static str> {
        found().unused
    }

    /// All that this CPU can run, the fastest first.
    pub fn available() -> &'static [Isa] {
        &found().available
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
