//! `expand` and `contract`.

use espalier_host_device::{Asked, Setting};
use espalier_interface::Result;

use super::rows::{Part, rows};
use super::{Kernel, Op};
use crate::Tensors;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![Op::new("expand", expand), Op::new("contract", contract)]
}

/// How often each column is repeated, and the row then.
fn copies(asked: &Asked<'_>) -> [usize; 2] {
    ["repeat", "tile"].map(|name| asked.attributes().count(name).unwrap_or(1))
}

fn expand<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let [repeat, tile] = copies(asked);
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let columns = part.launch.input(0).elements() / part.launch.tokens;
        let x = library.reshape(&part.float(0)?, &[part.len, 1, columns, 1])?;
        let expanded = library.expand(&x, &[part.len, tile, columns, repeat])?;
        part.write(&expanded, 0)
    }))
}

fn contract<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let [repeat, tile] = copies(asked);
    Ok(rows(move |part: Part<'_, '_, L>| {
        let library = part.launch.library;
        let columns = part.launch.output(0).elements() / part.launch.tokens;
        let x = library.reshape(&part.float(0)?, &[part.len * tile * columns, repeat])?;
        let sums = library.sum(&x, 1)?;
        let sums = library.reshape(&sums, &[part.len, tile, columns])?;
        part.write(&library.sum(&sums, 1)?, 0)
    }))
}
