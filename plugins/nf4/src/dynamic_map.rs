//! bitsandbytes' signed dynamic 8-bit map -> values by code, and the code of a scaled number.
//!
//! The peer's CPU library does not search the map. It rounds a number to one of 65536 steps of [-1,
//! 1] and looks up the code of that step. Its codes near a midpoint follow that grid, so this file
//! builds the same grid. Zero has no separate step: it falls to 1.5e-5, code 131.

/// The value of each code as f32 bits, [256], rising; there is no -1.0, and code 127 is zero.
///
/// # Source
/// bitsandbytes' `create_dynamic_map(signed=True)`; its bits depend on the fused operations of the
/// peer's `linspace`, so they are embedded, not computed.
#[rustfmt::skip]
const BITS: [u32; 256] = [
    0xbf7e_3333, 0xbf7a_999a, 0xbf77_0000, 0xbf73_6666, 0xbf6f_cccd, 0xbf6c_3333, 0xbf68_999a,
    0xbf65_0000, 0xbf61_6666, 0xbf5d_cccd, 0xbf5a_3333, 0xbf56_999a, 0xbf53_0000, 0xbf4f_6666,
    0xbf4b_cccd, 0xbf48_3333, 0xbf44_999a, 0xbf41_0000, 0xbf3d_6666, 0xbf39_cccd, 0xbf36_3334,
    0xbf32_999a, 0xbf2f_0000, 0xbf2b_6666, 0xbf27_cccd, 0xbf24_3334, 0xbf20_999a, 0xbf1d_0000,
    0xbf19_6666, 0xbf15_cccd, 0xbf12_3334, 0xbf0e_999a, 0xbf0b_0000, 0xbf07_6666, 0xbf03_cccc,
    0xbf00_3333, 0xbef9_3332, 0xbef2_0000, 0xbeea_cccc, 0xbee3_999a, 0xbedc_6666, 0xbed5_3333,
    0xbece_0000, 0xbec6_cccc, 0xbebf_999a, 0xbeb8_6666, 0xbeb1_3333, 0xbeaa_0000, 0xbea2_cccc,
    0xbe9b_999a, 0xbe94_6666, 0xbe8d_3334, 0xbe86_0000, 0xbe7d_9999, 0xbe6f_3333, 0xbe60_cccd,
    0xbe52_6666, 0xbe44_0000, 0xbe35_999a, 0xbe27_3333, 0xbe18_cccd, 0xbe0a_6666, 0xbdf8_0000,
    0xbddb_3334, 0xbdc9_eb85, 0xbdc4_28f7, 0xbdbe_6667, 0xbdb8_a3d7, 0xbdb2_e148, 0xbdad_1eb8,
    0xbda7_5c2a, 0xbda1_999a, 0xbd9b_d70a, 0xbd96_147b, 0xbd90_51eb, 0xbd8a_8f5d, 0xbd84_cccd,
    0xbd7e_147b, 0xbd72_8f5d, 0xbd67_0a3d, 0xbd5b_851f, 0xbd50_0000, 0xbd44_7ae1, 0xbd38_f5c3,
    0xbd2d_70a3, 0xbd21_eb85, 0xbd16_6667, 0xbd0a_e148, 0xbcfe_b852, 0xbce7_ae15, 0xbcd0_a3d7,
    0xbcb9_999a, 0xbca2_8f5d, 0xbc8b_851f, 0xbc68_f5c3, 0xbc3a_e148, 0xbc1f_3b64, 0xbc16_0418,
    0xbc0c_cccd, 0xbc03_9581, 0xbbf4_bc6a, 0xbbe2_4dd3, 0xbbcf_df3b, 0xbbbd_70a4, 0xbbab_020d,
    0xbb98_9374, 0xbb86_24dd, 0xbb67_6c8a, 0xbb42_8f5c, 0xbb1d_b22d, 0xbaf1_a9fc, 0xbaa7_ef9d,
    0xba77_65ff, 0xba59_e83e, 0xba3c_6a80, 0xba1e_ecc1, 0xba01_6f01, 0xb9c7_e283, 0xb98c_e705,
    0xb923_d70b, 0xb8ba_1f4b, 0xb88a_efb3, 0xb837_8034, 0xb7b2_4206, 0xb702_05ff, 0xb65a_1a94,
    0xb513_a3b7, 0x0000_0000, 0x3513_a3b7, 0x365a_1a94, 0x3702_05ff, 0x37b2_4206, 0x3837_8034,
    0x388a_efb3, 0x38ba_1f4b, 0x3923_d70b, 0x398c_e705, 0x39c7_e283, 0x3a01_6f01, 0x3a1e_ecc1,
    0x3a3c_6a80, 0x3a59_e83e, 0x3a77_65ff, 0x3aa7_ef9d, 0x3af1_a9fc, 0x3b1d_b22d, 0x3b42_8f5c,
    0x3b67_6c8a, 0x3b86_24dd, 0x3b98_9374, 0x3bab_020d, 0x3bbd_70a4, 0x3bcf_df3b, 0x3be2_4dd3,
    0x3bf4_bc6a, 0x3c03_9581, 0x3c0c_cccd, 0x3c16_0418, 0x3c1f_3b64, 0x3c3a_e148, 0x3c68_f5c3,
    0x3c8b_851f, 0x3ca2_8f5d, 0x3cb9_999a, 0x3cd0_a3d7, 0x3ce7_ae15, 0x3cfe_b852, 0x3d0a_e148,
    0x3d16_6667, 0x3d21_eb85, 0x3d2d_70a3, 0x3d38_f5c3, 0x3d44_7ae1, 0x3d50_0000, 0x3d5b_851f,
    0x3d67_0a3d, 0x3d72_8f5d, 0x3d7e_147b, 0x3d84_cccd, 0x3d8a_8f5d, 0x3d90_51eb, 0x3d96_147b,
    0x3d9b_d70a, 0x3da1_999a, 0x3da7_5c2a, 0x3dad_1eb8, 0x3db2_e148, 0x3db8_a3d7, 0x3dbe_6667,
    0x3dc4_28f7, 0x3dc9_eb85, 0x3ddb_3334, 0x3df8_0000, 0x3e0a_6666, 0x3e18_cccd, 0x3e27_3333,
    0x3e35_999a, 0x3e44_0000, 0x3e52_6666, 0x3e60_cccd, 0x3e6f_3333, 0x3e7d_9999, 0x3e86_0000,
    0x3e8d_3334, 0x3e94_6666, 0x3e9b_999a, 0x3ea2_cccc, 0x3eaa_0000, 0x3eb1_3333, 0x3eb8_6666,
    0x3ebf_999a, 0x3ec6_cccc, 0x3ece_0000, 0x3ed5_3333, 0x3edc_6666, 0x3ee3_999a, 0x3eea_cccc,
    0x3ef2_0000, 0x3ef9_3332, 0x3f00_3333, 0x3f03_cccc, 0x3f07_6666, 0x3f0b_0000, 0x3f0e_999a,
    0x3f12_3334, 0x3f15_cccd, 0x3f19_6666, 0x3f1d_0000, 0x3f20_999a, 0x3f24_3334, 0x3f27_cccd,
    0x3f2b_6666, 0x3f2f_0000, 0x3f32_999a, 0x3f36_3334, 0x3f39_cccd, 0x3f3d_6666, 0x3f41_0000,
    0x3f44_999a, 0x3f48_3333, 0x3f4b_cccd, 0x3f4f_6666, 0x3f53_0000, 0x3f56_999a, 0x3f5a_3333,
    0x3f5d_cccd, 0x3f61_6666, 0x3f65_0000, 0x3f68_999a, 0x3f6c_3333, 0x3f6f_cccd, 0x3f73_6666,
    0x3f77_0000, 0x3f7a_999a, 0x3f7e_3333, 0x3f80_0000,
];

/// The value of each code, [256] f32, unitless (a multiple of the block's absmax).
pub static DYNAMIC_SIGNED: [f32; 256] = values();

/// Weights encoded at a time: loops over them are long enough to become vector instructions.
const GROUP: usize = 256;

const STEPS: usize = 65536; // bitsandbytes csrc/cpu_ops.cpp, kLUTSize

/// The code of each step of [-1, 1].
static CODE_OF_STEP: [u8; STEPS] = code_of_step();

const fn values() -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        values[i] = f32::from_bits(BITS[i]);
        i += 1;
    }
    values
}

const fn code_of_step() -> [u8; STEPS] {
    let values = values();
    let mut codes = [0; STEPS];
    let mut code = 0;
    let mut step = 0;
    while step < STEPS {
        let value = -1.0 + (2.0 * step as f32) / (STEPS - 1) as f32;
        while code < 255 && 0.5 * (values[code] + values[code + 1]) < value {
            code += 1;
        }
        codes[step] = code as u8;
        step += 1;
    }
    codes
}

/// The step of a scaled number `x`; a NaN (zero times the inverse of a vanishing absmax) is at step
/// 0, as in the peer.
#[inline(always)]
fn step(x: f32) -> u16 {
    let x = if x > -1.0 { x } else { -1.0 };
    let x = if x < 1.0 { x } else { 1.0 };
    let unit = (x + 1.0) * 0.5;
    // The peer's compiler fuses this multiply and add. `unit` is a multiple of 2^-25, so both are
    // exact in f64 and the one rounding of the conversion is the fused one.
    let position = (f64::from(unit) * (STEPS - 1) as f64 + 0.5) as f32;
    // The whole part of a number in [0.5, 65535.5], in vector operations. Added to 2^23 it is
    // rounded to a whole number in the low bits, which is one too many if above it.
    const WHOLE: f32 = 8_388_608.0;
    let rounded = position + WHOLE;
    (rounded.to_bits() - u32::from(rounded - WHOLE > position)) as u16
}

/// Writes the code of `weight * inverse` for each weight; `weight` and `codes` are equally long.
///
/// # Units
/// `inverse` is 1 / absmax of the block.
#[inline(always)]
pub fn nearest(weight: &[f32], inverse: f32, codes: &mut [u8]) {
    for (weight, codes) in weight.chunks(GROUP).zip(codes.chunks_mut(GROUP)) {
        let mut steps = [0; GROUP];
        for (step_of, &w) in steps.iter_mut().zip(weight) {
            *step_of = step(w * inverse);
        }
        for (code, &step) in codes.iter_mut().zip(&steps) {
            *code = CODE_OF_STEP[usize::from(step)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_rises_from_its_lowest_value_to_one() {
        assert!(DYNAMIC_SIGNED.is_sorted());
        assert_eq!(DYNAMIC_SIGNED[0], -0.992_968_74);
        assert_eq!(DYNAMIC_SIGNED[127], 0.0);
        assert_eq!(DYNAMIC_SIGNED[255], 1.0);
    }

    /// The grid has 65536 steps, so the smallest values (5.5e-7) have none and fall to a neighbour.
    #[test]
    fn values_wider_than_a_step_keep_their_code() {
        let mut codes = [0; 256];
        nearest(&DYNAMIC_SIGNED, 1.0, &mut codes);
        for (code, &value) in DYNAMIC_SIGNED.iter().enumerate() {
            if value.abs() > 1e-3 {
                assert_eq!(usize::from(codes[code]), code, "value {value}");
            }
        }
    }

    #[test]
    fn numbers_beyond_the_ends_take_the_ends() {
        let mut codes = [9; 4];
        nearest(&[-1.0, 1.0, 0.0, f32::NAN], 1.0, &mut codes);
        assert_eq!(codes, [0, 255, 131, 0]);
    }

    #[test]
    fn one_rounding_as_a_fused_multiply_add() {
        for i in 0..200_000u32 {
            let x = (i as f32 / 100_000.0) - 1.0;
            let fused = ((x + 1.0) * 0.5).mul_add(65535.0, 0.5) as u16;
            assert_eq!(step(x), fused, "x {x}");
        }
    }
}
