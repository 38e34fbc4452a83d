//! The sample adapter `hira`, a third party's, against PEFT's HiRA. It reads the weight that it
//! adapts as a value, and was written without a change of the core.

mod adapting;

use adapting::Subject;

/// Two params for each of 8 sites.
fn hira() -> Subject {
    Subject::third_party("hira", 16)
}

#[test]
fn logits_and_gradients_equal_pefts_under_every_recompute() {
    hira().computes_as_peft();
}

#[test]
fn twenty_adamw_steps_follow_pefts_on_one_and_three_ranks() {
    hira().trains_as_peft();
}

#[test]
fn a_merged_weight_equals_pefts() {
    hira().merges_as_peft("llama/tiny-trained", "adapter", "f32");
}

#[test]
fn the_config_that_is_saved_says_what_pefts_says() {
    hira().saves_the_config_of_peft();
}

#[test]
fn the_conformance_kit_passes() {
    hira().passes_the_kit();
}
