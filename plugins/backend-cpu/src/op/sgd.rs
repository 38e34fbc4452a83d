//! `sgd`: with a momentum buffer, or without momentum.

use espalier_interface::{PluginError, Result};
use espalier_kernels::element::Element;
use espalier_kernels::sgd::{self as kernel, Sgd};

use super::{Made, Op, Setting};
use crate::dispatch::{compute, reduce};
use crate::request::Asked;

pub const OPS: &[Op] = &[Op {
    name: "sgd",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let outputs = asked.request.outputs.len().clamp(1, 2);
    asked.check([1, 0, outputs], &[])?;
    let (gradient, param) = (asked.input(0), asked.output(0));
    asked.expect(param, "param", &gradient.shape, param.dtype)?;
    if outputs == 2 {
        asked.expect_like(gradient, &[(asked.output(1), "momentum buffer")])?;
    }
    reduce!(asked, gradient.dtype, G => compute!(asked, param.dtype, P => {
        let run = Made::new(move |call| {
            let &[learning_rate, momentum, nesterov, weight_decay, factor] = call.scalars else {
                unreachable!("counted")
            };
            let config = Sgd {
                learning_rate,
                momentum,
                nesterov: nesterov != 0.0,
                weight_decay,
                gradient_scale: factor,
            };
            if outputs == 1 && momentum != 0.0 {
                let what = format!("op `sgd`: momentum {momentum} without a momentum buffer");
                return Err(PluginError::invalid(what));
            }
            let (grads, params) = (call.input::<G>(0), call.output::<P>(0));
            let buffer = (outputs == 2).then(|| call.output::<<G as Element>::Acc>(1));
            kernel::sgd(call.services, config, grads, params, buffer);
            Ok(())
        });
        Ok(run.with_scalars(5))
    }))
}
