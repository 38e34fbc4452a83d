//! Folders with libraries, including broken ones -> which library serves a run, which one stops it,
//! and the messages.

mod libraries;
use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_samples::{faulty, put};
use libraries::Libraries;
use serde_json::Value as Json;
use training::{Training, last_line, refused};

/// A short run, with the folder `pd` for libraries.
struct Folder {
    training: Training,
}

impl Folder {
    fn new(more: &str) -> Self {
        let training = Training::new(&format!("--set run.max_steps=1 {more}"));
        fs::create_dir(training.path("pd")).expect("a folder");
        Folder { training }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.training.path(name);
        put(&path, bytes);
        fs::canonicalize(path).expect("just put there")
    }

    fn host(&self, words: &str) -> Output {
        let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
        host.current_dir(self.training.folder.path());
        host.env("XDG_DATA_HOME", self.training.path("data"));
        host.args(words.split_whitespace());
        host.output().expect("the host starts")
    }

    /// `plugin_places` of the run in `out`.
    fn places(&self, out: &str) -> Json {
        let text = fs::read(self.training.path(out).join("run.json")).expect("a run");
        let run: Json = serde_json::from_slice(&text).expect("JSON");
        run["plugin_places"].clone()
    }
}

fn library(plugin: &str) -> Vec<u8> {
    fs::read(built::library(plugin)).expect("just built")
}

fn half(plugin: &str) -> Vec<u8> {
    let whole = library(plugin);
    whole[..whole.len() / 2].to_vec()
}

fn ended(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    printed
}

/// Number of lines in the text that hold all of `words`.
fn lines_with(printed: &str, words: &[&str]) -> usize {
    let lines = printed.lines();
    lines
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

#[test]
fn a_broken_library_with_a_needed_plugins_name_stops_the_run() {
    // The file, the crate it was truncated from, the plugins named, and whether the run needs it.
    let cases = [
        ("libnf4.so", "nf4", "nf4,lora", true),
        ("libespalier_nf4.so", "nf4", "nf4,lora", true),
        ("libnf4.so", "nf4", "fp4,lora", true),
        ("libnf4.so", "nf4", "lora", false),
        // Unnamed components are used all the same.
        ("libllama.so", "llama", "lora", true),
        ("libsingle.so", "single", "lora", true),
        ("libespalier_backend_cpu.so", "backend_cpu", "lora", true),
        ("libmistral.so", "mistral", "lora", false),
    ];
    for (file, broken, plugins, needed) in cases {
        let folder = Folder::new(&format!("--plugin-dir pd --plugins {plugins}"));
        let path = folder.put(&format!("pd/{file}"), &half(broken));
        let case = format!("{file} for {plugins}");
        let output = folder.training.run("out", "");
        if needed {
            let words = format!("plugin library {} | truncated or damaged", path.display());
            refused(&output, 5, &words, &case);
            assert!(!folder.training.path("out").exists(), "{case}");
        } else {
            let printed = ended(&output);
            assert_eq!(
                lines_with(&printed, &["is left out: truncated", file]),
                1,
                "{printed}"
            );
        }
    }
}

#[test]
fn an_unreadable_library_that_is_not_needed_is_reported_once_and_recorded() {
    let folder = Folder::new("--plugin-dir pd");
    let path = folder.put("pd/libother.so", b"#!/bin/sh\n");
    let printed = ended(&folder.training.run("out", "--plugins nf4,lora"));
    let words = ["note: plugin library ", "/pd/libother.so is left out: "];
    assert_eq!(lines_with(&printed, &words), 1, "{printed}");
    let unusable = folder.places("out")["unusable"].clone();
    assert_eq!(unusable[0]["file"], path.to_str().expect("a text"));
    let reason = unusable[0]["reason"].as_str().expect("a text");
    assert!(reason.contains("begins with `#!/b`"), "{reason}");
    // A comparison has many sessions and prints it once.
    let arms = "--plugins lora --arms nf4,fp4 --set data.eval_split=2";
    let mut compare = folder.training.command_of("compare", "compared", arms);
    let printed = ended(&compare.output().expect("the host starts"));
    assert_eq!(lines_with(&printed, &words), 1, "{printed}");
}

#[test]
fn the_library_used_of_several_with_one_name_is_reported_and_recorded() {
    let folder = Folder::new("--plugin-dir pd --plugins nf4,lora");
    let path = folder.put("pd/libnf4.so", &library("nf4"));
    let path = path.to_str().expect("a text");
    let printed = ended(&folder.training.run("out", ""));
    let words = [
        "note: `nf4` is found 2 times: the one from ",
        path,
        " is used",
    ];
    assert_eq!(lines_with(&printed, &words), 1, "{printed}");
    let places = folder.places("out");
    let of = |name: &str| {
        let used = places["used"].as_array().expect("a list").iter();
        let mut used = used.filter(|place| place["component"] == name);
        used.next().expect("it is used").clone()
    };
    assert_eq!(of("nf4")["from"], path);
    assert_eq!(of("nf4")["folder"], "--plugin-dir");
    assert_eq!(of("nf4")["also_found"].as_array().map(Vec::len), Some(1));
    assert_eq!(of("lora")["also_found"], serde_json::json!([]));
    // The plan shows the source of every component before anything is read.
    let mut dry_run = folder.training.command("shown", "--dry-run");
    let dry_run = dry_run.output().expect("the host starts");
    for (name, output) in [
        ("train", dry_run),
        ("plan", folder.host(&plan_words(&folder))),
    ] {
        ended(&output);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = ["nf4 ", path, " (--plugin-dir); not used: "];
        assert_eq!(lines_with(&shown, &words), 1, "{name}: {shown}");
    }
    let listed = folder.host("plugins list --plugin-dir pd");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // nf4, fp4 and int8 are components of that library.
    let words = ["quantizer ", "linked (not used: ", path, " is first"];
    let shadowed = if cfg!(feature = "embedded") { 3 } else { 0 };
    assert_eq!(lines_with(&listed, &words), shadowed, "{listed}");
}

fn plan_words(folder: &Folder) -> String {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
    let (model, rows) = (model.display(), folder.training.path("rows.jsonl"));
    let rows = rows.display();
    format!("plan --plugin-dir pd --plugins nf4,lora --model {model} --data {rows}")
}

#[test]
fn a_config_loads_libraries_only_from_folders_that_it_names() {
    let folder = Folder::new("");
    fs::create_dir(folder.training.path("downloaded")).expect("a folder");
    folder.put("downloaded/libnf4.so", &library("nf4"));
    folder.put("downloaded/libfaulty.so", &faulty("nowhere:none"));
    let config = folder.training.path("downloaded/run.toml");
    fs::write(&config, "plugins = [\"nf4\", \"lora\"]\n").expect("written");
    let printed = ended(&folder.training.run("out", "--config downloaded/run.toml"));
    assert_eq!(lines_with(&printed, &["downloaded"]), 0, "{printed}");
    let places = folder.places("out").to_string();
    assert!(!places.contains("downloaded"), "{places}");
    let words = "unknown plugin `faulty`";
    let more = "--config downloaded/run.toml --plugins faulty";
    refused(&folder.training.run("other", more), 5, words, more);
    let doctor = folder.host("doctor --config downloaded/run.toml");
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let (_, order) = doctor
        .split_once("looked for in this order:")
        .expect("an order");
    assert!(!order.contains("downloaded"), "{order}");
    // Folders that it names are searched and reported.
    let named = "plugins = [\"nf4\", \"lora\"]\nrun.plugin_dirs = [\"downloaded\"]\n";
    fs::write(&config, named).expect("written");
    let output = folder.training.run("named", "--config downloaded/run.toml");
    let printed = ended(&output);
    let words = [
        "note: `nf4` is the library /",
        "/downloaded/libnf4.so",
        "a config file or the record of a run names (run.plugin_dirs of downloaded/run.toml:2)",
    ];
    assert_eq!(
        lines_with(&printed, &words),
        1,
        "{printed} {}",
        last_line(&output)
    );
    let used = folder.places("named")["used"].to_string();
    assert!(used.contains("/downloaded/libnf4.so"), "{used}");
}

#[test]
fn a_library_that_others_can_write_or_replace_needs_permission() {
    let place = Libraries::new();
    let file = place.put(
        "open",
        "linear4",
        &fs::read(espalier_samples::library("linear4")).expect("just built"),
    );
    let folder = place.path("open");
    let allowed = "--set run.allow_world_writable_plugins=true";
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
    };
    let refuses = |words: &str| {
        let words = format!("liblinear4.so | {words} | allow_world");
        refused(&place.names("open", "linear4", ""), 5, &words, &words);
        let output = place.names("open", "linear4", allowed);
        assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    };
    set(&file, 0o777);
    refuses("any user may write to it (mode 777) | chmod o-w");
    set(&file, 0o755);
    set(&folder, 0o777);
    refuses("any user may write to its folder | /open (mode 777) | chmod o-w");
    // As under /tmp.
    set(&folder, 0o1777);
    let output = place.names("open", "linear4", "");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    set(&folder, 0o755);
    if fs::metadata(&file).expect("ours").uid() == 0 {
        chown(&file, Some(7), None).expect("root may");
        refuses("it belongs to user 7, expected user 0 or root | copy it to a folder of your own");
        chown(&file, Some(0), Some(7)).expect("root may");
        set(&file, 0o775);
        refuses("members of group 7 may write to it (mode 775) | chmod g-w");
    }
}
