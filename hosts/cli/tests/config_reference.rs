//! `host config` and the page docs/config.md against the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn host(words: &[&str]) -> Output {
    let empty = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(empty.path()).args(words);
    command.env("XDG_DATA_HOME", empty.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOST__")) {
        command.env_remove(name);
    }
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn stdout(output: Output) -> String {
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_page_is_what_the_program_prints() {
    let page = fs::read_to_string(root().join("docs/config.md")).expect("the page");
    let printed = stdout(host(&["config", "--markdown"]));
    let differs = page
        .lines()
        .zip(printed.lines())
        .find(|(page, printed)| page != printed);
    assert!(
        page == printed,
        "docs/config.md is not what `host config --markdown` prints, first at {differs:?}"
    );
}

/// Keys with their sections, set or not, as `--dry-run` prints them.
fn dry_run_keys(printed: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut keys = BTreeSet::new();
    for line in printed.lines() {
        let header = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        if let Some(name) = header.filter(|name| !name.starts_with('[')) {
            section = format!("{name}.");
        }
        let unset = line
            .strip_prefix("# ")
            .and_then(|rest| rest.strip_suffix(" is unset"));
        let set = line
            .split_once(" = ")
            .filter(|(_, value)| value.contains(" # "));
        let name = unset.or(set.map(|(name, _)| name));
        keys.extend(name.map(|name| format!("{section}{name}")));
    }
    keys
}

#[test]
fn every_key_of_a_dry_run_is_in_the_page() {
    let rows = tempfile::NamedTempFile::with_suffix(".jsonl").expect("a file");
    fs::write(rows.path(), "{\"text\": \"In the beginning\"}\n").expect("written");
    let model = root().join("tests/golden/llama/tiny");
    let [model, rows] = [model.as_path(), rows.path()].map(|path| path.to_str().expect("text"));
    let printed = stdout(host(&[
        "train",
        "--dry-run",
        "--plugins",
        "nf4,lora,fsdp",
        "--model",
        model,
        "--data",
        rows,
        "--set",
        "quantizer.nf4.block_size=128",
        "--set",
        "adapter.lora.rank=4",
        "--set",
        "sharding.fsdp.prefetch=1",
        "--set",
        "backend.cpu.isa=portable",
        "--set",
        "model.compute=f32",
    ]));
    let keys = dry_run_keys(&printed);
    assert!(keys.len() > 60, "{keys:?}");
    for key in [
        "run.out",
        "quantizer.nf4.block_size",
        "plugins",
        "optim.groups",
    ] {
        assert!(keys.contains(key), "{key} in {keys:?}");
    }
    let page = fs::read_to_string(root().join("docs/config.md")).expect("the page");
    for key in keys {
        let as_key = page.contains(&format!("| `{key}` |"));
        assert!(as_key || page.contains(&format!("## `[[{key}]]`")), "{key}");
    }
}

#[test]
fn a_section_is_printed_alone() {
    let printed = stdout(host(&["config", "quantizer.nf4"]));
    assert!(
        printed.contains("quantizer.nf4.block_size = 64   (whole number"),
        "{printed}"
    );
    assert!(!printed.contains("optim."), "{printed}");
}
