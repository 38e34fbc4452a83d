//! A model with an adapter -> the model without its effect, while something is measured.

use espalier_compile::params::Param;
use espalier_interface::{BufferRange, Init, Stream};
use espalier_plan::storage_layout::StateKind;

use super::{Executor, write};
use crate::error::{BackendCall, Result};

/// The bytes of a rank's elements of an adapter that has no effect now.
pub struct AdapterAside(Vec<(BufferRange, Vec<u8>)>);

/// The one number that all elements of an adapter's param begin with: the params that make a fresh
/// adapter change nothing.
fn beginning(param: &Param) -> Option<f32> {
    match (param.kind, param.init) {
        (None, Init::Zeros) => Some(0.0),
        (None, Init::Ones) => Some(1.0),
        (None, Init::Constant { value }) => Some(value as f32),
        _ => None,
    }
}

/// Bytes that [`Executor::set_adapter_aside`] takes on the host for a run with `params`: saved
/// values, and one param of fresh values.
pub fn disabled_adapter_bytes(params: &[Param]) -> u64 {
    let kept = || params.iter().filter(|param| beginning(param).is_some());
    let fresh = kept().map(|param| 4 * param.elements()).max().unwrap_or(0);
    kept().map(Param::bytes).sum::<u64>() + fresh
}

impl Executor {
    /// Sets this rank's elements of the params that begin with one number so; returns what they
    /// were. The model is then without its adapter, where params that begin from a weight are as
    /// they began.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn set_adapter_aside(&self) -> Result<AdapterAside> {
        let params = self.params.iter().enumerate();
        let begins = params.filter_map(|(index, param)| Some((index, beginning(param)?)));
        let mut aside = Vec::new();
        for (index, value) in begins {
            let (range, dtype) = if self.params[index].trainable {
                let (_, own) = self.own_piece(index, StateKind::Values);
                (own, self.dtypes.params)
            } else {
                self.dense_range(index).during("download")?
            };
            if range.bytes == 0 {
                continue;
            }
            let mut bytes = vec![0; range.bytes as usize];
            self.download(range, &mut bytes)?;
            let fresh = vec![value; (range.bytes / dtype.bytes()) as usize];
            aside.push((range, bytes));
            self.changes_state()?;
            let written = write(self.device.as_ref(), &fresh, dtype, range);
            self.since_wait.during("upload", written)?;
        }
        Ok(AdapterAside(aside))
    }

    /// Writes the bytes of [`Executor::set_adapter_aside`] back.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn put_adapter_back(&self, aside: &AdapterAside) -> Result<()> {
        let mut aside = aside.0.iter();
        aside.try_for_each(|(range, bytes)| {
            self.changes_state()?;
            let written = self.device.upload(bytes, *range, Stream(0));
            self.since_wait.during("upload", written)
        })
    }
}
