//! `embedding` and `embedding_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::{DType, Result};
use espalier_kernels::element::Element;
use espalier_kernels::embedding::{self as kernel, Table};
use half::bf16;

use super::{Op, Setting};
use crate::dispatch::{compute, stored};

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
fn table(asked: &Asked<'_>, shape: [usize; 2]) -> (Table, usize) {
    if asked.attributes().flag("transposed") {
        (Table::Columns, shape[1])
    } else {
        (Table::Rows, shape[0])
    }
}

fn forward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let weight = asked.stored(0)?;
    let shape = &asked.request.params[0].shape;
    let (table, vocab) = table(asked, [shape[0] as usize, shape[1] as usize]);
    compute!(asked, asked.output(0).dtype, E => stored!(asked, weight, W => {
        Ok(Made::new(move |call| {
            let (weight, tokens) = (call.param::<W>(0), call.integers(0));
            kernel::embedding(call.services, weight, vocab, table, tokens, call.output::<E>(0))
        }))
    }))
}

fn backward(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Made> {
    let (dy, gradient) = (asked.input(0), asked.output(0));
    let columns = asked.columns(gradient);
    let (table, vocab) = table(asked, [asked.elements(gradient) / columns.max(1), columns]);
    if gradient.dtype == DType::BF16 {
        let bytes = asked.max_tokens() * size_of::<i32>();
        return compute!(asked, dy.dtype, E => {
            let run = Made::new(move |call| {
                let (dy, tokens) = (call.input::<E>(0), call.integers(1));
                let (dweight, order) = (call.output::<bf16>(0), call.workspace(tokens.len()));
                kernel::narrow_embedding_backward(call.services, dy, (tokens, order), vocab, table, dweight)
            });
            Ok(run.with_workspace(bytes))
        });
    }
    compute!(asked, dy.dtype, E => {
        type R = <E as Element>::Acc;
        Ok(Made::new(move |call| {
            let (dy, tokens) = (call.input::<E>(0), call.integers(1));
            let dweight = call.output::<R>(0);
            kernel::embedding_backward(call.services, dy, tokens, vocab, table, dweight)
        }))
    })
}
