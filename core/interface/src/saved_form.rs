//! The tensors of a packed weight in a checkpoint, as data: the host reads and writes the bytes.

mod constant;
mod counting;
mod order;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::format::{Format, SegmentSpec};
use crate::{DType, PluginError, Result};

pub use constant::SavedConstant;
pub use counting::SavedCounting;
pub use order::{SavedAxis, SavedOrder};

/// The tensors of one packed weight in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedForm {
    /// Tensors in the order in which they are written.
    pub tensors: Vec<SavedTensor>,
}

/// One tensor of a packed weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedTensor {
    /// Name after the module's name and a dot, such as `weight` or `weight.absmax`.
    pub name: String,
    /// Element type; always `U8` for [`SavedContent::Json`].
    pub dtype: DType,
    /// Extents, slowest first; the host fills in the length of a text.
    pub shape: Vec<u64>,
    /// What it holds.
    pub content: SavedContent,
    /// Other element types that a checkpoint may use for the same bytes. One of the extents changes
    /// with the width.
    #[serde(default)]
    pub also_stored_as: Vec<DType>,
}

/// What a tensor of a packed weight holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedContent {
    /// The bytes of the format's segment of this index.
    Segment(usize),
    /// Numbers that follow from the options, such as a code table. Those of a checkpoint must agree
    /// to within 1e-6.
    Values(Vec<f32>),
    /// A JSON object as text.
    Json(SavedObject),
    /// A number, a list or a text that follows from shape and options.
    Constant(SavedConstant),
    /// The elements of a segment in another order.
    Order(SavedOrder),
    /// Whole numbers that follow from the shape. Those of a checkpoint must be equal.
    Counting(SavedCounting),
}

/// A JSON object in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedObject {
    /// Its fields in order. Those of a checkpoint must be equal, except for the fields named below.
    pub fields: Map<String, Json>,
    /// Fields that hold the single f32 of a segment: name, and index of the segment.
    #[serde(default)]
    pub scalars: Vec<(String, usize)>,
    /// Fields that may have any value in a checkpoint.
    #[serde(default)]
    pub free: Vec<String>,
}

/// What a checkpoint says about a packed weight, from which a quantizer derives its options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedDescription {
    /// The `quantization_config` of `config.json`.
    pub config: Json,
    /// The objects and constants stored with the weight, by their tensors' names after the
    /// module's.
    #[serde(default)]
    pub objects: Map<String, Json>,
    /// How the checkpoint stores the form's tensors, by the same names.
    #[serde(default)]
    pub stored: BTreeMap<String, StoredTensor>,
}

/// How a checkpoint stores a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, slowest first.
    pub shape: Vec<u64>,
}

/// A model that is about to be written with packed weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedModel {
    /// Dtype in which most of its dense weights are stored.
    pub dtype: DType,
    /// Modules whose weight is a matrix and stays dense, such as `lm_head`.
    pub dense_modules: Vec<String>,
    /// Each packed module with the `quantization_config` that its own quantizer gives for a model
    /// of such weights alone. Empty where all weights are packed with the same options.
    #[serde(default)]
    pub configs: BTreeMap<String, Json>,
}

impl SavedTensor {
    /// Its bytes, as far as its shape is known.
    pub fn bytes(&self) -> u64 {
        let elements = self
            .shape
            .iter()
            .fold(1, |n: u64, &size| n.saturating_mul(size));
        elements.saturating_mul(self.dtype.bytes())
    }
}

impl SavedForm {
    /// The names of the tensors from which a quantizer derives its options: objects and constants.
    pub fn told(&self) -> impl Iterator<Item = &str> {
        let told = self.tensors.iter().filter(|tensor| {
            matches!(
                tensor.content,
                SavedContent::Json(_) | SavedContent::Constant(_)
            )
        });
        told.map(|tensor| tensor.name.as_str())
    }

    /// Checks that the form holds every segment of a format exactly once, and with its size.
    ///
    /// # Errors
    /// `INVALID`, naming the segment or tensor.
    pub fn validate(&self, format: &Format) -> Result<()> {
        let fail = |what: String| {
            PluginError::invalid(format!(
                "saved form of quantizer `{}`: {what}",
                format.quantizer
            ))
        };
        let of = |tensor: &SavedTensor, error: &PluginError| {
            fail(format!("tensor `{}`: {}", tensor.name, error.message))
        };
        let mut seen = vec![0; format.segments.len()];
        let mut hold = |index: usize, tensor: &str| -> Result<&SegmentSpec> {
            let segment = format.segments.get(index);
            let segment = segment
                .ok_or_else(|| fail(format!("tensor `{tensor}` holds segment {index} of none")))?;
            seen[index] += 1;
            Ok(segment)
        };
        for tensor in &self.tensors {
            let bytes = tensor.bytes();
            match &tensor.content {
                SavedContent::Segment(index)
                | SavedContent::Order(SavedOrder { segment: index, .. }) => {
                    let segment = hold(*index, &tensor.name)?;
                    if bytes != segment.bytes() {
                        return Err(fail(format!(
                            "tensor `{}` has {bytes} bytes, its segment `{}` {}",
                            tensor.name,
                            segment.name,
                            segment.bytes()
                        )));
                    }
                    if let SavedContent::Order(order) = &tensor.content {
                        order.validate(bytes).map_err(|error| of(tensor, &error))?;
                    }
                }
                SavedContent::Counting(counting) => {
                    let counts = counting.validate(tensor.dtype);
                    counts.map_err(|error| of(tensor, &error))?;
                }
                SavedContent::Values(values) => {
                    if bytes != 4 * values.len() as u64 || tensor.dtype != DType::F32 {
                        let what = format!("tensor `{}` is not its values in f32", tensor.name);
                        return Err(fail(what));
                    }
                }
                SavedContent::Constant(constant) => {
                    let fits = constant.shape() == tensor.shape;
                    if !fits || constant.bytes(tensor.dtype).is_none() {
                        let what = format!(
                            "tensor `{}` of {} and shape {:?} cannot hold {}",
                            tensor.name, tensor.dtype, tensor.shape, constant.value
                        );
                        return Err(fail(what));
                    }
                }
                SavedContent::Json(object) => {
                    for (field, index) in &object.scalars {
                        let segment = hold(*index, &tensor.name)?;
                        if segment.bytes() != 4 || segment.dtype != DType::F32 {
                            let what = format!("field `{field}` is not a segment of one f32");
                            return Err(fail(what));
                        }
                    }
                }
            }
        }
        match seen.iter().position(|&times| times != 1) {
            None => Ok(()),
            Some(index) => Err(fail(format!(
                "segment `{}` is held {} times",
                format.segments[index].name, seen[index]
            ))),
        }
    }
}
