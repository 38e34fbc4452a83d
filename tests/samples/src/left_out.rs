//! A facility that the machine lacks -> a test that fails and names what to install, or a line
//! about a skipped test.
//!
//! `.ci/run` skips nothing that the machine could have. A test never passes silently. It is skipped
//! if the environment or the processor excludes it. It then reports so directly, since the harness
//! captures the output of passing tests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::Command;
use std::thread;

/// The environment variable with a comma-separated list of facilities that this machine cannot
/// have.
pub const WITHOUT: &str = "ESPALIER_TESTS_WITHOUT";

/// The environment variable with the path of the file in which `.ci/run` finds a line for each
/// skipped test.
const RECORD: &str = "ESPALIER_TESTS_LEFT_OUT";

/// A facility that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facility {
    /// Python 3 with its standard library, as `python3`.
    Python,
    /// The right to create network namespaces, and `ip`.
    NetworkNamespaces,
    /// As root: `setpriv`, which drops some of root's rights.
    FewerRights,
    /// The right to create mount namespaces, and `unshare`.
    MountNamespaces,
    /// `strace`, and the right to trace one's own programs.
    Strace,
    /// Sources in a checkout, and `git`.
    Checkout,
}

impl Facility {
    /// Its name in [`WITHOUT`].
    pub fn name(self) -> &'static str {
        match self {
            Facility::Python => "python3",
            Facility::NetworkNamespaces => "network-namespaces",
            Facility::FewerRights => "setpriv",
            Facility::MountNamespaces => "mount-namespaces",
            Facility::Strace => "strace",
            Facility::Checkout => "checkout",
        }
    }

    /// The remedy if it is missing.
    fn remedy(self) -> &'static str {
        match self {
            Facility::Strace => "install it (`apt-get install strace`)",
            Facility::Checkout => "install git (`apt-get install git`), and test in a clone",
            Facility::Python => "install it (`apt-get install python3`)",
            Facility::NetworkNamespaces => {
                "run as root where network namespaces may be made, with `ip` (`apt-get install iproute2`)"
            }
            Facility::MountNamespaces => "run as root where namespaces of mounts may be made",
            Facility::FewerRights => {
                "install it (`apt-get install util-linux`), or run as a user who is not root"
            }
        }
    }

    /// The result of a test without the facility because of `why`: skipped if `without`, the value
    /// of [`WITHOUT`], names it.
    ///
    /// # Errors
    /// The remedy as a message, if `without` does not name it.
    pub fn missing(self, why: &str, without: &str) -> Result<String, String> {
        let name = self.name();
        if without.split(',').any(|named| named.trim() == name) {
            Ok(format!("{why}; {WITHOUT} names {name}"))
        } else {
            Err(format!(
                "the test needs {name}, and {why}: {}; where this machine cannot have it, say so with {WITHOUT}={name}",
                self.remedy()
            ))
        }
    }
}

/// Skips the running test because it lacks `need`; `why` is the reason.
///
/// # Panics
/// If the environment does not exclude it on this machine.
pub fn lacks(need: Facility, why: &str) {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    match need.missing(why, &without) {
        Ok(reason) => leave_out(&reason),
        Err(message) => panic!("{message}"),
    }
}

/// Reports that the running test, or a part of it, is skipped: on standard error, and to `.ci/run`,
/// which counts.
///
/// # Panics
/// If the record of `.ci/run` cannot be written.
pub fn leave_out(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("left out: {test}: {reason}\n");
    // The harness captures the output of macros, and shows it for failed tests.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(record) = std::env::var_os(RECORD) {
        let file = OpenOptions::new().append(true).create(true).open(record);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect(".ci/run named a file that can be written");
    }
}

/// Runs `test` of the current test program on a machine without programs, which lacks `need`. The
/// test must fail with a remedy. If the environment names `need`, it must pass and report that it
/// was skipped.
///
/// # Panics
/// If it does not.
pub fn assert_reports_skip(test: &str, need: Facility) {
    let program = std::env::current_exe().expect("a test is a file");
    let run = |without: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", test]).env("PATH", "");
        command.env(WITHOUT, without).env_remove(RECORD);
        let output = command.output();
        let output = output.expect("the test starts");
        let printed = [output.stdout, output.stderr]
            .map(|printed| String::from_utf8_lossy(&printed).into_owned());
        (output.status.success(), printed.concat())
    };
    let name = need.name();
    for without in ["", "something-else"] {
        let (passed, printed) = run(without);
        assert!(!passed, "{test} passes: {printed}");
        let remedy = format!("{WITHOUT}={name}");
        assert!(
            printed.contains("1 failed") && printed.contains(&remedy),
            "{printed}"
        );
    }
    let (passed, printed) = run(&format!("something-else, {name}"));
    assert!(passed && printed.contains("1 passed"), "{printed}");
    assert!(
        printed.contains(&format!("left out: {test}: ")),
        "{printed}"
    );
}
