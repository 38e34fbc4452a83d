//! Modules that are trained whole beside the update.

use super::*;

#[test]
fn modules_to_save_are_trained_whole_and_get_no_update() {
    let changes = json!({
        "targets": ["q_proj", "lm_head"], "modules_to_save": ["lm_head", "embed_tokens"],
        "learning_rate_ratio": 4
    });
    let adaptation = adapted(changes);
    let whole: Vec<_> = adaptation.params[4..]
        .iter()
        .map(|param| (param.name.as_str(), &param.shape[..], param.init))
        .collect();
    let shape: &[u64] = &[512, 64];
    assert_eq!(
        whole,
        [
            (
                "base_model.model.model.embed_tokens.weight",
                shape,
                Init::FromWeight
            ),
            ("base_model.model.lm_head.weight", shape, Init::FromWeight),
        ]
    );
    let rates = [1.0, 4.0, 1.0, 4.0, 1.0, 1.0];
    assert_eq!(adaptation.learning_rate_ratios, rates);
    let ops = |join: usize| adaptation.joins[join].fragment.nodes[0].op.clone();
    assert_eq!([ops(2), ops(3)], ["embedding", "linear"]);
}

/// The sites with the norms behind them.
fn sites_and_norms() -> Vec<Site> {
    let mut sites = sites();
    let names = [
        "model.layers.0.input_layernorm",
        "model.layers.0.post_attention_layernorm",
        "model.norm",
    ];
    sites.extend(names.map(|name| Site {
        name: name.to_owned(),
        kind: SiteKind::Norm,
        shape: [1, 64],
        tied_to: None,
        has_bias: false,
    }));
    sites
}

#[test]
fn norms_are_trained_in_place_of_the_models_and_get_no_update() {
    let sites = sites_and_norms();
    let first = sites.len() - 3;
    for (named, chosen, saved) in [
        (
            json!(["norm"]),
            vec![first, first + 1, first + 2],
            json!(["input_layernorm", "post_attention_layernorm", "norm"]),
        ),
        (
            json!(["model.norm"]),
            vec![first + 2],
            json!(["model.norm"]),
        ),
    ] {
        let options = json!({ "targets": ["q_proj"], "modules_to_save": named });
        let lora = made(Variant::Lora, options);
        assert_eq!(lora.takes_norms(), Ok(true));
        let adaptation = lora.adapt(&sites).expect("they are there");
        assert_eq!(adaptation.joins.len(), 2);
        let norms = adaptation.norms.iter();
        let replaced: Vec<usize> = norms.clone().map(|norm| norm.site).collect();
        assert_eq!(replaced, chosen);
        for norm in norms {
            let param = &adaptation.params[norm.param];
            let name = format!("base_model.model.{}.weight", sites[norm.site].name);
            assert_eq!((&param.name, &param.shape), (&name, &vec![64]));
            assert_eq!(param.init, Init::FromWeight);
        }
        let config = lora.saved_config(&sites, "m").expect("a config");
        assert_eq!(config["modules_to_save"], saved);
    }
}

#[test]
fn norms_are_no_targets() {
    for targets in [json!(["norm"]), json!(r"model\.norm")] {
        let lora = made(Variant::Lora, json!({ "targets": targets }));
        let message = lora.adapt(&sites_and_norms()).expect_err("a norm").message;
        assert!(message.contains("matches no site"), "{message}");
    }
}

#[test]
fn modules_to_save_that_cannot_be_trained_are_refused() {
    let refusal = |sites: &[Site], name: &str| {
        let lora = made(Variant::Lora, json!({ "modules_to_save": [name] }));
        lora.adapt(sites).expect_err(name).message
    };
    let message = refusal(&sites(), "model.norm");
    assert!(message.contains("`model.norm` is no linear"), "{message}");
    let mut biased = sites();
    biased[1].has_bias = true;
    let message = refusal(&biased, "_proj");
    assert!(message.contains("which has a bias"), "{message}");
    let message = refusal(&sites(), "_proj");
    assert!(
        message.contains("every site that the targets select"),
        "{message}"
    );
    let message = refusal(&biased, "q_proj");
    assert!(
        message.contains("0.self_attn.q_proj`, which has a bias"),
        "{message}"
    );
}
