//! An instruction set with micro-kernels: its name, and the dtypes that it serves.

use espalier_interface::DType;

use super::panel::TILE_STEPS;

/// An instruction set with micro-kernels.
///
/// AVX-512 and AVX2 give the same bits: both fuse multiplication and addition, and no kernel sums
/// across lanes. The portable kernel fuses only where the build's target does. The instructions for
/// bf16 round their operands to bf16, so that products of bf16 have other bits with them; those for
/// tiles add in another order again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512 with the tiles of AMX-BF16 for products of bf16.
    AmxBf16,
    /// AVX-512 with the dot products of AVX-512-BF16 for products of bf16.
    Avx512Bf16,
    /// 512-bit vectors, 32 registers (x86-64-v4).
    Avx512,
    /// 256-bit vectors with FMA and F16C (x86-64-v3).
    Avx2,
    /// The instruction set of the build's target.
    Portable,
    /// What [`Isa::Avx512Bf16`] computes for bf16, to the bit, in plain loops. It is the measure of
    /// the instructions, in tests and before their first use, and is never detected.
    Bf16Model,
    /// What [`Isa::AmxBf16`] computes for bf16, to the bit, with tiles in plain Rust. All but the
    /// instructions for tiles is the same code. It is never detected either.
    AmxModel,
}

impl Isa {
    /// The name in a run's record and in the option that chooses one.
    pub fn name(self) -> &'static str {
        match self {
            Isa::AmxBf16 => "avx512+amx-bf16",
            Isa::Avx512Bf16 => "avx512+bf16",
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
            Isa::Bf16Model => "bf16-model",
            Isa::AmxModel => "amx-model",
        }
    }

    /// The instruction set that computes products of operands stored in `dtype`: instructions for
    /// bf16 serve no other dtype.
    pub fn serving(self, dtype: DType) -> Isa {
        if dtype == DType::BF16 {
            self
        } else {
            self.vectors()
        }
    }

    /// The instruction set of plain vectors, without instructions for bf16.
    #[inline]
    pub fn vectors(self) -> Isa {
        match self {
            Isa::AmxBf16 | Isa::Avx512Bf16 => Isa::Avx512,
            Isa::Bf16Model | Isa::AmxModel => Isa::Portable,
            other => other,
        }
    }

    /// Elements of the depth that one step of a panel holds.
    #[inline]
    pub(super) fn depth_of_step(self) -> usize {
        match self {
            Isa::Avx512Bf16 | Isa::Bf16Model | Isa::AmxBf16 | Isa::AmxModel => 2,
            Isa::Avx512 | Isa::Avx2 | Isa::Portable => 1,
        }
    }

    /// Steps of a panel that hold `elements` of the depth; with tiles, those of whole ones.
    #[inline]
    pub(super) fn steps(self, elements: usize) -> usize {
        let steps = elements.div_ceil(self.depth_of_step());
        if self.has_tiles() {
            steps.next_multiple_of(TILE_STEPS)
        } else {
            steps
        }
    }

    /// True where products of bf16 are by tiles.
    #[inline]
    pub(super) fn has_tiles(self) -> bool {
        matches!(self, Isa::AmxBf16 | Isa::AmxModel)
    }

    /// True where pairs of bf16 are packed by AVX-512-BF16. So is what the tiles of a model read,
    /// where the processor can.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) fn packs_by_vectors(self) -> bool {
        match self {
            Isa::Avx512Bf16 | Isa::AmxBf16 => true,
            #[cfg(target_arch = "x86_64")]
            Isa::AmxModel => crate::simd::has_avx512_bf16(),
            _ => false,
        }
    }
}
