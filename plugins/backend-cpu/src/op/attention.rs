//! `attention` and `attention_backward`.

use espalier_host_device::{Asked, CacheStart, CacheStarts, Made, boundaries};
use espalier_interface::Result;
use espalier_interface::graph::Dim;
use espalier_kernels::attention::{
    AttentionShape, Cache, Future, Gradients, Inputs, Start, backward, backward_workspace_bytes,
    forward, forward_cached, forward_workspace_bytes,
};

use super::{Op, Setting};
use crate::dispatch::compute;

pub const OPS: &[Op] = &[
    Op {
        name: "attention",
        prepare: prepare_forward,
    },
    Op {
        name: "attention_cached",
        prepare: prepare_cached,
    },
    Op {
        name: "attention_backward",
        prepare: prepare_backward,
    },
];

fn prepare_forward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let shape = shape(asked)?;
    let threads = setting.threads;
    let isa = setting.isa;
    compute!(asked, asked.input(0).dtype, E => {
        let bytes = forward_workspace_bytes::<E>(&shape, threads);
        Ok(Made::new(move |call| {
            let (q, k, v) = (call.input::<E>(0), call.input::<E>(1), call.input::<E>(2));
            let cu_seqlens = boundaries(call.integers(3), q.len() / (shape.heads * shape.head_dim))?;
            let inputs = Inputs { q, k, v, cu_seqlens };
            let outputs = (call.output(0), call.output(1));
            forward(isa, call.services, &shape, inputs, outputs, call.workspace_bytes());
            Ok(())
        })
        .with_workspace(bytes))
    })
}

fn prepare_cached(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let shape = shape(asked)?;
    let [Dim::Fixed(slots), Dim::Fixed(capacity), _] = asked.output(1).shape[..] else {
        return Err(asked.invalid("keys are not [slots, tokens, width]".to_owned()));
    };
    let [slots, capacity] = [slots, capacity].map(|extent| extent as usize);
    let isa = setting.isa;
    compute!(asked, asked.input(0).dtype, E => {
        let bytes = forward_workspace_bytes::<E>(&shape, setting.threads);
        Ok(Made::new(move |call| {
            let (q, k, v) = (call.input::<E>(0), call.input::<E>(1), call.input::<E>(2));
            let cu_seqlens = boundaries(call.integers(3), q.len() / (shape.heads * shape.head_dim))?;
            let inputs = Inputs { q, k, v, cu_seqlens };
            let places = [call.integers(4), call.integers(5)];
            let starts = CacheStarts::new(cu_seqlens, places, [slots, capacity])?;
            let start = |seq: usize| {
                let CacheStart { slot, held } = starts.at(seq);
                Start { slot, held }
            };
            let (keys, values) = (call.output(1), call.output(2));
            let cache = Cache { keys, values, capacity };
            let (out, workspace) = (call.output(0), call.workspace_bytes());
            forward_cached(isa, call.services, &shape, inputs, (cache, &start), out, workspace);
            Ok(())
        })
        .with_workspace(bytes))
    })
}

fn prepare_backward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    let shape = shape(asked)?;
    let (threads, max_tokens) = (setting.threads, asked.request.max_tokens as usize);
    let isa = setting.isa;
    compute!(asked, asked.input(1).dtype, E => {
        let bytes = backward_workspace_bytes::<E>(&shape, max_tokens, threads);
        Ok(Made::new(move |call| {
            let (q, k, v) = (call.input::<E>(1), call.input::<E>(2), call.input::<E>(3));
            let cu_seqlens = boundaries(call.integers(6), q.len() / (shape.heads * shape.head_dim))?;
            let inputs = Inputs { q, k, v, cu_seqlens };
            let gradients = Gradients {
                dout: call.input(0),
                out: call.input(4),
                lse: call.input(5),
                dq: call.output(0),
                dk: call.output(1),
                dv: call.output(2),
            };
            backward(isa, call.services, &shape, inputs, gradients, call.workspace_bytes());
            Ok(())
        })
        .with_workspace(bytes))
    })
}

fn shape(asked: &Asked<'_>) -> Result<AttentionShape> {
    let attributes = asked.attributes();
    Ok(AttentionShape {
        heads: attributes.count("heads")?,
        kv_heads: attributes.count("kv_heads")?,
        head_dim: attributes.count("head_dim")?,
        scale: attributes.number("scale")?,
        future: if attributes.flag("causal") {
            Future::Hidden
        } else {
            Future::Visible
        },
        window: attributes.count("window").ok(),
        softcap: attributes.optional_number("softcap"),
    })
}
