//! Options that must not change a result: recompute, threads, the split of a batch.

use espalier_data::StepBatch;
use espalier_tests::{Golden, Rig, golden_path, micro_batch, relative_norm, step_of};

const BASE: [(&str, &str); 8] = [
    ("plugins", "[\"nf4\", \"lora\"]"),
    ("model.compute", "\"f32\""),
    ("adapter.lora.rank", "8"),
    ("adapter.lora.alpha", "16"),
    ("adapter.lora.dropout", "0.2"),
    ("quantizer.nf4.block_size", "64"),
    ("data.max_seq_len", "48"),
    ("data.micro_batch", "4"),
];

/// Four sequences of 48, 48, 17 and 5 tokens, cut into micro-batches of `at_once`.
fn step(at_once: usize) -> StepBatch {
    let mut rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    rows.extend([rows[0][..17].to_vec(), rows[1][..5].to_vec()]);
    let mut first = 0;
    let parts = rows.chunks(at_once).map(|rows| {
        let mut micro = micro_batch(rows, rows);
        micro
            .sequences
            .iter_mut()
            .for_each(|sequence| *sequence += first);
        first += rows.len() as i32;
        micro
    });
    step_of(parts.collect())
}

/// Loss and gradients of a step, by param.
fn gradients(step: &StepBatch, more: &[(&str, &str)]) -> (f64, Vec<(String, Vec<f64>)>) {
    let rig = Rig::new(
        &golden_path("llama/tiny-trained"),
        &[&BASE[..], more].concat(),
    );
    if more.iter().all(|(key, _)| *key != "plugins") {
        rig.set_params(&Golden::open("llama/lora_init_r8.safetensors"));
    }
    let loss = rig.loss_and_gradients(step);
    let trainable = rig.executor.params().iter().filter(|param| param.trainable);
    let names: Vec<String> = trainable.map(|param| param.name.clone()).collect();
    assert!(!names.is_empty());
    (
        loss,
        names
            .into_iter()
            .map(|name| (name.clone(), rig.gradient(&name)))
            .collect(),
    )
}

fn bits(gradients: &[(String, Vec<f64>)]) -> Vec<u64> {
    gradients
        .iter()
        .flat_map(|(_, values)| values.iter().map(|x| x.to_bits()))
        .collect()
}

#[test]
fn recompute_changes_no_bit() {
    for (compute, plugins) in [
        ("\"f32\"", BASE[0].1),
        ("\"bf16\"", BASE[0].1),
        ("\"f32\"", "[]"),
        ("\"bf16\"", "[]"),
    ] {
        let mut keys = vec![("model.compute", compute), ("model.recompute", "\"none\"")];
        if plugins == "[]" {
            keys.push(("plugins", "[]"));
        }
        let (loss, expected) = gradients(&step(4), &keys);
        for policy in ["\"selective\"", "\"layer\""] {
            keys[1].1 = policy;
            let (found_loss, found) = gradients(&step(4), &keys);
            assert_eq!(
                found_loss.to_bits(),
                loss.to_bits(),
                "{compute} {plugins} {policy}"
            );
            assert_eq!(
                bits(&found),
                bits(&expected),
                "{compute} {plugins} {policy}"
            );
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for compute in ["\"f32\"", "\"bf16\""] {
        let mut keys = [("model.compute", compute), ("run.threads", "1")];
        let (loss, expected) = gradients(&step(4), &keys);
        for threads in ["2", "3"] {
            keys[1].1 = threads;
            let (found_loss, found) = gradients(&step(4), &keys);
            assert_eq!(
                found_loss.to_bits(),
                loss.to_bits(),
                "{compute}, {threads} threads"
            );
            assert_eq!(
                bits(&found),
                bits(&expected),
                "{compute}, {threads} threads"
            );
        }
    }
}

#[test]
fn the_split_of_a_batch_changes_rounding_only() {
    let (loss, whole) = gradients(&step(4), &[]);
    for at_once in [1, 2, 3] {
        let (found_loss, found) = gradients(&step(at_once), &[]);
        assert!(
            (found_loss - loss).abs() <= 1e-6,
            "{at_once} at once: {found_loss}, {loss}"
        );
        for ((name, found), (_, expected)) in found.iter().zip(&whole) {
            let distance = relative_norm(found, expected);
            assert!(
                distance <= 1e-5,
                "{at_once} at once: `{name}` is off by {distance}"
            );
        }
    }
}

#[test]
fn the_reference_mode_agrees_with_f32() {
    let f64_mode = [("model.compute", "\"f64\"")];
    let (exact_loss, exact) = gradients(&step(4), &f64_mode);
    let (loss, found) = gradients(&step(4), &[]);
    assert!(
        (loss - exact_loss).abs() <= 1e-6,
        "loss {loss}, exactly {exact_loss}"
    );
    for ((name, found), (_, exact)) in found.iter().zip(&exact) {
        let distance = relative_norm(found, exact);
        assert!(distance <= 1e-5, "`{name}` is off by {distance}");
    }
}

/// Every gradient against differences of the loss in the reference mode, including adapters on
/// embeddings and head.
#[test]
fn gradients_are_slopes_of_the_loss() {
    let keys = [
        ("model.compute", "\"f64\""),
        (
            "adapter.lora.targets",
            "[\"q_proj\", \"down_proj\", \"embed_tokens\", \"lm_head\"]",
        ),
    ];
    let rig = Rig::new(
        &golden_path("llama/tiny-trained"),
        &[&BASE[..], &keys].concat(),
    );
    let step = step(4);
    let params: Vec<(String, usize)> = rig
        .executor
        .params()
        .iter()
        .filter(|param| param.trainable)
        .map(|param| (param.name.clone(), param.elements() as usize))
        .collect();
    // Nonzero values, so that both factors of every product have a slope.
    for (number, (name, count)) in params.iter().enumerate() {
        let values: Vec<f32> = (0..*count)
            .map(|i| ((i * 37 + number * 11) % 101) as f32 / 2000.0 - 0.025)
            .collect();
        rig.executor
            .set_param(rig.param(name), &values)
            .expect("a dense param");
    }
    rig.loss_and_gradients(&step);
    let gradients: Vec<Vec<f64>> = params.iter().map(|(name, _)| rig.gradient(name)).collect();
    for ((name, count), gradient) in params.iter().zip(&gradients) {
        let steepest = (0..*count)
            .max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()))
            .expect("a param has elements");
        let mut values: Vec<f32> = rig.values(name).iter().map(|&x| x as f32).collect();
        let kept = values[steepest];
        let width = 2.0f32.powi(-14);
        let mut at = |x: f32| {
            values[steepest] = x;
            rig.executor
                .set_param(rig.param(name), &values)
                .expect("a dense param");
            rig.loss_and_gradients(&step)
        };
        let (above, below) = (at(kept + width), at(kept - width));
        let spread = f64::from(kept + width) - f64::from(kept - width);
        at(kept);
        let difference = (above - below) / spread;
        let distance = (difference / gradient[steepest] - 1.0).abs();
        assert!(
            distance <= 1e-5,
            "`{name}`: gradient {}, difference {difference}",
            gradient[steepest]
        );
    }
}
