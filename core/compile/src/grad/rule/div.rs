//! The backward rule of `div`.

use espalier_interface::graph::{Attributes, ValueId};

use crate::grad::{Tape, Target};
use crate::splice::Placed;

/// Of `y = a / b`: `da = dy / b`, `db = -dy y / b`.
pub(super) fn div(tape: &mut Tape<'_>, placed: &Placed, dy: ValueId) {
    let node = &placed.node;
    let (a, b, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
    if tape.needs[a] {
        tape.chain(placed, "div", a, vec![dy, b], vec![], Attributes::new());
    }
    if tape.needs[b] {
        let mut made = dy;
        let minus = Attributes::new().with("alpha", -1.0);
        for (op, other, attributes) in [
            ("mul", Some(y), Attributes::new()),
            ("div", Some(b), Attributes::new()),
            ("scale", None, minus),
        ] {
            let inputs = std::iter::once(made).chain(other).collect();
            made = tape.like(b);
            let target = vec![Target::Value(made)];
            tape.emit(placed, op, inputs, vec![], target, attributes);
        }
        tape.arrive(b, made, placed);
    }
}
