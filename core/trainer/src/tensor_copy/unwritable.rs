//! A number outside the range of the written dtype.

use espalier_interface::DType;
use espalier_system::failure::{ExitClass, Failure};

/// A finite number that a narrower dtype cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor `{tensor}` has a number beyond the largest of {dtype}")]
pub struct Unwritable {
    /// The tensor to write.
    pub tensor: String,
    /// Its dtype.
    pub dtype: DType,
}

impl Failure for Unwritable {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Numbers
    }

    fn next_step(&self) -> String {
        "choose a wider --dtype: f32 or bf16".to_owned()
    }
}
