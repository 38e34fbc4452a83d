//! A run of many ranks saves the state of each, and resumes with any number of ranks.

use espalier_torture::training;

use std::fs;

use training::{Training, names};

const BASE: &str = "--set model.compute=f64 --set adapter.lora.dropout=0.1 --set run.keep_last=3";
const ONE: &str = "--plugins nf4,lora";

/// A run with the strategy `fsdp` on `ranks` ranks.
fn ranks(ranks: u32) -> String {
    format!("--plugins nf4,lora,fsdp --ranks {ranks}")
}

#[test]
fn the_same_ranks_resume_to_the_same_bits() {
    let training = Training::new(BASE);
    for (count, more) in [(3, ""), (4, "--set sharding.fsdp.offload=params+optimizer")] {
        let more = format!("{} {more}", ranks(count));
        let (whole, again) = (format!("whole-{count}"), format!("again-{count}"));
        let uninterrupted = training.succeed(&whole, &more);
        let file = |stem: &str, rank: u32| format!("{stem}-{rank:05}-of-{count:05}.safetensors");
        let step =
            |out: &str, step: u32| training.path(out).join(format!("checkpoints/step-{step}"));
        let of_ranks: Vec<String> = names(&step(&whole, 2))
            .into_iter()
            .filter(|name| name.ends_with(".safetensors"))
            .collect();
        assert!(of_ranks.contains(&file("params", 0)), "{of_ranks:?}");
        assert!(of_ranks.contains(&file("optimizer", 1)), "{of_ranks:?}");
        training.unfinished(&whole, &again);
        let resumed = training.succeed(&again, &format!("{more} --resume=step-2"));
        assert_eq!(resumed.metrics, uninterrupted.metrics, "{more}");
        assert!(resumed.files == uninterrupted.files, "{more}");
        for name in &of_ranks {
            let last = |out: &str| fs::read(step(out, 6).join(name)).expect("a file");
            assert!(last(&whole) == last(&again), "{more}: {name}");
        }
    }
}

#[test]
fn any_number_of_ranks_resumes_from_any_other() {
    let training = Training::new(BASE);
    let alone = training.succeed("alone", ONE);
    let offload = " --set sharding.fsdp.offload=params";
    let changes = [
        (ONE.to_owned(), ranks(3)),
        (ranks(4), ranks(2) + offload),
        (
            ranks(2) + " --set sharding.fsdp.strategy=shard_grad_op",
            ONE.to_owned(),
        ),
        ("--plugins nf4,lora,ddp --ranks 2".to_owned(), ranks(7)),
    ];
    for (index, (from, to)) in changes.iter().enumerate() {
        let (first, second) = (format!("from-{index}"), format!("to-{index}"));
        let case = format!("{from} then {to}");
        training.succeed(&first, from).assert_close(&alone, &case);
        training.unfinished(&first, &second);
        let resumed = training.succeed(&second, &format!("{to} --resume=step-2"));
        resumed.assert_close(&alone, &case);
    }
}

/// Four ranks in two groups with equal state: a checkpoint has each part once.
#[test]
fn a_hybrid_run_resumes_with_its_ranks_and_with_any_others() {
    let training = Training::new(BASE);
    let hybrid =
        ranks(4) + " --set sharding.fsdp.strategy=hybrid --set sharding.fsdp.shard_ranks=2";
    let uninterrupted = training.succeed("hybrid", &hybrid);
    training.unfinished("hybrid", "again");
    let resumed = training.succeed("again", &format!("{hybrid} --resume=step-2"));
    assert_eq!(resumed.metrics, uninterrupted.metrics);
    assert!(resumed.files == uninterrupted.files, "the adapter");
    let full_shard = ranks(4) + " --set sharding.fsdp.strategy=full_shard";
    for (index, to) in [ONE.to_owned(), ranks(3), full_shard].iter().enumerate() {
        let out = format!("to-{index}");
        training.unfinished("hybrid", &out);
        let resumed = training.succeed(&out, &format!("{to} --resume=step-2"));
        resumed.assert_close(&uninterrupted, to);
    }
    let alone = training.succeed("alone", ONE);
    uninterrupted.assert_close(&alone, "hybrid beside one rank");
    training.unfinished("alone", "from-one");
    let resumed = training.succeed("from-one", &format!("{hybrid} --resume=step-2"));
    resumed.assert_close(&alone, "from one rank to hybrid");
}

#[test]
fn a_rank_with_a_missing_or_wrong_file_is_named() {
    let training = Training::new(&format!("{BASE} {}", ranks(3)));
    training.succeed("whole", "");
    let lost = "params-00001-of-00003.safetensors";
    training.unfinished("whole", "lost");
    let path = training.path("lost/checkpoints/step-6").join(lost);
    fs::remove_file(&path).expect("removed");
    let words = format!("{lost}: it is missing | --resume=step-4");
    training.refuse("lost", "--resume", 4, &words);
    training.unfinished("whole", "other");
    let step = |step: u32| {
        training
            .path("other")
            .join(format!("checkpoints/step-{step}"))
    };
    fs::copy(step(4).join(lost), step(6).join(lost)).expect("copied");
    let words = format!("{lost}: its sha256 is");
    training.refuse("other", "--resume", 4, &words);
}
