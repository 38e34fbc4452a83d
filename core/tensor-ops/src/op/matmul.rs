//! `matmul`: the product of two values.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::{Kernel, Op};
use crate::Tensors;
use crate::launch::Launch;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![Op::new("matmul", prepare).whole()]
}

fn prepare<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let transposed = ["transpose_a", "transpose_b"].map(|name| asked.attributes().flag(name));
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let side = |index: usize| {
            let x = launch.read(launch.input(index))?;
            if transposed[index] {
                launch.library.transpose(&x, 0, 1)
            } else {
                Ok(x)
            }
        };
        let product = launch.library.rounded_product(&side(0)?, &side(1)?)?;
        launch.write(&product, launch.output(0))
    }))
}
