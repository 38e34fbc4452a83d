//! Options that must not change a result: the number of ranks, the sharding of weights, their
//! placement, and the time of their transfer. Raw gradients, and params and state after ten
//! updates, are compared with one rank that holds everything.

mod sharded;

use espalier_tests::{Named, largest, relative_norm};
use sharded::formula::{self, Unit};
use sharded::{Model, Strategy, Variant, variants};

const WORLDS: [u32; 5] = [1, 2, 3, 4, 7];

/// Rounds of micro-batches in a step; in the last one of several ranks the last rank has none.
const ROUNDS: [usize; 2] = [1, 3];

/// A tensor's name and elements.
type Tensor = (String, Vec<f64>);

/// Largest difference of any tensor, relative to its norm.
fn largest_relative(found: &Named, expected: &Named) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let of_pair = |(found, expected): (&Tensor, &Tensor)| {
        assert_eq!(found.0, expected.0);
        relative_norm(&found.1, &expected.1)
    };
    largest(pairs.map(of_pair))
}

#[test]
fn ranks_and_strategies_change_rounding_only() {
    for model in Model::all() {
        for world in WORLDS {
            for rounds in ROUNDS {
                let steps = model.steps(world, rounds);
                let alone = model.run(&Variant::SINGLE, &steps);
                for strategy in Strategy::of(world) {
                    let variant = Variant::of(strategy, world);
                    let found = model.run(&variant, &steps);
                    let at = format!("{}, {rounds} rounds, {variant}", model.name);
                    let apart = largest_relative(&found.gradients, &alone.gradients);
                    assert!(apart <= 1e-12, "{at}: gradients {apart:e} apart");
                    for (part, found, expected) in found.parts_beside(&alone) {
                        let apart = largest_relative(found, expected);
                        assert!(apart <= 1e-12, "{at}: {part} {apart:e} apart");
                    }
                    if world == 1 {
                        assert_eq!(found, alone, "{at}");
                    }
                }
            }
        }
    }
}

/// Params move by their gradients, so that a wrong scale of these becomes visible.
const SGD: [(&str, &str); 4] = [
    ("optim.name", "\"sgd\""),
    ("optim.learning_rate", "0.1"),
    ("optim.weight_decay", "0.0"),
    ("optim.clip_norm", "0.0"),
];
/// Both moments of all params in 8 bits.
const CODES: [(&str, &str); 2] = [
    ("optim.name", "\"adamw8bit\""),
    ("optim.min_8bit_size", "1"),
];
/// Groups that cut the runs of layers: learning rate, decay, and biases and norms apart.
const GROUPS: (&str, &str) = (
    "optim.groups",
    "[{ pattern = \"*.q_proj.*\", learning_rate = 2e-3 }, { pattern = \"*.up_proj.*\", weight_decay = 0.0 }]",
);

#[test]
fn updates_that_scale_with_gradients_equal_those_of_one_rank() {
    for model in Model::all() {
        let model = model.with_keys(&SGD);
        for world in [3, 4] {
            let steps = model.steps(world, 1);
            let alone = model.run(&Variant::SINGLE, &steps);
            for strategy in Strategy::of(world) {
                let found = model.run(&Variant::of(strategy, world), &steps);
                let (_, found, expected) = found.parts_beside(&alone).remove(0);
                let apart = largest_relative(found, expected);
                assert!(
                    apart <= 1e-12,
                    "{}, {strategy:?} on {world}: {apart:e}",
                    model.name
                );
            }
        }
    }
}

#[test]
fn optimizers_and_groups_change_rounding_only_on_ranks() {
    let momentum = ("optim.momentum", "0.9");
    let nesterov = ("optim.nesterov", "true");
    for world in [2, 3, 4] {
        for keys in [
            vec![GROUPS],
            vec![SGD[0], momentum, GROUPS],
            vec![SGD[0], momentum, nesterov],
            vec![SGD[0], GROUPS],
            CODES.to_vec(),
            vec![CODES[0], CODES[1], GROUPS],
        ] {
            for model in Model::all() {
                let model = model.with_keys(&keys);
                equals_one_rank(&model, world, &format!("{}, {keys:?}", model.name));
            }
        }
    }
}

/// Params and state after ten updates on ranks, and the same bits with both on the host.
fn equals_one_rank(model: &Model, world: u32, case: &str) {
    let steps = model.steps(world, 1);
    let alone = model.run(&Variant::SINGLE, &steps);
    for strategy in Strategy::of(world) {
        let at = format!("{case}, {strategy:?} on {world}");
        let expected = model.run(&Variant::of(strategy, world), &steps);
        for (part, found, expected) in expected.parts_beside(&alone) {
            // Where all params are coded, no tensor is of those that are not.
            if [found, expected].map(Vec::is_empty) == [true, true] {
                continue;
            }
            let apart = largest_relative(found, expected);
            assert!(apart <= 1e-12, "{at}: {part} {apart:e} apart");
        }
        let offloads = variants(strategy, world).into_iter();
        let offloads = offloads.filter(|variant| variant.prefetch == 1);
        for variant in offloads.filter(|variant| variant.offload == "params+optimizer") {
            assert_eq!(model.run(&variant, &steps), expected, "{at}: {variant}");
        }
    }
}

#[test]
fn offload_gather_and_prefetch_change_no_bit() {
    for model in Model::all() {
        for world in WORLDS {
            let steps = &model.steps(world, 3)[..2];
            for strategy in Strategy::of(world) {
                let expected = model.run(&Variant::of(strategy, world), steps);
                for variant in variants(strategy, world) {
                    let found = model.run(&variant, steps);
                    assert_eq!(found, expected, "{}: {variant}", model.name);
                }
            }
        }
    }
}

#[test]
fn activations_on_the_host_change_no_bit() {
    for model in Model::all() {
        let steps = &model.steps(3, 3)[..2];
        for variant in variants(Strategy::FullShard, 3) {
            if variant.gather == "shards" && variant.offload != "params" {
                let expected = model.run(&variant, steps);
                let offloading = [("sharding.fsdp.offload_activations", "true")];
                let found = model.clone().with_keys(&offloading).run(&variant, steps);
                assert_eq!(found, expected, "{}: {variant}", model.name);
            }
        }
    }
}

#[test]
fn the_same_world_twice_gives_the_same_bits() {
    for model in Model::all() {
        let steps = model.steps(3, 3);
        for strategy in Strategy::of(3) {
            let variant = Variant::of(strategy, 3);
            let [one, other] = [(), ()].map(|()| model.run(&variant, &steps));
            assert_eq!(one, other, "{}: {variant}", model.name);
        }
    }
}

#[test]
fn f32_gradients_equal_those_of_one_rank_within_rounding() {
    for model in Model::all() {
        let model = model.in_f32();
        let steps = &model.steps(4, 3)[..1];
        let alone = model.run(&Variant::SINGLE, steps);
        for strategy in Strategy::of(4) {
            let found = model.run(&Variant::of(strategy, 4), steps);
            let apart = largest_relative(&found.gradients, &alone.gradients);
            assert!(apart <= 1e-6, "{}, {strategy:?}: {apart:e}", model.name);
        }
    }
}

/// Every rank's gradients and their sum are rounded to bf16, at each place where parts are summed.
/// That is at most one unit in the last of 8 bits each.
#[test]
fn gradients_sent_in_bf16_differ_by_its_rounding_only() {
    for model in Model::all() {
        let model = model.in_f32();
        for world in [2, 3, 4] {
            let steps = &model.steps(world, 3)[..1];
            let gradients = |strategy, wire: &str| {
                let key = match strategy {
                    Strategy::Ddp => "sharding.ddp.reduce_dtype",
                    _ => "sharding.fsdp.reduce_dtype",
                };
                let model = model.clone().with_keys(&[(key, wire)]);
                model.run(&Variant::of(strategy, world), steps).gradients
            };
            let [in_f32, in_bf16] =
                ["\"f32\"", "\"bf16\""].map(|wire| gradients(Strategy::Ddp, wire));
            let at = format!("{} on {world} ranks", model.name);
            let apart = largest_relative(&in_bf16, &in_f32);
            let most = f64::from(1 + world) / 256.0;
            assert!(apart <= most, "{at}: {apart:e} apart, at most {most:e}");
            assert!(
                apart >= 1e-4,
                "{at}: {apart:e} apart: did they travel in bf16?"
            );
            for strategy in [Strategy::FullShard, Strategy::ShardGradOp] {
                let found = gradients(strategy, "\"bf16\"");
                assert_eq!(found, in_bf16, "{at}, {strategy:?}");
            }
        }
    }
}

/// The model on devices with `bytes` of memory, which fail above.
fn bounded(model: Model, bytes: u64) -> Model {
    let size = format!("\"{}KiB\"", bytes as f64 / 1024.0);
    model.with_keys(&[("backend.cpu.device_memory", &size)])
}

#[test]
fn a_device_of_the_planned_size_suffices_and_a_smaller_one_does_not() {
    let all = variants(Strategy::FullShard, 2).into_iter();
    for variant in all.filter(|variant| variant.offload != "params") {
        for index in 0..2 {
            let model = || Model::all().into_iter().nth(index).expect("two models");
            let steps = model().steps(2, 3);
            let count = steps[0].micro_batches.len();
            let planned = model().rig(&variant, count).planned;
            // The plan does not include the bytes that the device adds to each buffer.
            let enough = bounded(model(), planned * 101 / 100).rig(&variant, count);
            enough.train(&steps[..2]);
            let less = bounded(model(), planned * 95 / 100).try_rig(&variant, count);
            let error = less.err().expect("5 % less than planned");
            let error = format!("{error:?}");
            assert!(error.contains("device_memory"), "{variant}: {error}");
        }
    }
}

/// Adapters of rank 5 on all linears of a dense model: an embedding, two layers, a head.
fn adapted_units() -> Vec<Unit> {
    let linears = [
        [64, 64],
        [32, 64],
        [32, 64],
        [64, 64],
        [176, 64],
        [176, 64],
        [64, 176],
    ];
    let layer = |read_in: [u64; 2]| Unit {
        frozen: linears.iter().map(|[n, m]| n * m).chain([64, 64]).collect(),
        trainable: linears.iter().flat_map(|[n, m]| [5 * m, n * 5]).collect(),
        read_in: read_in.to_vec(),
    };
    let frozen = |frozen: &[u64], read_in| Unit {
        frozen: frozen.to_vec(),
        trainable: Vec::new(),
        read_in: vec![read_in],
    };
    vec![
        frozen(&[512 * 64], 0),
        layer([1, 5]),
        layer([2, 4]),
        frozen(&[64, 512 * 64], 3),
    ]
}

/// All units of a model of three layers whose head reads its embedding and has its own norm.
fn trained_units() -> Vec<Unit> {
    let layer = |number: u64| Unit {
        frozen: Vec::new(),
        trainable: vec![
            40,
            40,
            40 * 40,
            40,
            8 * 40,
            8,
            8 * 40,
            8,
            40 * 40,
            72 * 40,
            72 * 40,
            40 * 72,
        ],
        read_in: vec![number, 8 - number],
    };
    let trained = |trainable: u64, read_in: &[u64]| Unit {
        frozen: Vec::new(),
        trainable: vec![trainable],
        read_in: read_in.to_vec(),
    };
    vec![
        // Its own backward pass computes gradients for it and does not read it.
        trained(61 * 40, &[0, 4]),
        layer(1),
        layer(2),
        layer(3),
        trained(40, &[4]),
    ]
}

#[test]
fn calls_and_bytes_follow_from_shapes() {
    let [adapters, whole] = Model::all();
    let models = [
        (adapters.with_plugins(&["lora"]), adapted_units()),
        (whole, trained_units()),
    ];
    for (model, units) in models {
        for world in WORLDS.into_iter().filter(|&world| world > 1) {
            for strategy in Strategy::of(world) {
                let variants = variants(strategy, world).into_iter();
                // Units on the host are gathered like units on the device.
                for variant in variants.filter(|variant| variant.offload != "params") {
                    counts_follow(&model, &units, &variant);
                }
            }
        }
    }
}

/// Compares the calls and sent bytes of each rank in the passes of a step with the formula.
fn counts_follow(model: &Model, units: &[Unit], variant: &Variant) {
    let rounds = ROUNDS[variant.prefetch as usize % 2];
    let step = &model.steps(variant.world, rounds)[0];
    let rig = model.rig(variant, step.micro_batches.len());
    let before = rig.counts();
    rig.loss_and_gradients(step);
    let expected = formula::expected(units, variant, rounds as u64);
    for (rank, (found, before)) in rig.counts().iter().zip(&before).enumerate() {
        let found = found.since(before);
        let at = format!("{}, rank {rank}, {rounds} rounds, {variant}", model.name);
        for &(among, kind, count) in &expected {
            assert_eq!(found.of(among, kind), count, "{at}: {kind} among {among}");
        }
        let [all, listed] = formula::bytes(&found, &expected);
        assert_eq!(all, listed, "{at}: bytes of all calls");
    }
}
