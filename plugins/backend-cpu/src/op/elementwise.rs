//! Functions of one number.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::elementwise::{self as kernel, Function};

use super::{Op, Setting};
use crate::dispatch::compute;

/// An op for each function of the kernels, and `rsqrt`, which has attributes.
pub const OPS: &[Op] = &{
    const RSQRT: Op = Op {
        name: "rsqrt",
        prepare: rsqrt,
    };
    let mut ops = [RSQRT; Function::ALL.len() + 1];
    let mut index = 0;
    while index < Function::ALL.len() {
        ops[index] = Op {
            name: Function::ALL[index].name(),
            prepare: function,
        };
        index += 1;
    }
    ops
};

fn function(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let mut all = Function::ALL.into_iter();
    let function = all.find(|function| function.name() == asked.request.op);
    let function =
        function.ok_or_else(|| asked.unsupported("not a function of one number".to_owned()))?;
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::elementwise::<E>(call.services, function, call.input(0), call.output(0));
            Ok(())
        }))
    })
}

fn rsqrt(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let attributes = asked.attributes();
    let alpha = attributes.optional_number("alpha").unwrap_or(1.0);
    let beta = attributes.optional_number("beta").unwrap_or(0.0);
    compute!(asked, asked.input(0).dtype, E => {
        Ok(Made::new(move |call| {
            kernel::rsqrt::<E>(call.services, call.input(0), [alpha, beta], call.output(0));
            Ok(())
        }))
    })
}
