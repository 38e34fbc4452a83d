//! The adapter `vera` against PEFT's VeRA, on dense and packed bases, on one and several ranks,
//! drawn, merged, saved and resumed. Its two matrices are frozen, and all sites share them.

mod adapting;
mod swapping;

use espalier_tests::Golden;
use serde_json::json;

use adapting::{Keys, Subject, assert_logits, model};
use swapping::{Job, ask};

/// The options of the golden adapters.
const OPTIONS: Keys<'_> = &[
    ("adapter.vera.rank", "8"),
    (
        "adapter.vera.targets",
        "[\"q_proj\", \"v_proj\", \"down_proj\"]",
    ),
    ("adapter.vera.projection_prng_key", "5"),
];
/// The shared matrices, whole: `[8, 176]` and `[64, 8]`.
const SHARED: [&str; 2] = ["base_model.vera_A", "base_model.vera_B"];
/// Their parts that sites of other shapes read.
const PARTS: [&str; 2] = ["base_model.vera_A[:8, :64]", "base_model.vera_B[:32, :8]"];

/// Two trained params for each of 6 sites.
fn vera() -> Subject {
    Subject::shipped("vera", 12)
}

/// The tensors of an adapter that PEFT saved with its matrices.
fn saved() -> Golden {
    Golden::open("vera/adapter/adapter_model.safetensors")
}

#[test]
fn logits_and_gradients_equal_pefts_under_every_recompute() {
    vera().computes_as_peft();
}

#[test]
fn twenty_adamw_steps_follow_pefts_on_one_and_three_ranks() {
    vera().trains_as_peft();
}

#[test]
fn matrices_are_drawn_with_pefts_bits_and_cut_for_each_shape_on_every_rank() {
    let (vera, golden) = (vera(), saved());
    let begun = [OPTIONS, &[("model.init", "\"random\"")]].concat();
    let teams = [
        vera.team(&model(), 1, &["vera"], OPTIONS),
        vera.team(&model(), 3, &["vera", "nf4"], &begun),
    ];
    let executors = teams.iter().flat_map(|team| team.team.executors());
    let mut ranks = 0;
    for executor in executors {
        ranks += 1;
        let values = |name: &str| {
            let mut params = executor.params().iter();
            let index = params.position(|param| param.name == name);
            let index = index.unwrap_or_else(|| panic!("no param `{name}`"));
            assert!(!executor.params()[index].trainable, "{name}");
            executor.param_values(index).expect("it is whole")
        };
        let [down, up] = SHARED.map(|name| golden.numbers(name));
        assert_eq!(SHARED.map(values), [down.to_vec(), up.to_vec()]);
        let narrow = down.chunks(176).flat_map(|row| &row[..64]).copied();
        let low = up[..32 * 8].to_vec();
        assert_eq!(PARTS.map(values), [narrow.collect(), low]);
    }
    assert_eq!(ranks, 4);
}

#[test]
fn matrices_are_planned_once_for_each_shape_beside_the_frozen_weights() {
    let vera = vera();
    let [with, without] = [OPTIONS, &[]].map(|more| {
        let plugins: &[&str] = if more.is_empty() { &["ia3"] } else { &["vera"] };
        vera.rig(plugins, more)
    });
    let elements = 8 * 176 + 64 * 8 + 8 * 64 + 32 * 8;
    assert_eq!(with.memory.weights - without.memory.weights, 4 * elements);
    // d `[8]` and b `[64]`, `[32]` and `[64]` of two layers have gradients and state alone.
    let trained = 2 * (3 * 8 + 64 + 32 + 64);
    let count = |trainable: bool| {
        let params = with.executor.params().iter();
        let of_adapter = params.filter(|param| param.kind.is_none());
        let counted = of_adapter.filter(|param| param.trainable == trainable);
        counted.map(|param| param.elements()).sum::<u64>()
    };
    assert_eq!([count(true), count(false)], [trained, elements]);
    assert!(with.memory.gradients < 4 * elements, "{:?}", with.memory);
}

#[test]
fn files_without_the_matrices_give_the_same_logits() {
    let (vera, golden) = (vera(), saved());
    let adapter = vera.saved("adapter_unsaved");
    let rig = vera.rig(&[], &[("model.adapter", &adapter)]);
    assert_logits(&rig, &vera.expected("f32"), "unsaved");
    for name in SHARED {
        assert_eq!(rig.values(name), golden.numbers(name), "{name}");
    }
    let three = vera.team(&model(), 3, &[], &[("model.adapter", &adapter)]);
    let drawn = three.team.executors().iter().map(|executor| {
        let mut params = executor.params().iter();
        let index = params.position(|param| param.name == SHARED[0]);
        executor.param_values(index.expect("it is there"))
    });
    for values in drawn {
        assert_eq!(values.expect("it is whole"), golden.numbers(SHARED[0]));
    }
}

#[test]
fn merged_weights_equal_pefts_with_and_without_the_matrices() {
    vera().merges_as_peft("llama/tiny-trained", "adapter", "f32");
    vera().merges_as_peft("llama/tiny-trained", "adapter_unsaved", "f32");
}

#[test]
fn the_config_that_is_saved_says_what_pefts_says() {
    vera().saves_the_config_of_peft();
}

#[test]
fn a_run_that_is_resumed_has_the_bits_of_one_that_was_not_and_saves_the_matrices() {
    let (job, golden) = (Job::new(&[]), saved());
    for (ranks, plugins) in [(1, "nf4,vera"), (2, "nf4,vera,fsdp")] {
        let options = OPTIONS.iter().map(|(key, value)| format!("{key}={value}"));
        let keys = options.chain(["adapter.vera.dropout=0.1".to_owned()]);
        let (expected, folder) = job.resumed(ranks, plugins, keys.collect());
        let exported = Golden::read(&folder.join("adapter/adapter_model.safetensors"));
        let mut names: Vec<&str> = exported.names().collect();
        let mut pefts: Vec<&str> = golden.names().collect();
        names.sort_unstable();
        pefts.sort_unstable();
        assert_eq!(names, pefts);
        for name in SHARED {
            assert_eq!(exported.numbers(name), golden.numbers(name), "{name}");
        }
        let factors = "base_model.model.model.layers.0.mlp.down_proj.vera_lambda_b";
        assert!(exported.numbers(factors).iter().any(|&x| x != 0.0));
        let num = &expected.run["model"]["num_trained_params"];
        assert_eq!(num, &json!(2 * (3 * 8 + 64 + 32 + 64)));
    }
}

/// The trained params stay, the matrices that they scale are drawn anew.
#[test]
fn another_key_can_be_swapped_in_and_the_run_resumed_after_it() {
    let mut job = Job::new(&["plugins=\"nf4,vera\""]);
    let options = OPTIONS.iter().map(|(key, value)| format!("{key}={value}"));
    job.keys.extend(options);
    let plain = job.run("plain", &[]);
    let key = ["adapter.vera.projection_prng_key=6"];
    let other = job.run("other", &[ask("adapter=vera", 3, &key)]);
    assert_eq!(Job::swaps(&other), 1);
    assert_eq!(other.losses()[..2], plain.losses()[..2]);
    assert!(other.losses()[2..] != plain.losses()[2..]);
    let saved: serde_json::Value = serde_json::from_slice(&other.state[0]).expect("JSON");
    assert_eq!(saved["projection_prng_key"], json!(6));
    job.unfinished("other", "again");
    let again = job.resume("again", 4).expect("a run");
    again.same_training(&other, "again");
}
