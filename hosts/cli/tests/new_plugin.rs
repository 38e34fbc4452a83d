//! `host plugins new`: the crate of each kind builds, loads, passes the kit and trains unchanged.
//! Invalid names are refused and leave no files.

mod place;
mod plugin_crate;
use espalier_torture::training;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use place::contents;
use plugin_crate::{Bench, succeeded};
use training::{Training, refused};

/// A kind, the components of a run with its plugin, and those of a run with the same bits.
const KINDS: [(&str, &str, Option<&str>); 5] = [
    ("quantizer", "my-quantizer,lora", None),
    ("calibrated quantizer", "my-calibrated-quantizer,lora", None),
    ("adapter", "nf4,my-adapter", None),
    ("family", "my-family,nf4,lora", None),
    ("sharding", "my-sharding,nf4,lora", Some("nf4,lora")),
];

#[test]
fn every_kind_is_built_loaded_and_trained_with() {
    let bench = Bench::new("new-plugin");
    let training = Training::new("");
    let libraries = bench.built().display().to_string();
    for (kind, plugins, equal) in KINDS {
        let name = format!("my-{}", kind.replace(' ', "-"));
        let asked = match kind.split_once(' ') {
            Some((flag, kind)) => format!("plugins new {name} --kind {kind} --{flag}"),
            None => format!("plugins new {name} --kind {kind}"),
        };
        let printed = succeeded(&mut bench.host(&asked));
        assert!(printed.contains("cargo test --release"), "{printed}");
        if kind != "quantizer" {
            take_sources_of(&bench, "my-quantizer", &name);
        }
        let tested = succeeded(&mut bench.cargo(&name, "test --release"));
        assert!(tested.contains("it_passes_the_kit ... ok"), "{tested}");
        succeeded(&mut bench.cargo(&name, "build --release"));
        let library = name.replace('-', "_");
        let checked = format!("plugins check {libraries}/lib{library}.so");
        let checked = succeeded(&mut bench.host(&checked));
        assert!(checked.contains(" passed, 0 failed"), "{checked}");
        let shown = format!("plugins inspect {name} --plugin-dir {libraries}");
        let shown = succeeded(&mut bench.host(&shown));
        let role = kind.rsplit(' ').next().expect("a word");
        assert!(shown.contains(&format!("role       {role}")), "{shown}");

        let run = |plugins: &str| {
            let more = format!("--plugins {plugins} --plugin-dir {libraries}");
            training.succeed(&plugins.replace(',', "-"), &more)
        };
        let trained = run(plugins);
        let losses = trained.metrics.iter().filter_map(|line| line[1].as_f64());
        let losses: Vec<f64> = losses.collect();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last.is_finite() && last < first + 0.1, "{kind}: {losses:?}");
        if let Some(equal) = equal {
            assert_eq!(trained, run(equal), "{kind}");
        }
    }
}

/// Makes a crate use the sources of another one, which are equal, so that they compile once.
fn take_sources_of(bench: &Bench, other: &str, name: &str) {
    assert!(unpacked(bench, name) == unpacked(bench, other));
    let path = bench.path(name).join("Cargo.toml");
    let manifest = fs::read_to_string(&path).expect("a manifest");
    let theirs = format!("\"../{other}/espalier/");
    let manifest = manifest.replace("\"espalier/", &theirs);
    assert_eq!(manifest.matches(&theirs).count(), 2, "{manifest}");
    fs::write(&path, manifest).expect("written");
}

/// The files of a crate below `espalier`, by relative path.
fn unpacked(bench: &Bench, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let espalier = bench.path(name).join("espalier");
    let inside = |path: PathBuf| path.strip_prefix(&espalier).expect("below it").to_owned();
    let files = contents(&espalier).into_iter();
    files.map(|(path, bytes)| (inside(path), bytes)).collect()
}

#[test]
fn a_crate_depends_on_name_and_kind_alone() {
    let bench = Bench::new("new-plugin-twice");
    for folder in ["first", "second"] {
        let line = format!("plugins new thrice-3 --kind family --out {folder}/inner");
        succeeded(&mut bench.host(&line));
    }
    let [first, second] = ["first/inner", "second/inner"].map(|name| unpacked(&bench, name));
    assert!(first == second);
    let ours = include_bytes!("../../../core/interface/src/format.rs");
    assert_eq!(first[Path::new("interface/src/format.rs")], ours);
    for file in ["Cargo.toml", "Cargo.lock", "src/lib.rs", "tests/kit.rs"] {
        let read = |name: &str| fs::read(bench.path(name).join(file)).expect("a file");
        assert_eq!(read("first/inner"), read("second/inner"), "{file}");
    }
}

#[test]
fn invalid_requests_are_refused_and_nothing_is_written() {
    let bench = Bench::new("new-plugin-refused");
    fs::write(bench.path("taken"), "mine").expect("written");
    for (line, words) in [
        ("nf4 --kind quantizer", "`nf4` cannot be a plugin's name"),
        ("cpu --kind sharding", "`cpu` cannot be a plugin's name"),
        ("loop --kind quantizer", "belongs to Rust"),
        ("My --kind quantizer", "found `M`"),
        ("../up --kind quantizer", "found `.`"),
        ("none --kind quantizer", "no component"),
        ("mine --kind optimizer", "'optimizer' | sharding"),
        ("mine", "--kind"),
        ("taken --kind adapter", "taken exists already"),
        ("mine --kind adapter --out taken", "taken exists already"),
        ("mine --kind adapter --out taken/inner", "taken"),
    ] {
        let output = bench.host(&format!("plugins new {line}")).output();
        refused(&output.expect("it starts"), 2, words, line);
    }
    let left: Vec<_> = contents(&bench.folder).into_keys().collect();
    assert_eq!(left, [bench.path("taken")]);
}
