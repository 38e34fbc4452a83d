//! `gelu`: x -> `x P(x)`, element by element, with `P` the normal distribution function. The
//! attribute `approximate` is `none`, `P(x) = (1 + erf(x / sqrt(2))) / 2`, or `tanh`, `P(x) = 1 /
//! (1 + e^(-2 k (x + c x^3)))` as in `geglu_tanh`.
//!
//! `gelu_backward`: dy, x -> `dx = dy (P(x) + x P'(x))`.
//!
//! Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv 1606.08415, section 2;
//! `torch.nn.GELU`.

use super::definition::{
    AttributeDefinition, AttributeKind, OpCall, OpDefinition, needed, written,
};
use crate::graph::{Attributes, Graph, ValueId, ValueType};
use crate::{PluginError, Result};

/// The name of the attribute.
const APPROXIMATE: &str = "approximate";

const ATTRIBUTES: &[AttributeDefinition] = &[needed(APPROXIMATE, AttributeKind::Text)];

pub(super) static GELU: OpDefinition = OpDefinition {
    inputs: &["x"],
    outputs: &[written("y")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("gelu", infer)
};

pub(super) static GELU_BACKWARD: OpDefinition = OpDefinition {
    inputs: &["dy", "x"],
    outputs: &[written("dx")],
    attributes: ATTRIBUTES,
    ..OpDefinition::new("gelu_backward", infer)
};

/// How the normal distribution function is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluForm {
    /// By the error function.
    Exact,
    /// Approximately, by the hyperbolic tangent.
    Tanh,
}

impl GeluForm {
    /// All forms.
    pub const ALL: [GeluForm; 2] = [GeluForm::Exact, GeluForm::Tanh];

    /// The value of the attribute `approximate`.
    pub const fn name(self) -> &'static str {
        match self {
            GeluForm::Exact => "none",
            GeluForm::Tanh => "tanh",
        }
    }

    /// The form that the attribute `approximate` of an op names.
    ///
    /// # Errors
    /// `INVALID` where it is missing, or has another value.
    pub fn of(attributes: &Attributes) -> Result<Self> {
        let found = attributes.text(APPROXIMATE).unwrap_or("nothing");
        let form = Self::ALL.into_iter().find(|form| form.name() == found);
        form.ok_or_else(|| {
            PluginError::invalid(format!(
                "attribute `{APPROXIMATE}` is {found}, expected `none` or `tanh`"
            ))
        })
    }
}

/// All inputs are alike, and the output is like them.
fn infer(call: &OpCall<'_>) -> Result<Vec<ValueType>> {
    let x = call.float(0)?;
    let all: Vec<usize> = (1..call.inputs.len()).collect();
    call.expect_all(&all, &x)?;
    GeluForm::of(call.attributes).map_err(|error| call.invalid(error.message))?;
    Ok(vec![x])
}

/// `x P(x)`, element by element.
pub fn gelu(graph: &mut Graph, x: ValueId, form: GeluForm) -> ValueId {
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with(APPROXIMATE, form.name());
    graph.node("gelu", &[x], &[], vec![ty], attributes)
}
