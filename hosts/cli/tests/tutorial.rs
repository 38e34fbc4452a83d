//! docs/write-a-quantizer.md, followed exactly in an empty directory. Its code passes the kit and
//! `check`, and a run is trained with it. Its row of `eval` has the numbers on the page, beside
//! nf4's.

mod plugin_crate;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use plugin_crate::{Bench, succeeded};

/// Largest loss increase of three bits over nf4's four.
const MOST_WORSE: f64 = 0.1;
/// Other processors round differently; the page's numbers come from one processor.
const FROM_THE_PAGE: f64 = 0.05;

/// A fenced block of a page: its language and its lines.
struct Block {
    language: String,
    text: String,
}

#[test]
fn the_tutorial_ends_with_a_run_and_a_row_beside_nf4() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(repository.join("docs/write-a-quantizer.md")).expect("the page");
    let blocks = blocks(&page);
    let bench = Bench::new("tutorial");
    lay_out_the_archive(&bench, &repository);

    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script(&blocks));
    bash.current_dir(&bench.folder);
    as_a_user(&mut bash, &bench);
    let output = succeeded(&mut bash);

    assert!(output.contains("test result: ok. 1 passed"), "{output}");
    assert!(output.contains(" passed, 0 failed"), "{output}");
    for quantizer in ["three-bit", "nf4"] {
        let run = bench.path("runs").join(quantizer);
        assert!(run.join("adapter/adapter_model.safetensors").is_file());
    }
    let printed = text_of(&blocks, "text");
    let (found, shown) = (rows(&output), rows(&printed));
    let names: Vec<_> = found.keys().copied().collect();
    assert_eq!(names, ["nf4", "three-bit"], "{output}");
    for (name, (loss, bits)) in &found {
        let (shown_loss, shown_bits) = shown[name];
        assert!((loss - shown_loss).abs() < FROM_THE_PAGE, "{name}: {loss}");
        assert_eq!(*bits, shown_bits, "{name}");
    }
    let (nf4, three_bit) = (found["nf4"], found["three-bit"]);
    assert!(three_bit.0 < nf4.0 + MOST_WORSE, "{found:?}");
    assert!(three_bit.1 < nf4.1, "{found:?}");
}

/// What the page says of formats without a description, of the sample that it names.
#[test]
fn check_compares_the_device_code_of_an_undescribed_format_on_a_card() {
    let library = espalier_samples::library("decode-only");
    let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
    host.args(["plugins", "check", "--only", "decode.device_code"]);
    host.arg(library);
    let mock = espalier_tests_gpu::libraries(Path::new(env!("CARGO_TARGET_TMPDIR")));
    host.env("HOST__BACKEND__CUDA__LIBRARIES", mock);
    let output = succeeded(&mut host);
    assert!(output.contains("ok       decode.device_code"), "{output}");
}

/// `~/espalier` as an unpacked archive: the program and its configs.
fn lay_out_the_archive(bench: &Bench, repository: &Path) {
    let archive = bench.path("espalier");
    fs::create_dir(&archive).expect("created");
    symlink(env!("CARGO_BIN_EXE_host"), archive.join("host")).expect("a link");
    symlink(repository.join("configs"), archive.join("configs")).expect("a link");
}

/// Runs the shell commands in the page's order; code blocks are joined into the crate's file.
fn script(blocks: &[Block]) -> String {
    let mut script = "set -euo pipefail\n".to_owned();
    let mut redirect = ">";
    for block in blocks {
        match block.language.as_str() {
            "sh" => script += &block.text,
            "rust" => {
                let text = &block.text;
                script += &format!(
                    "cat {redirect} three-bit/src/lib.rs <<'END_OF_PIECE'\n{text}END_OF_PIECE\n"
                );
                redirect = ">>";
            }
            _ => {}
        }
    }
    script
}

/// A home directory that holds only the archive. Cargo keeps its own home, and equal crates build
/// once for all tests.
fn as_a_user(command: &mut Command, bench: &Bench) {
    let home = PathBuf::from(std::env::var_os("HOME").expect("a home"));
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let place = std::env::var_os(name).map_or(home.join(folder), PathBuf::from);
        command.env(name, place);
    }
    command.env("HOME", &bench.folder);
    for name in ["XDG_DATA_HOME", "XDG_CACHE_HOME", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command.env("CARGO_BUILD_BUILD_DIR", bench.target());
    fs::create_dir(bench.path(".cargo")).expect("created");
    let settings = bench.path(".cargo/config.toml");
    fs::write(settings, espalier_samples::UNOPTIMISED_INTERFACE).expect("written");
    let cargo = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let path = std::env::var("PATH").expect("a path");
    if let Some(folder) = cargo.parent().filter(|folder| folder.is_absolute()) {
        command.env("PATH", format!("{}:{path}", folder.display()));
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.to_owned();
                let text = String::new();
                open = Some(Block { language, text });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// All blocks of a language, joined in order.
fn text_of(blocks: &[Block], language: &str) -> String {
    let of = blocks.iter().filter(|block| block.language == language);
    of.map(|block| block.text.as_str()).collect()
}

/// The table's rows: loss and bits per weight by quantizer.
fn rows(text: &str) -> BTreeMap<&str, (f64, f64)> {
    let row = |line| -> Option<(&str, (f64, f64))> {
        let (name, rest) = str::split_once(line, ' ')?;
        let loss = rest.trim_start().strip_prefix("loss ")?;
        let loss = loss.split(',').next()?.parse().ok()?;
        let bits = rest.strip_suffix(" bits each")?;
        Some((name, (loss, bits.rsplit(' ').next()?.parse().ok()?)))
    };
    text.lines().filter_map(row).collect()
}
