//! A comparison's runs are those of `host train`, whatever the schedule and whatever stops it; what cannot be compared is
//! refused in words.

use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value as Json;
use training::{Trained, Training, files, last_line, names, refused, trained};

/// Two arms beside the dense one, under two seeds.
const ARMS: &str = "--arms nf4,nf4:block_size=128 --seeds 2";
/// Their folders.
const FOLDERS: [&str; 3] = ["dense", "nf4", "nf4-block_size=128"];
const SEEDS: [u64; 2] = [42, 43];

fn training(more: &str) -> Training {
    let more = format!("--plugins lora --set adapter.lora.dropout=0.1 {more}");
    Training::new(&more)
}

fn compare(training: &Training, out: &str, more: &str) -> Output {
    let mut command = training.command_of("compare", out, more);
    command.output().expect("the host starts")
}

fn succeed(training: &Training, out: &str, more: &str) -> Json {
    let output = compare(training, out, more);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{more}: {words}");
    comparison(training, out)
}

fn json(path: &Path) -> Json {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

fn comparison(training: &Training, out: &str) -> Json {
    json(&training.path(out).join("compare.json"))
}

/// What of a run must be the same however it came about: what it learned, and each document's loss.
fn run_of(
    training: &Training,
    out: &str,
    arm: &str,
    seed: u64,
) -> (Trained, Vec<(String, Vec<u8>)>) {
    let run = training.path(out).join(format!("arms/{arm}/seed-{seed}"));
    let documents = files(&run.join("held_out")).into_iter().collect();
    (trained(&run), documents)
}

/// An arm's base, but for the time it took.
fn base_of(training: &Training, out: &str, arm: &str) -> Json {
    let mut base = json(&training.path(out).join(format!("arms/{arm}/base.json")));
    base["encode_secs"] = Json::Null;
    base
}

fn same(training: &Training, out: &str, whole: &str) {
    for arm in FOLDERS {
        assert_eq!(
            base_of(training, out, arm),
            base_of(training, whole, arm),
            "{arm}"
        );
        for seed in SEEDS {
            let (found, expected) = (
                run_of(training, out, arm, seed),
                run_of(training, whole, arm, seed),
            );
            assert_eq!(found.0.metrics, expected.0.metrics, "{out}: {arm} {seed}");
            assert!(found == expected, "{out}: {arm} {seed}");
        }
    }
}

#[test]
fn every_run_is_what_train_does_with_the_arms_config_under_both_schedules() {
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

/// Starts a comparison and stops it, by `signal`, once `file` is there.
fn stop(training: &Training, out: &str, more: &str, signal: &str, file: &str) -> Output {
    let mut command = training.command_of("compare", out, more);
    let child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the host starts");
    let wanted = training.path(out).join(file);
    for _ in 0..60_000 {
        if wanted.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = format!("kill -{signal} {}", child.id());
    let killed = Command::new("sh")
        .args(["-c", &kill])
        .status()
        .expect("a shell");
    assert!(
        killed.success(),
        "the comparison had ended before {file} was seen"
    );
    child.wait_with_output().expect("a child")
}

#[test]
fn a_comparison_that_was_stopped_goes_on_to_the_same_bits() {
    let training = training("--set run.epochs=40 --set run.eval_every=50 --set run.save_every=20");
    succeed(&training, "whole", ARMS);
    for (schedule, file) in [
        ("interleaved", "arms/nf4/seed-43/checkpoints/step-40"),
        ("sequential", "arms/dense/seed-43/checkpoints/step-20"),
    ] {
        let more = format!("{ARMS} --schedule {schedule}");
        for signal in ["KILL", "INT"] {
            let out = format!("{schedule}-{signal}-{}", file.replace('/', "-"));
            let stopped = stop(&training, &out, &more, signal, file);
            if signal == "INT" {
                assert_eq!(stopped.status.code(), Some(130), "{}", last_line(&stopped));
                let line = last_line(&stopped);
                assert!(
                    line.contains("compare") && line.ends_with("--resume"),
                    "{line}"
                );
            }
            let other = format!("--arms nf4 --seeds 2 --schedule {schedule} --resume");
            let line = refused(
                &compare(&training, &out, &other),
                2,
                "arms.nf4-block_size=128",
                &other,
            );
            assert!(line.contains("-> unset"), "{line}");
            succeed(&training, &out, &format!("{more} --resume"));
            same(&training, &out, "whole");
        }
    }
    // A finished one is left as it is; more seeds may follow.
    let before = files(&training.path("whole/arms/nf4/seed-42"));
    let record = succeed(
        &training,
        "whole",
        "--arms nf4,nf4:block_size=128 --seeds 3 --resume",
    );
    assert_eq!(record["seeds"], serde_json::json!([42, 43, 44]));
    assert_eq!(files(&training.path("whole/arms/nf4/seed-42")), before);
    assert!(training.path("whole/arms/nf4/seed-44/adapter").is_dir());
    let changed = format!("{ARMS} --seeds 3 --resume --set optim.learning_rate=1e-3");
    let words = "optim.learning_rate: 0.0002 -> 0.001";
    refused(
        &compare(&training, "whole", &changed),
        2,
        words,
        "learning rate",
    );
}

#[test]
fn an_arm_that_fails_does_not_end_the_others() {
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
fn nothing_is_trained_where_only_the_bases_are_measured() {
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

/// Arms that training does not change differ in what packing did to them, and in nothing else: the text says what the
/// table says.
#[test]
fn the_printed_text_says_what_the_printed_table_says() {
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

/// A headline names a winner exactly where the table does.
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
    let [best, worse, untold] = ["best", "worse", "not told apart"].map(with);
    let is_headed =
        printed.contains(" is best.") || printed.contains(" is closest to the dense base.");
    assert_eq!(is_headed, best.len() == 1, "{printed}");
    assert_eq!(
        printed.contains("No difference was found."),
        best.is_empty() && worse.is_empty(),
        "{printed}"
    );
    assert_eq!(
        printed.contains(" cannot be told from "),
        !worse.is_empty() && !untold.is_empty(),
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
        "block_size = 128",
        "6 runs, interleaved",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!training.path("out").exists());
}

#[test]
fn what_cannot_be_compared_is_refused_in_words() {
    let training = training("");
    let arms = |text: &str| {
        fs::write(training.path("arms.toml"), text).expect("written");
        "--config arms.toml".to_owned()
    };
    let arm = |text: &str| arms(&format!("[[arms]]\nname = \"a\"\n{text}"));
    let cases = [
        ("".to_owned(), 2, "no arms were given"),
        (
            "--arms nf4 --no-dense --seeds 1".to_owned(),
            2,
            "`nf4` is the only arm",
        ),
        ("--arms nf4,nf4".to_owned(), 2, "two arms are called `nf4`"),
        ("--arms nf5".to_owned(), 5, "arm `nf5` | nf4"),
        (
            "--arms nf4 --seeds 0".to_owned(),
            2,
            "compare.seeds | 1 or more",
        ),
        (
            "--arms nf4:block_sise=32".to_owned(),
            2,
            "arm `nf4-block_sise=32` | `block_size`",
        ),
        (
            "--arms nf4:block_size".to_owned(),
            2,
            "expected option=value | `block_size`",
        ),
        (
            "--arms nf4:block_size=33".to_owned(),
            2,
            "arm `nf4-block_size=33` | block_size",
        ),
    ];
    for (more, code, words) in &cases {
        refused(&compare(&training, "out", more), *code, words, more);
    }
    for (text, words) in [
        (
            "plugins = [\"nf4\"]\n[arms.data]\nmax_seq_len = 3\n",
            "arm `a` has data.max_seq_len = 3 | nothing to compare",
        ),
        (
            "plugins = [\"nf4\"]\nrun.seed = 3\n",
            "run.seed = 3 | nothing to compare",
        ),
        (
            "model.init = \"random\"\n",
            "model.init = \"random\" | nothing to compare",
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
        ("[[arms]]\nname = \"b/c\"\n", "`b/c` is no name for an arm"),
        ("[[arms]]\nplugins = [\"nf4\"]\n", "arms.1.name"),
    ] {
        let more = arm(text);
        refused(&compare(&training, "out", &more), 2, words, text);
    }
    assert!(
        !training.path("out").exists(),
        "nothing is written for what is refused"
    );
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
