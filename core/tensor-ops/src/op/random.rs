//! `dropout` and `init`: words of Philox are drawn by the host, numbers are made of them by the
//! library.

use espalier_host_device::{Asked, InitDraw, Setting};
use espalier_interface::random::{self, Purpose, philox};
use espalier_interface::{DType, Result};

use super::rows::{Part, rows};
use super::{Dtypes, Kernel, Op};
use crate::launch::Launch;
use crate::{Compare, Tensors, Unary};

/// One over the number of values of a word's 24 random bits.
const STEP: f64 = 1.0 / 16_777_216.0;

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    vec![
        Op::new("dropout", dropout),
        Op::new("init", init).of(Dtypes::Stored),
    ]
}

/// The 24 random bits of a word, which f32 holds exactly.
fn bits(word: u32) -> f32 {
    (word >> 8) as f32
}

fn dropout<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let probability = asked.attributes().number("p")?;
    let places = asked.scalars(["seed_low", "seed_high", "step", "site"])?;
    // A number is kept where its 24 bits are at least p 2^24.
    let threshold = (probability / STEP).ceil();
    Ok(rows(move |part: Part<'_, '_, L>| {
        let (launch, library) = (part.launch, part.launch.library);
        let [low, high, step, site] = launch.scalars_at(places);
        let key = random::key(random::seed([low, high]), Purpose::DROPOUT, step as u64);
        let sequences = launch.to_host(&part.of(launch.input(1)))?;
        let positions = launch.to_host(&part.of(launch.input(2)))?;
        let width = launch.input(0).shape()[1];
        let mut drawn = Vec::with_capacity(part.len * width);
        for (&sequence, &position) in sequences.iter().zip(&positions) {
            for block in 0..width.div_ceil(4) {
                let counter = [block as u32, position as u32, sequence as u32, site as u32];
                let words = philox(key, counter).map(bits);
                drawn.extend_from_slice(&words[..4.min(width - 4 * block)]);
            }
        }
        let drawn = library.floats(&drawn, &[part.len, width])?;
        let threshold = library.full(threshold, &[1, 1], DType::F32)?;
        let kept = library.compare(Compare::LessOrEqual, &threshold, &drawn)?;
        let scaled = library.scaled(&part.float(0)?, 1.0 / (1.0 - probability))?;
        let zero = library.full(0.0, &[1, 1], DType::F32)?;
        part.write(&library.choose(&kept, &scaled, &zero)?, 0)
    }))
}

fn init<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let draw = InitDraw::of(asked)?;
    let places = asked.scalars(["seed_low", "seed_high", "param"])?;
    Ok(Kernel::new(move |launch: &Launch<'_, L>| {
        let [low, high, param] = launch.scalars_at(places);
        let key = random::key(random::seed([low, high]), Purpose::INIT, 0);
        let elements = launch.output(0).elements();
        let y = launch.output(0).reshaped(&[elements]);
        // Parts of whole blocks of four words.
        launch.parts(elements.div_ceil(4), 4, |block, blocks| {
            let len = (4 * blocks).min(elements - 4 * block);
            let words =
                (block..block + blocks).map(|i| philox(key, [i as u32, param as u32, 0, 0]));
            let words: Vec<f32> = match draw {
                InitDraw::Constant(_) => Vec::new(),
                _ => words.flatten().map(bits).collect(),
            };
            let values = numbers(launch, draw, &words, len)?;
            launch.write(&values, &y.narrowed(0, 4 * block, len))
        })
    }))
}

/// The first `len` numbers that are made of words, in f64.
fn numbers<L: Tensors>(
    launch: &Launch<'_, L>,
    draw: InitDraw,
    words: &[f32],
    len: usize,
) -> Result<L::Tensor> {
    let library = launch.library;
    let wide = |words: &[f32], columns: usize| {
        let words = library.floats(words, &[words.len() / columns, columns])?;
        library.cast(&words, DType::F64)
    };
    let all = match draw {
        InitDraw::Constant(value) => return library.full(value, &[len], DType::F32),
        InitDraw::Uniform(bound) => library.affine(&wide(words, 1)?, 2.0 * bound * STEP, -bound)?,
        // Pairs of words give pairs of numbers (Box and Muller).
        InitDraw::Normal(std) => {
            let pairs = wide(words, 2)?;
            let rest = library.affine(&library.narrow(&pairs, 1, 0, 1)?, -STEP, 1.0)?;
            let squared = library.scaled(&library.unary(Unary::Log, &rest)?, -2.0)?;
            let radius = library.unary(Unary::Sqrt, &squared)?;
            let turns = library.scaled(&library.narrow(&pairs, 1, 1, 1)?, STEP)?;
            let angle = library.scaled(&turns, std::f64::consts::TAU)?;
            let [cos, sin] = [Unary::Cos, Unary::Sin]
                .map(|wave| library.mul(&radius, &library.unary(wave, &angle)?));
            let normal = library.concat(&[cos?, sin?], 1)?;
            // The interface's normal numbers are f32.
            let normal = library.cast(&library.cast(&normal, DType::F32)?, DType::F64)?;
            library.scaled(&normal, std)?
        }
    };
    let count = words.len();
    library.narrow(&library.reshape(&all, &[count])?, 0, 0, len)
}
