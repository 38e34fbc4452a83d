//! Why a library cannot be used, with what was expected and what was found.

use std::fmt;
use std::path::PathBuf;

use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MINOR};
use espalier_system::signal;
use serde::{Deserialize, Serialize};

use super::doing::Doing;

/// The option that lets libraries be opened that others may replace.
const ALLOWING: &str = "run.allow_world_writable_plugins = true";

/// A library that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct LibraryError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: LibraryFault,
}

/// What is wrong with a library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum LibraryFault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// It is not an ELF file.
    #[error("expected an ELF shared library, found a file that begins with {found}")]
    NotElf {
        /// Its first bytes.
        found: String,
    },
    /// It is an ELF file of another kind.
    #[error("expected a shared library, found an ELF file of type {found}")]
    NotShared {
        /// `e_type`.
        found: u16,
    },
    /// It was built for another processor.
    #[error("expected a library for {expected}, found one for {found}")]
    OtherMachine {
        /// This host's.
        expected: String,
        /// The library's.
        found: String,
    },
    /// It is truncated, or its headers are invalid.
    #[error("truncated or damaged: {reason} (the file has {bytes} bytes)")]
    Truncated {
        /// Its length.
        bytes: usize,
        /// What is missing or wrong.
        reason: String,
    },
    /// It is a library, but not a plugin.
    #[error("no section `.espalier`, so it is no plugin made with declare_plugin!")]
    NoSection,
    /// Its descriptor is invalid.
    #[error("{0}")]
    Descriptor(String),
    /// It was built with another version of the interface.
    #[error("built for plugin interface {}.{}, this host has {}", found[0], found[1], served())]
    Abi {
        /// The library's major and minor version.
        found: [u32; 2],
    },
    /// Others may write to it, or to a folder that leads to it.
    #[error("{who} may write to {} (mode {mode:o})", place(folder))]
    Writable {
        /// Who.
        who: Writers,
        /// The folder; none where the file itself is meant.
        folder: Option<PathBuf>,
        /// Permission bits.
        mode: u32,
    },
    /// Another user may replace it.
    #[error(
        "{} belongs to user {uid}, expected user {user} or root",
        place(folder)
    )]
    Foreign {
        /// The folder; none where the file itself is meant.
        folder: Option<PathBuf>,
        /// Its owner.
        uid: u32,
        /// Who runs this.
        user: u32,
    },
    /// It changed since it was inspected.
    #[error("changed since it was found: sha256 {expected} then, {found} now")]
    Changed {
        /// Hash when it was inspected.
        expected: String,
        /// Hash when it was opened.
        found: String,
    },
    /// The config pins another library of the plugin.
    #[error(
        "run.plugin_hashes pins plugin `{plugin}` to sha256 {expected}, the file has {found}; \
         nothing of it was loaded"
    )]
    Pinned {
        /// The plugin.
        plugin: String,
        /// The hash in the config.
        expected: String,
        /// The file's.
        found: String,
    },
    /// The config pins the plugins that may be loaded, without this one.
    #[error(
        "run.plugin_hashes does not name plugin `{plugin}`, whose file has sha256 {found}; \
         nothing of it was loaded"
    )]
    Unpinned {
        /// The plugin.
        plugin: String,
        /// The file's hash.
        found: String,
    },
    /// The mapped file is not the hashed one.
    #[error("another file took its place, or it was written to, while it was opened")]
    Exchanged,
    /// The dynamic linker refuses it.
    #[error("cannot be opened: {0}")]
    Open(String),
    /// It has no root symbol.
    #[error("no symbol `{symbol}`, although its section names that plugin")]
    NoRoot {
        /// The symbol.
        symbol: String,
    },
    /// It lacks a table that its components need.
    #[error("has no table `{table}` in version {version}")]
    NoTable {
        /// Name.
        table: String,
        /// Version.
        version: u32,
    },
    /// A table has another layout.
    #[error(
        "table `{table}` is laid out otherwise than in this host ({summary}; in full in {details})"
    )]
    Layout {
        /// Name.
        table: String,
        /// The difference in one line.
        summary: String,
        /// The file with all differences, or why it could not be written.
        details: String,
    },
    /// It ended the process in which it was tried, by a signal.
    #[error("crashed with signal {signal} ({}) {doing}{}", signal::name(*signal), quoted(stderr))]
    Crashed {
        /// The signal's number.
        signal: i32,
        /// The call that it was in.
        doing: Doing,
        /// What it wrote to standard error.
        #[serde(rename = "said")]
        stderr: String,
    },
    /// It ended the process in which it was tried, by a call of `exit`.
    #[error("ended the process with code {code} {doing}{}", quoted(stderr))]
    Exited {
        /// The exit code.
        code: i32,
        /// The call that it was in.
        doing: Doing,
        /// What it wrote to standard error.
        #[serde(rename = "said")]
        stderr: String,
    },
    /// It did not end in the time it was given.
    #[error("did not return within {secs} s {doing}")]
    Hung {
        /// The time in seconds.
        secs: u64,
        /// The call that it was in.
        doing: Doing,
    },
    /// It crashed, exited or hung when it was tried before, and is not opened again.
    #[error("quarantined, not opened again: {fault}")]
    Quarantined {
        /// The fault of that time.
        fault: Box<LibraryFault>,
    },
    /// It could not be tried in a process of its own.
    #[error("cannot be tried in a process of its own: {0}")]
    Untried(String),
}

/// Who may write, besides the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writers {
    /// Any user.
    Any,
    /// The members of the group of this number.
    Group(u32),
}

impl fmt::Display for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writers::Any => f.write_str("any user"),
            Writers::Group(gid) => write!(f, "members of group {gid}"),
        }
    }
}

/// The folder that is meant, or the file itself.
fn place(folder: &Option<PathBuf>) -> String {
    match folder {
        None => "it".to_owned(),
        Some(folder) => format!("its folder {}", folder.display()),
    }
}

/// What a library wrote last, in parentheses.
fn quoted(stderr: &str) -> String {
    match stderr {
        "" => String::new(),
        _ => format!(" (it said: {stderr})"),
    }
}

impl LibraryError {
    /// What the user can do next; lower case, no full stop.
    pub fn next_step(&self) -> String {
        let file = self.path.display();
        match &self.fault {
            LibraryFault::Crashed { .. }
            | LibraryFault::Exited { .. }
            | LibraryFault::Hung { .. }
            | LibraryFault::Quarantined { .. } => format!(
                "report it to the plugin's author and install a fixed build, \
                 or try this one again with `host plugins inspect {file} --retry`"
            ),
            LibraryFault::Writable { who, folder, .. } => {
                let letter = match who {
                    Writers::Any => 'o',
                    Writers::Group(_) => 'g',
                };
                let place = folder.as_deref().unwrap_or(&self.path).display();
                format!("run `chmod {letter}-w {place}`, or set {ALLOWING}")
            }
            LibraryFault::Foreign { .. } => {
                format!("copy it to a folder of your own, or set {ALLOWING}")
            }
            LibraryFault::Pinned { plugin, found, .. } => format!(
                "install the pinned library; only where you trust this one, write \
                 run.plugin_hashes.{plugin} = \"{found}\" or lock anew with `host plugins lock`"
            ),
            LibraryFault::Unpinned { plugin, found } => format!(
                "remove it from the searched folder, or, where you trust it, add \
                 run.plugin_hashes.{plugin} = \"{found}\""
            ),
            fault => fault.next_step().to_owned(),
        }
    }
}

/// The versions of the interface that this host talks to.
fn served() -> String {
    let newest = format!("{ABI_MAJOR}.{ABI_MINOR}");
    match ABI_OLDEST_MINOR {
        ABI_MINOR => newest,
        oldest => format!("{newest} and takes plugins from {ABI_MAJOR}.{oldest} on"),
    }
}

impl LibraryFault {
    fn next_step(&self) -> &'static str {
        match self {
            LibraryFault::Unreadable(_) => "check the file and its permissions",
            LibraryFault::Changed { .. } | LibraryFault::Exchanged => {
                "start again when nothing writes to it any more"
            }
            LibraryFault::Untried(_) => "fix the cause, then start again",
            LibraryFault::Open(_) => "install what it needs, or remove it",
            LibraryFault::OtherMachine { .. } | LibraryFault::Truncated { .. } => {
                "build or copy it again, or remove it"
            }
            LibraryFault::Abi { found } if *found > [ABI_MAJOR, ABI_MINOR] => {
                "update this host, or build it against this host's espalier-interface"
            }
            _ => "rebuild it against this host's espalier-interface, or remove it",
        }
    }
}
