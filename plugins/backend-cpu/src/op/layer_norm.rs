//! `layer_norm` and its gradients.

use espalier_host_device::{Asked, Call, Made, Number};
use espalier_interface::{DType, Result};
use espalier_kernels::element::{Element, convert};
use espalier_kernels::layer_norm as kernel;

use super::{Op, Setting};
use crate::dispatch::{compute, gradient, stored};

pub const OPS: &[Op] = &[
    Op {
        name: "layer_norm",
        prepare: forward,
    },
    Op {
        name: "layer_norm_backward",
        prepare: backward,
    },
    Op {
        name: "layer_norm_weight_backward",
        prepare: weight_backward,
    },
];

/// Reads a param of a stored dtype as numbers of the arithmetic's.
type Widen<A> = fn(&Call<'_>, usize, &mut [A]);

fn widen<W: Element + Number, A: Element>(call: &Call<'_>, index: usize, out: &mut [A]) {
    let stored = call.param::<W>(index).iter();
    out.iter_mut()
        .zip(stored)
        .for_each(|(out, &w)| *out = convert(w));
}

fn widen_of<A: Element>(asked: &Asked<'_>, dtype: DType) -> Result<Widen<A>> {
    stored!(asked, dtype, W => Ok(widen::<W, A> as Widen<A>))
}

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (eps, width) = (
        asked.attributes().number("eps")?,
        asked.columns(asked.input(0)),
    );
    let has_bias = asked.request.params.len() > 1;
    let stored = asked.stored(0)?;
    let stored_bias = if has_bias { asked.stored(1)? } else { stored };
    compute!(asked, asked.input(0).dtype, E => {
        let weight = widen_of::<<E as Element>::Acc>(asked, stored)?;
        let bias = widen_of::<<E as Element>::Acc>(asked, stored_bias)?;
        let run = Made::new(move |call| {
            let params = call.workspace(2 * width);
            let (w, b) = params.split_at_mut(width);
            weight(call, 0, w);
            if has_bias {
                bias(call, 1, b);
            }
            let (x, y, b) = (call.input::<E>(0), call.output(0), has_bias.then_some(&*b));
            kernel::layer_norm(call.services, x, w, b, eps, y);
            Ok(())
        });
        Ok(run.with_workspace(2 * width * size_of::<<E as Element>::Acc>()))
    })
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (eps, width) = (
        asked.attributes().number("eps")?,
        asked.columns(asked.input(0)),
    );
    let stored = asked.stored(0)?;
    compute!(asked, asked.input(0).dtype, E => {
        let weight = widen_of::<<E as Element>::Acc>(asked, stored)?;
        let run = Made::new(move |call| {
            let (dy, x, w) = (call.input::<E>(0), call.input(1), call.workspace(width));
            weight(call, 0, w);
            kernel::layer_norm_backward(call.services, x, w, dy, eps, call.output(0));
            Ok(())
        });
        Ok(run.with_workspace(width * size_of::<<E as Element>::Acc>()))
    })
}

fn weight_backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (dy, eps) = (asked.input(0), asked.attributes().number("eps")?);
    let most = 2 * asked.max_tokens();
    compute!(asked, dy.dtype, E => gradient!(asked.output(0).dtype, E, G => {
        let run = Made::new(move |call| {
            let (dy, x) = (call.input::<E>(0), call.input(1));
            let found = call.workspace(2 * call.tokens);
            let dweight = call.output::<G>(0);
            kernel::layer_norm_backward_weight(call.services, x, dy, eps, found, dweight);
            Ok(())
        });
        Ok(run.with_workspace(most * size_of::<<E as Element>::Acc>()))
    }))
}
