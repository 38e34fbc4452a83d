//! `adamw`, `adamw8bit` and `sgd`.

use std::sync::Arc;

use espalier_host_device::{Asked, Call, Made};
use espalier_interface::dynamic_map::{DynamicMap, SIGNED, STEPS, UNSIGNED};
use espalier_interface::op::ADAMW_SCALARS;
use espalier_interface::stochastic::{RandomBits, SCALARS};
use espalier_interface::{DType, PluginError, Result};

use super::{Op, computed, elements, op, reduced, stored, version};
use crate::arguments::{Argument, Arguments};
use crate::kit::Kit;
use crate::modules::THREADS;
use crate::sources::OPTIMIZER;
use crate::tables::DeviceTable;

pub const OPS: &[Op] = &[
    op("adamw", adamw),
    version(2, "adamw", adamw),
    version(3, "adamw", adamw),
    op("adamw8bit", adamw8bit),
    version(2, "adamw8bit", adamw8bit),
    version(3, "adamw8bit", adamw8bit),
    op("sgd", sgd),
    version(2, "sgd", sgd),
    version(3, "sgd", sgd),
];

/// Shared memory of a maximum over a block.
const SHARED_BYTES: u32 = 32;

/// Scalars of a step of AdamW, as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Adamw {
    keep: f32,
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    correction: f32,
    eps: f32,
    step_size: f32,
    gradient_scale: f32,
    lerp_from_end: i32,
}

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers of 4 bytes without padding.
unsafe impl Argument for Adamw {}

/// What becomes of the difference of a gradient and its mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mean {
    /// torch's `lerp`, which starts from the nearer end.
    Lerp,
    /// The sum of both, as bitsandbytes has it.
    Sum,
}

impl Adamw {
    /// Derived in f64 as `kernels/src/adamw.rs` does.
    fn of([rate, beta1, beta2, eps, decay, step, factor]: [f64; 7], mean: Mean) -> Self {
        let correction1 = 1.0 - beta1.powf(step);
        let correction2 = 1.0 - beta2.powf(step);
        let rest1 = 1.0 - beta1;
        let from_end = mean == Mean::Lerp && rest1 >= 0.5;
        Adamw {
            keep: (1.0 - rate * decay) as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            rest1: if from_end { 1.0 - rest1 } else { rest1 } as f32,
            rest2: (1.0 - beta2) as f32,
            correction: correction2.sqrt() as f32,
            eps: eps as f32,
            step_size: -(rate / correction1) as f32,
            gradient_scale: factor as f32,
            lerp_from_end: i32::from(from_end),
        }
    }
}

/// Places of the scalars of stochastic rounding.
#[derive(Clone, Copy)]
struct RandomScalars([usize; 6]);

impl RandomScalars {
    /// Those of version 3; earlier ones round to the nearest.
    fn of(asked: &Asked<'_>) -> Result<Option<Self>> {
        if asked.request.version < 3 {
            return Ok(None);
        }
        Ok(Some(RandomScalars(asked.scalars(SCALARS)?)))
    }
}

/// How a param is rounded, as the kernels take it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rounding {
    stochastic: i32,
    key: [u32; 2],
    name: [u32; 2],
    unused: u32,
    first: u64,
}

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers whose padding is a field.
unsafe impl Argument for Rounding {}

impl Rounding {
    /// To the nearest, or by the random bits of a launch.
    fn of(random: Option<RandomScalars>, call: &Call<'_>) -> Self {
        let Some(RandomScalars(places)) = random else {
            return Rounding::default();
        };
        let (bits, first) = RandomBits::of_scalars(call.scalars_at(places));
        let [key, name] = bits.words();
        Rounding {
            stochastic: 1,
            key,
            name,
            unused: 0,
            first,
        }
    }
}

/// The kernels' names of the dtypes of param, gradient and, where there is any, state.
fn dtypes(asked: &Asked<'_>, state: Option<usize>) -> Result<String> {
    let param = stored(asked, asked.output(0).dtype)?;
    let sums = computed(asked, asked.input(0).dtype)?;
    match state {
        Some(index) => {
            let state = computed(asked, asked.output(index).dtype)?;
            Ok(format!("{param}_{sums}_{state}"))
        }
        None => Ok(format!("{param}_{sums}")),
    }
}

fn adamw(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let random = RandomScalars::of(asked)?;
    let [m, v] = [1, 2].map(|index| asked.output(index).dtype);
    if m != v {
        return Err(asked.unsupported(format!("moments of {m} and {v}, expected one dtype")));
    }
    let dtypes = dtypes(asked, Some(1))?;
    let places = asked.scalars(ADAMW_SCALARS)?;
    let kernel = kit.function(OPTIMIZER, &format!("adamw_{dtypes}"))?;
    Ok(Made::new(move |call| {
        let scalars = Adamw::of(call.scalars_at(places), Mean::Lerp);
        let gradient = call.input_place(0);
        let [param, m, v] = [0, 1, 2].map(|index| call.output_place(index));
        let arguments = Arguments::new().at(gradient).at(param).at(m).at(v);
        let arguments = arguments.with(scalars).with(Rounding::of(random, call));
        let arguments = arguments.with(elements(gradient) as i64);
        kernel.launch_over(elements(gradient), &arguments)
    }))
}

/// A map of codes in a card's memory, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Map {
    values: u64,
    code_of_step: u64,
}

#[allow(unsafe_code)] // A struct of addresses.
// SAFETY: two addresses without padding.
unsafe impl Argument for Map {}

/// The bytes of a map: its values, then its codes by step.
fn map_bytes(map: &DynamicMap) -> Vec<u8> {
    let values = map.values.iter().flat_map(|value| value.to_le_bytes());
    let codes = (0..STEPS).map(|step| map.code(step as u16));
    values.chain(codes).collect()
}

fn adamw8bit(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let random = RandomScalars::of(asked)?;
    reduced(asked, asked.output(2).dtype)?;
    reduced(asked, asked.output(4).dtype)?;
    for index in [1, 3] {
        if asked.output(index).dtype != DType::U8 {
            return Err(asked.bad_dtype(asked.output(index).dtype, "u8"));
        }
    }
    let dtypes = dtypes(asked, None)?;
    let places = asked.scalars(ADAMW_SCALARS)?;
    let kernel = kit.function(OPTIMIZER, &format!("adamw8bit_{dtypes}"))?;
    let tables = [&SIGNED, &UNSIGNED].map(|map| kit.modules.table(&map_bytes(map)));
    let [signed, unsigned] = tables;
    let tables: [Arc<DeviceTable>; 2] = [signed?, unsigned?];
    Ok(Made::new(move |call| {
        let scalars = Adamw::of(call.scalars_at(places), Mean::Sum);
        let gradient = call.input_place(0);
        let count = elements(gradient);
        let arguments = Arguments::new().at(gradient);
        let outputs = (0..5).map(|index| call.output_place(index));
        let mut arguments = outputs.fold(arguments, Arguments::at);
        for table in &tables {
            arguments = arguments.with(Map {
                values: table.address(),
                code_of_step: table.address() + 4 * 256,
            });
        }
        let arguments = arguments.with(scalars).with(Rounding::of(random, call));
        let arguments = arguments.with(count as i64);
        let blocks = (count as u64).div_ceil(THREADS);
        kernel.launch([blocks, 1, 1], SHARED_BYTES, &arguments)
    }))
}

/// Scalars of a step of SGD, as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sgd {
    step_size: f32,
    momentum: f32,
    of_gradient: f32,
    of_buffer: f32,
    weight_decay: f32,
    gradient_scale: f32,
}

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers of 4 bytes without padding.
unsafe impl Argument for Sgd {}

fn sgd(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let random = RandomScalars::of(asked)?;
    let has_buffer = asked.request.outputs.len() == 2;
    // Without a buffer the dtype of state does not matter.
    let dtypes = if has_buffer {
        dtypes(asked, Some(1))?
    } else {
        format!("{}_f32", dtypes(asked, None)?)
    };
    let names = [
        "learning_rate",
        "momentum",
        "nesterov",
        "weight_decay",
        "factor",
    ];
    let places = asked.scalars(names)?;
    let kernel = kit.function(OPTIMIZER, &format!("sgd_{dtypes}"))?;
    Ok(Made::new(move |call| {
        let [rate, momentum, nesterov, decay, factor] = call.scalars_at(places);
        if !has_buffer && momentum != 0.0 {
            let what = format!("op `sgd`: momentum {momentum} without a momentum buffer");
            return Err(PluginError::invalid(what));
        }
        let is_nesterov = nesterov != 0.0;
        let scalars = Sgd {
            step_size: -rate as f32,
            momentum: momentum as f32,
            of_gradient: if is_nesterov { 1.0 } else { 0.0 },
            of_buffer: if is_nesterov { momentum as f32 } else { 1.0 },
            weight_decay: decay as f32,
            gradient_scale: factor as f32,
        };
        let (gradient, param) = (call.input_place(0), call.output_place(0));
        let buffer = has_buffer.then(|| call.output_place(1));
        let arguments = Arguments::new().at(gradient).at(param).at_or_null(buffer);
        let arguments = arguments.with(scalars).with(Rounding::of(random, call));
        let arguments = arguments.with(elements(gradient) as i64);
        kernel.launch_over(elements(gradient), &arguments)
    }))
}
