//! A request -> its files in the cache, one after the other.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::{fs, path};

use espalier_interface::bytes::Bytes;
use espalier_system::files::{
    FetchError, FetchRequest, FileError, RepoKind, Wanted, wait_for, write_error,
};
use espalier_system::notice;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use crate::blob::{Blob, Found};
use crate::choice;
use crate::settings::Settings;
use crate::transfer::{FileMeter, Meter};

/// Attempts at a file that bring no new byte, after which the download ends.
const ATTEMPTS: u32 = 4;
/// Pause before the second attempt; it grows with each.
const PAUSE: Duration = Duration::from_millis(400);
/// Longest wait for another process that fetches from the same repository.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The download of a part of a repository.
pub(crate) struct Download {
    settings: Settings,
    meter: Arc<Meter>,
    root: PathBuf,
    folder: PathBuf,
    id: String,
    kind: RepoKind,
    /// None: that of `main`.
    commit: Option<String>,
    wanted: Wanted,
}

/// A file to be fetched.
struct Missing {
    name: String,
    blob: Blob,
}

impl Download {
    /// # Errors
    /// A current directory that is not there.
    pub fn new(
        settings: &Settings,
        request: &FetchRequest<'_>,
        meter: Arc<Meter>,
    ) -> Result<Self, FileError> {
        // Links in the cache are relative to absolute paths.
        let absolute = |path: &Path| {
            path::absolute(path).map_err(|source| FileError::Read {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Download {
            settings: settings.clone(),
            meter,
            root: absolute(request.root)?,
            folder: absolute(&request.folder())?,
            id: request.id.to_owned(),
            kind: request.kind,
            commit: request.commit.map(str::to_owned),
            wanted: request.wanted,
        })
    }

    /// Fetches all files that are needed and not there.
    pub fn run(&self) -> Result<(), FileError> {
        let _turn = self.turn()?;
        let api = self.api()?;
        let revision = self.commit.as_deref().unwrap_or("main");
        let info = self.repository(&api, revision).info();
        let info = info.map_err(|error| self.refused(error))?;
        self.meter.moved();
        let all: Vec<String> = info.siblings.into_iter().map(|one| one.rfilename).collect();
        let names = choice::needed(&all, self.wanted).map_err(|lack| self.reason(lack))?;
        let commit = info.sha;
        self.fetch_all(&api, &commit, &names)?;
        if names == [choice::INDEX] {
            let index = self
                .folder
                .join("snapshots")
                .join(&commit)
                .join(choice::INDEX);
            let text = fs::read_to_string(&index).map_err(|source| FileError::Read {
                path: index,
                source,
            })?;
            let shards = choice::shards(&text).map_err(|error| self.reason(error))?;
            self.fetch_all(&api, &commit, &shards)?;
        }
        if self.commit.is_none() {
            let main = Cache::new(self.root.clone()).repo(self.repo("main"));
            let written = main.create_ref(&commit);
            written.map_err(|error| write_error(&self.folder, commit.len() as u64, error))?;
        }
        Ok(())
    }

    /// The right to fetch from the repository: one process at a time, so that the others find the
    /// files. Without locks in the file system all do.
    fn turn(&self) -> Result<Option<fs::File>, FileError> {
        let folder = self.folder.file_name().expect("it has a name");
        let locks = self.root.join(".locks").join(folder);
        let fail = |error| write_error(&locks, 0, error);
        fs::create_dir_all(&locks).map_err(fail)?;
        self.meter.set_waits(true);
        let turn = wait_for(&locks.join("espalier.lock"), PATIENCE).map_err(fail);
        self.meter.set_waits(false);
        turn
    }

    fn api(&self) -> Result<Api, FileError> {
        ApiBuilder::from_cache(Cache::new(self.root.clone()))
            .with_endpoint(self.settings.endpoint.clone())
            .with_token(self.settings.token.clone())
            .with_user_agent("espalier", env!("CARGO_PKG_VERSION"))
            .with_progress(false)
            .build()
            .map_err(|error| self.refused(error))
    }

    fn repo(&self, revision: &str) -> Repo {
        let kind = match self.kind {
            RepoKind::Model => RepoType::Model,
            RepoKind::Dataset => RepoType::Dataset,
        };
        Repo::with_revision(self.id.clone(), kind, revision.to_owned())
    }

    fn repository(&self, api: &Api, revision: &str) -> ApiRepo {
        api.repo(self.repo(revision))
    }

    fn fetch_all(&self, api: &Api, commit: &str, names: &[String]) -> Result<(), FileError> {
        let repository = self.repository(api, commit);
        let snapshot = self.folder.join("snapshots").join(commit);
        if !choice::is_inside(commit) || Path::new(commit).components().count() != 1 {
            let told = format!("it names the commit {commit:?}, which is no name");
            return Err(self.reason(FetchError::Answer(told)));
        }
        let mut missing = Vec::new();
        for name in names.iter().filter(|name| !snapshot.join(name).exists()) {
            missing.push(self.announced(api, &repository, name)?);
        }
        let total_bytes = missing.iter().map(|file| file.blob.bytes).sum();
        self.meter.set_total(total_bytes);
        if total_bytes > 0 {
            notice::say(&format!(
                "downloading {} of {} ({commit:.12}) from {} into {}",
                Bytes(total_bytes),
                self.id,
                self.settings.endpoint,
                self.root.display()
            ));
        }
        let mut before = 0;
        for file in missing {
            self.fetch(&repository, &file, before)?;
            let linked = file.blob.link(commit, &file.name);
            linked.map_err(|error| self.unwritten(&file, error))?;
            before += file.blob.bytes;
        }
        // `hf-hub` leaves the commit as a name of itself.
        let _ = fs::remove_file(self.folder.join("refs").join(commit));
        Ok(())
    }

    /// The size and the tag of a file, as the hub announces them.
    fn announced(&self, api: &Api, from: &ApiRepo, name: &str) -> Result<Missing, FileError> {
        if !choice::is_inside(name) {
            let told = format!("it names the file {name:?}, which is outside of the repository");
            return Err(self.reason(FetchError::Answer(told)));
        }
        let found = self.attempts(|| 0, || api.metadata(&from.url(name)));
        let found = found.map_err(|error| self.refused(error))?;
        self.meter.moved();
        let blob = Blob {
            folder: self.folder.clone(),
            tag: found.etag().to_owned(),
            bytes: found.size() as u64,
        };
        if !blob.has_plain_tag() {
            let told = format!("it gives {name} the tag {:?}, which is no hash", blob.tag);
            return Err(self.reason(FetchError::Answer(told)));
        }
        Ok(Missing {
            name: name.to_owned(),
            blob,
        })
    }

    /// Brings the file's blob; `before` bytes of other files are there.
    fn fetch(&self, from: &ApiRepo, file: &Missing, before: u64) -> Result<(), FileError> {
        let blob = &file.blob;
        let unwritten = |error| self.unwritten(file, error);
        // A file that is not the announced one is fetched once more, from its first byte.
        for _ in 0..2 {
            if self.checked(blob).map_err(unwritten)? == Found::Whole {
                return Ok(());
            }
            let there = || blob.part().metadata().map_or(0, |part| part.len());
            let fetched = self.attempts(there, || {
                blob.prepare()?;
                let meter = FileMeter {
                    meter: Arc::clone(&self.meter),
                    before,
                };
                from.download_with_progress(&file.name, meter)?;
                match blob.check()? {
                    Found::Part => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                    _ => Ok(()),
                }
            });
            match fetched {
                Err(ApiError::IoError(error)) if is_of_the_disk(&error) => {
                    return Err(unwritten(error));
                }
                fetched => fetched.map_err(|error| self.refused(error))?,
            }
            if self.checked(blob).map_err(unwritten)? == Found::Whole {
                return Ok(());
            }
            blob.remove().map_err(unwritten)?;
        }
        let told = format!("{} arrives with another content than announced", file.name);
        Err(self.reason(FetchError::Answer(told)))
    }

    fn checked(&self, blob: &Blob) -> io::Result<Found> {
        self.meter.set_waits(true);
        let found = blob.check();
        self.meter.set_waits(false);
        found
    }

    /// Repeats `work` after a connection that failed. Only attempts between which `there`, the
    /// bytes that are there, does not grow are counted.
    fn attempts<T>(
        &self,
        there: impl Fn() -> u64,
        mut work: impl FnMut() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut failed = 0;
        let mut before = there();
        loop {
            match work() {
                Err(error) if may_pass(&error) => {
                    let now = there();
                    failed = if now > before { 1 } else { failed + 1 };
                    before = now;
                    if failed >= ATTEMPTS {
                        return Err(error);
                    }
                    self.meter.moved();
                    thread::sleep(PAUSE * failed);
                }
                done => return done,
            }
        }
    }

    fn unwritten(&self, file: &Missing, error: io::Error) -> FileError {
        write_error(&file.blob.path(), file.blob.bytes, error)
    }

    fn reason(&self, reason: FetchError) -> FileError {
        self.settings.refused(&self.id, reason)
    }

    fn refused(&self, error: ApiError) -> FileError {
        let has_token = self.settings.token.is_some();
        self.reason(match status(&error) {
            Some(404) => FetchError::Unknown,
            Some(status @ (401 | 403)) => FetchError::Closed { status, has_token },
            Some(status) => FetchError::Connection(format!("it answers with HTTP status {status}")),
            None => match error {
                ApiError::MissingHeader(_) | ApiError::InvalidHeader(_) => {
                    FetchError::Answer(format!("it answers as no hub does: {error}"))
                }
                error => FetchError::Connection(error.to_string()),
            },
        })
    }
}

/// The HTTP status that ended a request.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    }
}

/// Whether another attempt may succeed: the network failed, or the hub is busy.
fn may_pass(error: &ApiError) -> bool {
    match (status(error), error) {
        (Some(status), _) => status == 429 || status >= 500,
        (None, ApiError::RequestError(_)) => true,
        (None, ApiError::IoError(error)) => !is_of_the_disk(error),
        _ => false,
    }
}

/// Whether the file could not be written. All others come from the connection.
fn is_of_the_disk(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
    )
}
