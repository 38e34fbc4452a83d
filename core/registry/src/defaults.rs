//! The default components of a host; the core knows none by name.

use espalier_interface::inventory;
use espalier_system::failure::UsageError;

use crate::error::Error;

/// The components that serve the roles which a config leaves out. Each host, and each test binary,
/// submits one table: `inventory::submit! { espalier_registry::Defaults { .. } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The compute backend; also the reference that other backends are compared with.
    pub backend: &'static str,
    /// The sharding strategy of a rank alone.
    pub sharding: &'static str,
    /// The collective that joins the threads of a process.
    pub threads: &'static str,
    /// The collective that joins processes.
    pub processes: &'static str,
    /// The adapter that the conformance kit trains with.
    pub adapter: &'static str,
}

inventory::collect!(Defaults);

impl Defaults {
    /// The table of this program.
    ///
    /// # Errors
    /// [`Error::Usage`] where the program submits none.
    pub fn of_program() -> Result<Self, Error> {
        let mut tables = inventory::iter::<Defaults>.into_iter();
        tables.next().copied().ok_or_else(|| {
            Error::Usage(UsageError {
                message: "this program names no default components".to_owned(),
                next_step: "choose one for every role with --plugins".to_owned(),
            })
        })
    }
}
