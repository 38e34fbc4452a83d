//! A param and the headers of its files -> whether loading will find it, checked before a weight is
//! read.

use espalier_compile::params::Param;
use espalier_interface::WeightLayout;
use espalier_system::failure::UsageError;

use super::SavedWeight;
use super::{Origin, SegmentSource, stored_name};
use crate::Error;

/// Refuses a param that its origin lacks, or has otherwise than the plan. The files' data are not
/// read.
///
/// # Errors
/// `Error::Weights` or `Error::File` for a tensor that is missing, or of another shape or dtype.
/// `Error::Usage` for a weight that the files hold packed and that is to have random values.
pub fn check_origin(
    param: &Param,
    origin: Origin<'_>,
    packing: Option<SegmentSource<'_>>,
) -> Result<(), Error> {
    match (origin, &param.layout) {
        (Origin::Random, _) => match packing {
            Some(SegmentSource::Saved(saved)) => Err(Error::Usage(UsageError {
                message: format!(
                    "`{}` is to begin with random numbers, and the model's files hold it packed \
                     in `{}`",
                    param.name, saved.module
                ),
                next_step: "leave model.init = \"random\" out".to_owned(),
            })),
            _ => Ok(()),
        },
        (Origin::Files(store), layout) => match (layout, packing) {
            (WeightLayout::Packed(format), Some(SegmentSource::Saved(saved))) => {
                SavedWeight::new(saved, format).check_headers(store)
            }
            _ => {
                let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
                Ok(store.check_float(&name)?)
            }
        },
    }
}
