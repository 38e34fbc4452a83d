//! `embedding` and its gradient. Where `transposed`, the weight is `[D, V]`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::{Kernel, Op, Temporaries};
use crate::Tensors;
use crate::launch::Launch;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op {
            temporaries: Temporaries::Values(3),
            ..Op::new("embedding", forward)
        },
        Op::new("embedding_backward", backward).whole(),
    ]
}

fn forward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    asked.stored(0)?;
    let transposed = asked.attributes().flag("transposed");
    // Rows are read by themselves; of columns the whole weight is.
    let elements: u64 = asked.request.params[0].shape.iter().product();
    let of_weight = if transposed { 8 * elements } else { 0 };
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let (tokens, weight) = (launch.input(0), launch.param(0));
        let rows = if transposed {
            let weight = launch.read(weight)?;
            let columns = launch.library.select(&weight, 1, &launch.index(tokens)?)?;
            launch.library.transpose(&columns, 0, 1)?
        } else {
            launch.rows(weight, tokens)?
        };
        launch.write(&rows, launch.output(0))
    });
    Ok(kernel.with_temporaries(of_weight))
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let transposed = asked.attributes().flag("transposed");
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let (dy, tokens) = (
            launch.float(launch.input(0))?,
            launch.index(launch.input(1))?,
        );
        let dweight = launch.float(launch.output(0))?;
        let sum = if transposed {
            library.add_at(&dweight, 1, &tokens, &library.transpose(&dy, 0, 1)?)?
        } else {
            library.add_at(&dweight, 0, &tokens, &dy)?
        };
        launch.write(&sum, launch.output(0))
    }))
}
