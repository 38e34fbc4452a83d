//! The backend `tch` on a machine without libtorch, or with another version: it is listed with what
//! is missing and how to get it, and nothing else changes.

mod libraries;

use std::fs;
use std::process::{Command, Output};

use espalier_samples::tch_without_engine;
use espalier_torture::built::golden;
use espalier_torture::training::{last_line, refused};
use libraries::Libraries;

/// How to get libtorch.
const REMEDY: &str =
    "run `cargo xtask setup-libtorch`, or name the folder of one with LIBTORCH=DIR";

/// A folder with the plugin, and a folder `torch`, empty, that `LIBTORCH` names.
struct Machine(Libraries);

impl Machine {
    fn new() -> Self {
        let place = Libraries::new();
        let library = fs::read(tch_without_engine()).expect("just built");
        place.put("plugins", "backend-tch", &library);
        fs::create_dir(place.path("torch")).expect("a folder");
        Machine(place)
    }

    /// Puts files of libtorch's names and this version into the folder.
    fn with_version(&self, version: &str) {
        let torch = self.0.path("torch");
        fs::create_dir_all(torch.join("lib")).expect("a folder");
        for name in ["libc10.so", "libtorch_cpu.so"] {
            fs::write(torch.join("lib").join(name), "").expect("written");
        }
        fs::write(torch.join("build-version"), version).expect("written");
    }

    fn host(&self, words: &str) -> Output {
        let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
        host.env("XDG_DATA_HOME", self.0.path("data"))
            .env("LIBTORCH", self.0.path("torch"))
            .current_dir(self.0.path(""))
            .args(words.split_whitespace())
            .args(["--plugin-dir", "plugins"]);
        host.output().expect("the host starts")
    }

    /// What a command prints, which ends well.
    fn printed(&self, words: &str) -> String {
        let output = self.host(words);
        assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
        String::from_utf8(output.stdout).expect("text")
    }
}

#[test]
fn without_libtorch_the_host_lists_the_plugin_and_names_the_missing_file() {
    let machine = Machine::new();
    let file = machine.0.path("torch/lib/libtorch_cpu.so");
    let missing = format!("{} does not exist", file.display());
    for command in ["plugins list", "doctor"] {
        let printed = machine.printed(command);
        let line = printed.lines().find(|line| line.contains(&missing));
        let line = line.unwrap_or_else(|| panic!("{command}: no {missing:?} in {printed}"));
        assert!(line.contains("tch") && line.contains(REMEDY), "{line}");
        // The other backends are as usable as before.
        assert!(printed.contains("cpu"), "{printed}");
    }
    let model = golden("llama/tiny");
    let words = format!("plan --backend tch --model {}", model.display());
    let words_of_error = format!("{missing} | {REMEDY} | next: install what its message names");
    refused(&machine.host(&words), 5, &words_of_error, "plan");
    machine.printed(&format!("plan --backend cpu --model {}", model.display()));
}

#[test]
fn another_version_is_refused_with_the_one_that_is_expected() {
    let machine = Machine::new();
    machine.with_version("2.12.1+cpu");
    let words = "expected libtorch 2.13.0, found 2.12.1+cpu in";
    assert!(machine.printed("doctor").contains(words));
    assert!(machine.printed("plugins list").contains(words));
}

/// The outcome of a probe that failed for want of a library is not kept for this file.
#[test]
fn once_libtorch_is_there_the_plugin_is_tried_again() {
    let machine = Machine::new();
    let missing = "libtorch_cpu.so does not exist";
    assert!(machine.printed("plugins list").contains(missing));
    machine.with_version("2.13.0");
    let printed = machine.printed("plugins list");
    assert!(!printed.contains(missing), "{printed}");
    assert!(
        printed.contains("was built without its engine"),
        "{printed}"
    );
}
