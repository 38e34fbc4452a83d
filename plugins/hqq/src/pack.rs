//! Weights with their groups' final numbers -> codes, packed into words.

use std::sync::Mutex;

use espalier_interface::DType;
use espalier_interface::format::Codes;
use espalier_kernels::simd::vectorized;

use crate::code::code_bits;
use crate::grouping::Affine;
use crate::problem::Problem;

/// Words that a thread takes at a time.
const WORDS: usize = 1 << 13;
/// Words that are filled slot by slot while they are in the first cache.
const TILE: usize = 1 << 10;

/// Writes the codes of all weights as `codes` lays them out; padding becomes 0.
///
/// # Shapes
/// `bytes`: the segment of `codes`, whose order is `Split`.
pub fn pack(problem: &Problem, affine: Affine, codes: &Codes, bytes: &mut [u8]) {
    let word_bytes = codes.dtype().bytes() as usize;
    let spans: Vec<Mutex<&mut [u8]>> = bytes
        .chunks_mut(WORDS * word_bytes)
        .map(Mutex::new)
        .collect();
    problem.services.parallel_for(spans.len(), &|i| {
        if problem.services.cancelled() {
            return;
        }
        let mut span = spans[i].lock().expect("each span is taken once");
        vectorized(
            #[inline(always)]
            || {
                for (tile, bytes) in span.chunks_mut(TILE * word_bytes).enumerate() {
                    let mut words = [0; TILE];
                    let words = &mut words[..bytes.len() / word_bytes];
                    fill(problem, affine, codes, i * WORDS + tile * TILE, words);
                    write(words, codes.dtype(), bytes);
                }
            },
        );
    });
}

/// Puts the codes of the words from `first` on into their slots.
#[inline(always)]
fn fill(problem: &Problem, affine: Affine, codes: &Codes, first: usize, words: &mut [u32]) {
    let elements = problem.weight.len();
    let run = codes.words(elements as u64) as usize;
    let top = problem.top;
    for start in (first..elements).step_by(run) {
        let (_, shift) = codes.place((start - first) as u64);
        let weight = &problem.weight[start..elements.min(start + words.len())];
        let words = &mut words[..weight.len()];
        problem
            .groups
            .each(start, weight, affine, words, |word, w, scale, zero| {
                *word |= code_bits(w, scale, zero, top) << shift;
            });
    }
}

#[inline(always)]
fn write(words: &[u32], dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::U8 => {
            for (byte, &word) in bytes.iter_mut().zip(words) {
                *byte = word as u8;
            }
        }
        _ => {
            for (bytes, &word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
        }
    }
}
