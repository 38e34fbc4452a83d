//! bitsandbytes' dynamic 8-bit maps -> values by code, and the code of a number in [-1, 1].
//!
//! The peer's CPU library does not search a map. It rounds a number to one of 65536 steps of
//! [-1, 1] and looks up the code of that step. Its codes near a midpoint follow that grid, so this
//! file builds the same grid. Zero has no separate step: it falls to 1.5e-5, code 131 of the signed
//! map and 7 of the unsigned one.
//!
//! # Source
//! bitsandbytes 0.50.2, `create_dynamic_map` and `csrc/cpu_ops.cpp`. The bits of the values depend
//! on the fused operations of the peer's `linspace`, so they are embedded, not computed.

/// Steps of [-1, 1].
pub const STEPS: usize = 65536; // bitsandbytes csrc/cpu_ops.cpp, kLUTSize

/// A map of 8-bit codes.
#[derive(Debug)]
pub struct DynamicMap {
    /// The value of each code, [256] f32, rising, unitless (a multiple of a block's absmax).
    pub values: [f32; 256],
    /// The code of each step of [-1, 1].
    code_of_step: [u8; STEPS],
}

/// For numbers of both signs. There is no -1.0, and code 127 is zero.
pub static SIGNED: DynamicMap = DynamicMap::of(&SIGNED_BITS);

/// For numbers from 0 on; code 0 is zero.
pub static UNSIGNED: DynamicMap = DynamicMap::of(&UNSIGNED_BITS);

impl DynamicMap {
    const fn of(bits: &[u32; 256]) -> Self {
        let mut values = [0.0; 256];
        let mut i = 0;
        while i < 256 {
            values[i] = f32::from_bits(bits[i]);
            i += 1;
        }
        let mut code_of_step = [0; STEPS];
        let mut code = 0;
        let mut step = 0;
        while step < STEPS {
            let value = -1.0 + (2.0 * step as f32) / (STEPS - 1) as f32;
            while code < 255 && 0.5 * (values[code] + values[code + 1]) < value {
                code += 1;
            }
            code_of_step[step] = code as u8;
            step += 1;
        }
        DynamicMap {
            values,
            code_of_step,
        }
    }

    /// The code of a step that [`step`] gave.
    #[inline(always)]
    pub fn code(&self, step: u16) -> u8 {
        self.code_of_step[usize::from(step)]
    }
}

/// The step of a scaled number `x`; a NaN (zero times the inverse of a vanishing absmax) is at step
/// 0, as in the peer.
#[inline(always)]
pub fn step(x: f32) -> u16 {
    // The peer's compiler fuses this multiply and add. `unit` is a multiple of 2^-25, so both are
    // exact in f64 and the one rounding of the conversion is the fused one.
    let position = f64::from(unit(x)) * (STEPS - 1) as f64 + 0.5;
    whole(position as f32)
}

/// As [`step`], for code that is compiled for a processor with fused operations.
#[inline(always)]
pub fn step_fused(x: f32) -> u16 {
    whole(unit(x).mul_add((STEPS - 1) as f32, 0.5))
}

/// [-1, 1] as [0, 1].
#[inline(always)]
fn unit(x: f32) -> f32 {
    let x = if x > -1.0 { x } else { -1.0 };
    let x = if x < 1.0 { x } else { 1.0 };
    (x + 1.0) * 0.5
}

/// The whole part of a number in [0.5, 65535.5], in vector operations. Added to 2^23 it is rounded
/// to a whole number in the low bits, which is one too many if above it.
#[inline(always)]
fn whole(position: f32) -> u16 {
    const WHOLE: f32 = 8_388_608.0;
    let rounded = position + WHOLE;
    (rounded.to_bits() - u32::from(rounded - WHOLE > position)) as u16
}

/// The bits of the values of `create_dynamic_map(signed=True)`.
#[rustfmt::skip]
const SIGNED_BITS: [u32; 256] = [
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

/// The bits of the values of `create_dynamic_map(signed=False)`.
#[rustfmt::skip]
const UNSIGNED_BITS: [u32; 256] = [
    0x0000_0000, 0x34ae_7baa, 0x3550_0998, 0x360e_9b38, 0x3692_ccf6, 0x36de_4c51, 0x3714_e5d5,
    0x3783_126e, 0x37e1_71a0, 0x381f_e868, 0x384f_1800, 0x387e_479a, 0x3896_bb99, 0x38ae_5364,
    0x38c5_eb31, 0x3906_594b, 0x3941_54ca, 0x397c_5049, 0x399b_a5e4, 0x39b9_23a2, 0x39d6_a163,
    0x39f4_1f22, 0x3a08_ce71, 0x3a17_8d50, 0x3a26_4c30, 0x3a35_0b10, 0x3a43_c9ef, 0x3a52_88d0,
    0x3a61_47af, 0x3a70_068e, 0x3a7e_c56e, 0x3a95_8106, 0x3aba_5e35, 0x3adf_3b64, 0x3b02_0c4a,
    0x3b14_7ae1, 0x3b26_e978, 0x3b39_5810, 0x3b4b_c6a7, 0x3b5e_3540, 0x3b70_a3d7, 0x3b81_8937,
    0x3b8a_c082, 0x3b93_f7cf, 0x3b9d_2f1a, 0x3ba6_6666, 0x3baf_9db2, 0x3bb8_d4fd, 0x3bc2_0c4a,
    0x3bcb_4395, 0x3bd4_7ae1, 0x3bdd_b22e, 0x3be6_e978, 0x3bf0_20c5, 0x3bf9_580f, 0x3c01_47ae,
    0x3c05_e354, 0x3c0a_7ef9, 0x3c0f_1aa0, 0x3c13_b645, 0x3c18_51eb, 0x3c1c_ed92, 0x3c21_8937,
    0x3c2f_5c2a, 0x3c46_6667, 0x3c5d_70a3, 0x3c74_7ae2, 0x3c85_c28f, 0x3c91_47af, 0x3c9c_cccd,
    0x3ca8_51eb, 0x3cb3_d70b, 0x3cbf_5c29, 0x3cca_e147, 0x3cd6_6667, 0x3ce1_eb87, 0x3ced_70a3,
    0x3cf8_f5c3, 0x3d02_3d70, 0x3d08_0000, 0x3d0d_c28f, 0x3d13_851f, 0x3d19_47af, 0x3d1f_0a3d,
    0x3d24_cccd, 0x3d2a_8f5c, 0x3d30_51eb, 0x3d36_147b, 0x3d3b_d70a, 0x3d41_999a, 0x3d47_5c28,
    0x3d4d_1eb8, 0x3d52_e147, 0x3d58_a3d7, 0x3d5e_6667, 0x3d64_28f7, 0x3d69_eb87, 0x3d6f_ae15,
    0x3d75_70a3, 0x3d7b_3333, 0x3d80_7ae2, 0x3d83_5c2a, 0x3d86_3d71, 0x3d89_1eb8, 0x3d8c_0000,
    0x3d8e_e148, 0x3d91_c290, 0x3d94_a3d7, 0x3d97_851f, 0x3d9a_6667, 0x3d9d_47af, 0x3da0_28f6,
    0x3da3_0a3e, 0x3da5_eb85, 0x3da8_cccd, 0x3dab_ae15, 0x3dae_8f5c, 0x3db1_70a4, 0x3db4_51eb,
    0x3db7_3333, 0x3dba_147b, 0x3dbc_f5c3, 0x3dbf_d70b, 0x3dc2_b852, 0x3dc5_999a, 0x3dc8_7ae2,
    0x3dcb_5c29, 0x3dd4_0000, 0x3de2_6666, 0x3df0_cccd, 0x3dff_3333, 0x3e06_cccc, 0x3e0e_0000,
    0x3e15_3334, 0x3e1c_6666, 0x3e23_999a, 0x3e2a_cccc, 0x3e32_0000, 0x3e39_3334, 0x3e40_6666,
    0x3e47_999a, 0x3e4e_cccc, 0x3e56_0000, 0x3e5d_3334, 0x3e64_6666, 0x3e6b_999a, 0x3e72_cccc,
    0x3e7a_0000, 0x3e80_9999, 0x3e84_3333, 0x3e87_cccd, 0x3e8b_6666, 0x3e8f_0000, 0x3e92_999a,
    0x3e96_3333, 0x3e99_cccc, 0x3e9d_6666, 0x3ea1_0000, 0x3ea4_999a, 0x3ea8_3333, 0x3eab_cccc,
    0x3eaf_6666, 0x3eb3_0000, 0x3eb6_999a, 0x3eba_3333, 0x3ebd_cccc, 0x3ec1_6666, 0x3ec5_0000,
    0x3ec8_999a, 0x3ecc_3333, 0x3ecf_cccc, 0x3ed3_6666, 0x3ed7_0000, 0x3eda_999a, 0x3ede_3333,
    0x3ee1_cccc, 0x3ee5_6666, 0x3ee9_0000, 0x3eec_999a, 0x3ef0_3333, 0x3ef3_cccc, 0x3ef7_6666,
    0x3efb_0000, 0x3efe_9999, 0x3f01_199a, 0x3f02_e666, 0x3f04_b333, 0x3f06_8000, 0x3f08_4ccc,
    0x3f0a_199a, 0x3f0b_e666, 0x3f0d_b334, 0x3f0f_8000, 0x3f11_4ccd, 0x3f13_199a, 0x3f14_e666,
    0x3f16_b334, 0x3f18_8000, 0x3f1a_4ccd, 0x3f1c_199a, 0x3f1d_e666, 0x3f1f_b334, 0x3f21_8000,
    0x3f23_4ccd, 0x3f25_199a, 0x3f26_e666, 0x3f28_b334, 0x3f2a_8000, 0x3f2c_4ccd, 0x3f2e_199a,
    0x3f2f_e666, 0x3f31_b334, 0x3f33_8000, 0x3f35_4ccd, 0x3f37_199a, 0x3f38_e666, 0x3f3a_b334,
    0x3f3c_8000, 0x3f3e_4ccd, 0x3f40_199a, 0x3f41_e666, 0x3f43_b334, 0x3f45_8000, 0x3f47_4ccc,
    0x3f49_199a, 0x3f4a_e666, 0x3f4c_b334, 0x3f4e_8000, 0x3f50_4ccc, 0x3f52_199a, 0x3f53_e666,
    0x3f55_b334, 0x3f57_8000, 0x3f59_4ccc, 0x3f5b_199a, 0x3f5c_e666, 0x3f5e_b334, 0x3f60_8000,
    0x3f62_4ccc, 0x3f64_199a, 0x3f65_e666, 0x3f67_b334, 0x3f69_8000, 0x3f6b_4ccc, 0x3f6d_199a,
    0x3f6e_e666, 0x3f70_b334, 0x3f72_8000, 0x3f74_4ccc, 0x3f76_199a, 0x3f77_e666, 0x3f79_b334,
    0x3f7b_8000, 0x3f7d_4ccc, 0x3f7f_199a, 0x3f80_0000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_rise_from_their_lowest_value_to_one() {
        for (map, lowest, zero) in [(&SIGNED, -0.992_968_74, 127), (&UNSIGNED, 0.0, 0)] {
            assert!(map.values.is_sorted());
            assert_eq!(map.values[0], lowest);
            assert_eq!((map.values[zero], map.values[255]), (0.0, 1.0));
        }
    }

    /// The grid has 65536 steps, so the smallest values (5.5e-7) have none and fall to a neighbour.
    #[test]
    fn values_wider_than_a_step_keep_their_code() {
        for map in [&SIGNED, &UNSIGNED] {
            for (code, &value) in map.values.iter().enumerate() {
                if value.abs() > 1e-3 {
                    assert_eq!(usize::from(map.code(step(value))), code, "value {value}");
                }
            }
        }
    }

    #[test]
    fn numbers_beyond_the_ends_take_the_ends() {
        let codes = |map: &DynamicMap| [-1.5, 1.5, 0.0, f32::NAN].map(|x| map.code(step(x)));
        assert_eq!(codes(&SIGNED), [0, 255, 131, 0]);
        assert_eq!(codes(&UNSIGNED), [0, 255, 7, 0]);
    }

    #[test]
    fn one_rounding_as_a_fused_multiply_add() {
        for i in 0..200_000u32 {
            let x = (i as f32 / 100_000.0) - 1.0;
            assert_eq!(step(x), step_fused(x), "x {x}");
        }
    }
}
