//! `embedding` and `embedding_backward`.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, Result};
use espalier_kernels::element::Element;
use espalier_kernels::embedding::{self as kernel, Table};

use super::{Made, Op, Setting};
use crate::dispatch::{compute, stored};
use crate::request::Asked;

pub const OPS: &[Op] = &[
    Op {
        name: "embedding",
        prepare: forward,
    },
    Op {
        name: "embedding_backward",
        prepare: backward,
    },
];

/// The table's layout and its vocabulary, given its shape.
fn table(asked: &Asked<'_>, shape: &[u64], width: usize) -> Result<(Table, usize)> {
    let table = if asked.attributes().flag("transposed") {
        Table::Columns
    } else {
        Table::Rows
    };
    match (table, shape) {
        (Table::Rows, &[vocab, w]) | (Table::Columns, &[w, vocab]) if w == width as u64 => {
            Ok((table, vocab as usize))
        }
        _ => Err(asked.invalid(format!(
            "a table of shape {shape:?} for rows of {width}, transposed: {}",
            table == Table::Columns
        ))),
    }
}

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([1, 1, 1], &["transposed"])?;
    asked.expect(asked.input(0), "tokens", &[Dim::Tokens], DType::I32)?;
    let width = asked.width(asked.output(0), "the output")?;
    let shape = &asked.request.params[0].shape;
    let weight = asked.dense(0, "the table", shape)?;
    let (table, vocab) = table(asked, shape, width)?;
    compute!(asked, asked.output(0).dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (weight, tokens) = (call.param::<W>(0), call.integers(0));
            kernel::embedding(call.services, weight, vocab, table, tokens, call.output::<E>(0))
        }))
    }))
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    asked.check([2, 0, 1], &["transposed"])?;
    let (dy, gradient) = (asked.input(0), asked.output(0));
    let width = asked.width(dy, "dy")?;
    asked.expect(asked.input(1), "tokens", &[Dim::Tokens], DType::I32)?;
    let shape: Vec<u64> = match gradient.shape[..] {
        [Dim::Fixed(a), Dim::Fixed(b)] => vec![a, b],
        _ => return Err(asked.invalid(format!("dweight has shape {:?}", gradient.shape))),
    };
    let (table, vocab) = table(asked, &shape, width)?;
    compute!(asked, dy.dtype, E => {
        type R = <E as Element>::Acc;
        asked.expect(gradient, "dweight", &gradient.shape, R::DTYPE)?;
        Ok(Made::new(move |call| {
            let (dy, tokens) = (call.input::<E>(0), call.integers(1));
            let dweight = call.output::<R>(0);
            kernel::embedding_backward(call.services, dy, tokens, vocab, table, dweight)
        }))
    })
}
