//! Everything that can end a run, with its exit code and the user's next step.

use std::io;
use std::path::PathBuf;

use espalier_interface::{DType, ErrorCode, PluginError};

use crate::bytes::Bytes;
use crate::call_watch::LateCall;
use crate::checkpoint::CheckpointError;
use crate::config::ConfigError;
use crate::data::DataError;
use crate::files::{ExitClass, FileError};
use crate::ranks::Lost;
use crate::registry::{PluginIdentity, RegistryError};

/// The result of the trainer's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the trainer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The config is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The rows cannot be trained on.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model, adapter or output directory cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The arguments do not make sense together, or ask for what is not there.
    #[error("{message}")]
    Usage {
        /// What was expected and what was found.
        message: String,
        /// What the user can do.
        next_step: String,
    },
    /// A plugin cannot be found, opened or made.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A plugin failed.
    #[error("plugin `{plugin}` failed in {callback}{}", in_file(.file))]
    Plugin {
        /// The component's name.
        plugin: String,
        /// The call that failed: `encode`, `launch`.
        callback: String,
        /// The library; none where the plugin is linked into the host.
        file: Option<PathBuf>,
        /// What the plugin said.
        source: PluginError,
    },
    /// A plugin's call does not return.
    #[error("{call} does not return: no sign of progress for {} s", call.secs)]
    Hung {
        /// The call.
        call: Box<LateCall>,
        /// The key of the config that limits it.
        limited_by: &'static str,
    },
    /// The weights do not fit the model, the adapter or the config.
    #[error("{path}: {message}")]
    Checkpoint {
        /// The file or directory.
        path: PathBuf,
        /// What was expected and what was found.
        message: String,
    },
    /// A checkpoint cannot be taken.
    #[error(transparent)]
    Resume(#[from] CheckpointError),
    /// A rank is lost, and the others cannot go on without it.
    #[error("{0}")]
    Peer(Lost),
    /// Processes of a run did not come together in time.
    #[error("the processes did not come together within {secs} s: {missing}{}", waiting(.inside))]
    NotMet {
        /// The time in seconds.
        secs: u64,
        /// Who did not come, or that it is not known.
        missing: String,
        /// The call in which this process waits, where it is in one.
        inside: Option<String>,
    },
    /// A number that is not finite.
    #[error("step {step}: {tensor} is not finite")]
    NotFinite {
        /// The optimizer step, counted from 1.
        step: u64,
        /// The first tensor in which it was seen.
        tensor: String,
    },
    /// Logits that are not finite, where text is generated.
    #[error("the logits of token {token} of an answer are not finite")]
    LogitsNotFinite {
        /// The token of the answer, counted from 1.
        token: u64,
    },
    /// A finite number that a narrower dtype cannot hold.
    #[error("tensor `{tensor}` has a number beyond the largest of {dtype}")]
    Unwritable {
        /// The tensor that was to be written.
        tensor: String,
        /// Its dtype.
        dtype: DType,
    },
    /// The plan, or an allocation, exceeds the memory there is.
    #[error("not enough {kind} memory: {needed} needed, {available} available")]
    OutOfMemory {
        /// `host` or the device's name.
        kind: String,
        /// What the run takes at its peak.
        needed: Bytes,
        /// What there is.
        available: Bytes,
    },
    /// A running job goes on as it was.
    #[error("{asked} is refused, the run goes on as it was: {reason}")]
    SwapRefused {
        /// `quantizer=hqq`.
        asked: String,
        /// The run's own words.
        reason: String,
        /// The code of the failure that kept the job from it.
        exit_code: u8,
        /// What the user can do.
        next_step: String,
    },
    /// An arm of a comparison is at fault.
    #[error("arm `{arm}`: {source}")]
    Arm {
        /// Its name.
        arm: String,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// Arms of a comparison failed; the others are done.
    #[error("{failed} of {runs} runs failed; the first, of arm `{arm}`: {message}")]
    ArmsFailed {
        /// Runs that failed.
        failed: usize,
        /// All runs.
        runs: usize,
        /// The first arm that failed.
        arm: String,
        /// What it said.
        message: String,
    },
    /// A signal ended a comparison.
    #[error("stopped by signal {signal}: {done} of {runs} runs are done")]
    ComparisonStopped {
        /// The signal's number.
        signal: i32,
        /// Runs that had come to their end.
        done: usize,
        /// All runs.
        runs: usize,
        /// The command that goes on, where it is known.
        command: Option<String>,
    },
    /// A signal ended what writes nothing.
    #[error("stopped by signal {signal}")]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
    /// A signal ended the run.
    #[error("stopped by signal {signal} after step {step}")]
    Stopped {
        /// The signal's number.
        signal: i32,
        /// The last step that was done.
        step: u64,
        /// What was saved.
        saved: Option<PathBuf>,
    },
}

impl Error {
    /// The error for a call to a plugin that failed.
    pub fn plugin(plugin: &str, callback: &str, source: PluginError) -> Self {
        let (plugin, callback) = (plugin.to_owned(), callback.to_owned());
        Error::Plugin {
            plugin,
            callback,
            file: None,
            source,
        }
    }

    /// The same error, naming the component that plays `role` where only the role was known.
    pub fn naming(mut self, role: &str, identity: &PluginIdentity) -> Self {
        if let Error::Plugin { plugin, file, .. } = &mut self
            && plugin == role
        {
            *plugin = identity.component.clone();
            *file = identity.file.clone();
        }
        self
    }

    /// The same error, with the command that goes on from the older checkpoint that it offers.
    pub fn offering(mut self, resuming: impl FnOnce(u64) -> String) -> Self {
        if let Error::Resume(CheckpointError::Damaged {
            older: Some(step),
            command,
            ..
        }) = &mut self
        {
            *command = Some(resuming(*step));
        }
        self
    }

    /// The same error, of a run that has its output directory: a file system that cannot be written now could be then.
    pub(crate) fn in_progress(self) -> Self {
        match self {
            Error::File(FileError::Write { path, source })
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                Error::File(FileError::BecameReadOnly { path, source })
            }
            other => other,
        }
    }

    /// The same error, of the arm `arm` of a comparison.
    pub(crate) fn of_arm(self, arm: &str) -> Self {
        Error::Arm {
            arm: arm.to_owned(),
            source: Box::new(self),
        }
    }

    /// The same error, with the command that goes on with the comparison that it ended.
    pub fn going_on(mut self, resuming: impl FnOnce() -> String) -> Self {
        if let Error::ComparisonStopped { command, .. } = &mut self {
            *command = Some(resuming());
        }
        self
    }

    /// The process's exit code: 2 usage or config, 3 data, 4 checkpoint, 5 plugin, 6 peer,
    /// 7 numbers, 8 resources, 9 arms of a comparison, 128 + the signal after a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Usage { .. } => 2,
            Error::Data(error) if error.is_of_resources() => 8,
            Error::Data(_) => 3,
            Error::File(error) => error.exit_class().code(),
            Error::Checkpoint { .. } => 4,
            Error::Resume(error) => error.exit_code(),
            Error::Registry(error) => error.exit_code(),
            Error::Plugin { source, .. } => match source.code {
                ErrorCode::NOT_FINITE => 7,
                ErrorCode::OUT_OF_MEMORY => 8,
                _ => 5,
            },
            Error::Hung { .. } => 5,
            Error::Peer(_) | Error::NotMet { .. } => 6,
            Error::NotFinite { .. } | Error::LogitsNotFinite { .. } | Error::Unwritable { .. } => 7,
            Error::OutOfMemory { .. } => 8,
            Error::SwapRefused { exit_code, .. } => *exit_code,
            Error::Arm { source, .. } => source.exit_code(),
            Error::ArmsFailed { .. } => 9,
            Error::ComparisonStopped { signal, .. } => signal_code(*signal),
            Error::Stopped { signal, .. } | Error::Interrupted { signal } => signal_code(*signal),
        }
    }

    /// What the user can do next; lower case, no full stop.
    pub fn next_step(&self) -> String {
        match self {
            Error::Config(error) => error.next_step(),
            Error::Usage { next_step, .. } => next_step.clone(),
            Error::Data(DataError::Lost { .. }) => {
                "see `host data doctor` for the rows, or set data.max_lost; nothing was written".into()
            }
            Error::Data(DataError::Checked { .. }) => {
                "correct the rows, or set what is named: data.on_bad_row, data.max_seq_len, data.max_lost".into()
            }
            Error::Data(_) => "correct what the message names; nothing was written".into(),
            Error::File(error) => match error.exit_class() {
                ExitClass::Usage => "check the path, or choose another".into(),
                ExitClass::Checkpoint => "download or export that file again".into(),
                ExitClass::Resources => {
                    "see to that disk, then start again (a training run goes on with --resume): \
                     what was there before is untouched"
                        .into()
                }
            },
            Error::Registry(error) => error.next_step(),
            Error::Plugin { source, plugin, .. } => match source.code {
                ErrorCode::INVALID => format!("see `host plugins inspect {plugin}`"),
                ErrorCode::UNSUPPORTED => "choose another plugin or another option".into(),
                ErrorCode::OUT_OF_MEMORY => memory_step(),
                ErrorCode::NOT_FINITE => numbers_step(),
                _ => format!("report it to the author of `{plugin}`, with this message"),
            },
            Error::Hung { call, limited_by } => format!(
                "report it to the author of `{}`, or raise {limited_by} where it only takes longer; a training run goes on \
                 from its last checkpoint with --resume",
                call.plugin
            ),
            Error::Checkpoint { .. } => {
                "check that it is complete and belongs to this model".into()
            }
            Error::Resume(error) => error.next_step(),
            Error::Peer(lost) => lost.next_step(),
            Error::NotMet { .. } => {
                "see to those processes, their machines and the network between, or raise run.join_timeout_secs where they only \
                 take longer; then start again, with --resume where the run had begun"
                    .into()
            }
            Error::NotFinite { .. } => format!(
                "{}, with another --out: --resume would come to the same number",
                numbers_step()
            ),
            Error::LogitsNotFinite { .. } => {
                "try model.compute = \"f32\"; if it stays, the weights hold numbers that are not finite".into()
            }
            Error::Unwritable { .. } => "choose a wider --dtype: f32 or bf16".into(),
            Error::OutOfMemory { .. } => memory_step(),
            Error::SwapRefused { next_step, .. } => next_step.clone(),
            Error::Interrupted { .. } => "start again".into(),
            Error::Arm { source, .. } => source.next_step(),
            Error::ArmsFailed { .. } => {
                "see the report of the others; correct what it says and go on with --resume, which \
                 tries the failed runs again"
                    .into()
            }
            Error::ComparisonStopped { command, .. } => match command {
                Some(command) => format!("every run is saved: go on with {command}"),
                None => "every run is saved: go on with --resume".into(),
            },
            Error::Stopped { saved, .. } => match saved {
                Some(path) => format!(
                    "go on with --resume: what was learned so far is in {}",
                    path.display()
                ),
                None => "nothing was trained yet: start again with --resume".into(),
            },
        }
    }
}

/// A call to the backend -> the error that names the call, where it failed.
pub(crate) trait BackendCall<T> {
    /// The result, with `callback` as what failed.
    fn during(self, callback: &str) -> Result<T>;
}

impl<T> BackendCall<T> for std::result::Result<T, PluginError> {
    fn during(self, callback: &str) -> Result<T> {
        self.map_err(|error| Error::plugin("backend", callback, error))
    }
}

/// An error and its causes in one line, `what failed: why: why`.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = one_line(&error.to_string());
    let mut said = line.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = one_line(&cause.to_string());
        // An error that shows its source itself would say it twice.
        if !said.contains(&text) {
            line = format!("{line}: {text}");
            said = text;
        }
        source = cause.source();
    }
    line
}

/// Text of several lines in one, with characters that steer a terminal as their escapes.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        match c.is_control() && c != '\t' {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(130)
}

fn memory_step() -> String {
    "lower data.max_seq_len or data.micro_batch, set model.recompute = \"layer\", \
     or see `host plan`"
        .into()
}

fn numbers_step() -> String {
    "lower optim.learning_rate, raise the warm-up, or try model.compute = \"f32\"".into()
}

fn waiting(inside: &Option<String>) -> String {
    match inside {
        Some(inside) => format!("; this one waits in {inside}"),
        None => String::new(),
    }
}

fn in_file(file: &Option<PathBuf>) -> String {
    match file {
        Some(path) => format!(" ({})", path.display()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(code: ErrorCode) -> Error {
        Error::Plugin {
            plugin: "nf4".into(),
            callback: "encode".into(),
            file: Some("/plugins/libnf4.so".into()),
            source: PluginError::new(code, "weight is not finite"),
        }
    }

    #[test]
    fn a_plugins_own_code_decides_what_kind_of_failure_it_is() {
        assert_eq!(plugin(ErrorCode::PANIC).exit_code(), 5);
        assert_eq!(plugin(ErrorCode::INVALID).exit_code(), 5);
        assert_eq!(plugin(ErrorCode::NOT_FINITE).exit_code(), 7);
        assert_eq!(plugin(ErrorCode::OUT_OF_MEMORY).exit_code(), 8);
        let shown = plugin(ErrorCode::PANIC).to_string();
        assert_eq!(shown, "plugin `nf4` failed in encode (/plugins/libnf4.so)");
    }

    #[test]
    fn signals_follow_the_shells_custom() {
        let stopped = |signal: i32| Error::Stopped {
            signal,
            step: 3,
            saved: None,
        };
        assert_eq!(stopped(2).exit_code(), 130);
        assert_eq!(stopped(15).exit_code(), 143);
    }

    #[test]
    fn a_line_steers_no_terminal() {
        let text = "a\n  b\u{1b}[2J\0\u{9b}1m é\r\n";
        assert_eq!(one_line(text), "a b\\u{1b}[2J\\u{0}\\u{9b}1m é");
    }

    #[test]
    fn memory_is_shown_in_powers_of_two() {
        let error = Error::OutOfMemory {
            kind: "host".into(),
            needed: Bytes(3 << 30),
            available: Bytes(512 << 20),
        };
        let shown = error.to_string();
        assert_eq!(
            shown,
            "not enough host memory: 3.00 GiB needed, 512.00 MiB available"
        );
        assert_eq!(error.exit_code(), 8);
    }
}
