//! Non-finite numbers from an update or a weight: exit code 7 before a save or export. The last
//! good checkpoint remains.

mod place;

use std::path::Path;

use espalier_torture::training;
use place::{RunFolder, Weights};
use training::{Training, names, refused};

/// Updates that overflow in the first step.
const AT_ONCE: [&str; 3] = [
    "--set optim.learning_rate=1e39",
    "--set optim.weight_decay=1e300",
    "--set optim.eps=1e-60",
];

/// An update that overflows in the second step: the first makes the weights 1e26 times as large,
/// and the adapter becomes negligible.
const AT_THE_SECOND: &str = "--plugins lora --set optim.learning_rate=1e-4 --set optim.weight_decay=1e30 \
                             --set adapter.lora.alpha=1e-20";

/// The saved, exported and partial files.
fn left(out: &Path) -> (Vec<String>, Vec<String>) {
    let saved = names(out).into_iter();
    let saved =
        saved.filter(|name| name == "adapter" || name == "model" || name.contains("partial"));
    (saved.collect(), names(&out.join("checkpoints")))
}

#[test]
fn an_overflow_in_the_last_update_is_reported_and_nothing_is_written() {
    for plugins in ["--plugins lora", ""] {
        for overflow in AT_ONCE {
            let training = Training::new(&format!("{plugins} {overflow}"));
            for (out, more) in [
                ("asked", "--set run.max_steps=1 --set run.save_every=1"),
                ("unasked", "--set run.max_steps=1 --set run.save_every=100"),
                ("earlier", "--set run.max_steps=3 --set run.save_every=1"),
            ] {
                let case = format!("{plugins} {overflow} {out}");
                let output = training.run(out, more);
                refused(
                    &output,
                    7,
                    "step 1: | ` | is not finite | another --out",
                    &case,
                );
                assert_eq!(left(&training.path(out)), (vec![], vec![]), "{case}");
            }
        }
    }
}

#[test]
fn the_last_good_checkpoint_stays_on_any_number_of_ranks() {
    for ranks in [
        "",
        "--plugins ddp --ranks 2",
        "--plugins fsdp --ranks 3",
        "--plugins fsdp --ranks 2 --set sharding.fsdp.offload=\"params+optimizer\"",
    ] {
        let plugins = ranks.strip_prefix("--plugins ").unwrap_or("");
        let strategy = plugins.split(' ').next().filter(|name| !name.is_empty());
        let more = ranks
            .split_once(" --ranks")
            .map_or(String::new(), |(_, more)| format!("--ranks{more}"));
        let line = match strategy {
            Some(name) => AT_THE_SECOND.replace("lora ", &format!("lora,{name} ")),
            None => AT_THE_SECOND.to_owned(),
        };
        let training = Training::new(&format!("{line} {more}"));
        for (out, more) in [
            ("last", "--set run.max_steps=2 --set run.save_every=1"),
            ("earlier", "--set run.max_steps=5 --set run.save_every=1"),
        ] {
            let case = format!("{ranks} {out}");
            let output = training.run(out, more);
            refused(&output, 7, "step 2: | lora_A | is not finite", &case);
            let expected = (vec![], vec!["step-1".to_owned()]);
            assert_eq!(left(&training.path(out)), expected, "{case}");
            // A resumed run reaches the same number and prints the same line.
            let again = training.run(out, &format!("{more} --resume"));
            refused(&again, 7, "step 2: | lora_A | is not finite", &case);
            assert_eq!(left(&training.path(out)), expected, "{case}");
        }
    }
}

#[test]
fn diverging_numbers_stop_the_run_and_are_traced_to_a_step_and_a_tensor() {
    let place = RunFolder::new();
    place.model("model");
    let fast = "--plugins nf4,lora --set optim.learning_rate=1e30 --out fast";
    let outcome = place.train("model", fast);
    outcome.refused(
        "fast",
        7,
        "step 2: | at `model.layers.0 | lower optim.learning_rate",
    );
    // The earlier steps stay in the record, and no adapter with non-finite numbers is written.
    let left = "log.txt metrics.jsonl report.html report.json run.json tensorboard";
    assert_eq!(place.names("fast"), left);
    assert_eq!(place.read("fast/metrics.jsonl").lines().count(), 1);

    place.model("huge");
    Weights::edit(&place.path("huge/model.safetensors"), |weights| {
        for value in weights
            .data("model.layers.1.mlp.up_proj.weight")
            .chunks_exact_mut(4)
        {
            value.copy_from_slice(&1e38f32.to_le_bytes());
        }
    });
    let outcome = place.train("huge", "--plugins lora --out far");
    outcome.refused("huge", 7, "step 1: | `model.layers.1 | is not finite");
    let left = "log.txt metrics.jsonl report.html report.json run.json";
    assert_eq!(place.names("far"), left);
}
