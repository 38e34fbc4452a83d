//! `dropout`: x `[T, D]`, sequences, positions `[T]` -> `[T, D]`: each element is kept with
//! probability `1 - p` and divided by it, else 0. It is also applied to gradients.
//!
//! A seed crosses as two halves of 32 bits, since scalars are f64. `site` is the number of the
//! dropout in the model.

use super::definition::{AttributeKind, InEvaluation, OpDefinition, needed, written};
use crate::graph::{Attributes, Graph, ValueId, batch};

pub(super) static DROPOUT: OpDefinition = OpDefinition {
    inputs: &["x", "sequences", "positions"],
    outputs: &[written("y")],
    attributes: &[needed("p", AttributeKind::Number)],
    scalars: &["seed_low", "seed_high", "step", "site"],
    in_evaluation: InEvaluation::Copies,
    ..OpDefinition::new("dropout", |call| {
        call.width(0)?;
        call.expect_integers(&[1, 2])?;
        let p = call.attributes.number("p")?;
        if !(0.0..1.0).contains(&p) {
            return Err(call.invalid(format!("attribute `p` is {p}, expected 0 <= p < 1")));
        }
        Ok(vec![call.float(0)?])
    })
};

/// Each element is kept with probability `1 - p` and divided by it, else 0. The core numbers the
/// dropouts of a model, so that no two draw the same mask and equal fragments stay equal.
pub fn dropout(graph: &mut Graph, x: ValueId, p: f64) -> ValueId {
    let sequences = graph.batch(batch::SEQUENCES);
    let positions = graph.batch(batch::POSITIONS);
    let ty = graph.type_of(x).clone();
    let attributes = Attributes::new().with("p", p);
    graph.node(
        "dropout",
        &[x, sequences, positions],
        &[],
        vec![ty],
        attributes,
    )
}
