//! The conformance kit: correct plugins pass it, and each planted bug is detected by its check.

use espalier_config::{Sources, resolve};
use espalier_registry::{Registry, SearchPath};
use espalier_samples::library;
use espalier_tests as _;
use espalier_trainer::conformance::{Report, Subject, Target, check};

/// The kit on `component`, which is found in `sources`.
fn report(component: &str, sources: &Sources) -> Report {
    let resolved = resolve(sources).expect("a config");
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let subject = Subject {
        registry: &registry,
        sources,
        name: component,
        config: None,
    };
    check(&subject, |_| ()).expect("it is there")
}

/// The sample plugin `package`, as found by `host plugins check FILE`.
fn sample(package: &str) -> Target {
    let library = library(package);
    let library = library.to_str().expect("a path in UTF-8");
    Target::find(library, &[], Sources::default()).expect("a sound library")
}

#[test]
fn each_planted_bug_is_found_by_its_check() {
    let planted = sample("planted");
    for (component, expected) in [
        ("swapped-nibbles", "error.blocks"),
        ("shifted-nibbles", "error.blocks"),
        ("shifted-block", "error.blocks"),
        ("nested-not-applied", "error.blocks"),
        ("shared-scratch", "share.threads"),
        ("counts-calls", "encode.deterministic"),
        ("reads-addresses", "encode.deterministic"),
        ("counts-threads", "encode.threads"),
        ("workspace-overrun", "encode.bounds"),
        ("other-table", "decode.description"),
        ("column-offset", "decode.ranges"),
        ("deaf", "options.heeded"),
        ("trusting", "options.refused"),
        ("lost-tail", "error.blocks"),
        ("stale-byte", "encode.fills"),
        ("single-row", "error.blocks"),
        ("global-options", "share.instances"),
        ("nan-zeros", "input.zeros"),
        ("takes-nan", "input.not_finite"),
        ("drops-segment", "saved.form"),
    ] {
        let report = report(component, &planted.sources);
        let found = report.failures().any(|check| check.name == expected);
        assert!(found, "{report}");
    }
}

#[test]
fn a_quantizer_without_a_bug_passes() {
    for (package, component) in [
        ("planted", "sound"),
        ("linear4", "linear4"),
        ("gguf", "q8-0"),
        ("gguf", "q4-k"),
        ("higgs", "higgs"),
    ] {
        report(component, &sample(package).sources).assert_passed();
    }
}

#[test]
fn the_shipped_components_pass() {
    // Linked, or found in HOST_PLUGIN_PATH.
    for component in [
        "nf4",
        "fp4",
        "int8",
        "hqq",
        "int4",
        "gptq",
        "int4-clip",
        "awq",
        "mxfp4",
        "nvfp4",
        "lora",
        "dora",
        "ia3",
        "vera",
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "granite",
        "gemma2",
        "gemma3",
        "phi3",
        "starcoder2",
        "single",
        "ddp",
        "fsdp",
        "cpu",
        "threads",
    ] {
        report(component, &Sources::default()).assert_passed();
    }
}
