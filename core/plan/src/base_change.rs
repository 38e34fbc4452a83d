//! An adapter that begins with a part of the weights -> the refusal of a run on the unchanged base.

use espalier_interface::adaptation::{Adaptation, Site};
use espalier_registry::answer;
use espalier_registry::select::Components;
use espalier_system::failure::UsageError;

use crate::Error;

/// What the adapter of a run adds, which leaves the base as it is. A changed base and the beginning
/// adapter are written once, and runs take both from there.
///
/// # Errors
/// As [`answer::adaptation`]; [`Error::Usage`] for an adapter that changes the base, with the way
/// to write both.
pub(crate) fn unchanged(components: &Components, sites: &[Site]) -> Result<Adaptation, Error> {
    let Some(adapter) = &components.adapter else {
        return Ok(Adaptation::default());
    };
    let adaptation = answer::adaptation(adapter, sites)?;
    let Some(change) = &adaptation.base_change else {
        return Ok(adaptation);
    };
    let name = &adapter.identity.component;
    let key = format!("adapter.{name}.{}", change.option);
    let (message, next_step) = match &components.saved_adapter {
        Some(saved) => (
            format!(
                "{key} lets a new adapter begin with a part of the weights, and model.adapter is a \
                 saved one, {}, which begins as it was saved",
                saved.path().display()
            ),
            format!(
                "leave {key} out to train the saved one on; leave model.adapter out to write a \
                 new one with host split"
            ),
        ),
        None => (
            format!(
                "{key} lets adapter `{name}` begin with a part of the weights, so that its base is \
                 not the model of model.path"
            ),
            format!(
                "write both with host split and the same config, then train with --model DIR/base \
                 --adapter DIR/adapter and without {key}"
            ),
        ),
    };
    Err(Error::Usage(UsageError { message, next_step }))
}
