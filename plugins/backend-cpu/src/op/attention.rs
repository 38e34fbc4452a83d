//! `attention` and `attention_backward`.

use espalier_interface::graph::Dim;
use espalier_interface::{DType, PluginError, Result};
use espalier_kernels::attention::{
    AttentionShape, Cache, Future, Gradients, Inputs, Start, backward, backward_workspace_bytes,
    forward, forward_cached, forward_workspace_bytes,
};
use espalier_kernels::element::Element;

use super::{Made, Op, Setting};
use crate::dispatch::compute;
use crate::request::Asked;

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

const ATTRIBUTES: [&str; 7] = [
    "heads", "kv_heads", "head_dim", "scale", "causal", "window", "softcap",
];

fn prepare_forward(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    asked.check([4, 0, 2], &ATTRIBUTES)?;
    let shape = shape(asked)?;
    let [q, k, v, cu_seqlens] = [0, 1, 2, 3].map(|index| asked.input(index));
    check_widths(asked, &shape, [0, 1, 2])?;
    asked.expect_like(q, &[(asked.output(0), "the output")])?;
    asked.expect_like(k, &[(v, "v")])?;
    asked.expect(cu_seqlens, "cu_seqlens", &[Dim::Boundaries], DType::I32)?;
    let threads = setting.threads;
    compute!(asked, q.dtype, E => {
        let lse = [Dim::Tokens, Dim::Fixed(shape.heads as u64)];
        asked.expect(asked.output(1), "lse", &lse, reduced::<E>())?;
        let bytes = forward_workspace_bytes::<E>(&shape, threads);
        Ok(Made::new(move |call| {
            let (q, k, v) = (call.input::<E>(0), call.input::<E>(1), call.input::<E>(2));
            let cu_seqlens = boundaries(call.integers(3), q.len() / (shape.heads * shape.head_dim))?;
            let inputs = Inputs { q, k, v, cu_seqlens };
            let outputs = (call.output(0), call.output(1));
            forward(call.services, &shape, inputs, outputs, call.workspace_bytes());
            Ok(())
        })
        .with_workspace(bytes))
    })
}

fn prepare_cached(asked: &Asked<'_>, setting: &Setting<'_>) -> Result<Made> {
    asked.check([6, 0, 3], &ATTRIBUTES)?;
    let shape = shape(asked)?;
    if shape.future != Future::Hidden {
        return Err(asked.invalid("`causal` is false: a cache holds no later token".to_owned()));
    }
    let [q, k, v, cu_seqlens] = [0, 1, 2, 3].map(|index| asked.input(index));
    check_widths(asked, &shape, [0, 1, 2])?;
    asked.expect_like(q, &[(asked.output(0), "the output")])?;
    asked.expect_like(k, &[(v, "v")])?;
    asked.expect(cu_seqlens, "cu_seqlens", &[Dim::Boundaries], DType::I32)?;
    for (index, name) in [(4, "positions"), (5, "sequences")] {
        asked.expect(asked.input(index), name, &[Dim::Tokens], DType::I32)?;
    }
    let (keys, values) = (asked.output(1), asked.output(2));
    let width = (shape.kv_heads * shape.head_dim) as u64;
    let [slots, capacity] = match keys.shape[..] {
        [Dim::Fixed(slots), Dim::Fixed(capacity), Dim::Fixed(found)] if found == width => {
            [slots as usize, capacity as usize]
        }
        _ => {
            return Err(asked.invalid(format!(
                "keys have shape {:?}, expected slots, tokens and {width}",
                keys.shape
            )));
        }
    };
    asked.expect(keys, "keys", &keys.shape, q.dtype)?;
    asked.expect_like(keys, &[(values, "values")])?;
    compute!(asked, q.dtype, E => {
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
            forward_cached(call.services, &shape, inputs, (cache, &start), out, workspace);
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
    asked.check([7, 0, 3], &ATTRIBUTES)?;
    let shape = shape(asked)?;
    let [dout, q, k, v, out, lse, cu_seqlens] =
        [0, 1, 2, 3, 4, 5, 6].map(|index| asked.input(index));
    check_widths(asked, &shape, [1, 2, 3])?;
    asked.expect_like(q, &[(dout, "dout"), (out, "out"), (asked.output(0), "dq")])?;
    asked.expect_like(
        k,
        &[(v, "v"), (asked.output(1), "dk"), (asked.output(2), "dv")],
    )?;
    asked.expect(cu_seqlens, "cu_seqlens", &[Dim::Boundaries], DType::I32)?;
    let (threads, max_tokens) = (setting.threads, asked.request.max_tokens as usize);
    compute!(asked, q.dtype, E => {
        let expected = [Dim::Tokens, Dim::Fixed(shape.heads as u64)];
        asked.expect(lse, "lse", &expected, reduced::<E>())?;
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
            backward(call.services, &shape, inputs, gradients, call.workspace_bytes());
            Ok(())
        })
        .with_workspace(bytes))
    })
}

/// The dtype in which `E` is accumulated.
fn reduced<E: Element>() -> DType {
    if size_of::<E::Acc>() == 8 {
        DType::F64
    } else {
        DType::F32
    }
}

fn shape(asked: &Asked<'_>) -> Result<AttentionShape> {
    let attributes = asked.attributes();
    let count = |name: &str| match attributes.count(name)? {
        0 => Err(asked.invalid(format!("`{name}` is 0, expected at least 1"))),
        count => Ok(count),
    };
    let (heads, kv_heads) = (count("heads")?, count("kv_heads")?);
    if heads % kv_heads != 0 {
        return Err(asked.invalid(format!(
            "{heads} heads cannot share {kv_heads} key/value heads"
        )));
    }
    let window = match attributes.0.get("window") {
        None | Some(serde_json::Value::Null) => None,
        Some(_) => Some(count("window")?),
    };
    let softcap = attributes.optional_number("softcap");
    if let Some(bad) = softcap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
        return Err(asked.invalid(format!("`softcap` is {bad}, expected a number above 0")));
    }
    Ok(AttentionShape {
        heads,
        kv_heads,
        head_dim: count("head_dim")?,
        scale: attributes.number("scale")?,
        future: if attributes.flag("causal") {
            Future::Hidden
        } else {
            Future::Visible
        },
        window,
        softcap,
    })
}

/// q is as wide as all heads, k and v as the key/value heads.
fn check_widths(asked: &Asked<'_>, shape: &AttentionShape, places: [usize; 3]) -> Result<()> {
    let widths = [shape.heads, shape.kv_heads, shape.kv_heads].map(|n| n * shape.head_dim);
    for ((place, expected), name) in places.into_iter().zip(widths).zip(["q", "k", "v"]) {
        let found = asked.width(asked.input(place), name)?;
        if found != expected {
            return Err(asked.invalid(format!("`{name}` is {found} wide, expected {expected}")));
        }
    }
    Ok(())
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
