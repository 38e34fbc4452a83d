//! `adamw8bit`, in the order of operations of bitsandbytes' on the CPU.

use std::sync::Mutex;

use espalier_host_device::{Asked, Setting};
use espalier_interface::dynamic_map::{DynamicMap, SIGNED, STEPS, UNSIGNED};
use espalier_interface::op::{ADAMW_SCALARS, ADAMW8BIT_BLOCK};
use espalier_interface::{DType, Result};

use super::optimizers::{check_gradient, flat};
use super::rounding::Rounding;
use super::{Kernel, Op, Temporaries};
use crate::launch::{Launch, lock};
use crate::{Compare, Memory, Reduce, Tensors, Unary};

const BLOCK: usize = ADAMW8BIT_BLOCK as usize;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    let op = |version| Op {
        temporaries: Temporaries::Parts(32),
        ..Op::new("adamw8bit", adamw8bit).version(version)
    };
    [1, 2, 3].map(op).into()
}

/// A map's values `[256]` and the codes of its steps `[STEPS]`, i64, as tensors.
struct Map<T> {
    values: T,
    codes: T,
}

impl<T: Clone> Map<T> {
    fn of<L: Tensors<Tensor = T>>(library: &L, map: &DynamicMap) -> Result<Mutex<Self>> {
        let codes: Vec<i64> = (0..=u16::MAX).map(|step| map.code(step).into()).collect();
        Ok(Mutex::new(Map {
            values: library.floats(&map.values, &[map.values.len()])?,
            codes: library.longs(&codes, &[STEPS])?,
        }))
    }
}

/// A moment in memory, and its map.
struct Coded<'a, T> {
    map: &'a Mutex<Map<T>>,
    codes: Memory,
    absmax: Memory,
}

fn adamw8bit<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    check_gradient(asked)?;
    let rounding = Rounding::of(asked)?;
    let places = asked.scalars(ADAMW_SCALARS)?;
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let [rate, beta1, beta2, eps, decay, step, factor] = launch.scalars_at(places);
        let correction1 = 1.0 - beta1.powf(step);
        let root_correction2 = (1.0 - beta2.powf(step)).sqrt();
        let (library, all) = (launch.library, flat(launch));
        let (signed, unsigned) = (Map::of(library, &SIGNED)?, Map::of(library, &UNSIGNED)?);
        let n = all[0].elements();
        launch.parts(n.div_ceil(BLOCK), BLOCK, |block, blocks| {
            let begin = block * BLOCK;
            let len = (blocks * BLOCK).min(n - begin);
            let part = |index: usize| all[index].narrowed(0, begin, len);
            let coded = |map, index: usize| Coded {
                map,
                codes: part(index),
                absmax: all[index + 1].narrowed(0, block, blocks),
            };
            let (first, second) = (coded(&signed, 2), coded(&unsigned, 4));
            let g = library.scaled(&launch.float(&part(0))?, factor)?;
            let m = library.scaled(&decoded(launch, &first)?, beta1)?;
            let m = library.add(&m, &library.scaled(&g, 1.0 - beta1)?)?;
            let v = library.scaled(&decoded(launch, &second)?, beta2)?;
            let squares = library.mul(&library.scaled(&g, 1.0 - beta2)?, &g)?;
            let v = library.add(&v, &squares)?;
            let param = library.scaled(&launch.float(&part(1))?, 1.0 - rate * decay)?;
            let root = library.unary(Unary::Sqrt, &v)?;
            let divisor = library.full(root_correction2, &[1], DType::F32)?;
            let denominator = library.affine(&library.div(&root, &divisor)?, 1.0, eps)?;
            let moved = library.scaled(&m, rate / correction1)?;
            let param = library.sub(&param, &library.div(&moved, &denominator)?)?;
            rounding.write(launch, &param, begin, &part(1))?;
            encode(launch, &m, &first)?;
            encode(launch, &v, &second)
        })
    });
    // The codes of both maps' steps, and of one the list that its tensor is made from.
    Ok(kernel.with_temporaries(3 * 8 * STEPS as u64))
}

/// `x`, `[n]`, as whole blocks `[ceil(n / 256), 256]`; what is beyond `n` is 0.
fn blocks<L: Tensors>(library: &L, x: &L::Tensor, n: usize) -> Result<L::Tensor> {
    let count = n.div_ceil(BLOCK);
    let missing = count * BLOCK - n;
    if missing == 0 {
        return library.reshape(x, &[count, BLOCK]);
    }
    let zeros = library.full(0.0, &[missing], DType::F32)?;
    library.reshape(&library.concat(&[x.clone(), zeros], 0)?, &[count, BLOCK])
}

/// The first `n` numbers of blocks.
fn unblocked<L: Tensors>(library: &L, x: &L::Tensor, n: usize) -> Result<L::Tensor> {
    let all = library.reshape(x, &[n.div_ceil(BLOCK) * BLOCK])?;
    library.narrow(&all, 0, 0, n)
}

/// The numbers of a moment, `[n]`.
fn decoded<L: Tensors>(launch: &Launch<'_, L>, coded: &Coded<'_, L::Tensor>) -> Result<L::Tensor> {
    let (library, n) = (launch.library, coded.codes.elements());
    let values = lock(coded.map).values.clone();
    let values = library.select(&values, 0, &launch.index(&coded.codes)?)?;
    let absmax = launch.float(&coded.absmax)?;
    let absmax = library.reshape(&absmax, &[n.div_ceil(BLOCK), 1])?;
    let numbers = library.mul(&blocks(library, &values, n)?, &absmax)?;
    unblocked(library, &numbers, n)
}

/// Writes the codes and the absmax of `x`, `[n]`.
fn encode<L: Tensors>(
    launch: &Launch<'_, L>,
    x: &L::Tensor,
    coded: &Coded<'_, L::Tensor>,
) -> Result<()> {
    let (library, n) = (launch.library, coded.codes.elements());
    let x = blocks(library, x, n)?;
    let [zero, one] = [0.0, 1.0].map(|value| library.full(value, &[1, 1], DType::F32));
    let (zero, one) = (zero?, one?);
    let negative = library.compare(Compare::Less, &x, &zero)?;
    let magnitude = library.choose(&negative, &library.scaled(&x, -1.0)?, &x)?;
    let absmax = library.reduce(Reduce::Max, &magnitude, 1)?;
    // The inverse of 0 is infinite, 0 times that no number, and the code of no number 0.
    let scaled = library.mul(&x, &library.div(&one, &absmax)?)?;
    let steps = library.reshape(&steps(library, &scaled)?, &[n.div_ceil(BLOCK) * BLOCK])?;
    let steps = library.narrow(&steps, 0, 0, n)?;
    let codes = lock(coded.map).codes.clone();
    let codes = library.select(&codes, 0, &steps)?;
    launch.write(&library.cast(&codes, DType::U8)?, &coded.codes)?;
    launch.write(
        &library.reshape(&absmax, &[n.div_ceil(BLOCK)])?,
        &coded.absmax,
    )
}

/// The step of each scaled number, i64; see [`espalier_interface::dynamic_map::step`].
fn steps<L: Tensors>(library: &L, x: &L::Tensor) -> Result<L::Tensor> {
    let full = |value: f64| library.full(value, &[1, 1], DType::F32);
    let (low, high) = (full(-1.0)?, full(1.0)?);
    let x = library.choose(&library.compare(Compare::Less, &low, x)?, x, &low)?;
    let x = library.choose(&library.compare(Compare::Less, &x, &high)?, &x, &high)?;
    // Exact in f64, so that the cast is the one rounding.
    let unit = library.cast(&library.affine(&x, 0.5, 0.5)?, DType::F64)?;
    let position = library.affine(&unit, (STEPS - 1) as f64, 0.5)?;
    let position = library.cast(&position, DType::F32)?;
    // Numbers below 2^23 have their whole part after 2^23 was added and subtracted, or one more.
    let whole = library.affine(&library.affine(&position, 1.0, WHOLE)?, 1.0, -WHOLE)?;
    let above = library.compare(Compare::Less, &position, &whole)?;
    let less = library.affine(&whole, 1.0, -1.0)?;
    library.cast(&library.choose(&above, &less, &whole)?, DType::I64)
}

/// 2^23: f32 has no fractions from there on.
const WHOLE: f64 = 8_388_608.0;
