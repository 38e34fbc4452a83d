//! `rope`, `rope_backward`, `sinusoids` and `swap_halves`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::{DType, Result};

use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::{Tensors, Unary};

/// The direction of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("rope", |asked, _| rotation(asked, Direction::Forward)),
        Op::new("rope", |asked, _| rotation(asked, Direction::Forward)).version(2),
        Op::new("rope_backward", |asked, _| {
            rotation(asked, Direction::Backward)
        }),
        Op::new("rope_backward", |asked, _| {
            rotation(asked, Direction::Backward)
        })
        .version(2),
        Op::new("sinusoids", sinusoids),
        Op::new("swap_halves", swap_halves),
    ]
}

/// f32 numbers of an attribute.
fn floats(asked: &Asked<'_>, name: &str) -> Result<Vec<f32>> {
    let numbers = asked.attributes().numbers(name)?;
    Ok(numbers.into_iter().map(|number| number as f32).collect())
}

/// `position_t inv_freq_i`, `[T, I]`, of input `index`.
fn angles<L: Tensors>(part: &Part<'_, '_, L>, index: usize, inv_freq: &[f32]) -> Result<L::Tensor> {
    let library = part.launch.library;
    let positions = library.cast(&part.column(index)?, DType::F32)?;
    let inv_freq = library.floats(inv_freq, &[1, inv_freq.len()])?;
    library.mul(&positions, &inv_freq)
}

fn rotation<L: Tensors>(asked: &Asked<'_>, direction: Direction) -> Result<Kernel<L>> {
    let head = asked.attributes().count("head_dim")?;
    let scaling = asked.attributes().number("scaling")?;
    let inv_freq = floats(asked, "inv_freq")?;
    let rotated = asked.request.outputs.len();
    Ok(rows(move |part: Part<'_, '_, L>| {
        let (library, half) = (part.launch.library, inv_freq.len());
        let angles = angles(&part, rotated, &inv_freq)?;
        let angles = library.reshape(&angles, &[part.len, 1, half])?;
        let cos = library.scaled(&library.unary(Unary::Cos, &angles)?, scaling)?;
        let sin = library.scaled(&library.unary(Unary::Sin, &angles)?, scaling)?;
        for index in 0..rotated {
            let x = part.float(index)?;
            let heads = library.shape(&x)[1] / head;
            let x = library.reshape(&x, &[part.len, heads, head])?;
            let first = library.narrow(&x, 2, 0, half)?;
            let second = library.narrow(&x, 2, half, half)?;
            let [a, b, c, d] = [
                (&first, &cos),
                (&second, &sin),
                (&second, &cos),
                (&first, &sin),
            ]
            .map(|(x, wave)| library.mul(x, wave));
            let (a, b, c, d) = (a?, b?, c?, d?);
            let mut parts = match direction {
                Direction::Forward => vec![library.sub(&a, &b)?, library.add(&c, &d)?],
                Direction::Backward => vec![library.add(&a, &b)?, library.sub(&c, &d)?],
            };
            if 2 * half < head {
                parts.push(library.narrow(&x, 2, 2 * half, head - 2 * half)?);
            }
            part.write(&library.concat(&parts, 2)?, index)?;
        }
        Ok(())
    }))
}

fn sinusoids<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let (inv_freq, amplitude) = (floats(asked, "inv_freq")?, floats(asked, "amplitude")?);
    let wave = match asked.attributes().text("function") {
        Some("cos") => Unary::Cos,
        Some("sin") => Unary::Sin,
        other => return Err(asked.unsupported(format!("function {other:?}"))),
    };
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let waves = library.unary(wave, &angles(&part, 0, &inv_freq)?)?;
        let amplitude = library.floats(&amplitude, &[1, amplitude.len()])?;
        part.write(&library.mul(&waves, &amplitude)?, 0)
    }))
}

fn swap_halves<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let attributes = asked.attributes();
    let (head, half) = (attributes.count("head_dim")?, attributes.count("half")?);
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let x = part.float(0)?;
        let heads = library.shape(&x)[1] / head;
        let x = library.reshape(&x, &[part.len, heads, head])?;
        let mut parts = vec![
            library.narrow(&x, 2, half, half)?,
            library.narrow(&x, 2, 0, half)?,
        ];
        if 2 * half < head {
            parts.push(library.narrow(&x, 2, 2 * half, head - 2 * half)?);
        }
        part.write(&library.concat(&parts, 2)?, 0)
    }))
}
