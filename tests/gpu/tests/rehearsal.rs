//! The program that measures a card, over the mock libraries: in a folder of its own, without Rust,
//! without a network and with an empty environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_torture::built::program;
use serde_json::Value as Json;

/// A folder that `cargo xtask gpu pack` has staged; `gpu emulate` names it. All parts then run.
const PACK: &str = "ESPALIER_TESTS_PACK";

/// Where the mock libraries are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The working tree.
fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with the programs that the quick parts need.
fn quick_pack() -> tempfile::TempDir {
    let pack = tempfile::tempdir().expect("a folder");
    let programs = [
        (PathBuf::from(env!("CARGO_BIN_EXE_measure_card")), "run"),
        (program(), "host"),
        (tree().join("tests/peers/card_peer.py"), "card_peer.py"),
    ];
    for (from, name) in programs {
        fs::copy(&from, pack.path().join(name)).expect("copied");
    }
    pack
}

/// Whether this process may make a namespace without a network.
fn may_leave_the_network() -> bool {
    let probe = Command::new("unshare").args(["--net", "true"]).status();
    probe.is_ok_and(|status| status.success())
}

/// Runs `pack/run` with small shapes; results go into `out`.
fn measured(pack: &Path, out: &Path, arguments: &[&str]) -> (Output, Json) {
    let run = pack.join("run");
    let mut command = if may_leave_the_network() {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(run);
        command
    } else {
        Command::new(run)
    };
    command.args(arguments).arg("--small");
    command.arg("--tree").arg(tree()).arg("--out").arg(out);
    let libraries = espalier_tests_gpu::libraries(folder());
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.env("LD_LIBRARY_PATH", libraries);
    let output = command.output().expect("the program starts");
    let files = fs::read_dir(out).expect("a folder");
    let paths = files.map(|entry| entry.expect("an entry").path());
    let mut results = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let results = results
        .next()
        .unwrap_or_else(|| panic!("no results: {output:?}"));
    let name = results.file_name().unwrap_or_default().to_string_lossy();
    assert!(name.contains("-mock-0-without-a-card-run"), "{name}");
    let text = fs::read(&results).expect("read");
    (output, serde_json::from_slice(&text).expect("JSON"))
}

/// The rows of a part, which must be done.
fn rows<'a>(results: &'a Json, part: &str) -> &'a [Json] {
    let of = &results["parts"][part];
    assert_eq!(of["status"], "done", "{part}: {of:#}");
    of["rows"].as_array().expect("rows")
}

/// Checks the parts that every rehearsal has.
fn check_quick(results: &Json) {
    let kit = rows(results, "kit").last().expect("counts");
    assert_eq!(kit["failed"], 0, "{kit}");
    assert_ne!(kit["passed"], 0, "{kit}");
    let ops = rows(results, "ops");
    let timed = ops
        .iter()
        .filter(|row| row["of_ceiling"].as_f64() > Some(0.0));
    let missing = ops.iter().filter(|row| row["not_offered"].is_string());
    let (timed, missing) = (timed.count(), missing.count());
    assert_eq!(timed + missing, ops.len(), "{ops:#?}");
    assert!(timed > 50, "{timed} ops");
    let linear = &ops[0];
    // 32 tokens, 128 x 128: two operations each; input, output and weight in bf16.
    assert_eq!(linear["flops"], 2 * 32 * 128 * 128, "{linear}");
    assert_eq!(linear["bytes"], 2 * (2 * 32 * 128 + 128 * 128), "{linear}");
}

#[test]
fn runs_measure_over_the_mock_libraries() {
    match std::env::var_os(PACK) {
        None => quick(),
        Some(pack) => whole(Path::new(&pack)),
    }
}

/// In a folder that lacks a program, its part fails and the others are done.
fn quick() {
    let (pack, out) = (quick_pack(), tempfile::tempdir().expect("a folder"));
    let only = ["1", "--only", "ceilings,golden,kit,ops"];
    let (output, results) = measured(pack.path(), out.path(), &only);
    check_quick(&results);
    let golden = &results["parts"]["golden"];
    assert_eq!(golden["status"], "failed", "{golden}");
    let why = golden["why"].as_str().expect("words");
    assert!(why.contains("cargo xtask gpu pack"), "{why}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("failed: golden"), "{errors}");
    assert!(results["parts"]["streamed"].is_null(), "{results}");
}

/// A pack with compiled kernels, on a machine that has no others.
#[test]
fn kernels_beside_the_program_are_used_and_recorded() {
    let pack = quick_pack();
    let only = ["1", "--only", "kit,losses"];
    let run = || {
        let out = tempfile::tempdir().expect("a folder");
        let (output, results) = measured(pack.path(), out.path(), &only);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        results
    };
    assert!(run()["kernels"].is_null());
    let [kernels, cache] = ["kernels", "cache/espalier/cuda"].map(|name| pack.path().join(name));
    fs::rename(&cache, &kernels).expect("compiled kernels");
    let results = run();
    let expected = kernels.canonicalize().expect("a folder");
    assert_eq!(results["kernels"], expected.to_string_lossy().as_ref());
    assert!(!cache.exists(), "a kernel was compiled");
}

/// All parts of all runs but the peers' step, which needs torch.
fn whole(pack: &Path) {
    let out = tempfile::tempdir().expect("a folder");
    let (output, results) = measured(pack, out.path(), &["1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    check_quick(&results);
    assert_eq!(rows(&results, "golden")[0]["passed"], 1);
    for part in ["streamed", "losses"] {
        let compared = &rows(&results, part)[0];
        assert!(
            compared["relative_difference"].as_f64() < Some(1e-4),
            "{compared}"
        );
    }
    assert_eq!(rows(&results, "nccl")[0]["same_bits"], true);
    let decoders = rows(&results, "decoders");
    assert!(
        decoders.iter().all(|row| row["secs"].is_f64()),
        "{decoders:#?}"
    );
    let out = tempfile::tempdir().expect("a folder");
    let only = ["2", "--only", "step_none,step_layer,formats"];
    let (output, results) = measured(pack, out.path(), &only);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in ["step_none", "step_layer"] {
        let step = &rows(&results, part)[0];
        assert!(step["tokens_per_sec"].as_f64() > Some(0.0), "{step}");
    }
    let formats = rows(&results, "formats");
    assert_eq!(formats.len(), 5, "{formats:#?}");
    assert_eq!(formats[0]["of_nf4"], 1.0);
    let out = tempfile::tempdir().expect("a folder");
    let (output, results) = measured(pack, out.path(), &["3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (part, trainings) in [("longest_8b", 1), ("ranks_70b", 2), ("streamed_70b", 3)] {
        assert_eq!(rows(&results, part).len(), trainings, "{part}");
    }
    let streamed = &rows(&results, "streamed_70b")[2];
    // Three layers, in the forward and the backward pass, and the optimizer's state.
    assert!(streamed["fetched_bytes"].as_f64() > Some(0.0), "{streamed}");
    assert!(streamed["of_the_longer"].as_f64() > Some(0.0), "{streamed}");
}
