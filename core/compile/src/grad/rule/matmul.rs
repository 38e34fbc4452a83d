//! The backward rule of `matmul`, by products of the same op.
//!
//! With `a` and `b` as they are stored and `y = A B`, where a flag says whether `A` is `a` or its
//! transpose: `dA = dy B^T`, `dB = A^T dy`, and the gradient of a transposed side is the transpose.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::Tape;
use crate::splice::Placed;

pub(super) fn matmul(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (a, b) = (node.inputs[0], node.inputs[1]);
    let [of_a, of_b] = ["transpose_a", "transpose_b"].map(|name| node.attributes.flag(name));
    let needs = [a, b].map(|value| tape.needs[value]);
    let mut product = |to: ValueId, [left, right]: [(ValueId, bool); 2]| {
        let attributes = Attributes::new()
            .with("transpose_a", left.1)
            .with("transpose_b", right.1);
        tape.chain(
            placed,
            "matmul",
            to,
            vec![left.0, right.0],
            vec![],
            attributes,
        );
    };
    if needs[0] {
        let sides = if of_a {
            [(b, of_b), (dy, true)]
        } else {
            [(dy, false), (b, !of_b)]
        };
        product(a, sides);
    }
    if needs[1] {
        let sides = if of_b {
            [(dy, true), (a, of_a)]
        } else {
            [(a, !of_a), (dy, false)]
        };
        product(b, sides);
    }
}
