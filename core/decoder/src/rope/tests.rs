//! Rotary frequencies of every type against those of transformers.

use espalier_interface::ErrorCode;
use serde_json::{Value as Json, json};

use super::*;

/// Bits of the `inv_freq` of Llama 3.1 8B.
const FULL_WIDTH: [u32; 64] = [
    0x3f80_0000,
    0x3f50_8ac1,
    0x3f29_e1c6,
    0x3f0a_6384,
    0x3ee1_77bc,
    0x3eb7_ab7d,
    0x3e95_9ee3,
    0x3e73_c461,
    0x3e46_93b0,
    0x3e21_c3a0,
    0x3e03_c6a0,
    0x3dd6_b19c,
    0x3dae_e4ad,
    0x3d8e_7898,
    0x3d68_1e67,
    0x3d3d_1684,
    0x3d1a_08c8,
    0x3cfa_f53f,
    0x3ccc_6f49,
    0x3ca6_8939,
    0x3c87_a9c3,
    0x3c5d_06ec,
    0x3c34_0d6d,
    0x3c12_ac7f,
    0x3bee_f74f,
    0x3bc2_aa76,
    0x3b9e_9402,
    0x3b81_2e35,
    0x3b52_7720,
    0x3b0d_fd06,
    0x3ab3_d11d,
    0x3a60_979e,
    0x3a09_95d2,
    0x39a3_f108,
    0x393b_2dd2,
    0x38c8_6886,
    0x38a3_418d,
    0x3884_fdbf,
    0x3858_ac81,
    0x3830_8199,
    0x380f_c8f8,
    0x37ea_426f,
    0x37be_d4f4,
    0x379b_7475,
    0x377d_45c3,
    0x374e_51f5,
    0x3728_126b,
    0x3708_ea0f,
    0x36df_10c4,
    0x36b5_b687,
    0x3694_06cb,
    0x3671_2b80,
    0x3644_7610,
    0x3620_0a69,
    0x3602_5f34,
    0x35d4_6808,
    0x35ad_07a7,
    0x358c_f400,
    0x3565_a54d,
    0x353b_12c7,
    0x3518_64a7,
    0x34f8_48c2,
    0x34ca_41b0,
    0x34a4_c2ff,
];

fn read(config: &Json) -> Result<Rope> {
    let fields = Fields::new(config, "").expect("an object");
    Rope::read(&fields, &Dialect::plain("llama"), 2048)
}

fn steps(config: Json, head_dim: u64) -> Vec<f32> {
    read(&config).expect("a known type").inv_freq(head_dim)
}

/// transformers 5.23.0 with torch 2.13.0: the `inv_freq` buffers of five tiny models, head
/// width 16.
#[test]
fn equals_transformers_bit_for_bit() {
    let default: [f32; 8] = [
        1.0,
        0.316_227_76,
        0.1,
        0.031_622_78,
        0.01,
        0.003_162_277_9,
        0.001,
        0.000_316_227_8,
    ];
    let half = default.map(|step| step / 2.0);
    let theta500k: [f32; 8] = [
        1.0,
        0.193_922_76,
        0.037_606_03,
        0.007_292_665,
        0.001_414_213_4,
        0.000_274_248_2,
        5.318_295_7e-5,
        1.031_338_5e-5,
    ];
    let orig64: [f32; 8] = [
        1.0,
        0.254_647_9,
        0.025_464_79,
        0.007_905_695,
        0.0025,
        0.000_790_569_47,
        0.000_25,
        7.905_695e-5,
    ];
    let orig8192: [f32; 8] = [
        1.0,
        0.193_922_76,
        0.037_606_03,
        0.007_292_665,
        0.000_524_846,
        3.428_102_4e-5,
        6.647_869_7e-6,
        1.289_173_2e-6,
    ];
    let cases = [
        (
            json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
            default,
        ),
        (
            json!({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2}}),
            half,
        ),
        (json!({"rope_theta": 500_000.0}), theta500k),
        (
            json!({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}}),
            orig64,
        ),
        (
            json!({"rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3",
                "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192}}),
            orig8192,
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(steps(config.clone(), 16), expected, "{config}");
    }
}

/// Llama 3.1's numbers at head width 128, from the same versions: pairs on both sides of each
/// bound.
#[test]
fn equals_transformers_at_full_width() {
    let config = json!({"rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3",
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}});
    let found: Vec<u32> = steps(config, 128)
        .iter()
        .map(|step| step.to_bits())
        .collect();
    assert_eq!(found, FULL_WIDTH);
}

#[test]
fn unknown_types_and_missing_factors_are_named() {
    let error = read(&json!({"rope_scaling": {"type": "yarn", "factor": 4}})).expect_err("yarn");
    assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    assert!(
        error.message.contains("`yarn` in `rope_scaling`"),
        "{error}"
    );
    let error = read(&json!({"rope_parameters": {"rope_type": "linear"}})).expect_err("no factor");
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(
        error.message.contains("`rope_parameters.factor`"),
        "{error}"
    );
    let error = read(&json!({"partial_rotary_factor": 0.5})).expect_err("half");
    assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    let nested = json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}});
    assert!(
        read(&nested)
            .expect_err("nested")
            .message
            .contains("full_attention")
    );
}

#[test]
fn the_pretrained_length_falls_back_to_the_longest_sequence() {
    let config = json!({"rope_scaling": {"rope_type": "llama3", "factor": 8,
        "low_freq_factor": 1, "high_freq_factor": 4}});
    let RopeScaling::Llama3 {
        original_max_positions,
        ..
    } = read(&config).expect("whole").scaling
    else {
        panic!("another type");
    };
    assert_eq!(original_max_positions, 2048);
}
