//! A packed weight's segments <-> its tensors in a checkpoint, as its quantizer's saved form says.

use espalier_interface::DType;
use espalier_interface::format::Format;
use espalier_interface::saved_form::{
    SavedConstant, SavedContent, SavedForm, SavedObject, SavedTensor,
};
use espalier_numeric::numbers;
use espalier_plan::packing::SavedParam;
use espalier_registry::select::{read_constant, read_object};
use espalier_system::files::{
    GroupSink, TensorEntry, TensorSpec, TensorStore, WeightsError, interface_dtype,
};
use serde::Serialize;
use serde_json::Value as Json;

use super::not_finite;
use crate::Error;

/// Longest text of a number that stands for an f32, in bytes: sign, 17 digits, point and exponent.
const NUMBER_BYTES: usize = 24;
/// The largest difference of a checkpoint's own table from the quantizer's, relative to the larger
/// number. Tables that other processors compute differ in the last bits.
const TABLE_TOLERANCE: f32 = 1e-6;

/// A packed weight in a checkpoint: its module and the form it is saved in.
#[derive(Clone, Copy)]
pub struct SavedWeight<'a> {
    module: &'a str,
    form: &'a SavedForm,
    format: &'a Format,
}

impl<'a> SavedWeight<'a> {
    /// The weight `saved`, whose segments are those of `format`.
    pub fn new(saved: &'a SavedParam, format: &'a Format) -> Self {
        SavedWeight {
            module: &saved.module,
            form: &saved.form,
            format,
        }
    }

    /// The tensors of the weight.
    pub fn specs(&self) -> Vec<TensorSpec> {
        let specs = self.form.tensors.iter().map(|tensor| {
            let shape = match &tensor.content {
                SavedContent::Json(object) => vec![text_bytes(object) as u64],
                _ => tensor.shape.clone(),
            };
            TensorSpec::new(self.name(tensor), tensor.dtype, shape)
        });
        specs.collect()
    }

    /// Writes the weight's segments.
    ///
    /// # Errors
    /// `Error::File` for a failed write.
    pub fn write(&self, segments: &[Vec<u8>], sink: &mut GroupSink<'_, '_>) -> Result<(), Error> {
        for (index, tensor) in self.form.tensors.iter().enumerate() {
            let mut sink = sink.tensor(index);
            match &tensor.content {
                SavedContent::Segment(index) => sink.write_bytes(&segments[*index])?,
                SavedContent::Values(values) => sink.write_f32(values)?,
                SavedContent::Constant(constant) => {
                    let bytes = constant.bytes(tensor.dtype);
                    sink.write_bytes(&bytes.expect("a form that was validated"))?;
                }
                SavedContent::Json(object) => {
                    let scalar = |index: usize| {
                        let bytes: [u8; 4] = segments[index][..].try_into().expect("one f32");
                        f32::from_le_bytes(bytes)
                    };
                    sink.write_bytes(&text(object, scalar))?;
                }
            }
        }
        Ok(())
    }

    /// Reads the weight's segments; `put` takes the bytes of a segment from an offset on, a part at
    /// a time.
    ///
    /// # Errors
    /// `Error::File` or `Error::Weights` for a tensor that is missing, of another size or dtype, or
    /// with wrong values. The error of `put`.
    pub fn read(
        &self,
        store: &TensorStore,
        mut put: impl FnMut(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for tensor in &self.form.tensors {
            let name = self.name(tensor);
            let entry = store.entry(&name)?;
            match &tensor.content {
                SavedContent::Segment(index) => {
                    check_entry(store, entry, tensor)?;
                    let floats = self.format.segments[*index].dtype.is_float();
                    read_parts(store, entry, floats, |at, bytes| put(*index, at, bytes))?;
                }
                SavedContent::Values(values) => {
                    check_entry(store, entry, tensor)?;
                    check_values(store, &name, values)?;
                }
                SavedContent::Constant(constant) => check_constant(store, entry, constant)?,
                SavedContent::Json(object) => read_scalars(store, entry, object, &mut put)?,
            }
        }
        Ok(())
    }

    /// Checks that the tensors are there, and are of the right sizes and dtypes where they hold
    /// numbers.
    ///
    /// # Errors
    /// `Error::File` or `Error::Weights` for the first tensor that fails.
    pub fn check_headers(&self, store: &TensorStore) -> Result<(), Error> {
        for tensor in &self.form.tensors {
            let entry = store.entry(&self.name(tensor))?;
            match &tensor.content {
                SavedContent::Segment(_) | SavedContent::Values(_) => {
                    check_entry(store, entry, tensor)?;
                }
                SavedContent::Constant(_) | SavedContent::Json(_) => {}
            }
        }
        Ok(())
    }

    fn name(&self, tensor: &SavedTensor) -> String {
        format!("{}.{}", self.module, tensor.name)
    }
}

/// Reads the scalars of an object, and checks its other fields.
fn read_scalars(
    store: &TensorStore,
    entry: &TensorEntry,
    object: &SavedObject,
    put: &mut impl FnMut(usize, u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let found = read_object(store, &entry.name)?;
    let wrong = |field: &str, expected: &str| {
        let found = found.get(field).unwrap_or(&Json::Null);
        let what = format!("`{field}`: expected {expected}, found {found}");
        damage(store, entry, what)
    };
    for (field, index) in &object.scalars {
        let number = found.get(field).and_then(Json::as_f64).map(|x| x as f32);
        let number = number.filter(|x| x.is_finite());
        let number = number.ok_or_else(|| wrong(field, "a finite number"))?;
        put(*index, 0, &number.to_le_bytes())?;
    }
    let told = |field: &str| {
        object.free.iter().any(|free| free == field)
            || object.scalars.iter().any(|(scalar, _)| scalar == field)
    };
    for (field, expected) in object.fields.iter().filter(|(field, _)| !told(field)) {
        if found.get(field) != Some(expected) {
            return Err(wrong(field, &expected.to_string()));
        }
    }
    Ok(())
}

/// Checks that a stored constant is the quantizer's, where it is not free.
fn check_constant(
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
fn check_entry(
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
fn read_parts(
    store: &TensorStore,
    entry: &TensorEntry,
    floats: bool,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = 0;
    let dtype = interface_dtype(entry.dtype).filter(|dtype| floats && dtype.is_float());
    store.stream_tensor_bytes(&entry.name, &mut |part| {
        if let Some(dtype) = dtype {
            let numbers = numbers(part, dtype);
            if let Some(index) = numbers.iter().position(|x| !x.is_finite()) {
                let index = at / dtype.bytes() + index as u64;
                return Err(not_finite(&entry.name, store, index));
            }
        }
        take(at, part)?;
        at += part.len() as u64;
        Ok(())
    })
}

/// Checks that a stored table is the quantizer's.
fn check_values(store: &TensorStore, name: &str, expected: &[f32]) -> Result<(), Error> {
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

fn damage(store: &TensorStore, entry: &TensorEntry, what: String) -> Error {
    Error::Weights(WeightsError {
        path: store.file_of(entry).to_owned(),
        message: format!("tensor `{}`: {what}", entry.name),
    })
}

/// Bytes of an object's text, for all values of its scalars.
fn text_bytes(object: &SavedObject) -> usize {
    spaced(&object.fields).len() + NUMBER_BYTES * object.scalars.len()
}

/// An object's text with its scalars in their places, filled up with spaces to its fixed length.
fn text(object: &SavedObject, scalar: impl Fn(usize) -> f32) -> Vec<u8> {
    let mut fields = object.fields.clone();
    for (field, index) in &object.scalars {
        fields.insert(field.clone(), f64::from(scalar(*index)).into());
    }
    let mut text = spaced(&fields);
    text.resize(text_bytes(object), b' ');
    text
}

/// JSON as Python writes it: a space after each comma and colon.
fn spaced(fields: &serde_json::Map<String, Json>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Spaced);
    fields.serialize(&mut serializer).expect("plain data");
    text
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
    ) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// The stored dtype of a weight, as a quantizer gets it; f32 where it is no float.
pub fn stored_float(entry: &TensorEntry) -> DType {
    interface_dtype(entry.dtype)
        .filter(|dtype| dtype.is_float())
        .unwrap_or(DType::F32)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_pythons_and_as_long_as_announced() {
        let Json::Object(fields) = json!({"a": [1, 2], "offset": null, "b": "x"}) else {
            unreachable!("an object")
        };
        let object = SavedObject {
            fields,
            scalars: vec![("offset".to_owned(), 0)],
            free: vec![],
        };
        for (number, shown) in [
            (0.134_836_33, "0.1348363310098648"),
            (-1.234_567_9e-38, "-1.234567"),
        ] {
            let text = String::from_utf8(text(&object, |_| number)).expect("ASCII");
            assert_eq!(text.len(), text_bytes(&object));
            let begin = format!("{{\"a\": [1, 2], \"offset\": {shown}");
            assert!(text.starts_with(&begin), "{text}");
            let read: Json = serde_json::from_str(&text).expect("JSON");
            assert_eq!(read["offset"].as_f64().map(|x| x as f32), Some(number));
        }
    }
}
