//! A saved adapter and the params of a plan -> whether they belong together.

use std::collections::HashSet;

use espalier_system::files::{AdapterDirectory, WeightsError};

use crate::Error;

/// Checks that every tensor of a saved adapter is in the plan.
pub(crate) fn check_saved_adapter<'a>(
    saved: &AdapterDirectory,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let known: HashSet<&str> = names.collect();
    let stranger = saved
        .tensors()
        .entries()
        .iter()
        .find(|e| !known.contains(e.name.as_str()));
    match stranger {
        None => Ok(()),
        Some(entry) => Err(Error::Weights(WeightsError {
            path: saved.path().to_owned(),
            message: format!(
                "tensor `{}` belongs to no site of this model that its adapter_config.json targets",
                entry.name
            ),
        })),
    }
}
