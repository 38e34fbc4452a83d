//! bitsandbytes' 4-bit code tables -> values by code, and the code of a scaled number.

use espalier_kernels::nearest::Nearest;

/// Weights whose codes are found together; every block size is a multiple.
pub const LANES: usize = 32;

/// A table of 16 values and the rule that maps a scaled weight to one of its codes.
pub struct Codebook {
    /// The value of each code, [16] f32, unitless (a multiple of the block's absmax).
    pub values: [f32; 16],
    /// Codes in rising order of their values, [16].
    pub order: [u8; 16],
    /// Midpoints between neighbours in that order, [15] f32; a number at one takes the lower code.
    pub midpoints: [f32; 15],
    /// The same rule for whole blocks in vectors.
    pub nearest: Nearest,
    /// The increment, modulo 256, of the code where a number passes each midpoint, [15].
    changes: [u8; 15],
}

impl Codebook {
    const fn new(bits: [u32; 16], order: [u8; 16]) -> Self {
        let mut values = [0.0; 16];
        let mut i = 0;
        while i < 16 {
            values[i] = f32::from_bits(bits[i]);
            i += 1;
        }
        let mut midpoints = [0.0; 15];
        let mut changes = [0; 15];
        let mut i = 0;
        while i < 15 {
            midpoints[i] = (values[order[i] as usize] + values[order[i + 1] as usize]) / 2.0;
            changes[i] = order[i + 1].wrapping_sub(order[i]);
            i += 1;
        }
        Codebook {
            values,
            order,
            midpoints,
            nearest: Nearest::new(&midpoints, &order),
            changes,
        }
    }

    /// The codes of the scaled weights `x`; at a midpoint, that of the lower neighbour.
    #[inline(always)]
    pub fn codes(&self, x: &[f32; LANES]) -> [u8; LANES] {
        let (midpoints, changes) = (self.midpoints, self.changes);
        let mut codes = [0; LANES];
        // Midpoints inside: the code of a weight stays in a register.
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = self.order[0];
            for (&midpoint, &change) in midpoints.iter().zip(&changes) {
                *code = code.wrapping_add(if x > midpoint { change } else { 0 });
            }
        }
        codes
    }
}

/// NormalFloat 4: quantiles of the normal distribution.
///
/// # Source
/// Dettmers et al. 2023 (QLoRA), appendix E; bits as in bitsandbytes' `get_4bit_type("nf4")`.
pub static NF4: Codebook = Codebook::new(
    [
        0xbf80_0000,
        0xbf32_39b1,
        0xbf06_6b30,
        0xbeca_32a0,
        0xbe91_a24d,
        0xbe3d_353f,
        0xbdba_7871,
        0x0000_0000,
        0x3da2_faff,
        0x3e24_cae3,
        0x3e7c_04dd,
        0x3ead_033a,
        0x3ee1_a4b8,
        0x3f10_07ab,
        0x3f39_13b3,
        0x3f80_0000,
    ],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
);

/// bitsandbytes' 4-bit float: bit 3 is the sign, the low bits name a magnitude in no rising order.
///
/// Code 8 is a second zero. It is above code 0 in `order`, so a small positive weight takes code 8
/// and a small negative one code 0; both decode to +0.
///
/// # Source
/// bitsandbytes' `get_4bit_type("fp4")` and its `argsort`.
pub static FP4: Codebook = Codebook::new(
    [
        0x0000_0000,
        0x3baa_aaab,
        0x3f2a_aaab,
        0x3f80_0000,
        0x3eaa_aaab,
        0x3f00_0000,
        0x3e2a_aaab,
        0x3e80_0000,
        0x0000_0000,
        0xbbaa_aaab,
        0xbf2a_aaab,
        0xbf80_0000,
        0xbeaa_aaab,
        0xbf00_0000,
        0xbe2a_aaab,
        0xbe80_0000,
    ],
    [11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_rise_in_their_order() {
        for book in [&NF4, &FP4] {
            let sorted = book.order.map(|code| book.values[usize::from(code)]);
            assert!(sorted.is_sorted(), "{sorted:?}");
            let mut codes = book.order;
            codes.sort_unstable();
            assert_eq!(codes, std::array::from_fn(|i| i as u8));
        }
    }

    /// Thresholds that the peer's CUDA source writes as literals.
    #[test]
    fn midpoints_equal_the_published_thresholds() {
        let published: [f64; 15] = [
            -0.8480964004993439,
            -0.6106329262256622,
            -0.4599952697753906,
            -0.33967943489551544,
            -0.23460740596055984,
            -0.13791173323988914,
            -0.045525018125772476,
            0.03979014977812767,
            0.1202552504837513,
            0.2035212516784668,
            0.2920137718319893,
            0.3893125355243683,
            0.5016634166240692,
            0.6427869200706482,
            0.8614784181118011,
        ];
        assert_eq!(NF4.midpoints, published.map(|threshold| threshold as f32));
        assert_eq!(FP4.midpoints[7], 0.0);
    }
}
