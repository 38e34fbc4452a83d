//! Frequencies and factors of `longrope` against those of transformers, and refusals.

use serde_json::{Value as Json, json};

use super::super::{Rope, RopeScaling};
use super::*;
use crate::dialect::Defaults;

const LLAMA: Dialect = Dialect::plain("llama");
const PHI3: Dialect = Dialect {
    defaults: Defaults {
        original_positions: Some(4096),
        ..LLAMA.defaults
    },
    partial_rotary: true,
    longrope_names: &["su"],
    ..LLAMA
};
/// The longest sequence of the configs.
const LONGEST: u64 = 131_072;

/// The object of the rope type, for heads of 16.
fn embedding() -> Json {
    json!({
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0],
        "long_factor": [1.0, 1.1, 1.3, 1.8, 2.9, 14.0, 36.0, 62.5],
        "original_max_position_embeddings": 4096,
    })
}

fn read(config: &Json, dialect: &Dialect) -> Result<Rope> {
    let fields = Fields::new(config, "").expect("an object");
    let rope = Rope::read(&fields, dialect, LONGEST)?;
    rope.check(16).map(|()| rope)
}

/// The message of the refusal of `embedding` with `key` changed to `value`.
fn refusal(key: &str, value: Json) -> String {
    let mut changed = embedding();
    changed[key] = value;
    let read = read(&json!({"rope_parameters": changed}), &LLAMA);
    read.expect_err(key).message
}

/// transformers 5.23.0 with torch 2.13.0: `_compute_longrope_parameters` for heads of 16.
#[test]
fn equals_transformers_bit_for_bit() {
    let short: [u32; 8] = [
        0x3f80_0000,
        0x3ea1_e89b,
        0x3dc3_0c31,
        0x3ceb_80e2,
        0x3c08_8888,
        0x3b14_07df,
        0x3a1a_33cd,
        0x3925_cb60,
    ];
    let long: [u32; 8] = [
        0x3f80_0000,
        0x3e93_308c,
        0x3d9d_89d9,
        0x3c8f_eb35,
        0x3b61_fc78,
        0x396c_d964,
        0x37e9_0453,
        0x36a9_c604,
    ];
    let bits = |steps: Vec<f32>| steps.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let rope = read(&json!({"rope_parameters": embedding()}), &LLAMA).expect("a config");
    assert_eq!(bits(rope.inv_freq(16)), short);
    let (limit, beyond) = rope.inv_freq_beyond(16).expect("two kinds of sequences");
    assert_eq!((limit, bits(beyond)), (4096, long.to_vec()));
}

#[test]
fn the_factor_of_waves_follows_the_keys_in_their_order() {
    let of = |changes: &[(&str, f64)]| {
        let mut changed = embedding();
        for (key, value) in changes {
            changed[*key] = json!(value);
        }
        let rope = read(&json!({"rope_parameters": changed}), &LLAMA).expect("a config");
        rope.attention_factor()
    };
    let is = |found: f64, expected: f64| (found - expected).abs() < 1e-15;
    assert!(is(of(&[]), 1.190_238_071_423_808_3));
    assert!(is(of(&[("factor", 4.0)]), 1.080_123_449_734_643_5));
    assert!(is(of(&[("factor", 0.5)]), 1.0));
    let both = [("factor", 4.0), ("attention_factor", 0.75)];
    assert!(is(of(&both), 0.75));
}

#[test]
fn the_original_length_is_that_beside_the_embedding() {
    let length = |config: Json, dialect: &Dialect| match read(&config, dialect)?.scaling {
        RopeScaling::Long(long) => Ok::<_, PluginError>(long.original_max_positions),
        other => panic!("{other:?}"),
    };
    let key = "original_max_position_embeddings";
    let mut without = embedding();
    without.as_object_mut().expect("an object").remove(key);
    let found = |config: Json, dialect| length(config, dialect).expect("a length");
    let both = json!({"rope_parameters": embedding(), key: 8192});
    assert_eq!(found(both.clone(), &LLAMA), 8192);
    assert_eq!(found(both, &PHI3), 8192);
    assert_eq!(found(json!({"rope_parameters": embedding()}), &LLAMA), 4096);
    let alone = json!({"rope_parameters": without});
    assert_eq!(found(alone.clone(), &LLAMA), LONGEST);
    assert_eq!(found(alone, &PHI3), 4096);
    // Phi 3's own default would take precedence over the embedding's.
    let mut other = embedding();
    other[key] = json!(2048);
    let refused = length(json!({"rope_parameters": other}), &PHI3).expect_err("two lengths");
    let expected = "`rope_parameters.original_max_position_embeddings` is 2048, and this family \
                    reads the `original_max_position_embeddings` beside `rope_parameters`, which \
                    is missing and then 4096; write it there, too";
    assert!(refused.message.contains(expected), "{refused}");
}

#[test]
fn phi_3_calls_it_su_too() {
    let mut older = embedding();
    let object = older.as_object_mut().expect("an object");
    object.remove("rope_type");
    object.insert("type".to_owned(), json!("su"));
    let config = json!({"rope_scaling": older, "original_max_position_embeddings": 4096});
    let newer = json!({"rope_parameters": embedding(), "original_max_position_embeddings": 4096});
    let found = read(&config, &PHI3).expect("an older name");
    assert_eq!(found, read(&newer, &PHI3).expect("its name"));
    let refused = read(&config, &LLAMA).expect_err("a name of Phi 3");
    assert!(refused.message.contains("rope type `su`"), "{refused}");
}

#[test]
fn a_part_of_a_head_has_factors_for_its_pairs() {
    let part = |numbers: usize| {
        let mut changed = embedding();
        changed["partial_rotary_factor"] = json!(0.75);
        changed["short_factor"] = json!(vec![1.0; numbers]);
        changed["long_factor"] = json!(vec![2.0; numbers]);
        read(&json!({"rope_parameters": changed}), &PHI3)
    };
    let rope = part(6).expect("six pairs");
    let whole = Rope {
        scaling: RopeScaling::Default,
        ..rope.clone()
    };
    assert_eq!(rope.inv_freq(16), whole.inv_freq(16));
    let refused = part(8).expect_err("a factor for each channel pair of a head");
    let expected = "`short_factor` has 8 numbers, expected 6: one for each pair of the 12 channels";
    assert!(refused.message.contains(expected), "{refused}");
}

#[test]
fn impossible_values_are_refused_by_name() {
    let number = "expected a number above 0, found";
    let list = "expected a list of numbers above 0, found";
    for (key, value, expected) in [
        ("short_factor", json!(null), format!("{list} nothing")),
        ("long_factor", json!(null), format!("{list} nothing")),
        ("short_factor", json!(1.5), format!("{list} 1.5")),
        (
            "long_factor",
            json!([1.0, 0.0]),
            format!("`rope_parameters.long_factor[1]`: {number} 0.0"),
        ),
        (
            "short_factor",
            json!(["1"]),
            format!("`rope_parameters.short_factor[0]`: {number} \"1\""),
        ),
        (
            "long_factor",
            json!([1.0]),
            "`long_factor` has 1 numbers, expected 8".to_owned(),
        ),
        ("factor", json!(-1), format!("{number} -1")),
        ("attention_factor", json!(0), format!("{number} 0")),
        (
            "original_max_position_embeddings",
            json!(1),
            "expected a whole number in 2..=".to_owned(),
        ),
        (
            "short_mscale",
            json!(1.2),
            "`rope_parameters.short_mscale` is 1.2, which this family does not know".to_owned(),
        ),
        // Factors so small that steps are infinite.
        (
            "long_factor",
            json!(vec![1e-45; 8]),
            "found inf for pair 0".to_owned(),
        ),
        // Its keys belong to no other type.
        (
            "rope_type",
            json!("default"),
            "which this family does not know".to_owned(),
        ),
    ] {
        let message = refusal(key, value);
        assert!(message.contains(&expected), "{key}: {message}");
    }
}
