//! A tensor of a checkpoint compared with what a saved form says of it.

use espalier_interface::saved_form::{SavedConstant, SavedCounting, SavedTensor};
use espalier_numeric::first_not_finite_element;
use espalier_registry::select::read_constant;
use espalier_system::files::{TensorEntry, TensorStore, WeightsError, interface_dtype};

use crate::Error;
use crate::load::not_finite;

/// The largest difference of a checkpoint's own table from the quantizer's, relative to the larger
/// number. Tables that other processors compute differ in the last bits.
const TABLE_TOLERANCE: f32 = 1e-6;

/// Checks that stored whole numbers are those that follow from the shape.
pub(super) fn check_counting(
    store: &TensorStore,
    entry: &TensorEntry,
    counting: SavedCounting,
) -> Result<(), Error> {
    read_parts(store, entry, false, |at, bytes| {
        match counting.other(at / SavedCounting::DTYPE.bytes(), bytes) {
            None => Ok(()),
            Some((index, found)) => {
                let expected = counting.element(index);
                let what = format!("element {index}: expected {expected}, found {found}");
                Err(damage(store, entry, what))
            }
        }
    })
}

/// Checks that a stored constant is the quantizer's, where it is not free.
pub(super) fn check_constant(
    store: &TensorStore,
    entry: &TensorEntry,
    constant: &SavedConstant,
) -> Result<(), Error> {
    let found = read_constant(store, &entry.name)?;
    if constant.free || found == constant.value {
        Ok(())
    } else {
        let what = format!("expected {}, found {found}", constant.value);
        Err(damage(store, entry, what))
    }
}

/// Checks dtype and shape of a tensor that holds bytes or numbers.
pub(super) fn check_entry(
    store: &TensorStore,
    entry: &TensorEntry,
    tensor: &SavedTensor,
) -> Result<(), Error> {
    let dtype = interface_dtype(entry.dtype);
    let known =
        dtype.filter(|dtype| *dtype == tensor.dtype || tensor.also_stored_as.contains(dtype));
    let Some(dtype) = known else {
        let expected = format!("expected {}, found {}", tensor.dtype, entry.dtype);
        return Err(damage(store, entry, expected));
    };
    let bytes = entry.bytes.end - entry.bytes.start;
    // The same bytes as wider or narrower elements: one extent changes, and the byte count matches.
    let changed = entry.shape.iter().zip(&tensor.shape);
    let changed = changed
        .filter(|(found, expected)| found != expected)
        .count();
    let most = usize::from(dtype.bytes() != tensor.dtype.bytes());
    let fits = entry.shape.len() == tensor.shape.len() && changed <= most;
    if !fits || bytes != tensor.bytes() {
        let what = format!(
            "expected {} bytes of shape {:?} as {}, found {bytes} bytes of shape {:?}",
            tensor.bytes(),
            tensor.shape,
            tensor.dtype,
            entry.shape
        );
        return Err(damage(store, entry, what));
    }
    Ok(())
}

/// Passes the bytes of a tensor on; those of a segment of floats must be finite numbers.
pub(super) fn read_parts(
    store: &TensorStore,
    entry: &TensorEntry,
    floats: bool,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = 0;
    let dtype = interface_dtype(entry.dtype).filter(|dtype| floats && dtype.is_float());
    store.stream_tensor_bytes(&entry.name, &mut |part| {
        if let Some(dtype) = dtype
            && let Some(index) = first_not_finite_element(part, dtype)
        {
            let index = at / dtype.bytes() + index as u64;
            return Err(not_finite(&entry.name, store, index));
        }
        take(at, part)?;
        at += part.len() as u64;
        Ok(())
    })
}

/// Checks that none of the codes from byte `at` on stands for no number.
pub(super) fn check_codes(
    store: &TensorStore,
    entry: &TensorEntry,
    refused: &[u8],
    (at, bytes): (u64, &[u8]),
) -> Result<(), Error> {
    match bytes.iter().position(|byte| refused.contains(byte)) {
        None => Ok(()),
        Some(index) => {
            let (code, element) = (bytes[index], at + index as u64);
            let what = format!("element {element}: code {code} stands for no number");
            Err(damage(store, entry, what))
        }
    }
}

/// Checks that a stored table is the quantizer's.
pub(super) fn check_values(store: &TensorStore, name: &str, expected: &[f32]) -> Result<(), Error> {
    let mut found = vec![0.0; expected.len()];
    store.read_tensor_f32(name, &mut found)?;
    let differs = |(f, e): (&f32, &f32)| {
        let near = (f - e).abs() <= TABLE_TOLERANCE * f.abs().max(e.abs());
        !near
    };
    match found.iter().zip(expected).position(differs) {
        None => Ok(()),
        Some(index) => {
            let what = format!(
                "element {index}: expected {}, found {}",
                expected[index], found[index]
            );
            Err(damage(store, store.entry(name)?, what))
        }
    }
}

/// The error for tensor `entry`, of which `what` is wrong.
pub(super) fn damage(store: &TensorStore, entry: &TensorEntry, what: String) -> Error {
    Error::Weights(WeightsError {
        path: store.file_of(entry).to_owned(),
        message: format!("tensor `{}`: {what}", entry.name),
    })
}
