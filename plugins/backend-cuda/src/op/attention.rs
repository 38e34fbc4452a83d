//! `attention`, its gradient, and `attention_cached`.
//!
//! Tensor cores serve bf16 in most head sizes ([`flash`]), a plain kernel the rest.

pub mod flash;

use espalier_host_device::{Asked, Made, Place};
use espalier_interface::Result;
use espalier_interface::graph::Dim;

use super::{Op, computed, op, reduced};
use crate::arguments::{Argument, Arguments};
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::ATTENTION;

pub const OPS: &[Op] = &[
    op("attention", forward),
    op("attention_backward", backward),
    op("attention_cached", cached),
];

/// The widest head.
const MOST_WIDTH: usize = 512;

/// Widths of heads of which each is compiled apart: a head takes the first that has room for it.
pub const WIDTHS: &[usize] = &[32, 64, 128, 256, MOST_WIDTH];

/// What stands before the kernels for heads of `width`, at most [`MOST_WIDTH`].
pub fn definitions(width: usize) -> String {
    let widest = WIDTHS.iter().find(|widest| width <= **widest);
    format!("#define MOST_WIDTH {}\n", widest.unwrap_or(&MOST_WIDTH))
}

/// An attention's shape, as the kernels take it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shape {
    heads: i32,
    kv_heads: i32,
    width: i32,
    causal: i32,
    window: i32,
    scale: f32,
    softcap: f32,
}

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers of 4 bytes without padding.
unsafe impl Argument for Shape {}

/// A request's shape and the kernels of its head size.
struct Attention<'a> {
    shape: Shape,
    kit: &'a Kit,
    dtype: &'static str,
    definitions: String,
}

impl<'a> Attention<'a> {
    /// The attention of a request with queries in input `query`.
    fn of(asked: &Asked<'_>, kit: &'a Kit, query: usize) -> Result<Self> {
        let dtype = computed(asked, asked.input(query).dtype)?;
        let attributes = asked.attributes();
        let width = attributes.count("head_dim")?;
        if width > MOST_WIDTH {
            return Err(
                asked.unsupported(format!("heads of {width}, expected at most {MOST_WIDTH}"))
            );
        }
        Ok(Attention {
            shape: Shape {
                heads: attributes.count("heads")? as i32,
                kv_heads: attributes.count("kv_heads")? as i32,
                width: width as i32,
                causal: i32::from(attributes.flag("causal")),
                window: attributes.count("window").map_or(0, |window| window as i32),
                scale: attributes.number("scale")? as f32,
                softcap: attributes.optional_number("softcap").unwrap_or(0.0) as f32,
            },
            kit,
            dtype,
            definitions: definitions(width),
        })
    }

    /// Whether tensor cores serve it.
    fn is_flash(&self) -> bool {
        self.dtype == "bf16" && flash::serves(&self.shape)
    }

    fn function(&self, name: &str) -> Result<Function> {
        let name = format!("{name}_{}", self.dtype);
        self.kit
            .modules
            .function(ATTENTION, &self.definitions, &name)
    }
}

/// Blocks of `warps` warps.
fn blocks(warps: usize) -> [u64; 3] {
    [(warps as u64).div_ceil(8), 1, 1]
}

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    reduced(asked, asked.output(1).dtype)?;
    let attention = Attention::of(asked, kit, 0)?;
    if attention.is_flash() {
        let kernel = flash::Forward::new(kit, attention.shape)?;
        return Ok(Made::new(move |call| {
            let [q, k, v, boundaries] = [0, 1, 2, 3].map(|index| call.input_place(index));
            let [out, lse] = [0, 1].map(|index| call.output_place(index));
            let places = [q, k, v, boundaries, out, lse];
            kernel.launch(places, [call.tokens, call.sequences])
        }));
    }
    let (shape, kernel) = (attention.shape, attention.function("attention")?);
    Ok(Made::new(move |call| {
        let inputs = (0..4).map(|index| call.input_place(index));
        let arguments = inputs.fold(Arguments::new(), Arguments::at);
        let arguments = arguments.at(call.output_place(0)).at(call.output_place(1));
        let arguments = arguments.with(shape).with(call.sequences as i32);
        let warps = call.tokens * shape.heads as usize;
        kernel.launch(blocks(warps), 0, &arguments.with(call.tokens as i64))
    }))
}

/// The kernels of dq, and of dk and dv.
enum Gradients {
    Flash(flash::Backward),
    Plain([Function; 2]),
}

impl Gradients {
    fn new(attention: &Attention<'_>) -> Result<Self> {
        if attention.is_flash() {
            let kernels = flash::Backward::new(attention.kit, attention.shape)?;
            return Ok(Gradients::Flash(kernels));
        }
        let of_queries = attention.function("attention_dq")?;
        let of_keys = attention.function("attention_dkv")?;
        Ok(Gradients::Plain([of_queries, of_keys]))
    }

    fn launch(
        &self,
        shape: Shape,
        inputs: [Place; 7],
        outputs: [Place; 3],
        extents: [usize; 2],
    ) -> Result<()> {
        let [of_queries, of_keys] = match self {
            Gradients::Flash(kernels) => return kernels.launch(inputs, outputs, extents),
            Gradients::Plain(kernels) => kernels,
        };
        let [dq, dk, dv] = outputs;
        let [tokens, sequences] = extents;
        let inputs = || inputs.into_iter().fold(Arguments::new(), Arguments::at);
        let last = |arguments: Arguments| {
            let arguments = arguments.with(shape).with(sequences as i32);
            arguments.with(tokens as i64)
        };
        let queries = tokens * shape.heads as usize;
        of_queries.launch(blocks(queries), 0, &last(inputs().at(dq)))?;
        let keys = tokens * shape.kv_heads as usize;
        of_keys.launch(blocks(keys), 0, &last(inputs().at(dk).at(dv)))
    }
}

fn backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    reduced(asked, asked.input(5).dtype)?;
    let attention = Attention::of(asked, kit, 1)?;
    let shape = attention.shape;
    let delta = attention.function("attention_delta")?;
    let gradients = Gradients::new(&attention)?;
    let made = Made::new(move |call| {
        let [dout, q, k, v, out, lse, boundaries] =
            [0, 1, 2, 3, 4, 5, 6].map(|index| call.input_place(index));
        let [dq, dk, dv] = [0, 1, 2].map(|index| call.output_place(index));
        let sums = call.workspace_place().expect("a kernel asked for it");
        let queries = call.tokens * shape.heads as usize;
        let arguments = Arguments::new().at(dout).at(out).at(sums).with(shape);
        delta.launch(blocks(queries), 0, &arguments.with(call.tokens as i64))?;
        let inputs = [dout, q, k, v, lse, sums, boundaries];
        gradients.launch(shape, inputs, [dq, dk, dv], [call.tokens, call.sequences])
    });
    Ok(made.with_workspace(4 * asked.max_tokens().max(1) * shape.heads as usize))
}

fn cached(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let [Dim::Fixed(slots), Dim::Fixed(capacity), _] = asked.output(1).shape[..] else {
        return Err(asked.invalid("keys are not [slots, tokens, width]".to_owned()));
    };
    let [slots, capacity] = [slots, capacity].map(|extent| extent as i32);
    let attention = Attention::of(asked, kit, 0)?;
    let shape = attention.shape;
    let append = attention.function("cache_append")?;
    let attend = attention.function("attention_cached")?;
    let faults = kit.faults.clone();
    Ok(Made::new(move |call| {
        let [q, k, v, boundaries, positions, slots_of] =
            [0, 1, 2, 3, 4, 5].map(|index| call.input_place(index));
        let [out, keys, values] = [0, 1, 2].map(|index| call.output_place(index));
        let (tokens, sequences) = (call.tokens as i64, call.sequences as i32);
        let arguments = Arguments::new().at(k).at(v).at(boundaries).at(positions);
        let arguments = arguments.at(slots_of).at(keys).at(values).with(shape);
        let arguments = arguments.with(sequences).with(slots).with(capacity);
        let arguments = arguments.with(tokens).with(faults.address());
        append.launch(blocks(call.tokens), 0, &arguments)?;
        let arguments = Arguments::new().at(q).at(boundaries).at(positions);
        let arguments = arguments.at(slots_of).at(keys).at(values).at(out);
        let arguments = arguments.with(shape).with(sequences).with(slots);
        let warps = call.tokens * shape.heads as usize;
        attend.launch(blocks(warps), 0, &arguments.with(capacity).with(tokens))
    }))
}
