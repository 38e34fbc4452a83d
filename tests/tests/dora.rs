//! The adapter `dora` against PEFT's DoRA, on dense and packed bases, on one and three ranks,
//! merged, saved and resumed.

mod adapting;
mod swapping;

use std::path::Path;

use espalier_tests::{
    Golden, Rig, golden_path, largest_difference, micro_batch, relative_norm, step_of,
};
use espalier_trainer::convert::Base;
use espalier_trainer::convert::merge::MergeOptions;

use adapting::{Keys, Subject, assert_logits, assert_near, eval_batch, model, tied_model, values};
use swapping::Job;

/// The options of the golden adapter.
const OPTIONS: [(&str, &str); 2] = [("adapter.dora.rank", "8"), ("adapter.dora.alpha", "16")];
/// The magnitude of one site.
const MAGNITUDE: &str = "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector";

/// Three params for each of 14 sites.
fn dora() -> Subject {
    Subject::shipped("dora", 42)
}

/// `lora` refuses the adapter's config, and the next reader of its `peft_type` takes it.
#[test]
fn logits_and_gradients_equal_pefts_under_every_recompute() {
    dora().computes_as_peft();
}

#[test]
fn twenty_adamw_steps_follow_pefts_on_one_and_three_ranks() {
    dora().trains_as_peft();
}

/// The golden file with the logits of a base without an adapter.
fn bare(base: &str) -> Golden {
    let name = match base {
        "f32" => "forward_tiny-trained".to_owned(),
        packed => format!("base_forward_{packed}"),
    };
    Golden::open(&format!("llama/{name}.safetensors"))
}

#[test]
fn magnitudes_begin_as_the_norms_of_the_weights_on_any_number_of_ranks() {
    let dora = dora();
    for &(base, plugins) in dora.bases {
        let plugins = [plugins, &["dora"]].concat();
        let alone = dora.rig(&plugins, &OPTIONS);
        let golden = dora.expected(base);
        let begun = golden.names().filter_map(|name| name.strip_prefix("init."));
        let begun: Vec<&str> = begun.collect();
        assert_eq!(begun.len(), 14);
        let three = values(&dora.team(&model(), 3, &plugins, &OPTIONS));
        for name in begun {
            let expected = golden.numbers(&format!("init.{name}"));
            let distance = relative_norm(&alone.values(name), expected);
            assert!(distance <= 1e-6, "{base}: {name} is off by {distance}");
            assert_eq!(three(name), alone.values(name), "{base}: {name}");
        }
        // With B = 0 and these magnitudes the adapter changes nothing.
        assert_logits(&alone, &bare(base), base);
    }
}

#[test]
fn the_magnitudes_of_a_packed_base_are_those_of_its_decoded_weights() {
    let dora = dora();
    let name = format!("init.{MAGNITUDE}");
    let [dense, nf4, hqq] = ["f32", "nf4", "hqq"].map(|base| dora.expected(base));
    for packed in [nf4, hqq] {
        let distance = relative_norm(packed.numbers(&name), dense.numbers(&name));
        assert!(
            distance > 1e-4,
            "the test before tells them apart: {distance}"
        );
    }
}

#[test]
fn magnitudes_of_a_tied_head_begin_as_the_norms_of_the_token_table() {
    let (dora, model) = (dora(), tied_model());
    let more = [("adapter.dora.targets", "[\"lm_head\", \"q_proj\"]")];
    let [alone, three] =
        [1, 3].map(|ranks| values(&dora.team(model.path(), ranks, &["dora"], &more)));
    let table = Golden::open("llama/tiny-trained/model.safetensors");
    let rows = table.numbers("model.embed_tokens.weight").chunks(64);
    let norms = rows.map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt());
    let name = "base_model.model.lm_head.lora_magnitude_vector";
    let distance = relative_norm(&alone(name), &norms.collect::<Vec<_>>());
    assert!(distance <= 1e-6, "off by {distance}");
    assert_eq!(alone(name), three(name));
}

#[test]
fn magnitudes_begin_from_packed_random_weights_on_any_number_of_ranks() {
    let (dora, more) = (
        dora(),
        [&OPTIONS[..], &[("model.init", "\"random\"")]].concat(),
    );
    let [alone, three] =
        [1, 3].map(|ranks| values(&dora.team(&model(), ranks, &["nf4", "dora"], &more)));
    let norms = alone(MAGNITUDE);
    let mean = norms.iter().sum::<f64>() / norms.len() as f64;
    // Rows of 64 numbers with a standard deviation of 0.02.
    assert!((mean / 0.16 - 1.0).abs() < 0.1, "{mean}");
    assert_eq!(norms, three(MAGNITUDE));
}

#[test]
fn a_step_with_dropout_equals_pefts_with_the_same_masks() {
    let dora = dora();
    let golden = dora.expected("f32");
    let keys = [&OPTIONS[..], &[("adapter.dora.dropout", "0.25")]].concat();
    let rig = dora.rig(&["dora"], &keys);
    rig.set_params(&Golden::open("dora/adapter/adapter_model.safetensors"));
    let found = rig.loss_and_gradients(&step_of(vec![eval_batch()]));
    assert_near(found, golden.numbers("dropout.loss")[0], 1e-6, "loss");
    dora.compare(&golden, "dropout.grad.", 1e-5, &|name| rig.gradient(name));
    // Evaluation drops nothing.
    assert_logits(&rig, &golden, "evaluated");
}

#[test]
fn bf16_logits_are_as_near_to_the_exact_ones_as_pefts() {
    let dora = dora();
    let golden = dora.expected("f32");
    let adapter = dora.saved("adapter");
    let more = [
        ("model.adapter", &adapter[..]),
        ("model.compute", "\"bf16\""),
    ];
    let found = dora.rig(&[], &more).logits(&eval_batch());
    let exact = golden.numbers("logits");
    let peer = relative_norm(golden.numbers("bf16.logits"), exact);
    let ours = relative_norm(&found, exact);
    assert!(ours <= 1.2 * peer, "norm {ours}, the peer's {peer}");
}

#[test]
fn merged_weights_equal_pefts() {
    dora().merges_as_peft("llama/tiny-trained", "adapter", "f32");
}

/// The result's weights are those that the adapter was trained on: the values of the packed ones.
#[test]
fn an_adapter_of_a_packed_base_is_merged_into_its_decoded_weights() {
    let dora = dora();
    let decoded = MergeOptions {
        base: Some(Base::Decoded),
        dtype: None,
    };
    let model = ["llama/tiny-trained", "adapter"];
    let place = dora.merged(model, decoded, &["plugins=[\"nf4\"]"]);
    let keys = [
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "4"),
    ];
    let merged = Rig::new(&place.path().join("out"), &keys);
    assert_logits(&merged, &dora.expected("nf4"), "merged");
}

/// Norms of weights that a file holds in 4 bits.
#[test]
fn magnitudes_on_a_packed_file_equal_those_on_weights_that_are_packed_while_loading() {
    let dora = dora();
    let begun = |model: &str, plugins: &[&str], ranks: u32| {
        values(&dora.team(&golden_path(model), ranks, plugins, &OPTIONS))(MAGNITUDE)
    };
    let expected = begun("packed/dense", &["nf4", "dora"], 1);
    assert!(expected.iter().any(|norm| *norm != expected[0]));
    for ranks in [1, 3] {
        assert_eq!(begun("packed/nf4", &["dora"], ranks), expected, "{ranks}");
    }
}

#[test]
fn a_model_with_biases_gives_pefts_logits_adapted_and_merged() {
    let dora = dora();
    let adapter = dora.saved("biased");
    let rows = Golden::open("packed/logits.safetensors").rows("tokens");
    let logits = |model: &Path, more: Keys<'_>| {
        let fixed = [
            ("model.compute", "\"f32\""),
            ("data.max_seq_len", "16"),
            ("data.micro_batch", "2"),
        ];
        Rig::new(model, &[&fixed, more].concat()).logits(&micro_batch(&rows, &rows))
    };
    let golden = dora.expected("biased");
    let adapted = [("model.adapter", &adapter[..])];
    let place = dora.merges_as_peft("packed/dense", "biased", "biased");
    for (found, what) in [
        (logits(&golden_path("packed/dense"), &adapted), "adapted"),
        (logits(&place.path().join("out"), &[]), "merged"),
    ] {
        let difference = largest_difference(&found, golden.numbers("logits"));
        assert!(difference <= 2e-5, "{what}: logits differ by {difference}");
    }
}

#[test]
fn lora_refuses_doras_files_by_name_and_dora_those_of_lora() {
    let dora = dora();
    let of_lora = format!("{:?}", golden_path("llama/adapter_init"));
    for (plugin, adapter, words) in [
        ("lora", dora.saved("adapter"), "`use_dora` is true"),
        ("dora", of_lora, "`use_dora` is not true"),
    ] {
        let refused = dora.try_rig(&[plugin], &[("model.adapter", &adapter)]);
        let error = format!("{:?}", refused.map(|_| ()).expect_err("another's files"));
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_config_that_is_saved_says_what_pefts_says() {
    dora().saves_the_config_of_peft();
}

#[test]
fn a_run_that_is_resumed_has_the_bits_of_one_that_was_not() {
    let job = Job::new(&[]);
    let beginning = dora().expected("nf4");
    let beginning = beginning.numbers(&format!("init.{MAGNITUDE}"));
    for (ranks, plugins) in [(1, "nf4,dora"), (3, "nf4,dora,fsdp")] {
        let keys = vec!["adapter.dora.dropout=0.1".to_owned()];
        let (_, folder) = job.resumed(ranks, plugins, keys);
        // Magnitudes are trained, so that a second beginning would show.
        let adapter = Golden::read(&folder.join("adapter/adapter_model.safetensors"));
        let distance = relative_norm(adapter.numbers(MAGNITUDE), beginning);
        assert!(distance > 1e-4, "magnitudes stayed: {distance}");
    }
}
