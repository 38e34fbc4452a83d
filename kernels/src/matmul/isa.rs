//! This CPU -> the widest micro-kernels that it can run.

/// An instruction set with micro-kernels.
///
/// AVX-512 and AVX2 give the same bits: both fuse multiplication and addition, and no kernel sums
/// across lanes. The portable kernel fuses only where the build's target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 512-bit vectors, 32 registers (x86-64-v4).
    Avx512,
    /// 256-bit vectors with FMA and F16C (x86-64-v3).
    Avx2,
    /// The instruction set of the build's target.
    Portable,
}

impl Isa {
    /// The widest of this CPU.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if crate::simd::has_avx512() {
                return Isa::Avx512;
            }
            if crate::simd::has_avx2() {
                return Isa::Avx2;
            }
        }
        Isa::Portable
    }

    /// All that this CPU can run, the widest first.
    pub fn available() -> &'static [Isa] {
        match Isa::detect() {
            Isa::Avx512 => &[Isa::Avx512, Isa::Avx2, Isa::Portable],
            Isa::Avx2 => &[Isa::Avx2, Isa::Portable],
            Isa::Portable => &[Isa::Portable],
        }
    }

    /// The name in a run's record.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }
}
