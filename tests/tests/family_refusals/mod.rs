//! Configs of the newer families that are refused by name.

use espalier_tests::Rig;
use serde_json::json;

use super::{FULL, KEYS, config, distance_under, with_config};

#[test]
fn what_the_newer_families_do_not_know_is_refused_by_name() {
    for (family, key, value, expected) in [
        ("gemma2", "hidden_activation", json!("gelu"), "`gelu`"),
        (
            "gemma2",
            "altup_num_inputs",
            json!(4),
            "`altup_num_inputs` is 4",
        ),
        (
            "gemma2",
            "use_bidirectional_attention",
            json!(true),
            "`use_bidirectional_attention` is true",
        ),
        (
            "gemma2",
            "attn_logit_softcapping",
            json!(-1.0),
            "a number above 0, found -1.0",
        ),
        (
            "gemma3",
            "attn_logit_softcapping",
            json!(50.0),
            "`attn_logit_softcapping` is 50.0",
        ),
        ("gemma3", "model_type", json!("gemma3"), "Gemma3ForCausalLM"),
        ("phi3", "resid_pdrop", json!(0.1), "`resid_pdrop` is 0.1"),
        (
            "phi3",
            "attention_bias",
            json!(true),
            "`attention_bias` is true",
        ),
        (
            "phi3",
            "rope_parameters",
            json!({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "`short_factor` has 1 numbers, expected 4",
        ),
        (
            "starcoder2",
            "residual_dropout",
            json!(0.1),
            "`residual_dropout` is 0.1, and this family does not have dropout; set it to 0",
        ),
        (
            "starcoder2",
            "hidden_act",
            json!("relu"),
            "`hidden_act` is `relu`, this family has `gelu_pytorch_tanh` and `gelu`",
        ),
        (
            "starcoder2",
            "rms_norm_eps",
            json!(1e-5),
            "`rms_norm_eps` is 0.00001",
        ),
        (
            "phi3",
            "embedding_multiplier",
            json!(2.0),
            "`embedding_multiplier` is 2.0",
        ),
    ] {
        let mut config = config(family, "config.json");
        config[key] = value;
        let place = with_config(family, &config);
        let refused = Rig::try_new(place.path(), &[&KEYS[..], &FULL].concat());
        let message = format!("{:?}", refused.err().expect(key));
        assert!(message.contains(expected), "{family}: {message}");
    }
    // Switches that are off, and what transformers writes beside the numbers, pass.
    let mut config = config("gemma2", "config.json");
    config["some_switch"] = json!(false);
    config["cache_implementation"] = json!("hybrid");
    config["sliding_window_size"] = json!(8);
    assert!(distance_under("gemma2", &config) <= 2e-5);
}
