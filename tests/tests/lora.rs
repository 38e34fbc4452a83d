//! What PEFT has for LoRA beside one rank and one rate: ranks and alphas of single sites,
//! LoRA+, and modules that are trained whole.

mod adapting;
mod swapping;

use espalier_tests::Golden;
use espalier_trainer::convert::merge::MergeOptions;

use adapting::Subject;
use swapping::Job;

/// Two params for each of 6 sites, with ranks 8, 4 and 2.
fn with_patterns() -> Subject {
    Subject::shipped("lora", 12)
        .with_golden("lora/patterns")
        .on_bases(1)
}

#[test]
fn twenty_steps_with_ranks_of_single_sites_follow_pefts_on_one_and_three_ranks() {
    with_patterns().trains_as_peft();
}

#[test]
fn weights_merged_with_ranks_of_single_sites_equal_pefts() {
    with_patterns().merges_as_peft("llama/tiny-trained", "adapter", "f32");
}

#[test]
fn the_config_that_is_saved_has_pefts_patterns() {
    with_patterns().saves_the_config_of_peft();
}

/// Two params for each of 5 sites, the token table among them.
fn of_lora_plus() -> Subject {
    Subject::shipped("lora", 10).with_golden("lora/plus")
}

#[test]
fn logits_and_gradients_of_lora_plus_equal_pefts_under_every_recompute() {
    of_lora_plus().computes_as_peft();
}

/// PEFT's `create_loraplus_optimizer` has four groups: A, an embedding's params, B with decay, and
/// what is empty here.
#[test]
fn twenty_steps_of_lora_plus_follow_pefts_on_one_and_three_ranks() {
    of_lora_plus().trains_as_peft_with(&[
        ("adapter.lora.learning_rate_ratio", "4"),
        (
            "optim.groups",
            "[{pattern=\"*.lora_embedding_*\", learning_rate=1e-4}]",
        ),
    ]);
}

/// Two params for each of 4 sites, over the rank's root.
fn of_rslora() -> Subject {
    Subject::shipped("lora", 8).with_golden("lora/rs")
}

#[test]
fn logits_and_gradients_of_rslora_equal_pefts_under_every_recompute() {
    of_rslora().computes_as_peft();
}

#[test]
fn twenty_steps_of_rslora_follow_pefts_on_one_and_three_ranks() {
    of_rslora().trains_as_peft();
}

/// Two params for each of 2 sites; both layers' first norms and the last one.
fn with_norms() -> Subject {
    Subject::shipped("lora", 7).with_golden("lora/norms")
}

#[test]
fn logits_and_gradients_with_norms_equal_pefts_under_every_recompute() {
    with_norms().computes_as_peft();
}

#[test]
fn twenty_steps_with_norms_follow_pefts_on_one_and_three_ranks() {
    // torch's optimizer has all params in one group.
    with_norms().trains_as_peft_with(&[("optim.decay_norms_and_biases", "true")]);
}

#[test]
fn the_config_that_is_saved_names_norms_as_peft_does() {
    with_norms().saves_the_config_of_peft();
}

#[test]
fn norms_are_merged_as_they_were_saved() {
    let place = with_norms().merged(
        ["llama/tiny-trained", "adapter"],
        MergeOptions::default(),
        &[],
    );
    let merged = Golden::read(&place.path().join("out/model.safetensors"));
    let adapter = Golden::open("lora/norms/adapter/adapter_model.safetensors");
    let before = Golden::open("llama/tiny-trained/model.safetensors");
    for (weight, is_trained) in [
        ("model.layers.0.input_layernorm.weight", true),
        ("model.layers.0.post_attention_layernorm.weight", false),
        ("model.norm.weight", true),
    ] {
        let expected = if is_trained {
            adapter.numbers(&format!("base_model.model.{weight}"))
        } else {
            before.numbers(weight)
        };
        assert_eq!(merged.numbers(weight), expected, "{weight}");
    }
}

/// Two params for each of 2 sites; the head and the token table.
fn with_whole_modules() -> Subject {
    Subject::shipped("lora", 6)
        .with_golden("lora/whole")
        .on_bases(1)
}

#[test]
fn twenty_steps_with_whole_modules_follow_pefts_on_one_and_three_ranks() {
    with_whole_modules().trains_as_peft();
}

#[test]
fn whole_modules_are_merged_as_they_were_saved() {
    let options = MergeOptions::default();
    let place = with_whole_modules().merged(["llama/tiny-trained", "adapter"], options, &[]);
    let merged = Golden::read(&place.path().join("out/model.safetensors"));
    let adapter = Golden::open("lora/whole/adapter/adapter_model.safetensors");
    for weight in ["lm_head.weight", "model.embed_tokens.weight"] {
        let trained = adapter.numbers(&format!("base_model.model.{weight}"));
        assert_eq!(merged.numbers(weight), trained, "{weight}");
    }
}

#[test]
fn the_config_that_is_saved_has_pefts_modules_to_save() {
    with_whole_modules().saves_the_config_of_peft();
}

#[test]
fn a_run_with_all_of_these_resumes_to_the_same_bits() {
    let job = Job::new(&[]);
    for (ranks, plugins) in [(1, "nf4,lora"), (3, "nf4,dora,fsdp")] {
        let adapter = if ranks == 1 { "lora" } else { "dora" };
        let keys = vec![
            format!("adapter.{adapter}.rank_pattern={{q_proj = 4}}"),
            format!("adapter.{adapter}.learning_rate_ratio=4"),
            format!("adapter.{adapter}.modules_to_save=[\"embed_tokens\", \"lm_head\", \"norm\"]"),
        ];
        job.resumed(ranks, plugins, keys);
    }
}
