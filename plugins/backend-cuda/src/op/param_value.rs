//! `param_value` and `param_value_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::weight::Weight;
use super::{Op, computed, elements, gradient, op};
use crate::arguments::{Arguments, address};
use crate::kit::Kit;
use crate::sources::FLAT;

pub const OPS: &[Op] = &[
    op("param_value", forward),
    op("param_value_backward", backward),
];

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = asked.output(0).dtype;
    let name = computed(asked, dtype)?;
    let param = Weight::new(asked, kit, [0, 0], &[dtype])?;
    let copy = kit.function(FLAT, &format!("cast_{name}_{name}"))?;
    Ok(Made::new(move |call| {
        let y = call.output_place(0);
        // Values that have to be made are made in the output.
        let values = param.all(call, address(y))?;
        if values == address(y) {
            return Ok(());
        }
        let arguments = Arguments::new().with(values).at(y);
        copy.launch_tiles(elements(y), &arguments.with(elements(y) as i64))
    }))
}

fn backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let sum = gradient(asked, 0)?;
    let kernel = kit.function(FLAT, &format!("accumulate_{dtype}_{sum}"))?;
    Ok(Made::new(move |call| {
        let (dy, dparam) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(dy).at(dparam).with(elements(dy) as i64);
        kernel.launch_tiles(elements(dy), &arguments)
    }))
}
