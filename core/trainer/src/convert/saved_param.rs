//! An adaptation and the files of a saved adapter -> the values of its params.

use espalier_engine::load::{FrozenTensor, Origin, frozen_values};
use espalier_interface::Services;
use espalier_interface::adaptation::Adaptation;
use espalier_system::files::AdapterDirectory;

use crate::Error;
use crate::weights::{check_saved_adapter, is_drawn_again};

/// The indices of the params that files hold.
fn stored(adaptation: &Adaptation) -> impl Iterator<Item = usize> {
    let params = 0..adaptation.params.len();
    params.filter(|&param| adaptation.stored(param) == param)
}

/// Whether the files leave out a frozen param, which is drawn again.
fn is_left_out(adaptation: &Adaptation, saved: &AdapterDirectory, index: usize) -> bool {
    let param = &adaptation.params[index];
    adaptation.frozen(index).is_some() && is_drawn_again(saved, &param.name, param.init)
}

/// Checks that the files hold the params of `adaptation` in their shapes as floats, and nothing
/// else. The files' data are not read.
///
/// # Errors
/// A tensor that is missing, unknown, or of another shape or dtype.
pub(super) fn check(adaptation: &Adaptation, saved: &AdapterDirectory) -> Result<(), Error> {
    let names = stored(adaptation).map(|index| adaptation.params[index].name.as_str());
    check_saved_adapter(saved, names)?;
    let held = stored(adaptation).filter(|&index| !is_left_out(adaptation, saved, index));
    for index in held {
        let (param, tensors) = (&adaptation.params[index], saved.tensors());
        tensors.entry_of_shape(&param.name, &param.shape)?;
        tensors.check_float(&param.name)?;
    }
    Ok(())
}

/// The values of param number `index`, row major: those of the files, the first rows and columns
/// of another's, or drawn again where the files leave it out.
///
/// # Errors
/// A tensor that cannot be read, or is not finite.
pub(super) fn values(
    adaptation: &Adaptation,
    saved: &AdapterDirectory,
    index: usize,
    services: &dyn Services,
) -> Result<Vec<f32>, Error> {
    let whole = adaptation.stored(index);
    let (param, of) = (&adaptation.params[index], &adaptation.params[whole]);
    let origin = if is_left_out(adaptation, saved, whole) {
        Origin::Random
    } else {
        Origin::Files(saved.tensors())
    };
    let tensor = FrozenTensor {
        index: whole,
        name: &of.name,
        shape: &of.shape,
        init: of.init,
    };
    // What is left out has the same values under every seed.
    Ok(frozen_values(tensor, &param.shape, origin, 0, services)?)
}
