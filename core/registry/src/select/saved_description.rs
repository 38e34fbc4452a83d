//! The tensors beside a packed weight -> its description, for its quantizer.

use std::collections::BTreeMap;

use espalier_interface::saved_form::{
    SavedConstant, SavedContent, SavedDescription, SavedForm, SavedTensor, StoredTensor,
};
use espalier_system::files::{
    StoredDtype, TensorEntry, TensorStore, WeightsError, interface_dtype,
};
use serde_json::{Map, Value as Json};

use crate::Error;

/// Most bytes of an object or constant beside a weight; real ones have about 200.
const MAX_OBJECT_BYTES: u64 = 1 << 16;

/// How missing tensors are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// They are left out.
    LeftOut,
    /// They are an error.
    Refused,
}

/// The description in `store` of the weight of `module`, which is saved in `form`.
///
/// # Errors
/// [`Error::File`] or [`Error::Weights`] for a tensor that is missing, or is no such object or
/// constant.
pub fn describe(
    config: &Json,
    store: &TensorStore,
    module: &str,
    form: &SavedForm,
    missing: Missing,
) -> Result<SavedDescription, Error> {
    let mut objects = Map::new();
    let mut stored = BTreeMap::new();
    for SavedTensor { name, content, .. } in &form.tensors {
        let tensor = format!("{module}.{name}");
        let told = match content {
            SavedContent::Json(_) | SavedContent::Constant(_) => missing,
            // Only its dtype is needed here; a missing tensor fails when it is read.
            _ => Missing::LeftOut,
        };
        if told == Missing::LeftOut && !store.contains(&tensor) {
            continue;
        }
        let object = match content {
            SavedContent::Json(_) => Some(Json::Object(read_object(store, &tensor)?)),
            SavedContent::Constant(_) => Some(read_constant(store, &tensor)?),
            _ => None,
        };
        if let Some(object) = object {
            objects.insert(name.clone(), object);
        }
        let entry = store.entry(&tensor)?;
        if let Some(dtype) = interface_dtype(entry.dtype) {
            let shape = entry.shape.clone();
            stored.insert(name.clone(), StoredTensor { dtype, shape });
        }
    }
    Ok(SavedDescription {
        config: config.clone(),
        objects,
        stored,
    })
}

/// The JSON object that the tensor `name` holds as text.
///
/// # Errors
/// [`Error::File`] or [`Error::Weights`] for a tensor that is missing, too long or no object.
pub fn read_object(store: &TensorStore, name: &str) -> Result<Map<String, Json>, Error> {
    let entry = store.entry(name)?;
    let expected = format!("a JSON object as at most {MAX_OBJECT_BYTES} elements of U8");
    if entry.dtype != StoredDtype::U8 {
        return Err(no_object(store, entry, &expected));
    }
    let text = short(store, entry, &expected)?;
    serde_json::from_slice(&text)
        .map_err(|error| no_object(store, entry, &format!("a JSON object: {error}")))
}

/// The number, list or text that the tensor `name` holds.
///
/// # Errors
/// [`Error::File`] or [`Error::Weights`] for a tensor that is missing, too long or no such
/// constant.
pub fn read_constant(store: &TensorStore, name: &str) -> Result<Json, Error> {
    let entry = store.entry(name)?;
    let expected = "a number, a list of numbers or a text";
    let bytes = short(store, entry, expected)?;
    interface_dtype(entry.dtype)
        .and_then(|dtype| SavedConstant::read(dtype, &entry.shape, &bytes))
        .ok_or_else(|| no_object(store, entry, expected))
}

/// The bytes of a tensor that is small.
fn short(store: &TensorStore, entry: &TensorEntry, expected: &str) -> Result<Vec<u8>, Error> {
    let len = entry.bytes.end - entry.bytes.start;
    if len > MAX_OBJECT_BYTES {
        return Err(no_object(store, entry, expected));
    }
    let mut bytes = vec![0; len as usize];
    store.read_tensor_bytes(&entry.name, &mut bytes)?;
    Ok(bytes)
}

fn no_object(store: &TensorStore, entry: &TensorEntry, expected: &str) -> Error {
    Error::Weights(WeightsError {
        path: store.file_of(entry).to_owned(),
        message: format!(
            "tensor `{}`: expected {expected}, found {} bytes of {} and shape {:?}",
            entry.name,
            entry.bytes.end - entry.bytes.start,
            entry.dtype,
            entry.shape
        ),
    })
}
