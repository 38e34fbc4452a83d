//! Bugs that are planted in kernels of the backend `cuda`, and the kit's checks that must find
//! them.
//!
//! Each bug is a text of a kernel's source and what is compiled in its place. The check of one op
//! then runs in a process of its own, over the mock libraries, in the order of threads that shows
//! the bug. It must fail because of what the kernel did, not because the source does not compile.
//!
//! Bugs of products by cuBLASLt are planted between the backend and the mock library, which then
//! does what a wrong call would.

mod bugs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use bugs::{BUGS, Bug, FINISH, FORWARD, LIBRARY_BUGS, LibraryBug};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Kernels compiled without bugs, of all tests here.
fn common_cache() -> PathBuf {
    espalier_tests_gpu::kernels(folder())
}

/// Cases of an op, in an order of threads, with kernels in `cache` and products of a kind.
fn check([op, cases, threads]: [&str; 3], products: &str, cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_check_op"));
    command.args([op, cases, products]);
    command.arg(espalier_tests_gpu::libraries(folder()));
    command.arg(cache).env("MOCK_CUDA_THREADS", threads);
    command
}

/// What a check says.
fn said(mut command: Command) -> String {
    let output = command.output().expect("the check runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Puts the common kernels that a bug does not touch into `cache`.
fn lend_kernels(bug: &Bug, cache: &Path) {
    fs::create_dir_all(cache).expect("a folder");
    // A header of one op has the begin of the names of its kernels; the others are in most of them.
    let stem = bug.file.split('.').next().unwrap_or_default();
    if ["element", "packs"].contains(&stem) {
        return;
    }
    for entry in fs::read_dir(common_cache()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(stem) && name.ends_with(".cubin") {
            fs::copy(entry.path(), cache.join(&*name)).expect("a copy of a kernel");
        }
    }
}

/// What is wrong where a bug is not found.
fn missed(number: usize, bug: &Bug) -> Option<String> {
    let cache = folder().join(format!("planted-{}-{number}", std::process::id()));
    lend_kernels(bug, &cache);
    let products = if bug.file == FINISH {
        "cublaslt"
    } else {
        "own"
    };
    let mut command = check([bug.op, bug.cases, bug.threads], products, &cache);
    command.env("MOCK_NVRTC_FILE", bug.file);
    command.env("MOCK_NVRTC_FROM", bug.from);
    command.env("MOCK_NVRTC_TO", bug.to);
    let said = said(command);
    fs::remove_dir_all(&cache).expect("the folder");
    let is_found = said.starts_with("failed: ") && !said.contains("does not compile");
    (!is_found).then(|| format!("{}, {}: {said}", bug.op, bug.what))
}

/// What is wrong where a bug of products by the library is not found.
fn missed_by_library(bug: &LibraryBug) -> Option<String> {
    let mut command = check([bug.op, bug.cases, FORWARD], "cublaslt", &common_cache());
    command.env("MOCK_CUBLASLT_BUG", bug.name);
    let said = said(command);
    (!said.starts_with("failed: ")).then(|| format!("{}, {}: {said}", bug.op, bug.name))
}

/// Runs `body` for each number below `count`, as many at once as the machine has cores.
fn each(count: usize, body: impl Fn(usize) -> Option<String> + Sync) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let said = body(number);
            found.lock().expect("no panic").extend(said);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("no panic")
}

/// The kit runs in the forward order, so that only others need a check without a bug.
fn the_checks_pass_without_bugs() {
    let ordered = BUGS.iter().filter(|bug| bug.threads != FORWARD);
    let mut checks: Vec<_> = ordered
        .map(|bug| [bug.op, bug.cases, bug.threads])
        .collect();
    checks.sort_unstable();
    checks.dedup();
    let failed = each(checks.len(), |number| {
        let said = said(check(checks[number], "own", &common_cache()));
        let is_met = said.starts_with("passed") || said.starts_with("skipped");
        (!is_met).then(|| format!("{:?}: {said}", checks[number]))
    });
    assert!(failed.is_empty(), "without a bug:\n{}", failed.join("\n"));
}

#[test]
fn planted_bugs_are_found() {
    the_checks_pass_without_bugs();
    let count = BUGS.len() + LIBRARY_BUGS.len();
    let missed = each(count, |number| match BUGS.get(number) {
        Some(bug) => missed(number, bug),
        None => missed_by_library(&LIBRARY_BUGS[number - BUGS.len()]),
    });
    assert!(
        missed.is_empty(),
        "{} of {count} bugs are not found:\n{}",
        missed.len(),
        missed.join("\n")
    );
}
