//! `adamw` and `sgd`, in the order of operations of torch's. What is narrower than f32 is widened,
//! updated and rounded once.

use espalier_host_device::{Asked, Setting};
use espalier_interface::op::ADAMW_SCALARS;
use espalier_interface::{DType, PluginError, Result};

use super::rounding::Rounding;
use super::{Kernel, Op, Prepare, Temporaries};
use crate::launch::Launch;
use crate::{Memory, Tensors, Unary};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    let versions = [1, 2, 3].into_iter();
    let ops = versions.flat_map(|version| {
        [("adamw", adamw as Prepare<L>), ("sgd", sgd)].map(|(name, prepare)| Op {
            // Random bits take tensors of their own.
            temporaries: Temporaries::Parts(if version == 3 { 28 } else { 16 }),
            ..Op::new(name, prepare).version(version)
        })
    });
    ops.collect()
}

/// Refuses gradients that are not in the reduce dtype, in version 1 of an op.
pub(super) fn check_gradient(asked: &Asked<'_>) -> Result<()> {
    match asked.input(0).dtype {
        DType::F32 => Ok(()),
        DType::BF16 if asked.request.version > 1 => Ok(()),
        other => Err(asked.bad_dtype(other, "f32")),
    }
}

/// The operands of a launch as flat runs: the gradient, then the outputs.
pub(super) fn flat<L: Tensors>(launch: &Launch<'_, L>) -> Vec<Memory> {
    let outputs = (0..launch.outputs()).map(|index| launch.output(index));
    let all = std::iter::once(launch.input(0)).chain(outputs);
    all.map(|memory| memory.reshaped(&[memory.elements()]))
        .collect()
}

fn adamw<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    check_gradient(asked)?;
    let rounding = Rounding::of(asked)?;
    let places = asked.scalars(ADAMW_SCALARS)?;
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let [rate, beta1, beta2, eps, decay, step, factor] = launch.scalars_at(places);
        let correction1 = 1.0 - beta1.powf(step);
        let root_correction2 = (1.0 - beta2.powf(step)).sqrt();
        let (library, all) = (launch.library, flat(launch));
        launch.parts(all[0].elements(), 1, |begin, len| {
            let part = |index: usize| all[index].narrowed(0, begin, len);
            let g = library.scaled(&launch.float(&part(0))?, factor)?;
            let (param, m, v) = (
                launch.float(&part(1))?,
                launch.float(&part(2))?,
                launch.float(&part(3))?,
            );
            let moved = library.scaled(&library.sub(&g, &m)?, 1.0 - beta1)?;
            let m = library.add(&m, &moved)?;
            let squares = library.scaled(&library.unary(Unary::Square, &g)?, 1.0 - beta2)?;
            let v = library.add(&library.scaled(&v, beta2)?, &squares)?;
            let kept = library.scaled(&param, 1.0 - rate * decay)?;
            let root = library.unary(Unary::Sqrt, &v)?;
            let divisor = library.full(root_correction2, &[1], DType::F32)?;
            let denominator = library.affine(&library.div(&root, &divisor)?, 1.0, eps)?;
            let step = library.scaled(&m, rate / correction1)?;
            let param = library.sub(&kept, &library.div(&step, &denominator)?)?;
            rounding.write(launch, &param, begin, &part(1))?;
            launch.write(&m, &part(2))?;
            launch.write(&v, &part(3))
        })
    }))
}

fn sgd<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    check_gradient(asked)?;
    let rounding = Rounding::of(asked)?;
    let places = asked.scalars([
        "learning_rate",
        "momentum",
        "nesterov",
        "weight_decay",
        "factor",
    ])?;
    let has_buffer = asked.request.outputs.len() == 2;
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let [rate, momentum, nesterov, decay, factor] = launch.scalars_at(places);
        if !has_buffer && momentum != 0.0 {
            let what = format!("op `sgd`: momentum {momentum} without a momentum buffer");
            return Err(PluginError::invalid(what));
        }
        let (library, all) = (launch.library, flat(launch));
        launch.parts(all[0].elements(), 1, |begin, len| {
            let part = |index: usize| all[index].narrowed(0, begin, len);
            let g = library.scaled(&launch.float(&part(0))?, factor)?;
            let param = launch.float(&part(1))?;
            let mut step = library.add(&g, &library.scaled(&param, decay)?)?;
            if has_buffer {
                let buffer = library.scaled(&launch.float(&part(2))?, momentum)?;
                let buffer = library.add(&buffer, &step)?;
                step = if nesterov == 0.0 {
                    buffer.clone()
                } else {
                    library.add(&step, &library.scaled(&buffer, momentum)?)?
                };
                launch.write(&buffer, &part(2))?;
            }
            let param = library.sub(&param, &library.scaled(&step, rate)?)?;
            rounding.write(launch, &param, begin, &part(1))
        })
    }))
}
