//! What a machine lacks -> a test that fails and says what to install, or a line about a test that
//! was left out.
//!
//! Where `.ci/run` runs nothing is left out that the machine could have. A test never passes in
//! silence: it is left out where the environment says that this machine cannot run it, or where its
//! processor cannot, and then says so past the harness, which keeps what passing tests print to
//! itself.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::Command;
use std::thread;

/// The environment variable that names, with commas between them, what this machine cannot have.
pub const WITHOUT: &str = "ESPALIER_TESTS_WITHOUT";

/// The environment variable that names the file in which `.ci/run` finds a line for each test that
/// was left out.
const RECORD: &str = "ESPALIER_TESTS_LEFT_OUT";

/// What a test needs of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facility {
    /// Python 3 with its own library, as `python3`.
    Python,
    /// The right to make network namespaces, and `ip`.
    NetworkNamespaces,
    /// As root: `setpriv`, which gives up some of root's rights.
    FewerRights,
    /// The right to make namespaces of mounts, and `unshare`.
    MountNamespaces,
    /// `strace`, and the right to trace one's own programs.
    Strace,
    /// Sources in a checkout, and `git`.
    Checkout,
}

impl Facility {
    /// The name that [`WITHOUT`] knows it by.
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

    /// What to do where it is missing.
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

    /// What a test that lacks it comes to because of `why`: left out where `without`, the value of
    /// [`WITHOUT`], names it.
    ///
    /// # Errors
    /// Where it does not: what to do.
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

/// Leaves the running test out because it lacks `need`, as `why` tells.
///
/// # Panics
/// Where the environment does not say that this machine cannot have it.
pub fn lacks(need: Facility, why: &str) {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    match need.missing(why, &without) {
        Ok(reason) => leave_out(&reason),
        Err(message) => panic!("{message}"),
    }
}

/// Tells that the running test, or a part of it, is left out: on standard error, and to `.ci/run`,
/// which counts.
///
/// # Panics
/// Where `.ci/run` cannot be told.
pub fn leave_out(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("left out: {test}: {reason}\n");
    // The harness captures what macros print, and shows it for tests that fail.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(record) = std::env::var_os(RECORD) {
        let file = OpenOptions::new().append(true).create(true).open(record);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect(".ci/run named a file that can be written");
    }
}

/// Runs `test` of the test program at work on a machine that has no programs at all, and so lacks
/// `need`: it must fail and say what to do, and where the environment names `need`, pass and say
/// that it was left out.
///
/// # Panics
/// Where it does not.
pub fn assert_told(test: &str, need: Facility) {
    let program = std::env::current_exe().expect("a test is a file");
    let run = |without: &str| {
        let mut command = Command::new(&program);
        command.args(["--exact", test]).env("PATH", "");
        command.env(WITHOUT, without).env_remove(RECORD);
        let output = command.output();
        let output = output.expect("the test starts");
        let said =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.success(), said.concat())
    };
    let name = need.name();
    for without in ["", "something-else"] {
        let (passed, said) = run(without);
        assert!(!passed, "{test} passes: {said}");
        let told = format!("{WITHOUT}={name}");
        assert!(said.contains("1 failed") && said.contains(&told), "{said}");
    }
    let (passed, said) = run(&format!("something-else, {name}"));
    assert!(passed && said.contains("1 passed"), "{said}");
    assert!(said.contains(&format!("left out: {test}: ")), "{said}");
}
