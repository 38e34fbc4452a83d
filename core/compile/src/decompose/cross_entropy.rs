//! `cross_entropy` and its gradient from maxima, exponentials, sums and the value at the label.
//!
//! With `m = max_v l` and `e = log sum_v e^(l - m)`: `loss = e - (l_label - m)`, `lse = m + e`; `dl
//! = (e^(l - lse) - [v = label]) factor`. All is 0 where the label is -100.

use espalier_interface::Result;
use espalier_interface::graph::{Attributes, Dim};

use super::parts::{Parts, Whole, rows};
use super::unfit;
use crate::grad::Target;

pub(super) fn forward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let &[loss, lse, correct] = whole.outputs else {
        return Err(unfit(whole, "it has no three outputs"));
    };
    let (logits, labels) = (parts.wide(whole.inputs[0]), whole.inputs[1]);
    let none = Attributes::new;
    let columns = parts.columns(logits);
    let max = parts.made("row_max", &[logits], vec![Dim::Tokens], none());
    let max_of_each = parts.repeated(max, columns);
    let below = parts.add(logits, max_of_each, -1.0);
    let exponentials = parts.map("exp", &[below], none());
    let all = none().with("repeat", columns);
    let sums = parts.made("contract", &[exponentials], vec![Dim::Tokens], all);
    let log = parts.map("log", &[sums], none());
    let log_of_each = parts.repeated(log, columns);
    let losses = parts.add(log_of_each, below, -1.0);
    parts.emit("pick", &[losses, labels], loss, none());
    let log_sum = parts.add(max, log, 1.0);
    let log_sum = parts.repeated(log_sum, columns);
    parts.emit("pick", &[log_sum, labels], lse, none());
    parts.emit("is_argmax", &[whole.inputs[0], labels], correct, none());
    Ok(())
}

pub(super) fn backward(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let (logits, labels, lse) = (
        parts.wide(whole.inputs[0]),
        whole.inputs[1],
        whole.inputs[2],
    );
    let none = Attributes::new;
    let columns = parts.columns(logits);
    let lse = parts.repeated(lse, columns);
    let below = parts.add(logits, lse, -1.0);
    let probabilities = parts.map("exp", &[below], none());
    let target = parts.made("one_hot", &[labels], rows(columns), none());
    let apart = parts.add(probabilities, target, -1.0);
    let Target::Value(_) = whole.outputs[0] else {
        return Err(unfit(whole, "its output is the gradient of a param"));
    };
    parts.finish("scale_trained", &[apart, labels], whole.outputs[0], none());
    Ok(())
}

/// Version 2 by version 1, which has memory of its own.
pub(super) fn backward_apart(parts: &mut Parts<'_>, whole: &Whole<'_>) -> Result<()> {
    let op = "cross_entropy_backward";
    parts.emit(op, whole.inputs, whole.outputs[0], whole.attributes.clone());
    Ok(())
}
