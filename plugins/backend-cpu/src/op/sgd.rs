//! `sgd`: with a momentum buffer, or without momentum.

use espalier_host_device::{Asked, Made};
use espalier_interface::{PluginError, Result};
use espalier_kernels::element::Element;
use espalier_kernels::sgd::{self as kernel, Sgd};

use super::{Op, Setting};
use crate::dispatch::{compute, reduce};

pub const OPS: &[Op] = &[Op {
    name: "sgd",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let places = asked.scalars([
        "learning_rate",
        "momentum",
        "nesterov",
        "weight_decay",
        "factor",
    ])?;
    let has_buffer = asked.request.outputs.len() == 2;
    reduce!(asked, asked.input(0).dtype, G => compute!(asked, asked.output(0).dtype, P => {
        Ok(Made::new(move |call| {
            let [learning_rate, momentum, nesterov, weight_decay, factor] = call.scalars_at(places);
            let config = Sgd {
                learning_rate,
                momentum,
                nesterov: nesterov != 0.0,
                weight_decay,
                gradient_scale: factor,
            };
            if !has_buffer && momentum != 0.0 {
                let what = format!("op `sgd`: momentum {momentum} without a momentum buffer");
                return Err(PluginError::invalid(what));
            }
            let (grads, params) = (call.input::<G>(0), call.output::<P>(0));
            let buffer = has_buffer.then(|| call.output::<<G as Element>::Acc>(1));
            kernel::sgd(call.services, config, grads, params, buffer);
            Ok(())
        }))
    }))
}
