//! `linear` and its gradients over dense and packed weights, and `bias_backward`.
//!
//! A packed weight is decoded some rows at a time, so that its values never exist whole.

use espalier_host_device::{Asked, Epilogue, Setting};
use espalier_interface::{DType, Result};

use super::{Kernel, Op, Temporaries};
use crate::launch::Launch;
use crate::weight::Weight;
use crate::{Memory, Tensors};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    let op = |name, prepare, version| Op {
        temporaries: Temporaries::Whole(if version == 4 { 5 } else { 3 }),
        ..Op::new(name, prepare).version(version)
    };
    vec![
        op("linear", forward, 1),
        op("linear", forward, 2),
        op("linear", forward, 3),
        op("linear", adapted, 4),
        op("linear_input_backward", input_backward, 1),
        op("linear_input_backward", input_backward, 2),
        op("linear_input_backward", both_backward, 3),
        op("linear_input_backward", adapted_backward, 4),
        op("linear_weight_backward", weight_backward, 1),
        op("linear_weight_backward", weight_backward, 2),
        op("bias_backward", bias_backward, 1),
    ]
}

/// Adds `x`, of as many elements, to what an output holds.
pub fn accumulate<L: Tensors>(
    launch: &Launch<'_, L>,
    x: &L::Tensor,
    output: &Memory,
) -> Result<()> {
    let elements = output.elements();
    let (x, output) = (
        launch.library.reshape(x, &[elements, 1])?,
        output.reshaped(&[elements, 1]),
    );
    launch.parts_of(&x, |x, begin, len| {
        let output = output.narrowed(0, begin, len);
        let sum = launch.library.add(&launch.float(&output)?, &x)?;
        launch.write(&sum, &output)
    })
}

/// Writes columns of output 0: `round(residual + round(added + alpha round(product)))`. What is
/// added first is a number that is not rounded, `alpha round(product)`.
fn write<L: Tensors>(
    epilogue: Epilogue,
    launch: &Launch<'_, L>,
    product: &L::Tensor,
    [begin, len]: [usize; 2],
) -> Result<()> {
    let library = launch.library;
    let columns = |memory: &Memory| memory.narrowed(1, begin, len);
    let output = columns(launch.output(0));
    if epilogue.is_product() {
        return launch.write(product, &output);
    }
    let product = launch.rounded(product, output.dtype())?;
    let mut sum = library.scaled(&product, epilogue.alpha)?;
    if let Some(added) = epilogue.added {
        sum = library.add(&launch.float(&columns(launch.input(added)))?, &sum)?;
    }
    if let Some(residual) = epilogue.residual {
        sum = launch.rounded(&sum, output.dtype())?;
        sum = library.add(&launch.float(&columns(launch.input(residual)))?, &sum)?;
    }
    launch.write(&sum, &output)
}

fn forward<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let bias = (asked.request.params.len() == 2).then_some(weight.ranges());
    let epilogue = Epilogue::after(1, asked);
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let x = launch.read(launch.input(0))?;
        weight.blocks(launch, |w, [begin, len]| {
            let bias = bias.map(|index| launch.read(&launch.param(index).narrowed(0, begin, len)));
            let bias = bias.transpose()?;
            let product = library.rounded_linear(&x, w, bias.as_ref())?;
            write(epilogue, launch, &product, [begin, len])
        })
    });
    Ok(kernel
        .in_place_of(epilogue.added)
        .with_temporaries(temporary_bytes))
}

fn adapted<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let up = weight.ranges();
    let bias = (asked.request.params.len() == 3).then_some(up + 1);
    let residual = (asked.request.inputs.len() > 2).then_some(2);
    let alpha = asked.alpha();
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let library = launch.library;
        let (x, h) = (launch.read(launch.input(0))?, launch.read(launch.input(1))?);
        weight.blocks(launch, |w, [begin, len]| {
            let rows = |index: usize| launch.read(&launch.param(index).narrowed(0, begin, len));
            let bias = bias.map(rows).transpose()?;
            let base = library.rounded_linear(&x, w, bias.as_ref())?;
            let low_rank = library.rounded_linear(&h, &rows(up)?, None)?;
            let columns = |memory: &Memory| memory.narrowed(1, begin, len);
            let output = columns(launch.output(0));
            let rounded = |x| launch.rounded(x, output.dtype());
            let low_rank = library.scaled(&rounded(&low_rank)?, alpha)?;
            let mut sum = library.add(&rounded(&base)?, &low_rank)?;
            if let Some(residual) = residual {
                let residual = launch.float(&columns(launch.input(residual)))?;
                sum = library.add(&residual, &rounded(&sum)?)?;
            }
            launch.write(&sum, &output)
        })
    });
    Ok(kernel.with_temporaries(temporary_bytes))
}

/// `dy W` in the compute dtype or f32.
fn input_gradient<L: Tensors>(
    launch: &Launch<'_, L>,
    weight: &Weight,
    dy: &L::Tensor,
) -> Result<L::Tensor> {
    let library = launch.library;
    if weight.is_one_block() {
        return library.rounded_product(dy, &weight.whole(launch)?);
    }
    let (dy, mut sum) = (library.cast(dy, DType::F32)?, None);
    weight.blocks(launch, |w, [begin, len]| {
        let w = library.cast(w, DType::F32)?;
        let product = library.matmul(&library.narrow(&dy, 1, begin, len)?, &w)?;
        sum = Some(match sum.take() {
            None => product,
            Some(sum) => library.add(&sum, &product)?,
        });
        Ok(())
    })?;
    Ok(sum.expect("a weight has rows"))
}

fn input_backward<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let epilogue = Epilogue::after(1, asked);
    let columns = [0, weight.size()[1]];
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let dy = launch.read(launch.input(0))?;
        let product = input_gradient(launch, &weight, &dy)?;
        write(epilogue, launch, &product, columns)
    });
    Ok(kernel
        .in_place_of(epilogue.added)
        .with_temporaries(temporary_bytes))
}

fn both_backward<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let epilogue = Epilogue::after(2, asked);
    let columns = [0, weight.size()[1]];
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let dy = launch.read(launch.input(0))?;
        let product = input_gradient(launch, &weight, &dy)?;
        write(epilogue, launch, &product, columns)?;
        weight_gradient(launch, epilogue.alpha, [0, 1], launch.output(1))
    });
    Ok(kernel.in_place_of(epilogue.added))
}

fn adapted_backward<L: Tensors>(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Kernel<L>> {
    let weight = Weight::new(asked, setting, 0, 0)?;
    let (alpha, down) = (asked.alpha(), weight.ranges());
    let added = (asked.request.inputs.len() > 3).then_some(3);
    let temporary_bytes = weight.temporary_bytes();
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let (library, output) = (launch.library, launch.output(0));
        let (dy, dh) = (launch.read(launch.input(0))?, launch.read(launch.input(1))?);
        let rounded = |x| launch.rounded(x, output.dtype());
        let low_rank = library.rounded_product(&dh, &launch.read(launch.param(down))?)?;
        let mut sum = library.scaled(&rounded(&low_rank)?, alpha)?;
        if let Some(added) = added {
            sum = library.add(&launch.float(launch.input(added))?, &sum)?;
        }
        let product = input_gradient(launch, &weight, &dy)?;
        let product = rounded(&product)?;
        let sum = library.add(&rounded(&sum)?, &product)?;
        launch.write(&sum, output)?;
        weight_gradient(launch, alpha, [1, 2], launch.output(1))
    });
    Ok(kernel.in_place_of(added).with_temporaries(temporary_bytes))
}

fn weight_backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let alpha = asked.alpha();
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        weight_gradient(launch, alpha, [0, 1], launch.output(0))
    }))
}

/// `dW += alpha dy^T x` of two inputs. alpha is a power of two, which may stand at any factor.
fn weight_gradient<L: Tensors>(
    launch: &Launch<'_, L>,
    alpha: f64,
    [dy, x]: [usize; 2],
    output: &Memory,
) -> Result<()> {
    let library = launch.library;
    let mut dy = launch.float(launch.input(dy))?;
    let mut x = launch.float(launch.input(x))?;
    // The narrower of the two has fewer numbers.
    if library.shape(&dy)[1] < library.shape(&x)[1] {
        dy = library.scaled(&dy, alpha)?;
    } else {
        x = library.scaled(&x, alpha)?;
    }
    let product = library.matmul(&library.transpose(&dy, 0, 1)?, &x)?;
    accumulate(launch, &product, output)
}

fn bias_backward<L: Tensors>(_: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    Ok(Kernel::new(|launch: &Launch<'_, L>| {
        let dy = launch.float(launch.input(0))?;
        accumulate(launch, &launch.library.sum(&dy, 0)?, launch.output(0))
    }))
}
