//! The program's config, errors and exit codes, as a script reads them.

mod place;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use place::RunFolder;

/// Runs `host` with `arguments` in `dir`, and with no config variables except `environment`.
fn host(dir: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(dir).args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOST__")) {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command.output().expect("the program was built")
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}

/// The line of `key` in the output of `--dry-run`, with repeated spaces as one.
fn shown(output: &Output, key: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{key} =")));
    let line = line.unwrap_or_else(|| panic!("no `{key}` in\n{text}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_layer_overrides_the_earlier_ones_and_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let layers = "[optim]\nlearning_rate = 1e-3\neps = 1e-6\nweight_decay = 0.1\nfloor = 0.1\n";
    fs::write(dir.path().join("a.toml"), layers).expect("written");
    fs::write(dir.path().join("b.toml"), "[optim]\neps = 1e-7\n").expect("written");
    let output = host(
        dir.path(),
        &[
            ("HOST__OPTIM__WEIGHT_DECAY", "0.2"),
            ("HOST__OPTIM__FLOOR", "0.2"),
            ("HOST__MODEL__PATH", "from/environment"),
        ],
        &[
            "train",
            "--dry-run",
            "--config",
            "a.toml",
            "--config",
            "b.toml",
            "--set",
            "optim.floor=0.3",
            "--set",
            "optim.floor=0.4",
            "--model",
            "from/flag",
        ],
    );
    assert_eq!(
        shown(&output, "learning_rate"),
        "learning_rate = 0.001 # a.toml:2"
    );
    assert_eq!(shown(&output, "eps"), "eps = 1e-7 # b.toml:2");
    let decay = "weight_decay = 0.2 # environment HOST__OPTIM__WEIGHT_DECAY";
    assert_eq!(shown(&output, "weight_decay"), decay);
    assert_eq!(shown(&output, "floor"), "floor = 0.4 # --set optim.floor");
    assert_eq!(shown(&output, "path"), "path = \"from/flag\" # --model");
    assert_eq!(shown(&output, "seed"), "seed = 42 # default");
}

#[test]
fn a_dry_run_prints_a_config_with_the_same_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = [
        "train",
        "--dry-run",
        "--plugins",
        "nf4,lora",
        "--data",
        "a.jsonl",
        "b.jsonl",
        "--set",
        "quantizer.nf4.block_size=128",
        "--set",
        "data.fields.text=body",
        "--set",
        "sites=[{match = \"*.down_proj\", quantizer = \"none\", options = {a = 1}}]",
    ];
    let first = host(dir.path(), &[], &arguments);
    fs::write(dir.path().join("printed.toml"), &first.stdout).expect("written");
    let second = host(
        dir.path(),
        &[],
        &["train", "--dry-run", "--config", "printed.toml"],
    );
    let values = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text
            .lines()
            .map(|line| line.split(" #").next().unwrap_or_default().trim());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values(&first), values(&second));
    assert_eq!(
        shown(&second, "block_size"),
        "block_size = 128 # printed.toml:".to_owned()
            + shown(&second, "block_size")
                .rsplit(':')
                .next()
                .expect("a line")
    );
}

#[test]
fn mistakes_of_the_user_exit_with_2_and_end_in_cause_and_next_step() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("typo.toml"),
        "[optim]\n\nlearning_rte = 1\n",
    )
    .expect("written");
    fs::write(dir.path().join("broken.toml"), "[run]\nseed = \n").expect("written");
    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["train", "--config", "typo.toml"],
            &[
                "`learning_rte`",
                "[optim]",
                "typo.toml:3",
                "`learning_rate`",
                "; next: ",
            ],
        ),
        (
            &["train", "--config", "broken.toml"],
            &["broken.toml:2:", "; next: "],
        ),
        (
            &["train", "--config", "none.toml"],
            &["none.toml", "; next: "],
        ),
        (
            &["train", "--set", "run.seed"],
            &["--set run.seed", "key=value", "; next: "],
        ),
        (
            &["train", "--set", "run.seed=x"],
            &["`run.seed`", "\"x\"", "--set run.seed"],
        ),
        (
            &["train", "--set", "run.learning_rate=1"],
            &["`optim.learning_rate`"],
        ),
        (
            &["train", "--ranks", "0"],
            &["`run.ranks`", "from 1 to", "found 0", "--ranks"],
        ),
        (&["train"], &["`model.path`", "--model DIR"]),
        (
            &["train", "--model", "m", "--data", "d"],
            &["`run.out`", "--out DIR"],
        ),
        (&["train", "--modle", "m"], &["--modle", "; next: "]),
        (&[], &["no command", "; next: "]),
    ];
    for (arguments, expected) in cases {
        let output = host(dir.path(), &[], arguments);
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.starts_with("error: "), "{arguments:?}: {line}");
        for part in expected {
            assert!(line.contains(part), "{arguments:?}: no {part:?} in {line}");
        }
    }
}

#[test]
fn all_faults_of_a_config_are_told_at_once_and_none_that_comes_of_another() {
    let place = RunFolder::new();
    place.model("model");
    let faults = |config: &str, arguments: &[&str]| {
        place.write("bad.toml", config);
        let arguments = [&["train", "--config", "bad.toml"], arguments].concat();
        let output = host(&place.path("."), &[], &arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // `run.eval_every` needs one of two keys: one of them has a fault of its own.
    let config = "[model]\npath = \"model\"\ncomputee = \"f32\"\nrecompute = \"f33\"\n\
                  [run]\nepochs = 0\neval_every = 5\n\
                  [data]\neval_split = \"yes\"\n[optim]\nlearning_rate = -1\n";
    let told = faults(config, &["--set", "run.ranks=0"]);
    let lines: Vec<&str> = told.lines().collect();
    for (line, expected) in lines.iter().zip([
        "unknown key `computee` in [model] (bad.toml:3)",
        "`data.eval_split` must be a number, found the string \"yes\" (bad.toml:9)",
        "`model.recompute` must be one of",
        "`run.epochs` must be 1 or more, found 0 (bad.toml:6)",
        "`run.ranks` must be from 1 to 1024, found 0",
        "`optim.learning_rate` must be above 0, found -1 (bad.toml:11)",
        "6 faults, named above",
    ]) {
        assert!(line.starts_with(&format!("error: {expected}")), "{told}");
        assert!(line.contains("; next: "), "{line}");
    }
    assert_eq!(lines.len(), 7, "{told}");
    let config = "plugins = [\"lora\"]\n[model]\npath = \"model\"\n\
                  [adapter.lora]\nrankk = 4\nrank = -1\n[adapter.lorra]\n";
    let told = faults(config, &["--data", "rows.jsonl", "--out", "out"]);
    for expected in [
        "unknown option `rankk` of adapter `lora`",
        "option `adapter.lora.rank`: expected a whole number",
        "unknown key `lorra` in [adapter]",
        "3 faults, named above",
    ] {
        assert!(told.contains(&format!("error: {expected}")), "{told}");
    }
    assert!(!place.path("out").exists());
}

#[test]
fn a_variable_with_an_unknown_key_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = host(
        dir.path(),
        &[("HOST__RUN__SEDE", "7")],
        &["train", "--dry-run"],
    );
    let line = last_line(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        line.contains("HOST__RUN__SEDE") && line.contains("`seed`"),
        "{line}"
    );
}

#[test]
fn help_and_doctor_succeed() {
    let dir = tempfile::tempdir().expect("a directory");
    for arguments in [
        &["--help"][..],
        &["train", "--help"],
        &["--version"],
        &["doctor"],
        &["plugins", "list"],
    ] {
        let output = host(dir.path(), &[], arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn doctor_says_which_device_cannot_compute_and_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = ["doctor", "--set", "backend.cpu.device_memory=\"1KiB\""];
    let output = host(dir.path(), &[], &arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let product = "cpu cannot compute a product of 256 x 1024 with 1024 x 1024 in f32: ";
    let line = text.lines().find(|line| line.contains(product));
    let line = line.unwrap_or_else(|| panic!("no {product:?} in {text}"));
    assert!(line.contains("a buffer of 1048576 bytes"), "{line}");
    let output = host(dir.path(), &[], &["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("product"), "{text}");
}

#[test]
fn a_plugin_is_shown_with_its_options_and_an_unknown_one_with_the_nearest_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = host(dir.path(), &[], &["plugins", "inspect", "nf4"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    assert!(text.contains("[quantizer.nf4]"), "{text}");
    assert!(text.contains("block_size") && text.contains("64"), "{text}");
    let output = host(dir.path(), &[], &["plugins", "inspect", "nf5"]);
    let line = last_line(&output);
    assert_eq!(output.status.code(), Some(5), "{line}");
    assert!(
        line.contains("nf5") && line.contains("nf4") && line.contains("; next: "),
        "{line}"
    );
}

#[test]
fn a_mistyped_plugin_section_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama/tiny");
    fs::write(dir.path().join("rows.jsonl"), "{\"text\": \"a b\"}\n").expect("written");
    for (set, expected) in [
        ("quantizer.nf44.block_size=64", "`nf4`"),
        ("quantizer.nf4.block_sise=64", "`block_size`"),
        ("quantizer.fp4.block_size=3", "`quantizer.fp4.block_size`"),
    ] {
        let line = [
            "train",
            "--model",
            model,
            "--data",
            "rows.jsonl",
            "--out",
            "out",
        ];
        let arguments = [&line[..], &["--set", set]].concat();
        let output = host(dir.path(), &[], &arguments);
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(2), "{set}: {line}");
        assert!(
            line.contains(expected) && line.contains("--set"),
            "{set}: {line}"
        );
        assert!(!dir.path().join("out").exists(), "{set}");
    }
}

#[test]
fn invalid_names_and_numbers_are_refused_before_anything_is_written() {
    let cases = [
        (
            5,
            "--plugins nf5,lora",
            "`nf5`, the nearest is `nf4` | write `nf4`",
        ),
        (
            5,
            "--plugins lora --backend cuba",
            "backend `cuba` | known: cpu",
        ),
        (
            2,
            "--set optim.learning_rte=1",
            "`learning_rte` | write `learning_rate`",
        ),
        (
            2,
            "--plugins nf4,lora --set quantizer.nf4.blok_size=64",
            "`blok_size` | write `block_size`",
        ),
        (
            2,
            "--plugins nf4,fp4,lora",
            "`nf4` and `fp4` | quantizer | leave out",
        ),
        (
            2,
            "--plugins nf4",
            "no adapter | add an adapter (--plugins nf4,lora)",
        ),
        (2, "--plugins lora --ranks 0", "from 1 to 1024, found 0"),
        (
            2,
            "--plugins lora --adapter nowhere",
            "no directory `nowhere`",
        ),
        (
            2,
            "--plugins lora --set optim.learning_rate=-1",
            "above 0, found -1",
        ),
    ];
    let place = RunFolder::new();
    place.model("model");
    for (code, arguments, words) in cases {
        let outcome = place.train("model", &format!("{arguments} --out out"));
        outcome.refused(arguments, code, words);
        assert!(!place.path("out").exists(), "{arguments}");
    }
}
