//! Everything that can keep a report from being made.

use espalier_system::failure::UsageError;
use espalier_system::failures;
use espalier_system::files::FileError;

/// The result of a report's calls.
pub type Result<T> = std::result::Result<T, Error>;

failures! {
    /// A failure of a report.
    pub enum Error {
        /// A file of the run cannot be read, or one of the report not written.
        File(FileError),
        /// The directory holds no run.
        Usage(UsageError),
    }
}
