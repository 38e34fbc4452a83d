//! A site's weight -> the magnitudes with which its DoRA begins, the weight that is trained whole,
//! or the two matrices that hold its largest singular vectors.

use espalier_interface::{InitialValues, InitialiseCall, PluginError, Result, Services};

use crate::fragment::{MAGNITUDE, param_names};
use crate::settings::Settings;

/// Magnitudes begin as the norms of the weight's rows, since the update begins as zero. A weight
/// that is trained whole begins as it is. A and B begin as [`Init`](crate::init::Init) says.
///
/// # Errors
/// `INVALID` for a param of another length; errors of the SVD.
pub fn initialise(
    settings: &Settings,
    services: &dyn Services,
    mut call: InitialiseCall<'_>,
) -> Result<()> {
    let [rows, cols] = call.site.shape.map(|extent| extent as usize);
    let rank = settings.rank(call.site) as usize;
    let [down, up] = param_names(call.site.kind);
    for param in &mut call.params {
        let is = |ending: &str| param.name.ends_with(ending);
        let expected = match () {
            () if is(MAGNITUDE) => rows,
            () if is(down) => rank * cols,
            () if is(up) => rows * rank,
            () => rows * cols,
        };
        if param.values.len() != expected {
            let message = format!("`{}` has not the {expected} values of its site", param.name);
            return Err(PluginError::invalid(message));
        }
    }
    if let [first, second] = call.params.as_mut_slice()
        && first.name.ends_with(down)
        && second.name.ends_with(up)
    {
        let matrices = (&mut *first.values, &mut *second.values);
        let (matrix, factor) = ((call.weight, cols), settings.factor(call.site));
        let init = settings.init;
        return init.fill(matrix, factor, (call.seed, services), matrices);
    }
    for InitialValues { name, values } in call.params {
        if !name.ends_with(MAGNITUDE) {
            values.copy_from_slice(call.weight);
            continue;
        }
        for (norm, row) in values.iter_mut().zip(call.weight.chunks_exact(cols)) {
            let sum: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            *norm = sum.sqrt() as f32;
        }
    }
    Ok(())
}
