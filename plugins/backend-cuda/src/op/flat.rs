//! `zero`, `cast`, `init`, `sum_squares` and `first_not_finite`, on flat runs of elements.

use espalier_host_device::{Asked, InitDraw, Made};
use espalier_interface::Result;
use espalier_interface::random::{self, Purpose};

use super::{Op, elements, most_elements, op, stored};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::sources::FLAT;

pub const OPS: &[Op] = &[
    op("zero", zero),
    op("cast", cast),
    op("init", init),
    op("sum_squares", |asked, kit| {
        reduce(asked, kit, ["sum_squares", "sum_partials"])
    }),
    op("first_not_finite", |asked, kit| {
        reduce(asked, kit, ["first_not_finite", "first_of_partials"])
    }),
];

/// Elements that a block reduces, as the kernels have it.
const CHUNK: usize = 16_384;

/// Shared memory of a reduction: a number of 8 bytes for each thread of a block.
const SHARED_BYTES: u32 = 2048;

fn zero(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    if asked.output(0).dtype.bytes() == 0 {
        return Err(asked.bad_dtype(asked.output(0).dtype, "one with a size"));
    }
    let modules = kit.modules.clone();
    Ok(Made::new(move |call| modules.zero(call.output_place(0))))
}

fn cast(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let [from, to] = [asked.input(0), asked.output(0)].map(|operand| operand.dtype);
    let name = format!("cast_{}_{}", stored(asked, from)?, stored(asked, to)?);
    let kernel = kit.function(FLAT, &name)?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(elements(y) as i64);
        kernel.launch_tiles(elements(y), &arguments)
    }))
}

fn init(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = stored(asked, asked.output(0).dtype)?;
    let (kind, [a, b]) = match InitDraw::of(asked)? {
        InitDraw::Constant(value) => (0, [value, 0.0]),
        InitDraw::Uniform(bound) => (1, [-bound, bound]),
        InitDraw::Normal(std) => (2, [0.0, std]),
    };
    let places = asked.scalars(["seed_low", "seed_high", "param"])?;
    let kernel = kit.function(FLAT, &format!("init_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [low, high, param] = call.scalars_at(places);
        let key = random::key(random::seed([low, high]), Purpose::INIT, 0);
        let y = call.output_place(0);
        let arguments = Arguments::new().at(y).with(kind).with(a).with(b);
        let arguments = arguments.with(key[0]).with(key[1]).with(param as u32);
        kernel.launch_over(elements(y).div_ceil(4), &arguments.with(elements(y) as i64))
    }))
}

/// A reduction by two kernels: of chunks, and of their results.
fn reduce(asked: &Asked<'_>, kit: &Kit, [of_chunks, of_results]: [&str; 2]) -> Result<Made> {
    let dtype = stored(asked, asked.input(0).dtype)?;
    let first = kit.function(FLAT, &format!("{of_chunks}_{dtype}"))?;
    let second = kit.function(FLAT, of_results)?;
    let takes_count = of_results == "first_of_partials";
    let most = most_elements(asked, asked.input(0)).div_ceil(CHUNK).max(1);
    let made = Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let partial = call.workspace_place().expect("a kernel asked for it");
        let count = elements(x);
        let chunks = count.div_ceil(CHUNK);
        let arguments = Arguments::new().at(x).at(partial).with(count as i64);
        first.launch([chunks as u64, 1, 1], SHARED_BYTES, &arguments)?;
        let arguments = Arguments::new().at(partial).at(y).with(chunks as i64);
        let arguments = if takes_count {
            arguments.with(count as i64)
        } else {
            arguments
        };
        second.launch([1, 1, 1], SHARED_BYTES, &arguments)
    });
    Ok(made.with_workspace(8 * most))
}
