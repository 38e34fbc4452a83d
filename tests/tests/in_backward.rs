//! `optim.in_backward`: updates within the backward pass give the bits of updates after it, with
//! less memory, on any number of ranks, over checkpoints and swaps.

mod sharded;
mod swapping;

use std::sync::Arc;

use espalier_engine::executor::StatePart;
use espalier_engine::step::StepOutcome;
use espalier_interface::Sharding;
use espalier_interface::schedule::{
    Act, Action, MicroBatch, Placement, Schedule, ShardingRequest, UnitBytes,
};
use espalier_registry::{Chosen, PluginIdentity, answer};
use espalier_system::failure::{ExitClass, Failure};
use espalier_tests::Named;
use espalier_trainer::error::Error;
use espalier_trainer::train;
use sharded::{Model, Strategy, Variant, variants};
use swapping::{Job, ask, plugin_folder};

const IN_BACKWARD: (&str, &str) = ("optim.in_backward", "true");
const UNCLIPPED: (&str, &str) = ("optim.clip_norm", "0.0");

/// Outcomes of the steps, then values and each tensor of the optimizer's state.
type Trained = (Vec<StepOutcome>, Named, Vec<Named>);

/// Trains all steps of one micro-batch a rank.
fn trained(model: &Model, variant: &Variant) -> Trained {
    let steps = model.steps(variant.world, 1);
    let rig = model.rig(variant, steps[0].micro_batches.len());
    let outcomes = rig.train(&steps);
    (
        outcomes,
        rig.state(StatePart::Values),
        rig.optimizer_state(),
    )
}

fn same_with_updates_in_backward(model: &Model, variant: &Variant) {
    let model = model.clone().with_keys(&[UNCLIPPED]);
    let after = trained(&model, variant);
    let within = trained(&model.with_keys(&[IN_BACKWARD]), variant);
    assert!(after.0.iter().all(|step| step.grad_norm > 0.0));
    assert_eq!(within, after, "{variant}");
}

#[test]
fn updates_in_the_backward_pass_change_no_bit_on_any_number_of_ranks() {
    let sgd: &[(&str, &str)] = &[("optim.name", "\"sgd\"")];
    let momentum: &[(&str, &str)] = &[sgd[0], ("optim.momentum", "0.9")];
    for model in Model::all() {
        for keys in [&[], sgd, momentum] {
            let model = model.clone().with_keys(keys);
            same_with_updates_in_backward(&model, &Variant::SINGLE);
            for world in [1, 2, 3, 4] {
                for strategy in Strategy::of(world) {
                    same_with_updates_in_backward(&model, &Variant::of(strategy, world));
                }
            }
        }
    }
}

#[test]
fn offload_prefetch_and_the_source_of_units_change_no_bit() {
    let offloading = ("sharding.fsdp.offload_activations", "true");
    let in_bf16 = ("sharding.fsdp.reduce_dtype", "\"bf16\"");
    for model in Model::all() {
        let model = model.in_f32();
        for strategy in [Strategy::FullShard, Strategy::ShardGradOp] {
            for variant in variants(strategy, 2) {
                for more in [&[][..], &[offloading], &[in_bf16]] {
                    same_with_updates_in_backward(&model.clone().with_keys(more), &variant);
                }
            }
        }
    }
}

/// Params alone in host memory, or the optimizer's state, too, for optimizers with 8-bit, 32-bit
/// and no state.
#[test]
fn state_that_is_kept_in_host_memory_gives_the_same_bits_on_any_number_of_ranks() {
    let adamw8bit: &[(&str, &str)] = &[
        ("optim.name", "\"adamw8bit\""),
        ("optim.min_8bit_size", "64"),
    ];
    let sgd: &[(&str, &str)] = &[("optim.name", "\"sgd\"")];
    for model in Model::all() {
        for keys in [&[], adamw8bit, sgd] {
            let model = model.clone().in_f32().with_keys(keys);
            for world in [1, 2, 4] {
                for offload in ["params", "params+optimizer"] {
                    let strategies = Strategy::of(world).into_iter();
                    for strategy in strategies.filter(|one| *one != Strategy::Ddp) {
                        let variant = Variant {
                            offload,
                            ..Variant::of(strategy, world)
                        };
                        same_with_updates_in_backward(&model, &variant);
                    }
                }
            }
        }
    }
}

/// Params, and what is kept of them from step to step, in host memory.
fn offloaded(world: u32) -> Variant {
    Variant {
        offload: "params+optimizer",
        ..Variant::of(Strategy::FullShard, world)
    }
}

/// The model in f32 on devices with `bytes` of memory, which fail above.
fn bounded(model: &Model, bytes: u64) -> Model {
    let size = format!("\"{}KiB\"", bytes as f64 / 1024.0);
    let keys = [("backend.cpu.device_memory", size.as_str())];
    model.clone().with_keys(&keys)
}

#[test]
fn the_plan_holds_fewer_gradients_and_a_device_of_its_size_suffices() {
    let of_ranks = [
        Variant::SINGLE,
        Variant::of(Strategy::Ddp, 2),
        Variant::of(Strategy::FullShard, 2),
        offloaded(1),
        offloaded(2),
    ];
    for variant in of_ranks {
        for model in Model::all() {
            let model = model.with_keys(&[UNCLIPPED]);
            let within = model.clone().with_keys(&[IN_BACKWARD]);
            let steps = model.steps(variant.world, 1);
            let count = steps[0].micro_batches.len();
            let planned = within.rig(&variant, count).planned;
            // Gradients of two micro-batches a rank have memory of their own: those of one share
            // that of activations.
            let whole = model.rig(&variant, count + variant.world as usize).planned;
            // While the gradients of a unit are reduced, those of the next one are computed: all
            // there are with adapters on two layers. Those that wait in host memory for their
            // update take none of a device; updates within passes fetch state beside them.
            let on_host = variant.offload != "none";
            let all = variant.strategy == Strategy::Ddp && model.name.starts_with("adapters");
            let spares = match (all, on_host) {
                (_, true) => true,
                (true, _) => planned == whole,
                _ => planned < whole,
            };
            assert!(spares, "{variant}: {planned} and {whole}");
            // The plan does not include the bytes that the device adds to each buffer.
            let enough = bounded(&within, planned * 101 / 100).rig(&variant, count);
            enough.train(&steps[..2]);
            let less = bounded(&within, planned * 95 / 100).try_rig(&variant, count);
            let error = format!("{:?}", less.err().expect("5 % less than planned"));
            assert!(error.contains("device_memory"), "{variant}: {error}");
        }
    }
}

/// Keys of a run whose steps have one micro-batch a rank.
fn one_micro_batch<'a>(plugins: &'a str, ranks: &'a str, micro_batch: &'a str) -> Vec<&'a str> {
    vec![plugins, ranks, micro_batch, "optim.clip_norm=0.0"]
}

fn within<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    [keys, &["optim.in_backward=true"]].concat()
}

#[test]
fn a_run_with_checkpoints_that_is_resumed_has_the_bits_of_one_that_updates_afterwards() {
    let on_host = "sharding.fsdp.offload=\"params+optimizer\"";
    let one = ["run.ranks=1", "data.micro_batch=3"];
    let two = ["run.ranks=2", "data.micro_batch=2"];
    for (plugins, [ranks, micro_batch], more) in [
        ("plugins=\"nf4,lora\"", one, None),
        ("plugins=\"nf4,lora,ddp\"", two, None),
        ("plugins=\"nf4,lora,fsdp\"", two, None),
        ("plugins=\"nf4,lora,fsdp\"", one, Some(on_host)),
        ("plugins=\"nf4,lora,fsdp\"", two, Some(on_host)),
    ] {
        let mut keys = one_micro_batch(plugins, ranks, micro_batch);
        keys.extend(more);
        let after = Job::new(&keys).run("out", &[]);
        let job = Job::new(&within(&keys));
        let whole = job.run("out", &[]);
        whole.same_training(&after, plugins);
        for step in [2, 6] {
            let out = format!("from-{step}");
            job.unfinished("out", &out);
            let resumed = job.resume(&out, step).expect("a run");
            resumed.same_training(&after, plugins);
        }
    }
}

/// Only the memory of gradients differs, so a run may go on with the other order of updates.
#[test]
fn a_run_that_updated_afterwards_goes_on_with_updates_in_the_backward_pass() {
    let keys = one_micro_batch("plugins=\"lora\"", "run.ranks=1", "data.micro_batch=3");
    let job = Job::new(&keys);
    let after = job.run("out", &[]);
    job.unfinished("out", "within");
    let within = within(&keys).into_iter().map(str::to_owned).collect();
    let resumed = Job::there(job.folder.clone(), within).resume("within", 4);
    resumed.expect("a run").same_training(&after, "resumed");
}

/// The next micro-batch runs forward and backward without an update, then the swap is made.
#[test]
fn a_swap_is_tried_without_an_update() {
    let keys = one_micro_batch("plugins=\"nf4,lora\"", "run.ranks=1", "data.micro_batch=3");
    let job = Job::new(&within(&keys));
    let plain = job.run("plain", &[]);
    let swapped = job.run("swapped", &[ask("quantizer=nf4", 3, &[])]);
    swapped.same_training(&plain, "nf4 for itself");
    assert_eq!(Job::swaps(&swapped), 1);
}

fn ends(job: &Job, out: &str) -> Error {
    let asking = job.asking(out, &[]);
    let trained = train::run(&job.config(out), &asking, &asking.stop);
    trained.expect_err("the run is refused or ends early")
}

#[test]
fn a_number_that_is_not_finite_ends_the_run_and_the_last_checkpoint_stays() {
    for (plugins, ranks, micro_batch) in [
        ("plugins=\"lora\"", "run.ranks=1", "data.micro_batch=3"),
        ("plugins=\"lora,fsdp\"", "run.ranks=2", "data.micro_batch=2"),
    ] {
        let keys = one_micro_batch(plugins, ranks, micro_batch);
        let mut job = Job::new(&within(&keys));
        let fast = ["optim.learning_rate=1e30", "run.save_every=1"];
        job.keys.extend(fast.map(str::to_owned));
        let error = ends(&job, "out");
        let message = error.to_string();
        assert_eq!(error.exit_code(), 7, "{message}");
        for words in [
            "step 2: the loss is not finite",
            "optim.in_backward",
            "last checkpoint",
        ] {
            assert!(message.contains(words), "{message}");
        }
        let left = std::fs::read_dir(job.path("out/checkpoints")).expect("a folder");
        let left = left.map(|entry| entry.expect("an entry").file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["step-1"], "{plugins}");
        let again = job.resume("out", 1).err().expect("the same number");
        assert_eq!(again.to_string(), message);
    }
}

#[test]
fn what_contradicts_updates_in_the_backward_pass_is_refused_by_name() {
    let refused = |keys: &[&str], words: &[&str]| {
        let error = ends(&Job::new(&within(keys)), "out");
        let message = format!("{error}; {}", error.next_step());
        assert_eq!(error.exit_code(), 2, "{message}");
        for word in words {
            assert!(message.contains(word), "expected {word}: {message}");
        }
    };
    let unclipped = "optim.clip_norm=0.0";
    refused(
        &["plugins=\"lora\"", unclipped],
        &[
            "data.micro_batch = 1",
            "makes 3",
            "set data.micro_batch = 3, or data.batch_size = 1",
        ],
    );
    refused(
        &["plugins=\"lora,ddp\"", "run.ranks=2", unclipped],
        &[
            "makes 2",
            "set data.micro_batch = 2, or data.batch_size = 2",
        ],
    );
    refused(
        &["plugins=\"lora\"", "data.pack_tokens=8", unclipped],
        &["data.pack_tokens = 8", "raise data.pack_tokens"],
    );
}

/// A strategy of an older interface: it does not know of the field that asks for such updates.
struct Older;

impl Sharding for Older {
    fn schedule(&self, request: &ShardingRequest) -> espalier_interface::Result<Schedule> {
        let known = ShardingRequest {
            update_in_backward: false,
            ..request.clone()
        };
        Ok(Schedule {
            placements: vec![Placement::default(); known.units.len()],
            micro_batch: MicroBatch::new(&known).into_actions(),
            update: (known.trained().map(|unit| Action::new(Act::Optimize, unit))).collect(),
            ..Schedule::default()
        })
    }
}

#[test]
fn a_strategy_of_an_older_interface_is_refused_by_name() {
    let older = Chosen::<dyn Sharding> {
        plugin: Arc::new(Older),
        identity: PluginIdentity {
            component: "older".to_owned(),
            role: "sharding".to_owned(),
            plugin: "older".to_owned(),
            version: "0.1.0".to_owned(),
            abi: [0, 7],
            sha256: None,
            file: None,
        },
        options: Default::default(),
    };
    let unit = UnitBytes {
        trainable: 64,
        gradients: 64,
        forward_reads: vec![0],
        ..UnitBytes::default()
    };
    let mut request = ShardingRequest {
        units: vec![unit],
        world: 1,
        ranks_per_machine: 1,
        micro_batches: 1,
        ..ShardingRequest::default()
    };
    answer::schedule(&older, &request).expect("an ordinary run");
    request.update_in_backward = true;
    let error = answer::schedule(&older, &request).expect_err("refused");
    let message = format!("{error}; {}", error.next_step());
    assert_eq!(error.exit_class(), ExitClass::Usage, "{message}");
    for words in [
        "`older` does not serve optim.in_backward",
        "optim.in_backward = false",
    ] {
        assert!(message.contains(words), "{message}");
    }
}

/// One that checks its own schedules finds its update at the wrong place.
#[test]
fn a_strategy_that_checks_itself_and_updates_afterwards_is_refused_by_name() {
    let keys = one_micro_batch(
        "plugins=\"lora,streamed\"",
        "run.ranks=1",
        "data.micro_batch=3",
    );
    let mut job = Job::new(&within(&keys));
    let folder = plugin_folder(&job, "streamed");
    job.keys.push(format!("run.plugin_dirs=[{folder:?}]"));
    let error = ends(&job, "out");
    let message = error.to_string();
    assert_eq!(error.exit_code(), 2, "{message}");
    assert!(
        message.contains("`streamed` does not serve optim.in_backward"),
        "{message}"
    );
}
