//! Plugins that change during a run of several ranks, or beside weights that move: the numbers of
//! one rank with the same swaps, and a resumed run with the same bits.

mod swapping;

use espalier_trainer::swap::{Outcome, Staging, SwapRequest};
use serde_json::Value as Json;
use swapping::{Job, Outcomes, STEPS, ask};

/// Numbers of any order of sums are within this of each other, relative to their size.
const ROUNDING: f64 = 1e-10;

const FULL_SHARD: &[&str] = &["run.ranks=3", "plugins=\"nf4,lora,fsdp\""];

/// Ways to train on ranks, or beside weights that move.
const WAYS: [&[&str]; 6] = [
    &["run.ranks=2", "plugins=\"nf4,lora,ddp\""],
    FULL_SHARD,
    &[
        "run.ranks=2",
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.strategy=\"shard_grad_op\"",
    ],
    &[
        "run.ranks=4",
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.strategy=\"hybrid\"",
        "sharding.fsdp.shard_ranks=2",
    ],
    &[
        "run.ranks=2",
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params+optimizer\"",
    ],
    &[
        "plugins=\"nf4,lora,fsdp\"",
        "sharding.fsdp.offload=\"params\"",
    ],
];

/// A job in f64, so that other orders of sums are told from other numbers.
fn job(way: &[&str]) -> Job {
    let keys = [&["plugins=\"nf4,lora\"", "model.compute=\"f64\""], way].concat();
    Job::new(&keys)
}

fn assert_close(found: &Outcomes, expected: &Outcomes, case: &str) {
    let numbers = |run: &Outcomes| -> Vec<Json> {
        let lines = run.metrics.iter().filter_map(Json::as_object);
        lines.flat_map(|line| line.values().cloned()).collect()
    };
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len(), "{case}");
    for (found, expected) in found.iter().zip(&expected) {
        let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) else {
            assert_eq!(found, expected, "{case}");
            continue;
        };
        let apart = (found - expected).abs() / expected.abs().max(1e-3);
        assert!(apart <= ROUNDING, "{case}: {found} instead of {expected}");
    }
}

fn assert_taken(outcomes: &Outcomes, case: &str) {
    for answer in &outcomes.answers {
        let record = &answer.record;
        assert_eq!(record.outcome, Outcome::Taken, "{case}: {record:?}");
    }
    assert_eq!(Job::swaps(outcomes), outcomes.answers.len(), "{case}");
}

/// Resumes a copy of `out` after `step` steps, and expects the same bits.
fn assert_resumes(job: &Job, out: &str, outcomes: &Outcomes, steps: &[u64], case: &str) {
    for &step in steps {
        let copy = format!("{out}-from-{step}");
        job.unfinished(out, &copy);
        let resumed = job.resume(&copy, step).expect("a run");
        resumed.same_training(outcomes, &format!("{case}, from step {step}"));
    }
}

#[test]
fn swaps_on_ranks_have_the_numbers_of_one_rank_and_resume_to_the_same_bits() {
    let requests = [
        ask("quantizer=hqq", 3, &["quantizer.hqq.bits=4"]),
        ask("adapter=lora", 5, &["adapter.lora.alpha=64"]),
    ];
    let alone = job(&[]).run("alone", &requests);
    assert_taken(&alone, "one rank");
    for way in WAYS {
        let case = way.join(" ");
        let job = job(way);
        let swapped = job.run("swapped", &requests);
        assert_taken(&swapped, &case);
        assert_close(&swapped, &alone, &case);
        for (found, expected) in swapped.answers.iter().zip(&alone.answers) {
            let (found, expected) = (&found.record, &expected.record);
            assert_eq!(
                (&found.from, &found.to, found.step),
                (&expected.from, &expected.to, expected.step),
                "{case}"
            );
            assert!(found.bytes_beside > 0, "{case}");
            assert!(found.loss_before.is_some() && found.loss_after.is_some());
        }
        let packed = swapped.answers[0].record.encoded;
        assert_eq!(packed, alone.answers[0].record.encoded, "{case}");
        assert_resumes(&job, "swapped", &swapped, &[2, 4, 6], &case);
    }
}

#[test]
fn a_quantizer_swapped_for_itself_changes_no_bit_on_any_ranks() {
    for way in WAYS {
        let job = job(way);
        let plain = job.run("plain", &[]);
        let swapped = job.run("swapped", &[ask("quantizer=nf4", 4, &[])]);
        let case = way.join(" ");
        assert_taken(&swapped, &case);
        swapped.same_training(&plain, &case);
    }
}

/// State that is cut otherwise moves between ranks, in 8 bits too.
#[test]
fn strategies_are_swapped_during_a_run_and_change_rounding_only() {
    let fsdp = |step: u64, set: &[&str]| ask("sharding=fsdp", step, set);
    let offload = "sharding.fsdp.offload=\"params+optimizer\"";
    let hybrid = [
        "sharding.fsdp.strategy=\"hybrid\"",
        "sharding.fsdp.shard_ranks=2",
    ];
    let optimizers: [&[&str]; 2] = [
        &[],
        &["optim.name=\"adamw8bit\"", "optim.min_8bit_size=500"],
    ];
    for optimizer in optimizers {
        let plain = job(optimizer).run("plain", &[]);
        for (way, requests) in [
            (
                &["run.ranks=2", "plugins=\"nf4,lora,ddp\""][..],
                [
                    fsdp(3, &[]),
                    fsdp(5, &[offload]),
                    ask("sharding=ddp", 7, &[]),
                ],
            ),
            (
                &["plugins=\"nf4,lora\""],
                [
                    fsdp(3, &[offload]),
                    ask("sharding=single", 5, &[]),
                    fsdp(7, &["sharding.fsdp.offload=\"params\""]),
                ],
            ),
            (
                &["run.ranks=4", "plugins=\"nf4,lora,fsdp\""],
                [
                    fsdp(3, &["sharding.fsdp.strategy=\"shard_grad_op\""]),
                    fsdp(5, &hybrid),
                    ask("sharding=ddp", 7, &[]),
                ],
            ),
        ] {
            let case = [optimizer, way].concat().join(" ");
            let job = job(&[optimizer, way].concat());
            let swapped = job.run("swapped", &requests);
            assert_taken(&swapped, &case);
            assert_close(&swapped, &plain, &case);
            assert_resumes(&job, "swapped", &swapped, &[4], &case);
        }
    }
}

#[test]
fn full_fine_tuning_moves_all_of_the_model_to_another_strategy() {
    let keys = |way: &[&'static str]| {
        let fixed = ["plugins=[]", "model.compute=\"f64\"", "run.save_every=8"];
        [&fixed[..], way].concat()
    };
    let plain = Job::new(&keys(&[])).run("plain", &[]);
    let job = Job::new(&keys(&["run.ranks=2", "plugins=\"ddp\""]));
    let swapped = job.run("swapped", &[ask("sharding=fsdp", 3, &[])]);
    assert_taken(&swapped, "ddp to fsdp");
    assert_close(&swapped, &plain, "ddp to fsdp");
}

#[test]
fn a_refused_swap_leaves_all_ranks_with_the_same_bits() {
    let job = job(FULL_SHARD);
    let plain = job.run("plain", &[]);
    let mapped = SwapRequest {
        staging: Staging::Mapped,
        ..ask("quantizer=nf4", 2, &[])
    };
    let cases = [
        (ask("quantizer=nf5", 2, &[]), 5, "unknown quantizer `nf5`"),
        (
            ask("adapter=lora", 2, &["adapter.lora.rank=3"]),
            2,
            "an adapter of another shape",
        ),
        (
            ask("sharding=single", 2, &[]),
            2,
            "sharding `single` serves one rank",
        ),
        (
            ask("sharding=fsdp", 2, &["sharding.fsdp.shard_ranks=2"]),
            2,
            "shard_ranks",
        ),
        (mapped, 2, "a mapped file"),
        (ask("quantizer=nf4", STEPS + 1, &[]), 2, "the run ended"),
    ];
    job.refuses(&plain, cases.to_vec());
}
