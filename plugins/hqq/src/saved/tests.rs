//! Configs of saved HQQ checkpoints <-> options.

use std::sync::Arc;

use espalier_interface::{ErrorCode, Serial};

use super::*;

fn hqq(bits: u32, meta: MetaStore, profile: Profile) -> HqqQuantizer {
    HqqQuantizer {
        bits,
        group_size: 64,
        axis: Axis::Consecutive,
        profile,
        zeros: Zeros::Solved,
        meta,
        services: Arc::new(Serial),
    }
}

#[test]
fn quantized_scales_have_no_form() {
    for meta in [MetaStore::ZeroEightBit, MetaStore::EightBit] {
        let error = form(&hqq(4, meta, Profile::March2024), [64, 128]).expect_err("no place");
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains("set meta = \"f32\""), "{error}");
    }
}

#[test]
fn configs_that_differ_are_listed_by_tag() {
    let plain = MetaStore::Plain(DType::F32);
    let mut model = SavedModel {
        dtype: DType::F32,
        dense_modules: vec!["lm_head".to_owned()],
        configs: BTreeMap::new(),
    };
    let (four, two) = (
        hqq(4, plain, Profile::V0_2_8),
        hqq(2, plain, Profile::March2024),
    );
    let own = |quantizer, model: &SavedModel| config(quantizer, model).expect("a config");
    let [wide, narrow] = [own(&four, &model), own(&two, &model)];
    assert_eq!(wide[PROFILE], "0.2.8");
    for (module, config) in [
        ("model.layers.0.mlp.up_proj", &wide),
        ("model.layers.1.mlp.up_proj", &narrow),
        ("model.layers.1.self_attn.q_proj", &narrow),
    ] {
        model.configs.insert(module.to_owned(), config.clone());
    }
    let found = own(&four, &model);
    let expected = json!({
        "mlp.up_proj": wide["quant_config"],
        "self_attn.q_proj": narrow["quant_config"],
    });
    assert_eq!(found["quant_config"], expected);
    assert_eq!(found[PROFILE], Json::Null);
}

#[test]
fn weights_of_other_quantizers_are_unsupported() {
    for config in [json!({}), json!({"quant_method": "bitsandbytes"})] {
        let saved = SavedDescription {
            config,
            ..SavedDescription::default()
        };
        let error = options(&saved).expect_err("not hqq's");
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    }
}
