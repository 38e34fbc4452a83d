//! A model with an adapter -> the model without its effect, while something is measured.

use espalier_compile::params::Param;
use espalier_interface::{Init, Stream, WeightLayout};

use super::{Executor, write};
use crate::error::Result;

/// The one number that all elements of an adapter's param begin with: the params that make a fresh
/// adapter change nothing.
fn beginning(param: &Param) -> Option<f32> {
    match (param.kind, param.init) {
        (None, Init::Zeros) => Some(0.0),
        (None, Init::Ones) => Some(1.0),
        _ => None,
    }
}

/// Bytes that [`Executor::without_adapter`] takes on the host for a run with `params`: saved
/// values, and one param of fresh values.
pub fn disabled_adapter_bytes(params: &[Param]) -> u64 {
    let kept = || params.iter().filter(|param| beginning(param).is_some());
    let fresh = kept().map(|param| 4 * param.elements()).max().unwrap_or(0);
    kept().map(Param::bytes).sum::<u64>() + fresh
}

impl Executor {
    /// Does `act` while the adapter has no effect. Params that begin with zeros or ones are set so,
    /// and restored afterwards bit for bit. Params that begin from a weight must be as they began.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed. The error of `act`.
    pub fn without_adapter<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let params = self.params.iter().enumerate();
        let begins = params.filter_map(|(index, param)| Some((index, beginning(param)?)));
        self.changes_state()?;
        let mut aside = Vec::new();
        for (index, value) in begins {
            let WeightLayout::Dense(dtype) = self.params[index].layout else {
                continue;
            };
            let range = self.storage.param(index)[0];
            let mut bytes = vec![0; range.bytes as usize];
            self.download_result(range, &mut bytes)?;
            let fresh = vec![value; self.params[index].elements() as usize];
            aside.push((range, bytes));
            let written = write(self.device.as_ref(), &fresh, dtype, range);
            self.since_wait.during("upload", written)?;
        }
        let done = act();
        self.changes_state()?;
        for (range, bytes) in aside {
            let written = self.device.upload(&bytes, range, Stream(0));
            self.since_wait.during("upload", written)?;
        }
        done
    }
}
