//! `hqq` within a model: per-site exceptions with other quantizers and other bits, and invalid
//! options.

use std::collections::BTreeMap;

use espalier_interface::WeightLayout;
use espalier_interface::format::Decoding;
use espalier_tests::{Golden, Rig, golden_path, micro_batch, step_of};

/// Quantizer and bits of each kind of projection, and the loss of the evaluation rows.
fn packed(keys: &[(&str, &str)]) -> (BTreeMap<String, String>, f64) {
    let mut all = vec![
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "2"),
    ];
    all.extend(keys);
    let rig = Rig::new(&golden_path("llama/tiny-trained"), &all);
    let mut kinds = BTreeMap::new();
    for param in rig.executor.params() {
        let WeightLayout::Packed(format) = &param.layout else {
            continue;
        };
        let (Decoding::Codebook { codes, .. } | Decoding::Affine { codes, .. }) = &format.decoding
        else {
            panic!("{}: {:?}", param.name, format.decoding);
        };
        let kind = param.name.rsplit('.').nth(1).expect("MODULE.weight");
        let found = format!("{} {}", format.quantizer, codes.bits);
        let before = kinds.insert(kind.to_owned(), found.clone());
        assert!(
            before.is_none_or(|before| before == found),
            "{}",
            param.name
        );
    }
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let loss = rig.loss_and_gradients(&step_of(vec![micro_batch(&rows, &rows)]));
    (kinds, loss)
}

#[test]
fn exceptions_use_their_own_quantizer_and_bits() {
    let mut losses = Vec::new();
    for (plugins, sites, down, others) in [
        (
            "[\"nf4\", \"lora\"]",
            "[{match=\"*.down_proj\", quantizer=\"hqq\", options={bits=2, axis=0}}]",
            "hqq 2",
            "nf4 4",
        ),
        (
            "[\"hqq\", \"lora\"]",
            "[{match=\"*.down_proj\", options={bits=8}}]",
            "hqq 8",
            "hqq 4",
        ),
        (
            "[\"hqq\", \"lora\"]",
            "[{match=\"*.down_proj\", quantizer=\"nf4\"}]",
            "nf4 4",
            "hqq 4",
        ),
    ] {
        let (kinds, loss) = packed(&[("plugins", plugins), ("sites", sites)]);
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        for (kind, found) in &kinds {
            let expected = if kind == "down_proj" { down } else { others };
            assert_eq!(found, expected, "{kind}");
        }
        losses.push(loss);
    }
    let dense = Golden::open("llama/forward_tiny-trained.safetensors").numbers("loss")[0];
    let [two_bits, eight_bits, _] = losses[..] else {
        panic!("three runs");
    };
    assert!(
        (eight_bits - dense).abs() < (two_bits - dense).abs(),
        "{losses:?}, dense {dense}"
    );
}

#[test]
fn fewer_bits_increase_the_loss() {
    let loss = |bits: &str| {
        packed(&[
            ("plugins", "[\"hqq\", \"lora\"]"),
            ("quantizer.hqq.bits", bits),
        ])
        .1
    };
    let dense = Golden::open("llama/forward_tiny-trained.safetensors").numbers("loss")[0];
    let costs = ["8", "4", "3", "2", "1"].map(|bits| loss(bits) - dense);
    assert!(costs[0].abs() < 1e-2, "{costs:?}");
    assert!(costs[1..].is_sorted(), "{costs:?}");
}

#[test]
fn invalid_options_are_refused_by_name() {
    for (key, value, words) in [
        ("quantizer.hqq.bits", "7", &["bits", "7"][..]),
        ("quantizer.hqq.bits", "1.58", &["bits", "1.58"]),
        (
            "quantizer.hqq.group_size",
            "60",
            &["group_size", "multiple of 8"],
        ),
        (
            "quantizer.hqq.group_size",
            "96",
            &["group_size = 96", "[64, 64]", "64 and 128 do"],
        ),
        ("quantizer.hqq.axis", "2", &["axis", "0 | 1"]),
        (
            "quantizer.hqq.profile",
            "\"0.3\"",
            &["profile", "0.2.8 | 2024-03"],
        ),
        ("quantizer.hqq.meta", "\"8bit\"", &["meta", "2024-03"]),
        ("quantizer.hqq.bit", "4", &["bit", "`bits`"]),
    ] {
        let keys = [("plugins", "[\"hqq\", \"lora\"]"), (key, value)];
        let outcome = Rig::try_new(&golden_path("llama/tiny-trained"), &keys);
        let Err(error) = outcome.map(|_| ()) else {
            panic!("{key} = {value} is taken");
        };
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        for word in words {
            assert!(message.contains(word), "{key} = {value}: {message}");
        }
    }
}
