//! A packed weight's segments <-> its tensors in a checkpoint, as its quantizer's saved form says.

mod checks;

use espalier_interface::DType;
use espalier_interface::format::Format;
use espalier_interface::saved_form::{
    SavedContent, SavedForm, SavedObject, SavedOrder, SavedTensor,
};
use espalier_plan::packing::SavedParam;
use espalier_registry::select::read_object;
use espalier_system::files::{GroupSink, TensorEntry, TensorSpec, TensorStore, interface_dtype};
use serde::Serialize;
use serde_json::Value as Json;

use self::checks::{
    check_codes, check_constant, check_counting, check_entry, check_values, damage, read_parts,
};
use crate::Error;

/// Longest text of a number that stands for an f32, in bytes: sign, 17 digits, point and exponent.
const NUMBER_BYTES: usize = 24;

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
                SavedContent::Order(order) => {
                    let segment = &segments[order.segment];
                    let mut bytes = vec![0; segment.len()];
                    order.save(segment, &mut bytes);
                    sink.write_bytes(&bytes)?;
                }
                SavedContent::Counting(counting) => {
                    let mut bytes = vec![0; tensor.bytes() as usize];
                    counting.write(0, &mut bytes);
                    sink.write_bytes(&bytes)?;
                }
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
                    let refused = self.format.not_numbers(*index);
                    read_parts(store, entry, floats, |at, bytes| {
                        check_codes(store, entry, refused, (at, bytes))?;
                        put(*index, at, bytes)
                    })?;
                }
                SavedContent::Order(order) => {
                    check_entry(store, entry, tensor)?;
                    let segment = self.read_order(store, entry, order)?;
                    put(order.segment, 0, &segment)?;
                }
                SavedContent::Counting(counting) => {
                    check_entry(store, entry, tensor)?;
                    check_counting(store, entry, *counting)?;
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
                SavedContent::Segment(_)
                | SavedContent::Order(_)
                | SavedContent::Counting(_)
                | SavedContent::Values(_) => {
                    check_entry(store, entry, tensor)?;
                }
                SavedContent::Constant(_) | SavedContent::Json(_) => {}
            }
        }
        Ok(())
    }

    /// The bytes of a segment that a tensor holds in another order.
    fn read_order(
        &self,
        store: &TensorStore,
        entry: &TensorEntry,
        order: &SavedOrder,
    ) -> Result<Vec<u8>, Error> {
        let mut tensor = Vec::with_capacity((entry.bytes.end - entry.bytes.start) as usize);
        let floats = self.format.segments[order.segment].dtype.is_float();
        read_parts(store, entry, floats, |_, bytes| {
            tensor.extend_from_slice(bytes);
            Ok(())
        })?;
        let mut segment = vec![0; tensor.len()];
        order.load(&tensor, &mut segment);
        check_codes(
            store,
            entry,
            self.format.not_numbers(order.segment),
            (0, &segment),
        )?;
        Ok(segment)
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
