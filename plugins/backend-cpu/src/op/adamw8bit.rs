//! `adamw8bit`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_kernels::adamw::Adamw;
use espalier_kernels::adamw8bit::{self as kernel, Coded};
use espalier_kernels::element::Element;

use super::{Op, Setting};
use crate::dispatch::{compute, reduce};

pub const OPS: &[Op] = &[Op {
    name: "adamw8bit",
    prepare,
}];

fn prepare(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let places = asked.scalars([
        "learning_rate",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "step",
        "factor",
    ])?;
    reduce!(asked, asked.input(0).dtype, G => compute!(asked, asked.output(0).dtype, P => {
        Ok(Made::new(move |call| {
            let [learning_rate, beta1, beta2, eps, weight_decay, step, factor] =
                call.scalars_at(places);
            let config = Adamw {
                learning_rate,
                betas: [beta1, beta2],
                eps,
                weight_decay,
                step: step as u64,
                gradient_scale: factor,
            };
            let (grads, params) = (call.input::<G>(0), call.output::<P>(0));
            let [first, second] = [1, 3].map(|at| Coded {
                codes: call.output_bytes(at),
                absmax: call.output::<<G as Element>::Acc>(at + 1),
            });
            kernel::adamw8bit(call.services, config, grads, params, first, second);
            Ok(())
        }))
    }))
}
