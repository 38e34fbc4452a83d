//! Sums, products, functions of one number, channels, gates and dropout, element by element.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;
use espalier_interface::op::GeluForm;
use espalier_interface::random::{self, Purpose};

use super::{Op, computed, elements, op, reduced, stored};
use crate::arguments::Arguments;
use crate::kit::Kit;
use crate::sources::ARITHMETIC;

pub const OPS: &[Op] = &[
    op("add", add),
    op("mul", |asked, kit| of_two(asked, kit, "mul")),
    op("div", |asked, kit| of_two(asked, kit, "div")),
    op("scale", scale),
    op("exp", |asked, kit| function(asked, kit, 0)),
    op("log", |asked, kit| function(asked, kit, 1)),
    op("sigmoid", |asked, kit| function(asked, kit, 2)),
    op("tanh", |asked, kit| function(asked, kit, 3)),
    op("rsqrt", |asked, kit| function(asked, kit, 4)),
    op("erf", |asked, kit| function(asked, kit, 5)),
    op("scale_channels", scale_channels),
    op("scale_by", scale_by),
    op("swiglu", |asked, kit| of_two(asked, kit, "swiglu")),
    op("swiglu_backward", |asked, kit| {
        gated_backward(asked, kit, "swiglu_backward")
    }),
    op("geglu_tanh", |asked, kit| of_two(asked, kit, "geglu_tanh")),
    op("geglu_tanh_backward", |asked, kit| {
        gated_backward(asked, kit, "geglu_tanh_backward")
    }),
    op("gelu", |asked, kit| of_one(asked, kit, &gelu(asked, "")?)),
    op("gelu_backward", |asked, kit| {
        of_two(asked, kit, &gelu(asked, "_backward")?)
    }),
    op("slice_columns", slice_columns),
    op("slice_columns_backward", slice_columns_backward),
    op("dropout", dropout),
];

fn add(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let alpha = asked.alpha() as f32;
    let kernel = kit.function(ARITHMETIC, &format!("add_{dtype}"))?;
    let made = Made::new(move |call| {
        let (a, b, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(a).at(b).at(y);
        let arguments = arguments.with(alpha).with(elements(y) as i64);
        kernel.launch_tiles(elements(y), &arguments)
    });
    Ok(made.in_place_of(0))
}

/// The name of a kernel of GELU, in the form that is asked for.
fn gelu(asked: &Asked<'_>, pass: &str) -> Result<String> {
    let form = GeluForm::of(asked.attributes())?;
    Ok(format!("gelu_{}{pass}", form.name()))
}

/// A function of one value.
fn of_one(asked: &Asked<'_>, kit: &Kit, name: &str) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let kernel = kit.function(ARITHMETIC, &format!("{name}_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y);
        kernel.launch_tiles(elements(y), &arguments.with(elements(y) as i64))
    }))
}

/// A function of two values.
fn of_two(asked: &Asked<'_>, kit: &Kit, name: &str) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let kernel = kit.function(ARITHMETIC, &format!("{name}_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (a, b, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(a).at(b).at(y);
        kernel.launch_tiles(elements(y), &arguments.with(elements(y) as i64))
    }))
}

fn scale(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let alpha = asked.attributes().number("alpha")? as f32;
    let kernel = kit.function(ARITHMETIC, &format!("scale_{dtype}"))?;
    let made = Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y);
        let arguments = arguments.with(alpha).with(elements(y) as i64);
        kernel.launch_tiles(elements(y), &arguments)
    });
    Ok(made.in_place_of(0))
}

/// Function number `which` of the kernel.
fn function(asked: &Asked<'_>, kit: &Kit, which: i32) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let number = |name: &str, otherwise: f64| {
        let found = asked.attributes().optional_number(name);
        found.unwrap_or(otherwise) as f32
    };
    let (alpha, beta) = (number("alpha", 1.0), number("beta", 0.0));
    let kernel = kit.function(ARITHMETIC, &format!("function_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(which);
        let arguments = arguments.with(alpha).with(beta).with(elements(y) as i64);
        kernel.launch_tiles(elements(y), &arguments)
    }))
}

fn scale_channels(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let weight = stored(asked, asked.stored(0)?)?;
    let width = asked.columns(asked.input(0)) as i64;
    let kernel = kit.function(ARITHMETIC, &format!("scale_columns_{dtype}_{weight}"))?;
    Ok(Made::new(move |call| {
        let (x, w, y) = (
            call.input_place(0),
            call.param_place(0),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(x).at(w).at(y).with(width);
        kernel.launch_tiles(elements(y), &arguments.with(elements(y) as i64))
    }))
}

fn scale_by(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    reduced(asked, asked.input(1).dtype)?;
    let width = asked.columns(asked.input(0)) as i64;
    let kernel = kit.function(ARITHMETIC, &format!("scale_columns_{dtype}_f32"))?;
    Ok(Made::new(move |call| {
        let (x, f, y) = (
            call.input_place(0),
            call.input_place(1),
            call.output_place(0),
        );
        let arguments = Arguments::new().at(x).at(f).at(y).with(width);
        kernel.launch_tiles(elements(y), &arguments.with(elements(y) as i64))
    }))
}

/// The gradients of gate and up.
fn gated_backward(asked: &Asked<'_>, kit: &Kit, name: &str) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let kernel = kit.function(ARITHMETIC, &format!("{name}_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [dy, gate, up] = [0, 1, 2].map(|index| call.input_place(index));
        let [dgate, dup] = [0, 1].map(|index| call.output_place(index));
        let arguments = Arguments::new().at(dy).at(gate).at(up).at(dgate).at(dup);
        kernel.launch_tiles(elements(dy), &arguments.with(elements(dy) as i64))
    }))
}

/// The first of the columns that are sliced, and how many there are.
fn columns(asked: &Asked<'_>) -> Result<[i64; 2]> {
    let first = asked.attributes().count("first").unwrap_or(0);
    Ok([first as i64, asked.attributes().count("width")? as i64])
}

fn slice_columns(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let ([first, width], of) = (columns(asked)?, asked.columns(asked.input(0)) as i64);
    let kernel = kit.function(ARITHMETIC, &format!("slice_columns_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new().at(x).at(y).with(first).with(width);
        let arguments = arguments.with(of).with(elements(y) as i64);
        kernel.launch_tiles(elements(y), &arguments)
    }))
}

/// Index of the input that `slice_columns_backward` adds to, where it is there.
const ADDED: usize = 1;

fn slice_columns_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let ([first, width], of) = (columns(asked)?, asked.columns(asked.output(0)) as i64);
    let has_added = asked.request.inputs.len() > ADDED;
    let kernel = kit.function(ARITHMETIC, &format!("slice_columns_backward_{dtype}"))?;
    let made = Made::new(move |call| {
        let (dy, dx) = (call.input_place(0), call.output_place(0));
        let added = has_added.then(|| call.input_place(ADDED));
        let in_place = added.is_some_and(|added| added.address == dx.address);
        let written = elements(if in_place { dy } else { dx });
        let arguments = Arguments::new().at(dy).at_or_null(added).at(dx);
        let arguments = arguments.with(first).with(width).with(of);
        kernel.launch_over(written, &arguments.with(written as i64))
    });
    Ok(if has_added {
        made.in_place_of(ADDED)
    } else {
        made
    })
}

fn dropout(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let probability = asked.attributes().number("p")?;
    let places = asked.scalars(["seed_low", "seed_high", "step", "site"])?;
    let width = asked.columns(asked.input(0));
    // A number is kept where its 24 bits are at least p * 2^24: the same as `uniform(word) >= p`.
    let threshold = (probability * 16_777_216.0).ceil() as u32;
    let factor = (1.0 / (1.0 - probability)) as f32;
    let kernel = kit.function(ARITHMETIC, &format!("dropout_{dtype}"))?;
    Ok(Made::new(move |call| {
        let [low, high, step, site] = call.scalars_at(places);
        let key = random::key(random::seed([low, high]), Purpose::DROPOUT, step as u64);
        let [x, sequences, positions] = [0, 1, 2].map(|index| call.input_place(index));
        let arguments = Arguments::new().at(x).at(sequences).at(positions);
        let arguments = arguments.at(call.output_place(0)).with(key[0]).with(key[1]);
        let arguments = arguments.with(site as u32).with(threshold).with(factor);
        let arguments = arguments.with(call.tokens as i64).with(width as i64);
        kernel.launch_over(call.tokens * width.div_ceil(4), &arguments)
    }))
}
