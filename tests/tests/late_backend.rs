//! Runs on the backend `late`, whose streams are queues and whose memory the host cannot touch:
//! every order of its tasks gives the bits of `cpu`.

mod lately;
mod swapping;

use espalier_trainer::swap::{Staging, SwapRequest};

use lately::{
    ORDERS, add_library, equals_cpu, equals_cpu_with, named, on_late, try_run, with_sources,
};
use swapping::{Job, ask, plugin_folder};

/// Runs whose work lies on the compute stream alone.
const RESIDENT: [&[&str]; 5] = [
    &["plugins=\"nf4,lora\""],
    &["plugins=\"hqq,lora\"", "model.recompute=\"selective\""],
    &[
        "plugins=\"lora\"",
        "model.params=\"bf16\"",
        "model.compute=\"bf16\"",
    ],
    &["plugins=\"nf4,lora,fsdp\""],
    &[
        "plugins=\"nf4,lora\"",
        "optim.in_backward=true",
        "optim.clip_norm=0.0",
        "data.micro_batch=3",
    ],
];

/// Runs with copies between host and device on streams of their own.
const MOVING: [&[&str]; 6] = [
    &["plugins=\"nf4,lora,ddp\""],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=0",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=1",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.prefetch=2",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.offload_activations=true",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params+optimizer\"",
    ],
];

/// Gradients that are sent in another dtype, by casts beside the compute stream.
const OF_CASTS: [&[&str]; 2] = [
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "sharding.fsdp.reduce_dtype=\"bf16\"",
    ],
    &[
        "plugins=\"nf4,lora,ddp\"",
        "run.ranks=2",
        "sharding.ddp.reduce_dtype=\"bf16\"",
    ],
];

/// Runs of several ranks: what is cut, whole, in groups, on the host, sent in another dtype.
const OF_RANKS: [&[&str]; 6] = [
    &["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"],
    &["plugins=\"nf4,lora,ddp\"", "run.ranks=2"],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=4",
        "sharding.fsdp.strategy=\"hybrid\"",
        "sharding.fsdp.shard_ranks=2",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "sharding.fsdp.offload=\"params+optimizer\"",
        "sharding.fsdp.offload_activations=true",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "sharding.fsdp.gather=\"host-direct\"",
        "sharding.fsdp.reduce_dtype=\"bf16\"",
    ],
    &[
        "plugins=\"fsdp\"",
        "run.ranks=3",
        "model.init=\"random\"",
        "sharding.fsdp.prefetch=0",
    ],
];

/// More kinds of training: another optimizer, gradients alone cut, replicas in bf16, updates in the
/// backward pass.
const OF_KINDS: [&[&str]; 5] = [
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "optim.name=\"sgd\"",
        "optim.momentum=0.9",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "sharding.fsdp.strategy=\"shard_grad_op\"",
    ],
    &[
        "plugins=\"lora,ddp\"",
        "run.ranks=2",
        "model.params=\"bf16\"",
        "model.compute=\"bf16\"",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "optim.in_backward=true",
        "optim.clip_norm=0.0",
        "data.micro_batch=2",
        "sharding.fsdp.reduce_dtype=\"bf16\"",
    ],
    &[
        "plugins=\"ddp\"",
        "run.ranks=2",
        "optim.in_backward=true",
        "optim.clip_norm=0.0",
        "data.micro_batch=2",
    ],
];

/// Every op of these runs that has a decomposition.
const HIDDEN: &str = "backend.late.hides=\"cross_entropy,cross_entropy_backward,rms_norm,\
    rms_norm_backward,rms_norm_weight_backward,rope,rope_backward,scale_channels,\
    scale_channels_weight_backward,swiglu,swiglu_backward\"";

/// Runs of one rank from random weights that begin on the host.
const RANDOM: [&[&str]; 2] = [
    &[
        "plugins=\"fsdp\"",
        "model.init=\"random\"",
        "sharding.fsdp.offload=\"params+optimizer\"",
    ],
    &[
        "plugins=\"fsdp\"",
        "model.init=\"random\"",
        "model.params=\"bf16\"",
        "model.compute=\"bf16\"",
        "sharding.fsdp.offload=\"params\"",
        "sharding.fsdp.gather=\"host-direct\"",
    ],
];

#[test]
fn resident_runs_equal_cpu_in_every_order() {
    RESIDENT.iter().copied().for_each(equals_cpu);
}

#[test]
fn a_run_that_is_resumed_or_swaps_its_quantizer_equals_cpu_in_every_order() {
    let job = Job::new(RESIDENT[0]);
    let folder = plugin_folder(&job, "late");
    let requests = [
        ask("quantizer=nf4", 3, &["quantizer.nf4.block_size=32"]),
        SwapRequest {
            staging: Staging::Mapped,
            ..ask("quantizer=nf4", 6, &["quantizer.nf4.block_size=64"])
        },
    ];
    let expected = job.run("cpu", &[]);
    let swapped = job.run("cpu-swapped", &requests);
    assert_ne!(expected.losses(), swapped.losses());
    for order in ORDERS {
        let job = on_late(&job, &folder, order);
        let (out, resumed) = (named("late", order), named("resumed", order));
        job.run(&out, &[]);
        job.unfinished(&out, &resumed);
        let found = job.resume(&resumed, 4).expect("a checkpoint");
        found.same_training(&expected, &format!("resumed, {order:?}"));
        let found = job.run(&named("swapped", order), &requests);
        assert_eq!(Job::swaps(&found), 2, "{order:?}");
        found.same_training(&swapped, &format!("swapped, {order:?}"));
    }
}

#[test]
fn swaps_on_ranks_and_beside_offload_equal_cpu_in_every_order() {
    let requests = [
        ask("quantizer=nf4", 3, &["quantizer.nf4.block_size=32"]),
        ask(
            "sharding=fsdp",
            6,
            &["sharding.fsdp.offload=\"params+optimizer\""],
        ),
    ];
    for keys in [OF_RANKS[1], MOVING[2]] {
        let job = Job::new(keys);
        let folder = plugin_folder(&job, "late");
        let expected = job.run("cpu", &requests);
        assert_eq!(Job::swaps(&expected), 2, "{keys:?}");
        for order in ORDERS {
            let found = on_late(&job, &folder, order).run(&named("late", order), &requests);
            found.same_training(&expected, &format!("{keys:?}, {order:?}"));
        }
    }
}

#[test]
fn runs_that_move_bytes_equal_cpu_in_every_order() {
    MOVING.iter().copied().for_each(equals_cpu);
}

#[test]
fn weights_that_are_drawn_into_host_memory_equal_those_of_cpu() {
    RANDOM.iter().copied().for_each(equals_cpu);
}

/// Their calls pass through pinned memory, since the host cannot touch the device's.
#[test]
fn several_ranks_equal_cpu_in_every_order() {
    OF_RANKS.iter().copied().for_each(equals_cpu);
}

/// A step's only micro-batch leaves the second rank without one, right after the host has waited
/// for all of its device: it sums zeros that nothing else orders.
#[test]
fn a_rank_without_tokens_after_a_checkpoint_equals_cpu_in_every_order() {
    let keys = [
        "plugins=\"nf4,lora,ddp\"",
        "run.ranks=2",
        "data.batch_size=4",
        "data.micro_batch=2",
        "run.save_every=1",
    ];
    equals_cpu(&keys);
    let more = ["run.device_collective=\"late-collective\""];
    equals_cpu_with(&keys, "late-collective", &more);
}

/// Such a rank takes part in the gathers of others, and its compute stream reads nothing of them.
#[test]
fn a_rank_without_tokens_that_gathers_equals_cpu_in_every_order() {
    let keys = [
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "data.batch_size=4",
        "data.micro_batch=2",
        "run.save_every=1",
        "run.eval_every=1",
    ];
    let more = ["run.device_collective=\"late-collective\""];
    equals_cpu_with(&keys, "late-collective", &more);
}

/// Their calls are tasks of the devices' own streams.
#[test]
fn several_ranks_joined_by_a_collective_of_devices_equal_cpu_in_every_order() {
    for keys in OF_RANKS {
        let more = ["run.device_collective=\"late-collective\""];
        equals_cpu_with(keys, "late-collective", &more);
    }
}

#[test]
fn other_kinds_of_training_equal_cpu_in_every_order() {
    OF_KINDS.iter().copied().for_each(equals_cpu);
}

/// An adapter that reads the weights it adapts.
#[test]
fn dora_equals_cpu_in_every_order() {
    let job = Job::new(&["plugins=\"nf4,dora,fsdp\"", "run.ranks=2"]);
    let folder = plugin_folder(&job, "late");
    let keys = [
        format!("run.plugin_dirs=[{folder:?}]"),
        "adapter.dora.rank=4".to_owned(),
    ];
    let keys = job.keys.iter().cloned().chain(keys).collect();
    let job = Job::there(job.folder.clone(), keys);
    let expected = job.run("cpu", &[]);
    for order in ORDERS {
        let found = on_late(&job, &folder, order).run(&named("late", order), &[]);
        found.same_training(&expected, &format!("{order:?}"));
    }
}

#[test]
fn ops_that_run_by_their_decompositions_give_the_same_bits_in_every_order() {
    let job = Job::new(&["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"]);
    let folder = plugin_folder(&job, "late");
    let found = ORDERS.map(|order| {
        let mut run = on_late(&job, &folder, order);
        run.keys.push(HIDDEN.to_owned());
        run.run(&named("late", order), &[])
    });
    for (found_in, order) in found.iter().zip(ORDERS) {
        found_in.same_training(&found[0], &format!("{order:?}"));
    }
    // They are other launches than those of `cpu`, which has the ops.
    assert!(job.run("cpu", &[]).state != found[0].state);
}

#[test]
fn a_run_of_two_ranks_that_is_resumed_equals_cpu_in_every_order() {
    let job = Job::new(OF_RANKS[0]);
    let folder = plugin_folder(&job, "late");
    add_library(&folder, "late-collective");
    let expected = job.run("cpu", &[]);
    for collective in [None, Some("run.device_collective=\"late-collective\"")] {
        for order in ORDERS {
            let mut run = on_late(&job, &folder, order);
            run.keys.extend(collective.map(str::to_owned));
            let by = collective.map_or("host", |_| "devices");
            let [out, resumed] =
                ["late", "resumed"].map(|what| named(&format!("{what}-{by}"), order));
            run.run(&out, &[]);
            run.unfinished(&out, &resumed);
            let found = run.resume(&resumed, 4).expect("a checkpoint");
            found.same_training(&expected, &format!("{by}, {order:?}"));
        }
    }
}

/// The workspace of the compute stream is not theirs.
#[test]
fn casts_that_need_workspace_beside_the_compute_stream_equal_cpu_in_every_order() {
    for keys in OF_CASTS {
        equals_cpu_with(keys, "late", &["backend.late.cast_workspace=4096"]);
    }
}

/// The host draws what the device cannot.
#[test]
fn a_device_without_init_begins_with_the_values_of_cpu() {
    for keys in [RESIDENT[0], RANDOM[0]] {
        equals_cpu_with(keys, "late", &["backend.late.hides=\"init\""]);
    }
}

#[test]
fn a_collective_of_devices_is_refused_for_other_memory() {
    let job = Job::new(&[
        "plugins=\"nf4,lora,fsdp\"",
        "run.ranks=2",
        "run.device_collective=\"late-collective\"",
    ]);
    let folder = plugin_folder(&job, "late-collective");
    let keys = job.keys.iter().cloned();
    let keys = keys.chain([format!("run.plugin_dirs=[{folder:?}]")]);
    let run = Job::there(job.folder.clone(), keys.collect());
    let error = with_sources(&try_run(&run, "refused").expect_err("`cpu` is no `late`"));
    assert!(
        error.contains("takes memory of late, and the backend is `cpu`"),
        "{error}"
    );
}

#[test]
fn an_offloaded_run_that_is_resumed_equals_cpu_in_every_order() {
    let job = Job::new(MOVING[5]);
    let folder = plugin_folder(&job, "late");
    let expected = job.run("cpu", &[]);
    for order in ORDERS {
        let job = on_late(&job, &folder, order);
        let (out, resumed) = (named("late", order), named("resumed", order));
        job.run(&out, &[]);
        job.unfinished(&out, &resumed);
        let found = job.resume(&resumed, 4).expect("a checkpoint");
        found.same_training(&expected, &format!("resumed, {order:?}"));
    }
}
