//! Evaluation: the peers' losses, the bits of a training run's evaluation, and no memory for
//! training.

use std::path::PathBuf;

use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_plan::plan::Purpose;
use espalier_system::stop::StopFlag;
use espalier_tests::rows::golden_rows;
use espalier_tests::{Golden, golden_path};
use espalier_trainer::evaluate::{self, Evaluation};
use espalier_trainer::session::Session;
use espalier_trainer::weights;

fn config(data: &PathBuf, keys: &[(&str, &str)]) -> ResolvedConfig {
    let model = golden_path("llama/tiny-trained");
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("data.files=[{data:?}]"))
        .set("model.compute=\"f32\"");
    let set = |sources: Sources, (key, value): &(&str, &str)| sources.set(format!("{key}={value}"));
    resolve(&keys.iter().fold(sources, set)).expect("a config")
}

fn evaluate(resolved: &ResolvedConfig) -> Evaluation {
    evaluate::run(resolved, &Unobserved, &StopFlag::new()).expect("an evaluation")
}

/// The loss that a session of a training run gives before its first step.
fn loss_in_training(resolved: &ResolvedConfig) -> (f64, u64) {
    let session = Session::open(resolved, &Unobserved).expect("a session");
    let memory = session.run.plan.memory;
    let peak = memory.step_peak() - memory.program;
    let Session {
        directory,
        components,
        data,
        run,
        ..
    } = session;
    let config = resolved.config();
    let loaded = weights::load(config, &directory, &components, run, &Unobserved);
    let (executor, _) = loaded.expect("a model");
    let rows = data.expect("rows").train;
    let outcome = step::evaluate(&executor, &rows, 42, &mut |_| Ok(()));
    (outcome.expect("a loss").loss, peak)
}

#[test]
fn losses_equal_those_of_transformers_dense_and_packed() {
    let (_kept, data) = golden_rows();
    for (keys, golden) in [
        (&[][..], "llama/forward_tiny-trained.safetensors"),
        (
            &[("plugins", "\"nf4\"")][..],
            "llama/base_forward_nf4.safetensors",
        ),
        (
            &[("plugins", "\"hqq\"")][..],
            "llama/base_forward_hqq.safetensors",
        ),
    ] {
        let found = evaluate(&config(&data, keys));
        let expected = Golden::open(golden).numbers("loss")[0];
        assert!(
            (found.loss - expected).abs() < 1e-5,
            "{} {expected}",
            found.loss
        );
        assert_eq!(found.perplexity, found.loss.exp());
        assert_eq!(
            (found.sequences, found.tokens, found.trained_tokens),
            (2, 96, 94)
        );
        assert!(found.token_accuracy > 0.1 && found.token_accuracy < 1.0);
    }
}

#[test]
fn a_frozen_adapter_gives_the_bits_of_a_training_run_in_less_memory() {
    let (_kept, data) = golden_rows();
    let adapter = format!("{:?}", golden_path("llama/adapter_trained_nf4"));
    let keys = [
        ("plugins", "\"nf4,lora\""),
        ("model.adapter", adapter.as_str()),
        ("data.shuffle", "false"),
    ];
    let resolved = config(&data, &keys);
    let (expected, peak) = loss_in_training(&resolved);
    let found = evaluate(&resolved);
    assert_eq!(found.loss.to_bits(), expected.to_bits());
    let base = evaluate(&config(&data, &[("plugins", "\"nf4\"")]));
    assert_ne!(base.loss, found.loss, "the adapter changes nothing");

    let session = Session::open_for(&resolved, Purpose::Evaluate, &Unobserved, &StopFlag::new())
        .expect("a session");
    let memory = session.run.plan.memory;
    let training = [
        memory.trainable,
        memory.gradients,
        memory.optimizer,
        memory.saved_activations,
    ];
    assert_eq!(training, [0; 4]);
    let needed = memory.step_peak() - memory.program;
    assert!(needed < peak, "{needed} of {peak}");
}

#[test]
fn invalid_evaluations_are_refused() {
    let (_kept, data) = golden_rows();
    let resolved = config(&data, &[("plugins", "\"lora\"")]);
    let refused = evaluate::run(&resolved, &Unobserved, &StopFlag::new()).expect_err("no adapter");
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.next_step().contains("--adapter DIR"), "{refused}");

    let stopped = StopFlag::new();
    stopped.request(2);
    let refused = evaluate::run(&config(&data, &[]), &Unobserved, &stopped).expect_err("stopped");
    assert_eq!(refused.exit_code(), 130);
}
