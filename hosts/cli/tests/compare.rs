//! A comparison's runs equal those of `host train` under either schedule. Invalid comparisons are
//! refused with a reason.

mod comparing;
use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::Command;

use comparing::{
    ARMS, FOLDERS, SEEDS, base_of, compare, comparison, json, run_of, same, succeed, training,
};
use training::{Training, last_line, names, refused, trained};

#[test]
fn every_run_equals_train_with_the_arms_config_under_both_schedules() {
    let training = training("");
    let record = succeed(
        &training,
        "turns",
        &format!("{ARMS} --schedule interleaved"),
    );
    assert_eq!(record["yardstick"], "dense");
    assert_eq!(record["schedule"], "interleaved");
    assert_eq!(record["seeds"], serde_json::json!(SEEDS));
    for (arm, folder) in record["arms"].as_array().expect("arms").iter().zip(FOLDERS) {
        assert_eq!(arm["name"], folder);
        assert_eq!(arm["failures"], serde_json::json!([]));
        let command = arm["command"].as_str().expect("a command");
        let host = command.strip_prefix("host ").expect("the program");
        for seed in SEEDS {
            let out = format!("alone-{folder}-{seed}");
            let line = format!(
                "{} {host} --quiet --set run.seed={seed} --out {out}",
                env!("CARGO_BIN_EXE_host")
            );
            let mut alone = Command::new("sh");
            alone
                .args(["-c", &line])
                .current_dir(training.folder.path());
            let alone = alone.output().expect("a shell");
            assert!(alone.status.success(), "{line}: {}", last_line(&alone));
            let expected = trained(&training.path(&out));
            let (found, documents) = run_of(&training, "turns", folder, seed);
            assert_eq!(found.metrics, expected.metrics, "{folder} {seed}");
            assert!(found == expected, "{folder} {seed}");
            assert_eq!(
                documents.len(),
                3,
                "{folder} {seed}: before, in between, after"
            );
        }
    }
    let sequential = succeed(&training, "rows", &format!("{ARMS} --schedule sequential"));
    assert_eq!(sequential["schedule"], "sequential");
    same(&training, "rows", "turns");
    assert!(training.path("rows/report.html").is_file());
    let base = base_of(&training, "rows", "nf4");
    assert!(base["divergence"]["mean"].as_f64().expect("a divergence") > 0.0);
    assert_eq!(
        base["weights"].as_array().map(Vec::len),
        base["encoded"].as_u64().map(|n| n as usize)
    );
}

#[test]
fn a_failed_arm_does_not_end_the_others() {
    let training = training("");
    let config = "[[arms]]\nname = \"wild\"\nplugins = [\"int8\"]\noptim.learning_rate = 1e30\n\
                  optim.clip_norm = 0.0\n";
    fs::write(training.path("arms.toml"), config).expect("written");
    succeed(&training, "whole", "--arms nf4 --seeds 2");
    for schedule in ["interleaved", "sequential"] {
        let more = format!("--config arms.toml --arms nf4 --seeds 2 --schedule {schedule}");
        let output = compare(&training, schedule, &more);
        refused(
            &output,
            9,
            "2 of 6 runs failed | arm `wild` | not finite",
            schedule,
        );
        let record = comparison(&training, schedule);
        let wild = &record["arms"][1];
        assert_eq!(
            (&wild["name"], wild["failures"][1]["seed"].as_u64()),
            (&"wild".into(), Some(43))
        );
        assert!(
            wild["failures"][0]["step"]
                .as_u64()
                .is_some_and(|step| step > 0)
        );
        for arm in ["dense", "nf4"] {
            for seed in SEEDS {
                assert!(
                    run_of(&training, schedule, arm, seed) == run_of(&training, "whole", arm, seed)
                );
            }
        }
        assert!(training.path(schedule).join("report.html").is_file());
    }
}

#[test]
fn nothing_is_trained_if_only_the_bases_are_measured() {
    let training = training("");
    let record = succeed(&training, "out", &format!("{ARMS} --eval-only"));
    assert_eq!(record["eval_only"], true);
    succeed(&training, "whole", ARMS);
    for arm in FOLDERS {
        assert_eq!(
            names(&training.path(&format!("out/arms/{arm}"))),
            ["base.json"]
        );
        assert_eq!(
            base_of(&training, "out", arm),
            base_of(&training, "whole", arm)
        );
    }
}

/// Arms that do not train differ only by their packed weights. The text agrees with the table.
#[test]
fn the_printed_text_agrees_with_the_printed_table() {
    let training = training("");
    let mut rows = String::new();
    for row in 0..40 {
        let words =
            (0..24).map(|at| ["river", "house", "walks", "under", "old"][(row * at + at) % 5]);
        let text = words.collect::<Vec<_>>().join(" ");
        rows += &format!("{{\"text\": \"{text}\"}}\n");
    }
    fs::write(training.path("a.jsonl"), rows).expect("written");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny-trained");
    let printed = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command
            .current_dir(training.folder.path())
            .args(["compare", "--quiet", "--model"]);
        command
            .arg(&model)
            .args("--data a.jsonl --set data.max_seq_len=64".split(' '));
        let output = command
            .args(line.split(' '))
            .output()
            .expect("the host starts");
        assert!(output.status.success(), "{line}: {}", last_line(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let trained = printed(
        "--plugins lora --arms nf4,int8 --set data.eval_split=8 --set run.max_steps=2 \
         --set optim.learning_rate=1e-15 --set adapter.lora.rank=2 --out trained",
    );
    assert_consistent(&trained);
    assert!(!trained.contains("judged at once"), "{trained}");
    let measured = printed(
        "--arms nf4:block_size=64,nf4:block_size=512 --set data.eval_split=20 --eval-only --out bases",
    );
    assert_consistent(&measured);
    assert!(
        measured.contains("the lowest divergence from the dense base"),
        "{measured}"
    );
    let base = json(&training.path("bases/arms/nf4-block_size=512/base.json"));
    let documents = base["divergence"]["documents"].as_array().map(Vec::len);
    assert_eq!((documents, base["vocab"].as_u64()), (Some(20), Some(512)));
    let alone =
        printed("--arms nf4,int8 --no-dense --set data.eval_split=20 --eval-only --out alone");
    assert!(alone.contains("No winner without a dense arm."), "{alone}");
}

/// A headline names a winner only if the table does.
fn assert_consistent(printed: &str) {
    let lines = printed
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("llama/"));
    let with = |verdict: &str| {
        let cells = lines.clone().map(|line| {
            let cells = line.split("  ").map(str::trim);
            cells.filter(|cell| !cell.is_empty()).take(2).collect()
        });
        cells
            .filter(|cells: &Vec<&str>| cells.last() == Some(&verdict))
            .collect::<Vec<_>>()
    };
    let [best, worse, undecided] = ["best", "worse", "not told apart"].map(with);
    let is_headed =
        printed.contains(" is best.") || printed.contains(" is closest to the dense base.");
    assert_eq!(is_headed, best.len() == 1, "{printed}");
    assert_eq!(
        printed.contains("No difference was found."),
        best.is_empty() && worse.is_empty(),
        "{printed}"
    );
    assert_eq!(
        printed.contains(" cannot be distinguished from "),
        !worse.is_empty() && !undecided.is_empty(),
        "{printed}"
    );
}

#[test]
fn a_dry_run_shows_the_arms_and_writes_nothing() {
    let training = training("");
    let output = compare(&training, "out", &format!("{ARMS} --dry-run"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", last_line(&output));
    for words in [
        "dense: peak ",
        "nf4: peak ",
        " on disk between runs: ",
        "block_size = 128",
        "6 runs, interleaved",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!training.path("out").exists());
}

#[test]
fn command_line_arms_that_cannot_be_compared_are_refused_with_a_reason() {
    let training = training("");
    for (more, code, words) in [
        ("", 2, "no arms were given"),
        (
            "--arms nf4 --no-dense --seeds 1",
            2,
            "`nf4` is the only arm",
        ),
        ("--arms nf4,nf4", 2, "two arms are called `nf4`"),
        ("--arms nf5", 5, "arm `nf5` | nf4"),
        ("--arms nf4 --seeds 0", 2, "compare.seeds | 1 or more"),
        (
            "--arms nf4:block_sise=32",
            2,
            "arm `nf4-block_sise=32` | `block_size`",
        ),
        (
            "--arms nf4:block_size",
            2,
            "expected option=value | `block_size`",
        ),
        (
            "--arms nf4:block_size=33",
            2,
            "arm `nf4-block_size=33` | block_size",
        ),
    ] {
        refused(&compare(&training, "out", more), code, words, more);
    }
    nothing_is_written(&training);
}

#[test]
fn config_arms_that_cannot_be_compared_are_refused_with_a_reason() {
    let training = training("");
    for (text, words) in [
        (
            "plugins = [\"nf4\"]\n[arms.data]\nmax_seq_len = 3\n",
            "arm `a` has data.max_seq_len = 3 | arms must train on the same batches",
        ),
        (
            "plugins = [\"nf4\"]\nrun.seed = 3\n",
            "run.seed = 3 | arms must train on the same batches",
        ),
        (
            "model.init = \"random\"\n",
            "model.init = \"random\" | arms must train on the same batches",
        ),
        ("plugin = [\"nf4\"]\n", "unknown key `plugin` | `plugins`"),
        (
            "optim.learning_rte = 1.0\n",
            "[arms.0.optim] | `learning_rate`",
        ),
        ("plugins = [\"nf4\", \"int8\"]\n", "arm `a` | nf4 | int8"),
        (
            "[[arms]]\nname = \"b\"\n",
            "`a` and `b` have the same config",
        ),
        (
            "[[arms]]\nname = \"b/c\"\n",
            "`b/c` is not a valid arm name",
        ),
        ("[[arms]]\nplugins = [\"nf4\"]\n", "arms.1.name"),
    ] {
        let config = format!("[[arms]]\nname = \"a\"\n{text}");
        fs::write(training.path("arms.toml"), config).expect("written");
        let output = compare(&training, "out", "--config arms.toml");
        refused(&output, 2, words, text);
    }
    nothing_is_written(&training);
}

fn nothing_is_written(training: &Training) {
    assert!(
        !training.path("out").exists(),
        "nothing is written for what is refused"
    );
}

#[test]
fn unusable_rows_and_directories_are_refused_with_a_reason() {
    let training = training("");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
    let line = "compare --plugins lora --arms nf4 --data rows.jsonl --out none --model";
    let mut none = Command::new(env!("CARGO_BIN_EXE_host"));
    none.current_dir(training.folder.path())
        .args(line.split(' '))
        .arg(model);
    let none = none.output().expect("the host starts");
    refused(&none, 3, "no held-out rows | data.eval_split", line);
    succeed(&training, "out", "--arms nf4 --seeds 1");
    refused(
        &compare(&training, "out", "--arms nf4 --seeds 1"),
        2,
        "already holds a comparison | --resume",
        "taken",
    );
    training.refuse("out", "", 2, "already holds a comparison");
    training.refuse("out", "--resume", 2, "already holds a comparison");
    training.succeed("run", "");
    refused(
        &compare(&training, "run", "--arms nf4"),
        2,
        "already holds a finished run",
        "a run",
    );
}
