//! `sharding.fsdp.micro_batches_per_fetch`: a unit that runs several micro-batches each time it is
//! fetched gives the bits of one that is fetched for each, in memory that the plan counts.

mod sharded;
mod swapping;

use espalier_data::StepBatch;
use espalier_tests::{Named, TeamRig, largest, relative_norm};
use espalier_trainer::error::Error;
use espalier_trainer::train;
use sharded::{Model, Outcome, Strategy, Variant};
use swapping::{Job, plugin_folder};

const HELD: &str = "sharding.fsdp.micro_batches_per_fetch";

/// Micro-batches of a rank in a step.
const MICRO_BATCHES: usize = 4;

/// Micro-batches of a sweep: those of a step, more than it has, and numbers that leave some over.
const SWEEPS: [&str; 4] = ["2", "3", "4", "9"];

/// The strategies whose units are fetched for each micro-batch.
fn strategies(world: u32) -> Vec<Strategy> {
    let keeps = |one: &Strategy| matches!(one, Strategy::FullShard | Strategy::Hybrid(_));
    Strategy::of(world).into_iter().filter(keeps).collect()
}

/// The adapters' gradients sum over micro-batches in the same order. The table that a tied head
/// shares has its head's gradients of a sweep before its embedding's.
fn same(model: &Model, found: &Outcome, each: &Outcome, at: &str) {
    if model.name.starts_with("adapters") {
        assert_eq!(found, each, "{at}");
        return;
    }
    let apart = largest_relative(&found.gradients, &each.gradients);
    assert!(apart <= 1e-6, "{at}: gradients {apart:e} apart");
}

/// Largest difference of any tensor, relative to its norm.
fn largest_relative(found: &Named, expected: &Named) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    largest(pairs.map(|(found, expected)| {
        assert_eq!(found.0, expected.0);
        relative_norm(&found.1, &expected.1)
    }))
}

#[test]
fn the_micro_batches_of_a_fetch_change_no_bit_on_any_number_of_ranks() {
    for model in Model::all() {
        let model = model.in_f32();
        for world in [1, 2, 4] {
            let steps = model.steps(world, MICRO_BATCHES);
            for strategy in strategies(world) {
                for offload in ["none", "params", "params+optimizer"] {
                    let variant = Variant {
                        offload,
                        ..Variant::of(strategy, world)
                    };
                    let each = model.run(&variant, &steps);
                    for sweep in SWEEPS {
                        let held = model.clone().with_keys(&[(HELD, sweep)]);
                        let at = format!("{}, {variant}, {sweep} a fetch", model.name);
                        same(&model, &held.run(&variant, &steps), &each, &at);
                    }
                }
            }
        }
    }
}

/// In f64 another order of the tied table's sums differs by rounding alone.
#[test]
fn a_tied_table_sums_the_same_gradients_in_another_order() {
    let [_, tied] = Model::all();
    let steps = tied.steps(2, MICRO_BATCHES);
    let variant = Variant::of(Strategy::FullShard, 2);
    let each = tied.run(&variant, &steps);
    let held = tied.with_keys(&[(HELD, "4")]).run(&variant, &steps);
    let apart = largest_relative(&held.gradients, &each.gradients);
    assert!(apart <= 1e-12, "gradients {apart:e} apart");
    for (part, held, each) in held.parts_beside(&each) {
        let apart = largest_relative(held, each);
        assert!(apart <= 1e-10, "{part} {apart:e} apart");
    }
}

#[test]
fn what_is_saved_and_where_it_waits_change_no_bit() {
    let [model, _] = Model::all();
    let model = model.in_f32();
    let steps = model.steps(2, MICRO_BATCHES);
    for recompute in ["\"none\"", "\"selective\"", "\"layer\""] {
        for offloaded in ["false", "true"] {
            let model = model.clone().with_keys(&[
                ("model.recompute", recompute),
                ("sharding.fsdp.offload_activations", offloaded),
            ]);
            for (gather, prefetch) in [("shards", 0), ("host-direct", 2)] {
                let variant = Variant {
                    offload: "params",
                    gather,
                    prefetch,
                    ..Variant::of(Strategy::FullShard, 2)
                };
                let each = model.run(&variant, &steps);
                let held = model.clone().with_keys(&[(HELD, "3")]);
                assert_eq!(held.run(&variant, &steps), each, "{recompute}, {variant}");
            }
        }
    }
}

/// The bytes that units fetch and gather in a step, on all ranks.
fn brought(rig: &TeamRig, step: &StepBatch) -> [u64; 2] {
    let before = rig.team.device_work();
    rig.train(std::slice::from_ref(step));
    let work = rig.team.device_work().since(before);
    [work.fetched_bytes, work.gathered_bytes]
}

#[test]
fn bytes_that_are_brought_do_not_depend_on_the_number_of_micro_batches() {
    for model in Model::all() {
        let held = model.clone().with_keys(&[(HELD, "8")]);
        for (world, offload) in [
            (1, "params"),
            (1, "params+optimizer"),
            (2, "none"),
            (2, "params"),
        ] {
            let variant = Variant {
                offload,
                ..Variant::of(Strategy::FullShard, world)
            };
            let counted = |model: &Model, micro_batches: usize| {
                let step = &model.steps(world, micro_batches)[0];
                brought(&model.rig(&variant, step.micro_batches.len()), step)
            };
            let one = counted(&model, 1);
            assert!(one.iter().any(|bytes| *bytes > 0), "{variant}");
            for micro_batches in [1, 2, 5, 8] {
                assert_eq!(counted(&held, micro_batches), one, "{variant}");
            }
            // One of two sweeps more fetches the weights again, and updates once.
            let two = counted(&held, 9);
            let times = |sweeps: usize| counted(&model, sweeps);
            assert_eq!(two, times(2), "{variant}");
            assert!(times(4).iter().sum::<u64>() > two.iter().sum(), "{variant}");
        }
    }
}

/// The model on devices with `bytes` of memory, which fail above.
fn bounded(model: &Model, bytes: u64) -> Model {
    let size = format!("\"{}KiB\"", bytes as f64 / 1024.0);
    model
        .clone()
        .with_keys(&[("backend.cpu.device_memory", &size)])
}

#[test]
fn the_plan_counts_the_activations_of_a_sweep_and_a_device_of_its_size_suffices() {
    for world in [1, 2] {
        for model in Model::all() {
            let variant = Variant {
                offload: "params",
                ..Variant::of(Strategy::FullShard, world)
            };
            let steps = model.steps(world, MICRO_BATCHES);
            let count = steps[0].micro_batches.len();
            let each = model.rig(&variant, count).planned;
            let held = model.clone().with_keys(&[(HELD, "4")]);
            let planned = held.rig(&variant, count).planned;
            assert!(planned > each, "{variant}: {planned} and {each}");
            // The plan does not include the bytes that the device adds to each buffer.
            let enough = bounded(&held, planned * 101 / 100).rig(&variant, count);
            enough.train(&steps[..2]);
            let less = bounded(&held, planned * 95 / 100).try_rig(&variant, count);
            let error = format!("{:?}", less.err().expect("5 % less than planned"));
            assert!(error.contains("device_memory"), "{variant}: {error}");
        }
    }
}

/// Keys of a run with offload whose steps have three micro-batches.
const KEYS: [&str; 2] = [
    "plugins=\"nf4,lora,fsdp\"",
    "sharding.fsdp.offload=\"params\"",
];

fn holding<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    [keys, &["sharding.fsdp.micro_batches_per_fetch=2"]].concat()
}

/// All weights of a model with a head of its own: no gradient is of two units.
#[test]
fn an_untied_model_that_is_trained_whole_keeps_its_bits() {
    let keys = [
        "plugins=\"fsdp\"",
        "run.ranks=2",
        "sharding.fsdp.offload=\"params+optimizer\"",
        "data.batch_size=6",
    ];
    let plain = Job::new(&keys).run("out", &[]);
    let held = Job::new(&holding(&keys)).run("out", &[]);
    held.same_training(&plain, "two a fetch");
}

#[test]
fn a_run_that_is_resumed_has_the_bits_of_one_that_fetches_for_each_micro_batch() {
    let each = Job::new(&KEYS);
    let plain = each.run("out", &[]);
    let job = Job::new(&holding(&KEYS));
    let whole = job.run("out", &[]);
    whole.same_training(&plain, "two a fetch");
    for step in [2, 6] {
        let out = format!("from-{step}");
        job.unfinished("out", &out);
        let resumed = job.resume(&out, step).expect("a run");
        resumed.same_training(&plain, "resumed");
    }
    // Memory and the order of fetches alone differ, so a run may go on with the other one.
    each.unfinished("out", "then-held");
    let keys = holding(&KEYS).into_iter().map(str::to_owned).collect();
    let resumed = Job::there(each.folder.clone(), keys).resume("then-held", 4);
    resumed
        .expect("a run")
        .same_training(&plain, "held from step 4 on");
}

fn refused(job: &Job, words: &[&str]) -> Error {
    let asking = job.asking("out", &[]);
    let trained = train::run(&job.config("out"), &asking, &asking.stop);
    let error = trained.expect_err("refused");
    let message = format!("{error}; {}", error.next_step());
    assert_eq!(error.exit_code(), 2, "{message}");
    for word in words {
        assert!(message.contains(word), "expected {word}: {message}");
    }
    error
}

#[test]
fn what_contradicts_a_fetch_for_several_micro_batches_is_refused_by_both_keys() {
    let shard_grad_op = ["sharding.fsdp.strategy=\"shard_grad_op\""];
    let words = [
        "micro_batches_per_fetch = 2",
        "strategy = \"shard_grad_op\"",
    ];
    refused(
        &Job::new(&holding(&[&KEYS[..], &shard_grad_op].concat())),
        &words,
    );
    let within = [
        "optim.in_backward=true",
        "optim.clip_norm=0.0",
        "data.micro_batch=3",
    ];
    let words = ["micro_batches_per_fetch = 2", "optim.in_backward = true"];
    refused(&Job::new(&holding(&[&KEYS[..], &within].concat())), &words);
}

/// A strategy that was written before has no such option.
#[test]
fn an_older_strategy_is_refused_the_option_by_name() {
    let mut job = Job::new(&["plugins=\"lora,streamed\""]);
    let folder = plugin_folder(&job, "streamed");
    job.keys.push(format!("run.plugin_dirs=[{folder:?}]"));
    job.keys
        .push("sharding.streamed.micro_batches_per_fetch=2".to_owned());
    refused(&job, &["streamed", "micro_batches_per_fetch"]);
}
