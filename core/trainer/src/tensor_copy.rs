//! A stored tensor -> the same tensor in another file, unchanged or rounded to another dtype.

mod module_groups;
mod unwritable;

use espalier_engine::load::not_finite;
use espalier_interface::DType;
use espalier_numeric::{first_beyond, first_not_finite, first_not_finite_element};
use espalier_system::files::{
    TensorEntry, TensorSink, TensorSpec, TensorStore, WeightsError, interface_dtype,
};

use crate::Error;

pub use module_groups::module_groups;
pub use unwritable::Unwritable;

/// Elements held at once.
const CHUNK_ELEMENTS: u64 = 1 << 18;

/// The spec of a copy of `entry`; `dtype` replaces the dtype of a float tensor.
///
/// # Errors
/// An unknown dtype.
pub fn spec(
    store: &TensorStore,
    entry: &TensorEntry,
    dtype: Option<DType>,
) -> Result<TensorSpec, Error> {
    let stored = interface_dtype(entry.dtype).ok_or_else(|| {
        Error::Weights(WeightsError {
            path: store.file_of(entry).to_owned(),
            message: format!(
                "tensor `{}` is {}, which this program does not copy",
                entry.name, entry.dtype
            ),
        })
    })?;
    let dtype = dtype.filter(|_| is_number(stored)).unwrap_or(stored);
    Ok(TensorSpec::new(
        entry.name.clone(),
        dtype,
        entry.shape.clone(),
    ))
}

/// Copies `entry` to `sink` in parts.
///
/// # Errors
/// A number that is not finite, before or after rounding; a read or write error.
pub fn copy(
    store: &TensorStore,
    entry: &TensorEntry,
    sink: &mut TensorSink<'_>,
) -> Result<(), Error> {
    let stored = interface_dtype(entry.dtype).expect("`spec` refuses others");
    if stored == sink.spec().dtype {
        let mut first = 0;
        return store.stream_tensor_bytes(&entry.name, &mut |bytes| {
            refuse(store, entry, first, first_not_finite_element(bytes, stored))?;
            first += bytes.len() as u64 / stored.bytes();
            Ok(sink.write_bytes(bytes)?)
        });
    }
    let mut values = vec![0.0f32; CHUNK_ELEMENTS.min(entry.elements()) as usize];
    let mut first = 0;
    while first < entry.elements() {
        let count = CHUNK_ELEMENTS.min(entry.elements() - first) as usize;
        let values = &mut values[..count];
        store.read_elements_f32(&entry.name, first, values)?;
        refuse(store, entry, first, first_not_finite(values))?;
        write_rounded(sink, values)?;
        first += count as u64;
    }
    Ok(())
}

/// Copies the bytes of `entry` to `sink`: a part of a packed weight, whose bytes may be stored as
/// numbers that they are not.
///
/// # Errors
/// A read or write error.
pub fn copy_bytes(
    store: &TensorStore,
    entry: &TensorEntry,
    sink: &mut TensorSink<'_>,
) -> Result<(), Error> {
    store.stream_tensor_bytes(&entry.name, &mut |bytes| Ok(sink.write_bytes(bytes)?))
}

/// Refuses the number found not to be finite among those from element `first` on.
fn refuse(
    store: &TensorStore,
    entry: &TensorEntry,
    first: u64,
    found: Option<usize>,
) -> Result<(), Error> {
    match found {
        Some(at) => Err(not_finite(&entry.name, store, first + at as u64).into()),
        None => Ok(()),
    }
}

/// Writes finite numbers, rounded to the sink's dtype.
///
/// # Errors
/// [`Error::Unwritable`] for a number beyond the largest of that dtype; a write error.
pub fn write_rounded(sink: &mut TensorSink<'_>, values: &[f32]) -> Result<(), Error> {
    let largest = match sink.spec().dtype {
        // Numbers at least half a step beyond the largest one round to infinity.
        DType::F16 => 65519.996,
        DType::BF16 => f32::from_bits(0x7f7f_7fff),
        _ => f32::MAX,
    };
    if first_beyond(values, largest).is_none() {
        Ok(sink.write_f32(values)?)
    } else {
        Err(Error::Unwritable(Unwritable {
            tensor: sink.spec().name.clone(),
            dtype: sink.spec().dtype,
        }))
    }
}

fn is_number(dtype: DType) -> bool {
    [DType::F64, DType::F32, DType::BF16, DType::F16].contains(&dtype)
}
