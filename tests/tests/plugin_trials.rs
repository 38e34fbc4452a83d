//! Components that are called in a separate process before a run uses them, and libraries rebuilt
//! while one is open.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use espalier_interface::{Role, Serial};
use espalier_registry::probe::Prober;
use espalier_registry::{Registry, RegistryError, SearchPath};
use espalier_samples::{faulty, library, patched, put};
use espalier_system::failure::Failure;
use serde_json::Map;
use tempfile::TempDir;

/// The library's name in its folder.
const CASE: &str = "libcase.so";

/// The program that `cargo test --workspace` builds beside this test.
fn host() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let release = test.ancestors().nth(2).expect("target/release/deps/test");
    let host = release.join("host");
    assert!(host.is_file(), "no host: `cargo test --workspace`");
    host
}

fn discover(folder: &TempDir) -> Registry {
    let dir = ("here", folder.path().to_owned());
    let mut search = SearchPath::new([dir]).without_linked();
    search.prober = Some(Prober::new(host(), Duration::from_secs(3)));
    Registry::discover(&search)
}

#[test]
fn a_component_is_probed_in_a_process_with_its_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [
        (
            "encode:segfault",
            Role::QUANTIZER,
            "crashed with signal 11 (SIGSEGV) in encode of `faulty`",
        ),
        (
            "decode:abort",
            Role::QUANTIZER,
            "crashed with signal 6 (SIGABRT) in decode of `faulty`",
        ),
        (
            "decode:exit",
            Role::QUANTIZER,
            "ended the process with code 0 in decode of `faulty`",
        ),
        (
            "encode:loop",
            Role::QUANTIZER,
            "did not return within 3 s in encode of `faulty`",
        ),
        (
            "encode:panic",
            Role::QUANTIZER,
            "failed in encode: panicked: a fault by choice",
        ),
        (
            "adapt:segfault",
            Role::ADAPTER,
            "in adapt of `faulty-adapter`",
        ),
    ];
    for (fault, role, words) in cases {
        put(&folder.path().join(CASE), &faulty(fault));
        let name = if role == Role::ADAPTER {
            "faulty-adapter"
        } else {
            "faulty"
        };
        let error = discover(&folder).probe(role, name, &Map::new());
        let error = error.err().unwrap_or_else(|| panic!("{fault} passed"));
        let message = error.to_string();
        assert!(
            message.contains(words) && message.contains("/libcase.so"),
            "{fault}: {message}"
        );
        assert_eq!(error.exit_code(), 5, "{fault}");
    }
    put(&folder.path().join(CASE), &faulty("nowhere:none"));
    let registry = discover(&folder);
    for (role, name) in [
        (Role::QUANTIZER, "faulty"),
        (Role::ADAPTER, "faulty-adapter"),
        (Role::BACKEND, "faulty-backend"),
    ] {
        let passed = registry.probe(role, name, &Map::new());
        passed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let mut unknown = Map::new();
    unknown.insert("bits".to_owned(), 4.into());
    let refused = registry.probe(Role::QUANTIZER, "faulty", &unknown);
    assert!(matches!(refused, Err(RegistryError::Option(_))));
}

#[test]
fn a_rebuilt_library_is_loaded_beside_the_open_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = fs::read(library("linear4")).expect("just built");
    let make = || {
        let registry = discover(&folder);
        let made = registry.create_quantizer("linear4", &Map::new(), &Serial);
        made.expect("a good library")
    };
    let second = patched(&first, b"\"version\":\"0.1.0\"", b"\"version\":\"0.2.0\"");
    let versions = [&first, &second, &first].map(|bytes| {
        put(&folder.path().join(CASE), bytes);
        let (quantizer, identity) = make();
        let format = quantizer.format([4, 64]).expect("a shape that fits");
        assert_eq!(format.quantizer, "linear4");
        (identity.version, quantizer)
    });
    let names = versions.each_ref().map(|(version, _)| version.as_str());
    assert_eq!(names, ["0.1.0", "0.2.0", "0.1.0"]);
    for (version, quantizer) in &versions {
        let format = quantizer.format([8, 64]);
        assert_eq!(format.expect(version).shape, [8, 64]);
    }
}
