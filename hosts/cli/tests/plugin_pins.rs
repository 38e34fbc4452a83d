//! `run.plugin_hashes` and `host plugins lock`: a run loads the libraries that its config names by
//! their hashes, and no others.

use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use espalier_samples::put;
use training::{Training, refused};

struct Folder {
    training: Training,
}

impl Folder {
    /// A run's folder with the libraries of `nf4` and `lora`, and a lock of both.
    fn new() -> Self {
        let training = Training::new("");
        let folder = Folder { training };
        fs::create_dir(folder.path("pd")).expect("a folder");
        for plugin in ["nf4", "lora"] {
            let bytes = fs::read(built::library(plugin)).expect("just built");
            put(&folder.path(&format!("pd/lib{plugin}.so")), &bytes);
        }
        let output = folder.host("plugins lock --plugin-dir pd --out plugins.lock");
        assert!(output.status.success(), "{output:?}");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.training.path(name)
    }

    fn host(&self, words: &str) -> Output {
        self.training.host(words)
    }

    fn train(&self, out: &str, more: &str) -> Output {
        let more = format!("--plugins nf4,lora {more}");
        self.training.run(out, &more)
    }

    /// Another library of the same plugin, as after an update.
    fn change(&self, library: &str) -> String {
        let path = self.path(library);
        let mut bytes = fs::read(&path).expect("a library");
        bytes.push(0);
        put(&path, &bytes);
        let shown = self.host(&format!("plugins inspect {library}"));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let hash = shown.lines().find_map(|line| line.strip_prefix("sha256 "));
        hash.expect("a hash").trim().to_owned()
    }
}

fn ended(output: &Output) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
}

#[test]
fn a_locked_run_loads_the_locked_libraries_alone() {
    let folder = Folder::new();
    let lock = fs::read_to_string(folder.path("plugins.lock")).expect("a lock");
    assert!(
        lock.contains("\nnf4 = \"") && lock.contains("\nlora = \""),
        "{lock}"
    );
    let linked = "# Linked into the program, which has no file for them, and not pinned:";
    let is_linked = cfg!(feature = "embedded");
    assert_eq!(lock.contains(linked), is_linked, "{lock}");
    assert_eq!(lock.contains("\nsingle = \""), !is_linked, "{lock}");
    assert!(lock.contains("single"), "{lock}");
    ended(&folder.train("out", "--config plugins.lock --plugin-dir pd"));

    let hash = folder.change("pd/libnf4.so");
    let words = format!("libnf4.so | pins plugin `nf4` to sha256 | has {hash} | nothing of it was");
    let output = folder.train("other", "--config plugins.lock --plugin-dir pd");
    refused(&output, 5, &words, "another library");
    assert!(!folder.path("other").exists());
    // Going on from a checkpoint is held to the pins on record.
    folder.training.unfinished("out", "halved");
    let output = folder.host("train --resume halved");
    refused(&output, 5, &words, "going on");
    // An updated pin is taken.
    let pin = format!("--set run.plugin_hashes.nf4=\"{hash}\"");
    ended(&folder.train(
        "pinned",
        &format!("--config plugins.lock --plugin-dir pd {pin}"),
    ));
}

#[test]
fn what_is_not_named_and_what_is_linked_instead_is_refused() {
    let folder = Folder::new();
    let lock = fs::read_to_string(folder.path("plugins.lock")).expect("a lock");
    let is_of_nf4 = |line: &&str| !line.starts_with("nf4 = ");
    let without: Vec<&str> = lock.lines().filter(is_of_nf4).collect();
    fs::write(folder.path("less.toml"), without.join("\n")).expect("written");
    let output = folder.train("out", "--config less.toml --plugin-dir pd");
    refused(
        &output,
        5,
        "does not name plugin `nf4` | libnf4.so",
        "not named",
    );
    // A linked plugin has no hash that could be the pinned one; a library found elsewhere has its
    // own.
    let pinned = folder.change("pd/libnf4.so");
    let pin = format!("--config plugins.lock --set run.plugin_hashes.nf4=\"{pinned}\"");
    let found = if cfg!(feature = "embedded") {
        "linked into this program"
    } else {
        "libnf4.so | nothing of it was loaded"
    };
    let words = format!("pins plugin `nf4` to | sha256 {pinned} | {found}");
    refused(&folder.train("out", &pin), 5, &words, "another found first");
    let output = folder.train("out", "--set run.plugin_hashes.nf4=\"abc\"");
    refused(
        &output,
        2,
        "run.plugin_hashes.nf4 | a SHA-256 | `abc`",
        "no hash",
    );
}
