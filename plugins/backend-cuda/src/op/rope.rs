//! `rope` and `rope_backward`; `sinusoids` and `swap_halves`.

use espalier_host_device::{Asked, Made};
use espalier_interface::Result;

use super::{Op, computed, elements, op, version};
use crate::arguments::{Argument, Arguments};
use crate::kit::Kit;
use crate::modules::THREADS;
use crate::sources::ROPE;

pub const OPS: &[Op] = &[
    op("rope", |asked, kit| rope(asked, kit, 1.0)),
    version(2, "rope", |asked, kit| rope(asked, kit, 1.0)),
    op("rope_backward", |asked, kit| rope(asked, kit, -1.0)),
    version(2, "rope_backward", |asked, kit| rope(asked, kit, -1.0)),
    op("sinusoids", sinusoids),
    op("swap_halves", swap_halves),
];

/// Most frequencies of a launch, as the kernel has it.
const MOST: usize = 512;

/// Pairs of values that a block turns at least where there are as many: 8 for each thread.
const PAIRS_OF_BLOCK: usize = 8 * THREADS as usize;

/// A cosine and a sine, in shared memory.
const TURN_BYTES: usize = 8;

/// Tokens of a block, each of `pairs` pairs of values.
fn rows_of_block(pairs: usize) -> usize {
    (PAIRS_OF_BLOCK / pairs.max(1)).max(1)
}

/// Frequencies or amplitudes, as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Numbers<const N: usize>([f32; N]);

#[allow(unsafe_code)] // A struct of floats.
// SAFETY: floats without padding.
unsafe impl<const N: usize> Argument for Numbers<N> {}

impl<const N: usize> Numbers<N> {
    /// At most `N` numbers, and zeros behind them.
    fn of(numbers: &[f64]) -> Self {
        let mut made = Numbers([0.0; N]);
        for (to, from) in made.0.iter_mut().zip(numbers) {
            *to = *from as f32;
        }
        made
    }
}

fn rope(asked: &Asked<'_>, kit: &Kit, sign: f32) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let head = asked.attributes().count("head_dim")?;
    let scaling = asked.attributes().number("scaling")? as f32;
    let numbers = asked.attributes().numbers("inv_freq")?;
    if numbers.len() > MOST {
        let found = numbers.len();
        return Err(asked.unsupported(format!("{found} frequencies, expected at most {MOST}")));
    }
    let (frequencies, half) = (Numbers::<MOST>::of(&numbers), numbers.len());
    let values = asked.request.outputs.len();
    let widths: Vec<usize> = (asked.request.outputs.iter())
        .map(|output| asked.columns(output))
        .collect();
    let kernel = kit.function(ROPE, &format!("rope_{dtype}"))?;
    Ok(Made::new(move |call| {
        let positions = call.input_place(values);
        let tokens = call.tokens;
        for (index, &width) in widths.iter().enumerate() {
            let (x, y) = (call.input_place(index), call.output_place(index));
            let arguments = Arguments::new().at(x).at(positions).at(y).with(frequencies);
            let arguments = arguments.with(half as i32).with(head as i32);
            let rows = rows_of_block(width / head * half);
            let arguments = arguments.with(scaling).with(sign).with(rows as i32);
            let arguments = arguments.with(width as i64).with(tokens as i64);
            let blocks = [tokens.div_ceil(rows) as u64, 1, 1];
            kernel.launch(blocks, (rows * half * TURN_BYTES) as u32, &arguments)?;
        }
        Ok(())
    }))
}

/// Frequencies of a launch of `sinusoids`, which also takes as many amplitudes: both tables and
/// the rest must fit the 4 KiB that a kernel's arguments may have.
const MOST_SINUSOIDS: usize = 448;

fn sinusoids(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.output(0).dtype)?;
    let attributes = asked.attributes();
    let frequencies = attributes.numbers("inv_freq")?;
    let amplitudes = attributes.numbers("amplitude")?;
    let sine = match attributes.text("function") {
        Some("cos") => 0,
        Some("sin") => 1,
        other => return Err(asked.unsupported(format!("function {other:?}"))),
    };
    let width = frequencies.len();
    let table = Numbers::<MOST_SINUSOIDS>::of;
    let parts = frequencies.chunks(MOST_SINUSOIDS);
    let parts = parts.zip(amplitudes.chunks(MOST_SINUSOIDS));
    let parts: Vec<_> = parts.map(|(f, a)| (table(f), table(a), f.len())).collect();
    let kernel = kit.function(ROPE, &format!("sinusoids_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (positions, y) = (call.input_place(0), call.output_place(0));
        for (index, (frequencies, amplitudes, count)) in parts.iter().enumerate() {
            let arguments = Arguments::new().at(positions).at(y);
            let arguments = arguments.with(*frequencies).with(*amplitudes).with(sine);
            let arguments = arguments.with((index * MOST_SINUSOIDS) as i32);
            let arguments = arguments.with(*count as i32);
            let arguments = arguments.with(width as i64).with(call.tokens as i64);
            kernel.launch_over(call.tokens * count, &arguments)?;
        }
        Ok(())
    }))
}

fn swap_halves(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = computed(asked, asked.input(0).dtype)?;
    let attributes = asked.attributes();
    let (head, half) = (attributes.count("head_dim")?, attributes.count("half")?);
    let kernel = kit.function(ROPE, &format!("swap_halves_{dtype}"))?;
    Ok(Made::new(move |call| {
        let (x, y) = (call.input_place(0), call.output_place(0));
        let arguments = Arguments::new()
            .at(x)
            .at(y)
            .with(half as i32)
            .with(head as i32);
        kernel.launch_over(elements(y), &arguments.with(elements(y) as i64))
    }))
}
