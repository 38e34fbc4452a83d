//! A frozen param of an adapter -> its values: those of its tensor, or the first rows and columns
//! of another's.

use espalier_compile::params::Param;
use espalier_interface::abi::call_site;
use espalier_interface::{BufferRange, Init, Services, WeightLayout};
use espalier_numeric::{Drawn, torch_uniform};

use super::{Loader, Origin, read_weight};
use crate::Error;
use crate::error::BackendCall;
use crate::executor::write;

/// A frozen param of an adapter that the adapter's files hold whole. Conversions read trained
/// params by it, too.
#[derive(Clone, Copy, Debug)]
pub struct FrozenTensor<'a> {
    /// Its index among the run's params.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a [u64],
    /// Its initial values.
    pub init: Init,
}

impl<'a> FrozenTensor<'a> {
    /// What the files hold for param number `index` of `params`: itself, or the one it is a part
    /// of.
    pub fn of(params: &'a [Param], index: usize) -> Self {
        let index = params[index].part_of.unwrap_or(index);
        let Param {
            name, shape, init, ..
        } = &params[index];
        FrozenTensor {
            index,
            name,
            shape,
            init: *init,
        }
    }
}

/// The values of the part of a tensor with `shape`, row major: those of the files, or drawn as its
/// `init` says under the run's `seed`.
///
/// # Errors
/// `Error::Weights` or `Error::File` for a tensor that is missing, of another shape or not finite.
pub fn frozen_values(
    tensor: FrozenTensor<'_>,
    shape: &[u64],
    origin: Origin<'_>,
    seed: u64,
    services: &dyn Services,
) -> Result<Vec<f32>, Error> {
    let elements: u64 = tensor.shape.iter().product();
    let mut values = vec![0.0; elements as usize];
    match (origin, tensor.init) {
        (Origin::Files(store), _) => {
            store.entry_of_shape(tensor.name, tensor.shape)?;
            read_weight(store, tensor.name, &mut values)?;
        }
        (Origin::Random, Init::TorchUniform { bound, key, skip }) => {
            torch_uniform(key, skip, bound, &mut values);
        }
        (Origin::Random, init) => {
            Drawn::new(init, seed, tensor.index as u32).fill(&mut values, services);
        }
    }
    Ok(first_part(values, tensor.shape, shape))
}

/// The first elements of `values`, which have the shape `of`, in each extent of `shape`, for
/// matrices and for equal shapes.
fn first_part(values: Vec<f32>, of: &[u64], shape: &[u64]) -> Vec<f32> {
    let ([_, width], [rows, cols]) = (of, shape) else {
        return values;
    };
    let of_rows = values.chunks_exact(*width as usize).take(*rows as usize);
    let part = of_rows.flat_map(|row| &row[..*cols as usize]);
    part.copied().collect()
}

impl Loader<'_> {
    /// Loads a frozen param of an adapter, which is `tensor` or a part of it, into `range`.
    ///
    /// # Errors
    /// As [`frozen_values`]. `Error::Plugin` for a call to the backend that failed.
    pub fn load_frozen(
        &mut self,
        param: &Param,
        tensor: FrozenTensor<'_>,
        range: BufferRange,
        origin: Origin<'_>,
    ) -> Result<(), Error> {
        let _about = call_site::about_text(&param.name);
        let WeightLayout::Dense(dtype) = param.layout else {
            unreachable!("no param of an adapter is packed");
        };
        let values = frozen_values(tensor, &param.shape, origin, self.seed, self.services)?;
        write(self.device, &values, dtype, range).during("upload")?;
        self.report.placed += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_first_rows_and_of_these_the_first_columns() {
        let values: Vec<f32> = (0..12).map(|x| x as f32).collect();
        let part = |shape: &[u64]| first_part(values.clone(), &[3, 4], shape);
        assert_eq!(part(&[2, 3]), [0.0, 1.0, 2.0, 4.0, 5.0, 6.0]);
        assert_eq!(part(&[3, 4]), values);
        assert_eq!(first_part(values.clone(), &[12], &[12]), values);
    }
}
