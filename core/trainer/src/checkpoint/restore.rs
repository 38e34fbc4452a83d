//! A verified checkpoint -> its trained params and moments in their place on the device.

use super::save::stored_name;
use super::{Checkpoint, OPTIMIZER, PARAMS};
use crate::Error;
use crate::executor::{Executor, StatePart};
use crate::files::TensorStore;

/// Uploads values and moments of every trainable param, a part at a time.
///
/// # Errors
/// [`Error::Checkpoint`] where a tensor is missing or of another shape or dtype.
pub(crate) fn restore(checkpoint: &Checkpoint, executor: &Executor) -> Result<(), Error> {
    let params = TensorStore::open(&checkpoint.path.join(PARAMS))?;
    let moments = TensorStore::open(&checkpoint.path.join(OPTIMIZER))?;
    for param in executor.trainable() {
        upload(&params, executor, param, StatePart::Values)?;
        upload(&moments, executor, param, StatePart::FirstMoment)?;
        upload(&moments, executor, param, StatePart::SecondMoment)?;
    }
    Ok(())
}

fn upload(
    store: &TensorStore,
    executor: &Executor,
    index: usize,
    part: StatePart,
) -> Result<(), Error> {
    let param = &executor.params()[index];
    let name = stored_name(&param.name, part);
    let entry = store.entry_of_shape(&name, &param.shape)?;
    let expected = executor.state_dtype(index, part);
    if entry.dtype.to_string().to_lowercase() != expected.name() {
        return Err(Error::Checkpoint {
            path: store.file_of(entry).to_owned(),
            message: format!(
                "tensor `{name}` is {}, expected {expected}: model.params or model.compute is \
                 another",
                entry.dtype
            ),
        });
    }
    let mut offset = 0;
    store.stream_tensor_bytes(&name, &mut |bytes| {
        executor.upload_state(index, part, offset, bytes)?;
        offset += bytes.len() as u64;
        Ok::<_, Error>(())
    })
}
