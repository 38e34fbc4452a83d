//! Errors of writing a report.

use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::FileError;

/// The result of a report's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A failure of a report.
    pub enum Error {
        /// A file of the run cannot be read, or a file of the report cannot be written.
        File(FileError),
        /// The directory holds no run.
        Usage(UsageError),
    }
}
