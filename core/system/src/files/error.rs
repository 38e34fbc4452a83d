//! Errors of files and directories, with expected and found values and the exit class.

use std::io;
use std::path::PathBuf;

use espalier_interface::bytes::Bytes;
use safetensors::Dtype;

use super::fetch_error::FetchError;
use super::file_kind::FileKind;
use super::run_state::RunState;
use crate::failure::{ExitClass, Failure};

/// A failure of reading or writing model, adapter and run files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Neither a directory nor a repository in the local cache.
    #[error(
        "no directory `{name}`, and no repository of that name in the cache {cache}{}; \
         download it with `{command}`", not_asked(.offline)
    )]
    NotInCache {
        name: String,
        cache: PathBuf,
        /// The variable that forbids to ask the hub, if one does.
        offline: Option<&'static str>,
        command: String,
    },
    /// Neither a directory, nor in the local cache, nor given by the hub.
    #[error("there is no directory `{name}`, and it was not fetched from {endpoint}: {reason}")]
    NotFetched {
        name: String,
        endpoint: String,
        reason: FetchError,
    },
    /// The cache holds the repository but not the revision its `refs/main` names.
    #[error("the cached repository {path} is not complete: {problem}; run `{command}` again")]
    CacheIncomplete {
        path: PathBuf,
        problem: String,
        command: String,
    },
    /// A path that is neither a directory nor a valid repository id.
    #[error("{path} is not a directory; give a model directory or a repository id `org/name`")]
    NotADirectory { path: PathBuf },
    /// A directory without a required file.
    #[error("{directory} has no {expected}; {advice}")]
    MissingFile {
        directory: PathBuf,
        expected: String,
        advice: String,
    },
    /// The operating system refused to open, list or read something.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// A file that became shorter after its header was checked.
    #[error("{path} ended while tensor `{tensor}` was read: expected {expected} bytes at {offset}")]
    EndedEarly {
        path: PathBuf,
        tensor: String,
        offset: u64,
        expected: u64,
    },
    /// A file larger than the limit of its kind.
    #[error("{path}: {kind} may have at most {limit}, found {found} bytes")]
    TooLarge {
        path: PathBuf,
        kind: FileKind,
        limit: Bytes,
        found: u64,
    },
    /// Text that is not the expected JSON.
    #[error("{path} is not valid: {source}")]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },

    /// A file too short for the length of its header.
    #[error("{path} is not a safetensors file: it has {found} bytes, at least 8 are needed")]
    NoHeader { path: PathBuf, found: u64 },
    /// A header whose stated length exceeds the limit of the format.
    #[error("{path}: its header states a length of {found} bytes, at most {limit} are allowed")]
    HeaderTooLarge {
        path: PathBuf,
        found: u64,
        limit: u64,
    },
    /// A header whose stated end is after the end of the file.
    #[error(
        "{path} is truncated: its header states a length of {header_bytes} bytes, the file has \
         {file_bytes}; copy or download it again"
    )]
    HeaderBeyondFile {
        path: PathBuf,
        header_bytes: u64,
        file_bytes: u64,
    },
    /// A header that is not the JSON object of the format.
    #[error("{path}: its header is not valid: {source}")]
    HeaderJson {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// A tensor name that is empty, too long or has control characters.
    #[error("{path}: tensor name {found:?} is empty, too long or has control characters")]
    TensorName { path: PathBuf, found: String },
    /// A shape whose element count or byte count does not fit 64 bits.
    #[error("{path}: tensor `{tensor}` of shape {shape:?} and dtype {dtype} has too many bytes")]
    ShapeOverflow {
        path: PathBuf,
        tensor: String,
        shape: Vec<u64>,
        dtype: Dtype,
    },
    /// A byte range that does not fit the shape and dtype.
    #[error(
        "{path}: tensor `{tensor}` of shape {shape:?} and dtype {dtype} needs {expected} bytes, \
         its byte range has {found}"
    )]
    ByteCount {
        path: PathBuf,
        tensor: String,
        shape: Vec<u64>,
        dtype: Dtype,
        expected: u64,
        found: u64,
    },
    /// A byte range that ends before it starts, overlaps another or leaves a hole.
    #[error(
        "{path}: tensor `{tensor}` has the byte range {start}..{end}, \
         expected one that starts at {expected_start}"
    )]
    ByteRange {
        path: PathBuf,
        tensor: String,
        start: u64,
        end: u64,
        expected_start: u64,
    },
    /// A file whose data is shorter or longer than its header states.
    #[error(
        "{path}: its header describes {expected} bytes of data, the file holds {found}; \
         copy or download it again"
    )]
    DataLength {
        path: PathBuf,
        expected: u64,
        found: u64,
    },

    /// An entry of an index that is not a plain file name.
    #[error(
        "{path}: tensor `{tensor}` is said to be in {found:?}; \
         expected the plain name of a file in the same directory"
    )]
    IndexEntry {
        path: PathBuf,
        tensor: String,
        found: String,
    },
    /// A link that leads out of its directory.
    #[error("{path} is a link to {target}, outside its directory; copy the file there instead")]
    LeavesDirectory { path: PathBuf, target: PathBuf },
    /// Something that is not a regular file where one is expected.
    #[error("{path} is not a regular file: expected {kind}, found {found}")]
    NotAFile {
        path: PathBuf,
        kind: FileKind,
        found: &'static str,
    },
    /// A shard that the index names and the directory lacks.
    #[error(
        "{directory} lacks the shard `{shard}`, which {index} names (for `{tensor}`, for one); \
         download the model again"
    )]
    MissingShard {
        directory: PathBuf,
        index: String,
        shard: String,
        tensor: String,
    },
    /// A tensor that is missing in the shard named by the index.
    #[error("{path} lacks the tensor `{tensor}`, which the index says it holds")]
    NotInShard { path: PathBuf, tensor: String },

    /// A tensor that the files do not hold.
    #[error("{path} has no tensor `{tensor}`{}", nearest_names(.nearest))]
    MissingTensor {
        path: PathBuf,
        tensor: String,
        nearest: Vec<String>,
    },
    /// A tensor whose shape differs from that of the model's or adapter's config.
    #[error("{path}: tensor `{tensor}` has shape {found:?}, expected {expected:?}")]
    Shape {
        path: PathBuf,
        tensor: String,
        expected: Vec<u64>,
        found: Vec<u64>,
    },
    /// A range of elements outside the tensor.
    #[error("{path}: tensor `{tensor}` has {found} elements, {expected} are expected")]
    Elements {
        path: PathBuf,
        tensor: String,
        expected: u64,
        found: u64,
    },
    /// A dtype that cannot be read as floating-point numbers.
    #[error("{path}: tensor `{tensor}` is {found}; expected F32, F16, BF16 or F64")]
    NotFloat {
        path: PathBuf,
        tensor: String,
        found: Dtype,
    },

    /// A written file whose tensors differ from its announced header.
    #[error("{path}: tensor `{tensor}` was announced with {expected} bytes, {found} were written")]
    Announced {
        path: PathBuf,
        tensor: String,
        expected: u64,
        found: u64,
    },
    /// A file to be written with the same tensor twice, or of a dtype the format lacks.
    #[error("{path}: cannot write tensor `{tensor}`: {problem}")]
    Unwritable {
        path: PathBuf,
        tensor: String,
        problem: String,
    },
    /// A full disk, a quota or a file size limit.
    #[error(
        "no room for {path}: it needs {needed_bytes} bytes{}; nothing was replaced, \
         make room and run again",
        free_bytes_note(.free_bytes)
    )]
    DiskFull {
        path: PathBuf,
        needed_bytes: u64,
        free_bytes: Option<u64>,
        source: io::Error,
    },
    /// The operating system refused to create, write, sync or rename something.
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// A file system that became read-only.
    #[error("cannot write {path}: its file system has become read-only")]
    BecameReadOnly { path: PathBuf, source: io::Error },
    /// A directory to commit to an existing path.
    #[error("{path} exists already")]
    Exists { path: PathBuf },

    /// Another process writes to the same output directory.
    #[error(
        "the output {path} is in use by {holder}; \
         choose another one or wait until that process has ended"
    )]
    OutputLocked { path: PathBuf, holder: String },
    /// The output directory already holds a run.
    #[error(
        "the output directory {path} already holds {} ({found}); {}",
        held(.state),
        advice(.state)
    )]
    OutputTaken {
        path: PathBuf,
        state: RunState,
        found: String,
    },
}

fn nearest_names(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; the nearest names it has: `{}`", names.join("`, `")),
    }
}

fn held(state: &RunState) -> &'static str {
    match state {
        RunState::Finished => "a finished run",
        RunState::Comparison => "a comparison",
        _ => "an unfinished run",
    }
}

fn advice(state: &RunState) -> &'static str {
    match state {
        RunState::Finished => "choose another one, or move it away",
        RunState::Comparison => {
            "continue it with `host compare` and --resume, or choose another one"
        }
        _ => "continue it with --resume, or choose another one",
    }
}

fn not_asked(offline: &Option<&str>) -> String {
    offline.map_or_else(String::new, |variable| {
        format!(" (the hub is not asked, since {variable} is set)")
    })
}

fn free_bytes_note(free_bytes: &Option<u64>) -> String {
    free_bytes.map_or_else(String::new, |bytes| format!(", {bytes} are free"))
}

impl Failure for FileError {
    fn exit_class(&self) -> ExitClass {
        match self {
            FileError::NotInCache { .. }
            | FileError::CacheIncomplete { .. }
            | FileError::NotADirectory { .. }
            | FileError::Exists { .. }
            | FileError::OutputLocked { .. }
            | FileError::OutputTaken { .. } => ExitClass::Usage,
            FileError::NotFetched { reason, .. } => reason.exit_class(),
            FileError::Read { source, .. } | FileError::Write { source, .. } => match source.kind()
            {
                io::ErrorKind::NotFound
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::ReadOnlyFilesystem => ExitClass::Usage,
                _ => ExitClass::Resources,
            },
            FileError::DiskFull { .. } | FileError::BecameReadOnly { .. } => ExitClass::Resources,
            _ => ExitClass::Checkpoint,
        }
    }

    fn next_step(&self) -> String {
        if let FileError::NotFetched { reason, .. } = self {
            return reason.next_step().to_owned();
        }
        match self.exit_class() {
            ExitClass::Usage => "check the path, or choose another",
            ExitClass::Resources => {
                "check that disk, then start again (a training run continues with --resume): \
                 earlier files are untouched"
            }
            _ => "download or export that file again",
        }
        .to_owned()
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_code() {
        let full = FileError::DiskFull {
            path: "out/adapter".into(),
            needed_bytes: 4096,
            free_bytes: Some(17),
            source: io::Error::from(io::ErrorKind::StorageFull),
        };
        assert_eq!(full.exit_class().code(), 8);
        assert!(full.to_string().contains("needs 4096 bytes, 17 are free"));
        let missing = FileError::MissingTensor {
            path: "model.safetensors".into(),
            tensor: "a.wieght".into(),
            nearest: vec!["a.weight".into()],
        };
        assert_eq!(missing.exit_class().code(), 4);
        assert!(
            missing
                .to_string()
                .ends_with("the nearest names it has: `a.weight`")
        );
        let taken = FileError::NotADirectory { path: "x".into() };
        assert_eq!(taken.exit_class().code(), 2);
    }
}
