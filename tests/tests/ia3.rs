//! The adapter `ia3` against PEFT's IA3, on a dense and on packed bases, on one and three ranks,
//! merged and saved.

mod adapting;

use adapting::Subject;

/// One param for each of 6 sites. PEFT has no IA3 for HQQ's layers: those golden numbers are of a
/// dense base with the values of HQQ's weights.
fn ia3() -> Subject {
    Subject::shipped("ia3", 6)
}

#[test]
fn logits_and_gradients_equal_pefts_under_every_recompute() {
    ia3().computes_as_peft();
}

#[test]
fn twenty_adamw_steps_follow_pefts_on_one_and_three_ranks() {
    ia3().trains_as_peft();
}

#[test]
fn merged_weights_equal_pefts() {
    ia3().merges_as_peft("llama/tiny-trained", "adapter", "f32");
}

#[test]
fn the_config_that_is_saved_says_what_pefts_says() {
    ia3().saves_the_config_of_peft();
}
