//! `attention` and `attention_backward`.

use espalier_host_device::{Asked, Made};
use espalier_interface::graph::Dim;
use espalier_interface::{PluginError, Result};
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
            let start = starts(cu_seqlens, [call.integers(4), call.integers(5)]);
            check_starts(cu_seqlens, &start, [slots, capacity])?;
            let (keys, values) = (call.output(1), call.output(2));
            let cache = Cache { keys, values, capacity };
            let (out, workspace) = (call.output(0), call.workspace_bytes());
            forward_cached(isa, call.services, &shape, inputs, (cache, &start), out, workspace);
            Ok(())
        })
        .with_workspace(bytes))
    })
}

/// Where each sequence of a launch continues; one without tokens starts where slot 0 starts.
fn starts<'a>(
    cu_seqlens: &'a [i32],
    [positions, sequences]: [&'a [i32]; 2],
) -> impl Fn(usize) -> Start + Sync + 'a {
    let place = |value: i32| usize::try_from(value).unwrap_or(usize::MAX);
    move |seq| {
        let (first, end) = (cu_seqlens[seq] as usize, cu_seqlens[seq + 1] as usize);
        let of = |values: &[i32]| if first < end { place(values[first]) } else { 0 };
        Start {
            slot: of(sequences),
            held: of(positions),
        }
    }
}

/// Refuses slots and places outside the cache, and slots used twice.
fn check_starts(
    cu_seqlens: &[i32],
    start: &dyn Fn(usize) -> Start,
    [slots, capacity]: [usize; 2],
) -> Result<()> {
    let fail = |what: String| Err(PluginError::invalid(format!("attention_cached: {what}")));
    for (seq, bounds) in cu_seqlens.windows(2).enumerate() {
        let new = (bounds[1] - bounds[0]) as usize;
        let Start { slot, held } = start(seq);
        if new > 0 && slot >= slots {
            return fail(format!("sequence {seq} is in slot {slot} of {slots}"));
        }
        if held.saturating_add(new) > capacity {
            return fail(format!(
                "{new} tokens at {held} leave a slot of {capacity} tokens"
            ));
        }
        let twice = |other: &usize| {
            start(*other).slot == slot && cu_seqlens[*other] < cu_seqlens[*other + 1]
        };
        if new > 0 && (0..seq).any(|other| twice(&other)) {
            return fail(format!("slot {slot} is used twice in a launch"));
        }
    }
    Ok(())
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

/// Checked boundaries: from 0, not decreasing, to `tokens`.
fn boundaries(cu_seqlens: &[i32], tokens: usize) -> Result<&[i32]> {
    let ordered = cu_seqlens.windows(2).all(|pair| pair[0] <= pair[1]);
    let ends = (cu_seqlens.first(), cu_seqlens.last());
    if ordered && ends == (Some(&0), Some(&(tokens as i32))) {
        return Ok(cu_seqlens);
    }
    let what = format!("cu_seqlens: expected to rise from 0 to {tokens}, found {ends:?}");
    Err(PluginError::invalid(what))
}
