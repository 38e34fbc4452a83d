//! A saved adapter and the params of a plan -> whether they belong together.

use std::collections::HashSet;

use espalier_compile::params::Param;
use espalier_engine::load::Origin;
use espalier_interface::Init;
use espalier_system::files::{AdapterDirectory, TensorStore, WeightsError};

use super::Loading;
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

/// Whether a saved adapter leaves out a frozen param of this name and `init`, whose values are the
/// same in every run.
pub(crate) fn is_drawn_again(saved: &AdapterDirectory, name: &str, init: Init) -> bool {
    init.is_same_in_every_run() && !saved.tensors().contains(name)
}

impl Loading<'_> {
    /// The source of a param.
    pub(super) fn origin<'o>(
        &'o self,
        param: &Param,
        tensors: Option<&'o TensorStore>,
    ) -> Origin<'o> {
        let saved = self.components.saved_adapter.as_ref();
        match (param.kind, tensors, saved) {
            (Some(_), Some(tensors), _) => Origin::Files(tensors),
            (None, _, Some(saved)) if !leaves_out(saved, param) => Origin::Files(saved.tensors()),
            _ => Origin::Random,
        }
    }
}

/// As [`is_drawn_again`], of any param of a run.
fn leaves_out(saved: &AdapterDirectory, param: &Param) -> bool {
    param.is_of_no_unit() && is_drawn_again(saved, &param.name, param.init)
}
