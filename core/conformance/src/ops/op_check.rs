//! An op of the kit, what its check asserts, and its cases.

use espalier_interface::DType;
use espalier_interface::op::Writing;

use super::case::{Near, OpCase};
use super::draw::Draw;
use super::numbers::{decode, encode, rounded};
use super::rounding::{U, ulp};

/// An op and its cases: all of the kit, or one of a seed.
pub struct OpCheck {
    /// Name of its check: `op.`, the op, and where its version is another than 1, that, as in
    /// `op.linear.2`.
    pub name: &'static str,
    /// What the check asserts.
    pub asserts: &'static str,
    pub(super) cases: fn(&Draw) -> Vec<OpCase>,
}

impl OpCheck {
    /// Its cases. Those that add to a gradient from numbers of bf16 also add to one of bf16.
    pub(super) fn all_cases(&self, draw: &Draw) -> Vec<OpCase> {
        let cases = (self.cases)(draw);
        let narrow = cases.iter().filter_map(with_narrow_gradient);
        let narrow: Vec<OpCase> = narrow.collect();
        cases.into_iter().chain(narrow).collect()
    }
}

/// The same launch with the gradient that it adds to in bf16. What is added may be rounded to bf16
/// before it is.
fn with_narrow_gradient(case: &OpCase) -> Option<OpCase> {
    if case.request.inputs.first()?.dtype != DType::BF16 {
        return None;
    }
    let outputs = case.request.call()?.definition.outputs;
    let mut outputs = outputs.iter();
    let index = outputs.position(|output| output.writing == Writing::Accumulated)?;
    let mut narrow = case.clone();
    let target = &mut narrow.outputs[index];
    let start = decode(DType::F32, target.start.as_ref()?);
    let narrow_start = rounded(DType::BF16, &start);
    let expected = std::mem::take(&mut target.expected);
    let mut near = Near::default();
    let pairs = start.iter().zip(&narrow_start);
    for ((start, narrow), (value, bound)) in
        pairs.zip(expected.values.into_iter().zip(expected.bounds))
    {
        let added = value - start;
        let rounding = ulp(DType::BF16, added.abs() + bound) / 2.0;
        near.values.push(narrow + added);
        // Of an exact number, too: the sum is one of f32 before it is rounded.
        near.bounds
            .push(bound + rounding + U * (narrow.abs() + added.abs()));
    }
    target.start = Some(encode(DType::BF16, &narrow_start));
    target.expected = near;
    narrow.request.outputs[index].dtype = DType::BF16;
    narrow.name += ", gradient bf16";
    Some(narrow)
}
