//! `host plugins new`: the crate of each kind builds, loads, passes its own test and trains as it is; what cannot be is
//! refused and leaves nothing.

#[allow(dead_code)]
mod place;
mod plugin_crate;
#[allow(dead_code)]
mod training;

use place::contents;
use plugin_crate::{Bench, succeeded};
use training::{Training, refused};

/// A kind, the components of a run with its plugin, and whether that run is another's to the bit.
const KINDS: [(&str, &str, Option<&str>); 4] = [
    ("quantizer", "my-quantizer,lora", None),
    ("adapter", "nf4,my-adapter", None),
    ("family", "my-family,nf4,lora", None),
    ("sharding", "my-sharding,nf4,lora", Some("nf4,lora")),
];

#[test]
fn every_kind_is_built_loaded_and_trained_with() {
    let bench = Bench::new("new-plugin");
    let training = Training::new("");
    for (kind, plugins, equal) in KINDS {
        let name = format!("my-{kind}");
        let said = succeeded(&mut bench.host(&format!("plugins new {name} --kind {kind}")));
        assert!(said.contains("cargo test --release"), "{said}");
        succeeded(&mut bench.cargo(&name, "test --release --quiet"));
        succeeded(&mut bench.cargo(&name, "build --release --quiet"));
        let libraries = bench.built().display().to_string();
        let shown = format!("plugins inspect {name} --plugin-dir {libraries}");
        let shown = succeeded(&mut bench.host(&shown));
        assert!(shown.contains(&format!("role       {kind}")), "{shown}");

        let run = |plugins: &str| {
            let more = format!("--plugins {plugins} --plugin-dir {libraries}");
            training.succeed(&plugins.replace(',', "-"), &more)
        };
        let trained = run(plugins);
        let loss = |line: usize| trained.metrics[line][1].as_f64();
        let losses: Vec<f64> = (0..trained.metrics.len()).filter_map(loss).collect();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last.is_finite() && last < first + 0.1, "{kind}: {losses:?}");
        if let Some(equal) = equal {
            assert_eq!(trained, run(equal), "{kind}");
        }
    }
}

#[test]
fn a_crate_follows_from_name_and_kind_alone() {
    let bench = Bench::new("new-plugin-twice");
    for folder in ["first", "second"] {
        let line = format!("plugins new thrice-3 --kind family --out {folder}/inner");
        succeeded(&mut bench.host(&line));
    }
    let of = |folder: &str| {
        let files = contents(&bench.path(folder)).into_iter();
        let inside = |path: std::path::PathBuf| {
            let path = path.strip_prefix(bench.path(folder)).expect("below it");
            path.to_owned()
        };
        let files = files.map(|(path, bytes)| (inside(path), bytes));
        files.collect::<Vec<_>>()
    };
    let (first, second) = (of("first"), of("second"));
    assert!(first.len() > 30 && first == second);
    let ours = include_bytes!("../../../core/interface/src/format.rs");
    let unpacked = first
        .iter()
        .find(|(path, _)| path.ends_with("src/format.rs"));
    assert_eq!(unpacked.expect("unpacked").1, ours);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let bench = Bench::new("new-plugin-refused");
    std::fs::write(bench.path("taken"), "mine").expect("written");
    for (line, words) in [
        ("nf4 --kind quantizer", "`nf4` cannot be a plugin's name"),
        ("cpu --kind sharding", "`cpu` cannot be a plugin's name"),
        ("loop --kind quantizer", "belongs to Rust"),
        ("My --kind quantizer", "found `M`"),
        ("../up --kind quantizer", "found `.`"),
        ("none --kind quantizer", "no component"),
        ("mine --kind optimizer", "optimizer | sharding"),
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
