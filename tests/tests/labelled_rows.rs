//! A head that leaves tokens without a label out gives the losses and gradients of one that works
//! on all.

use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::executor::{LossSum, Pass, StepPosition};
use espalier_tests::{
    Golden, Named, Rig, TeamRig, golden_path, micro_batch, relative_norm, step_of,
};

const POSITION: StepPosition = StepPosition {
    seed: 42,
    step: 0,
    first: true,
    last: true,
};

/// Keys of full training and of an adapter.
const RUNS: [&[(&str, &str)]; 2] = [
    &[
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "2"),
    ],
    &[
        ("plugins", "[\"nf4\", \"lora\"]"),
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "2"),
    ],
];

/// Two sequences of 48 tokens, those of `trained` with a label.
fn batch(trained: impl Fn(usize) -> bool) -> MicroBatch {
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let of_row = |row: &Vec<i32>| {
        let labels = row.iter().enumerate();
        let label = |(at, &token)| if trained(at) { token } else { -100 };
        labels.map(label).collect()
    };
    let labels: Vec<Vec<i32>> = rows.iter().map(of_row).collect();
    micro_batch(&rows, &labels)
}

/// An answer at the end of each row, and every fifth token before it.
fn is_answer(at: usize) -> bool {
    at >= 31 || at.is_multiple_of(5)
}

/// The sums of a micro-batch whose logits are all looked at.
fn of_all_tokens(rig: &Rig, micro: &MicroBatch) -> LossSum {
    let losses = rig
        .executor
        .evaluate(micro, POSITION, Some(&mut |_| Ok(())));
    losses.expect("losses").sum(micro, 0..micro.tokens.len())
}

fn gradients(rig: &Rig) -> Named {
    let params = rig.executor.params().iter();
    let names = params.filter(|param| param.trainable);
    let names = names.map(|param| param.name.clone());
    names
        .map(|name| (name.clone(), rig.gradient(&name)))
        .collect()
}

#[test]
fn losses_are_those_of_a_head_that_computes_all_logits() {
    for keys in RUNS {
        let rig = Rig::new(&golden_path("llama/tiny-trained"), keys);
        for micro in [batch(is_answer), batch(|at| at == 17), batch(|_| true)] {
            let all = of_all_tokens(&rig, &micro);
            let before = rig.executor.device_work();
            let found = rig.executor.micro_batch(&micro, Pass::Evaluate, POSITION);
            assert_eq!(found.expect("losses"), all);
            assert!(all.loss > 0.0 && all.trained as usize == micro.num_trained);
            let computed = rig.executor.device_work().since(before).launched.flops;
            let before = rig.executor.device_work();
            of_all_tokens(&rig, &micro);
            let of_all = rig.executor.device_work().since(before).launched.flops;
            let leaves_out = micro.num_trained * 8 <= micro.tokens.len() * 7;
            assert_eq!(computed < of_all, leaves_out, "{computed} of {of_all}");
        }
    }
}

/// A token's loss has gradients of its own: those of some tokens and of the others add up to those
/// of all, whose head leaves none out.
#[test]
fn gradients_of_some_tokens_and_of_the_others_are_those_of_all() {
    for keys in RUNS {
        let rig = Rig::new(&golden_path("llama/tiny-trained"), keys);
        let weighed = |micro: MicroBatch| {
            let trained = micro.num_trained as f64;
            let loss = rig.loss_and_gradients(&step_of(vec![micro])) * trained;
            let mut gradients = gradients(&rig);
            let all = gradients.iter_mut().flat_map(|(_, values)| values);
            all.for_each(|value| *value *= trained);
            (loss, gradients)
        };
        let (some, of_some) = weighed(batch(is_answer));
        let (others, of_others) = weighed(batch(|at| !is_answer(at)));
        let (all, of_all) = weighed(batch(|_| true));
        assert!(((some + others) / all - 1.0).abs() < 1e-6);
        for (((name, some), (_, others)), (_, all)) in of_some.iter().zip(&of_others).zip(&of_all) {
            let sum: Vec<f64> = some.iter().zip(others).map(|(a, b)| a + b).collect();
            let apart = relative_norm(&sum, all);
            assert!(apart < 1e-5, "{name}: {apart:e}");
        }
    }
}

#[test]
fn a_micro_batch_without_a_label_adds_nothing() {
    for keys in RUNS {
        let rig = Rig::new(&golden_path("llama/tiny-trained"), keys);
        let of = |micro_batches| {
            let loss = rig.loss_and_gradients(&step_of(micro_batches));
            (loss, gradients(&rig))
        };
        let alone = of(vec![batch(is_answer)]);
        let beside = of(vec![batch(|_| false), batch(is_answer), batch(|_| false)]);
        assert_eq!(beside, alone);
    }
}

/// Micro-batches that a unit runs in turn have rows of their own.
#[test]
fn micro_batches_of_one_fetch_keep_their_rows_apart() {
    let trained = [0, 20, 47].map(|from| batch(move |at| at >= from));
    let step: StepBatch = step_of(trained.to_vec());
    let found = ["1", "3"].map(|held| {
        let keys = [
            ("plugins", "[\"lora\", \"fsdp\"]"),
            ("model.compute", "\"f32\""),
            ("data.max_seq_len", "48"),
            ("data.micro_batch", "2"),
            ("data.batch_size", "6"),
            ("sharding.fsdp.offload", "\"params\""),
            ("sharding.fsdp.micro_batches_per_fetch", held),
        ];
        let rig = TeamRig::new(&golden_path("llama/tiny-trained"), &keys);
        (rig.loss_and_gradients(&step), rig.gradients())
    });
    assert_eq!(found[0], found[1]);
}
