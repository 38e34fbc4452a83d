//! An adapter that begins with a part of the weights -> the refusal of a run on the unchanged base.

use espalier_interface::adaptation::Adaptation;
use espalier_registry::select::Components;
use espalier_system::failure::UsageError;

use crate::Error;

/// Refuses an adapter that changes the base. A changed base and the beginning adapter are written
/// once, and runs take both from there.
///
/// # Errors
/// [`Error::Usage`], with the way to write both.
pub(crate) fn refuse(components: &Components, adaptation: &Adaptation) -> Result<(), Error> {
    let (Some(adapter), Some(change)) = (&components.adapter, &adaptation.base_change) else {
        return Ok(());
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
