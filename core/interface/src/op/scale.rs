//! `scale`: a -> `alpha * a`. It may write its output over `a`.
//!
//! Where the attribute `rounded` is true, `alpha` is the number of a's dtype that is nearest to it.
//! The core, which knows the dtype, rounds `alpha` and takes the attribute out
//! ([`with_rounded_factor`]): no backend sees it.

use super::definition::{AttributeKind, OpDefinition, needed, optional, written};
use crate::graph::{Attributes, Graph, ValueId};
use crate::{DType, Result};

pub(super) static SCALE: OpDefinition = OpDefinition {
    inputs: &["a"],
    outputs: &[written("y")],
    attributes: &[
        needed("alpha", AttributeKind::Number),
        optional(ROUNDED, AttributeKind::Flag),
    ],
    ..OpDefinition::new("scale", |call| Ok(vec![call.float(0)?]))
};

/// The attribute by which the factor is rounded to the dtype of what it scales.
const ROUNDED: &str = "rounded";

/// `alpha * a`, where `alpha` is first rounded to the dtype of `a`: as a family's factor that its
/// authors' program keeps in that dtype.
pub fn scale_rounded(graph: &mut Graph, a: ValueId, alpha: f64) -> ValueId {
    let ty = graph.type_of(a).clone();
    let attributes = Attributes::new().with("alpha", alpha).with(ROUNDED, true);
    graph.node("scale", &[a], &[], vec![ty], attributes)
}

/// The attributes of a `scale` of values of `dtype` as a backend sees them; none where they are
/// that already. A factor is rounded to f32 first, as torch's default dtype rounds it.
///
/// # Errors
/// `INVALID` where there is no factor.
pub fn with_rounded_factor(attributes: &Attributes, dtype: DType) -> Result<Option<Attributes>> {
    if !attributes.0.contains_key(ROUNDED) {
        return Ok(None);
    }
    let mut resolved = attributes.clone();
    resolved.0.remove(ROUNDED);
    if !attributes.flag(ROUNDED) {
        return Ok(Some(resolved));
    }
    let alpha = attributes.number("alpha")?;
    let single = alpha as f32;
    let rounded = match dtype {
        DType::BF16 => half::bf16::from_f32(single).to_f64(),
        DType::F16 => half::f16::from_f32(single).to_f64(),
        DType::F32 => f64::from(single),
        _ => alpha,
    };
    Ok(Some(resolved.with("alpha", rounded)))
}

/// `alpha * a`.
pub fn scale(graph: &mut Graph, a: ValueId, alpha: f64) -> ValueId {
    let ty = graph.type_of(a).clone();
    let attributes = Attributes::new().with("alpha", alpha);
    graph.node("scale", &[a], &[], vec![ty], attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_rounded_to_the_dtype_and_the_flag_goes() {
        // sqrt(3584): 59.75 in bf16, 59.875 in f16.
        let attributes = Attributes::new().with("alpha", 3584f64.sqrt());
        let rounded = attributes.clone().with(ROUNDED, true);
        for (dtype, expected) in [
            (DType::BF16, 59.75),
            (DType::F16, 59.875),
            (DType::F32, f64::from(3584f64.sqrt() as f32)),
            (DType::F64, 3584f64.sqrt()),
        ] {
            let found = with_rounded_factor(&rounded, dtype).expect("a factor");
            let expected = Attributes::new().with("alpha", expected);
            assert_eq!(found, Some(expected), "{dtype}");
        }
        assert_eq!(with_rounded_factor(&attributes, DType::BF16), Ok(None));
        let off = attributes.clone().with(ROUNDED, false);
        assert_eq!(with_rounded_factor(&off, DType::BF16), Ok(Some(attributes)));
    }
}
