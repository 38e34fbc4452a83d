//! Libraries that are no plugin, or fail when opened or created -> the program's result.

mod libraries;
use espalier_torture::training;

use std::fs;
use std::process::Command;

use espalier_samples::{Patch, faulty, library, library_against, patched};
use libraries::{Libraries, golden};
use serde_json::Value as Json;
use training::{last_line, refused};

/// The entry of a component of the library `name`.
fn of_library<'a>(listed: &'a [Json], name: &str) -> &'a Json {
    let file = format!("/lib{name}.so");
    let found = listed.iter().find(|entry| {
        entry["file"]
            .as_str()
            .is_some_and(|path| path.ends_with(&file))
    });
    found.unwrap_or_else(|| panic!("lib{name}.so is not listed"))
}

fn broken(entry: &Json) -> String {
    let reason = entry["status"]["broken"]["reason"].as_str();
    reason
        .unwrap_or_else(|| panic!("{entry} is not broken"))
        .to_owned()
}

/// Faults of a library's code: the place, the kind, and the expected words.
const CODE: [(&str, &str); 14] = [
    (
        "open:segfault",
        "crashed with signal 11 (SIGSEGV) when it was opened",
    ),
    (
        "open:abort",
        "crashed with signal 6 (SIGABRT) when it was opened",
    ),
    (
        "open:exit",
        "ended the process with code 0 when it was opened",
    ),
    (
        "open:panic",
        "crashed with signal 6 (SIGABRT) when it was opened (it said: ",
    ),
    ("open:overflow", "has overflowed its stack"),
    ("open:loop", "did not return within 5 s when it was opened"),
    (
        "root:segfault",
        "crashed with signal 11 (SIGSEGV) when it was opened",
    ),
    (
        "root:abort",
        "crashed with signal 6 (SIGABRT) when it was opened",
    ),
    (
        "root:exit",
        "ended the process with code 0 when it was opened",
    ),
    ("root:panic", "a fault by choice"),
    ("root:loop", "did not return within 5 s when it was opened"),
    (
        "create:segfault",
        "crashed with signal 11 (SIGSEGV) in create of `faulty`",
    ),
    (
        "create:exit",
        "ended the process with code 0 in create of `faulty`",
    ),
    (
        "create:loop",
        "did not return within 5 s in create of `faulty`",
    ),
];

#[test]
fn code_that_ends_or_blocks_its_process_is_quarantined_alone() {
    let place = Libraries::new();
    let limit = "--set run.probe_timeout_secs=5";
    for (number, (fault, _)) in CODE.iter().enumerate() {
        place.put("all", &format!("f{number}"), &faulty(fault));
    }
    place.put(
        "all",
        "good",
        &fs::read(library("linear4")).expect("just built"),
    );
    let listed = place.listed("all", limit);
    for (number, (fault, words)) in CODE.iter().enumerate() {
        let reason = broken(of_library(&listed, &format!("f{number}")));
        assert!(reason.contains(words), "{fault}: {reason}");
    }
    assert_eq!(of_library(&listed, "good")["probe"], "passed");
    // Quarantined until the user retries it.
    let listed = place.listed("all", limit);
    for number in 0..CODE.len() {
        let reason = broken(of_library(&listed, &format!("f{number}")));
        assert!(
            reason.starts_with("quarantined, not opened again: "),
            "{reason}"
        );
    }
    let output = place.names("all", "faulty", limit);
    let words = "libf0.so | quarantined | crashed with signal 11 | --retry";
    refused(&output, 5, words, "named and quarantined");
    let output = place.names("all", "linear4", limit);
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
}

#[test]
fn a_run_that_names_a_library_probes_it_first() {
    let cases = [
        (
            "open:segfault",
            "crashed with signal 11 (SIGSEGV) when it was opened | next: report",
        ),
        (
            "root:exit",
            "ended the process with code 0 when it was opened",
        ),
        (
            "create:abort",
            "crashed with signal 6 (SIGABRT) in create of `faulty`",
        ),
        (
            "create:loop",
            "did not return within 5 s in create of `faulty`",
        ),
        // Caught inside the plugin: reported like other errors.
        (
            "create:panic",
            "plugin `faulty` | failed in create: panicked: a fault by choice",
        ),
    ];
    for (fault, words) in cases {
        let place = Libraries::new();
        place.put("one", "case", &faulty(fault));
        let output = place.names("one", "faulty", "--set run.probe_timeout_secs=5");
        let all = String::from_utf8_lossy(&output.stderr).replace("panicked at", "");
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(5), "{fault}: {all}");
        assert!(
            line.contains("/libcase.so") && line.contains("; next: "),
            "{fault}: {all}"
        );
        for word in words.split(" | ") {
            assert!(line.contains(word), "{fault}: no {word:?} in {line}");
        }
    }
}

#[test]
fn a_fixed_or_retried_library_leaves_quarantine() {
    let place = Libraries::new();
    let file = place.put("one", "case", &faulty("create:segfault"));
    let inspect = format!("plugins inspect {}", file.display());
    for more in ["", "", "--retry"] {
        let output = place.host("one", &format!("{inspect} {more}"));
        refused(
            &output,
            5,
            "libcase.so | SIGSEGV | in create of `faulty`",
            more,
        );
    }
    // The environment caused the fault: the same bytes pass on a retry.
    let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
    host.env("XDG_DATA_HOME", place.path("data"))
        .env("FAULT_CALL", "0");
    let output = host
        .args(format!("{inspect} --retry").split_whitespace())
        .output();
    let output = output.expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let output = place.host("one", &inspect);
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let file = place.put("two", "case", &faulty("root:abort"));
    assert_eq!(broken(&place.listed("two", "")[0]).find("crashed"), Some(0));
    fs::write(file, faulty("nowhere:none")).expect("our own file");
    let output = place.names("two", "faulty", "");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    // A damaged record is recreated.
    fs::write(place.path("data/espalier/probed.json"), "{").expect("our own file");
    let output = place.names("two", "faulty", "");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
}

/// A library built against an interface with another table layout.
#[test]
fn layout_differences_are_in_one_file_outside_the_temporary_folder() {
    let place = Libraries::new();
    place.put("plugins", "other", &of_another_layout());
    fs::create_dir(place.path("tmp")).expect("a folder");
    let mut reported = None;
    for more in ["", "", "--set run.seed=1"] {
        let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
        host.env("XDG_DATA_HOME", place.path("data"))
            .env("TMPDIR", place.path("tmp"));
        host.current_dir(place.0.path());
        let words =
            "generate --threads 1 --plugins linear4 --prompt a --max-tokens 1 --plugin-dir plugins";
        host.args(words.split_whitespace())
            .args(more.split_whitespace());
        host.arg("--model").arg(golden());
        let output = host.output().expect("the host starts");
        let line = refused(&output, 5, "differences between | layout-", more);
        let path = line
            .split_whitespace()
            .find(|word| word.contains("layout-"));
        let path = path
            .expect("a path")
            .trim_end_matches([';', ')', ','])
            .to_owned();
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text.len() > line.len(), "{text}");
        assert!(*reported.get_or_insert(path.clone()) == path, "{path}");
    }
    assert_eq!(training::names(&place.path("tmp")), [""; 0]);
    let kept = training::names(&place.path("data/espalier"));
    let layouts = kept.iter().filter(|name| name.starts_with("layout-"));
    assert_eq!(layouts.count(), 1, "{kept:?}");
}

fn of_another_layout() -> Vec<u8> {
    let patch = Patch {
        file: "core/interface/src/abi/quantizer.rs",
        from: "shape_rows: u64,\n    shape_cols: u64,\n    row_begin",
        to: "shape_cols: u64,\n    shape_rows: u64,\n    row_begin",
    };
    fs::read(library_against("linear4", "other-layout", &[patch])).expect("just built")
}

#[test]
fn files_that_are_no_plugin_of_this_host_are_named() {
    let good = fs::read(library("linear4")).expect("just built");
    let mut other_machine = good.clone();
    other_machine[18] = 183;
    let mut other_class = good.clone();
    other_class[4] = 1;
    let abi = good
        .windows(8)
        .find(|bytes| bytes.starts_with(b"\"abi\":["));
    let abi = abi.expect("a descriptor").to_vec();
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("text", b"#!/bin/sh\n".to_vec(), "begins with `#!/b`"),
        ("empty", Vec::new(), "begins with nothing"),
        ("machine", other_machine, "expected a library for"),
        ("class", other_class, "a 32-bit machine"),
        ("cut1", good[..40].to_vec(), "truncated or damaged"),
        ("cut2", good[..4096].to_vec(), "truncated or damaged"),
        (
            "cut3",
            good[..good.len() / 2].to_vec(),
            "truncated or damaged",
        ),
        (
            "cut4",
            good[..good.len() - 1].to_vec(),
            "truncated or damaged",
        ),
        (
            "newer",
            patched(&good, &abi, b"\"abi\":[9"),
            "built for plugin interface 9.",
        ),
        (
            "rootless",
            patched(
                &good,
                b"espalier_root_linear4\0",
                b"espalier_rooT_linear4\0",
            ),
            "espalier_roo",
        ),
        (
            "missing",
            patched(&good, b"libgcc_s.so.1\0", b"libgcc_z.so.1\0"),
            "libgcc_z.so.1: cannot open shared object file",
        ),
        (
            "layout",
            of_another_layout(),
            "table `quantizer` is laid out otherwise than in this host",
        ),
    ];
    let place = Libraries::new();
    for (name, bytes, words) in &cases {
        place.put("all", name, bytes);
        place.put(name, name, bytes);
        let output = place.names(name, "linear4", "");
        let line = refused(&output, 5, words, name);
        assert!(line.contains(&format!("/lib{name}.so")), "{line}");
    }
    place.put("all", "zgood", &faulty("nowhere:none"));
    let listed = place.listed("all", "");
    for (name, _, words) in &cases {
        let reason = broken(of_library(&listed, name));
        assert!(reason.contains(words), "{name}: {reason}");
    }
    assert_eq!(of_library(&listed, "zgood")["probe"], "passed");
    let output = place.names("all", "faulty", "");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
}

#[test]
fn duplicate_names_are_reported() {
    let place = Libraries::new();
    let good = fs::read(library("linear4")).expect("just built");
    place.put("two", "a", &good);
    place.put("two", "b", &good);
    let listed = place.listed("two", "");
    let by = of_library(&listed, "b")["status"]["shadowed"]["by"].as_str();
    assert!(by.expect("shadowed").ends_with("/liba.so"));
    let twice = patched(
        &faulty("nowhere:none"),
        b"\"name\":\"faulty-adapter\",\"role\"",
        b"\"name\":\"faulty-backend\",\"role\"",
    );
    place.put("twice", "twice", &twice);
    let output = place.names("twice", "faulty", "");
    refused(
        &output,
        5,
        "libtwice.so | two of its components are called `faulty-backend`",
        "",
    );
}
