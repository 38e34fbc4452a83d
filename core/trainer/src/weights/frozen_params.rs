//! Frozen params of an adapter -> their values on a rank that loads all others by units.

use espalier_compile::params::Param;
use espalier_engine::executor::Executor;
use espalier_engine::load::{FrozenTensor, frozen_values};
use espalier_system::files::TensorStore;

use super::Loading;
use crate::Error;

impl Loading<'_> {
    /// Sets the `wanted` frozen params of the adapter. Every rank has all of each.
    ///
    /// # Errors
    /// A tensor that cannot be read; a call to the backend that failed.
    pub(super) fn place_frozen_params(
        &self,
        executor: &Executor,
        tensors: Option<&TensorStore>,
        wanted: &dyn Fn(&Param) -> bool,
    ) -> Result<(), Error> {
        let (params, services) = (executor.params(), self.components.services);
        for (index, param) in params.iter().enumerate() {
            if !param.is_of_no_unit() || !wanted(param) {
                continue;
            }
            self.stop.check()?;
            let tensor = FrozenTensor::of(params, index);
            let origin = self.origin(&params[tensor.index], tensors);
            let seed = self.config.run.seed;
            let values = frozen_values(tensor, &param.shape, origin, seed, services)?;
            executor.set_param(index, &values)?;
        }
        Ok(())
    }
}
