//! A weight -> codes and scales.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use espalier_interface::{ErrorCode, PluginError, Result};

use crate::bug::Bug;
use crate::nested;
use crate::quantizer::Planted;

/// Blocks that one index of a loop takes.
const BLOCKS_AT_ONCE: usize = 16;

static CALLS: AtomicU64 = AtomicU64::new(0);
static SCRATCH: Mutex<Vec<f32>> = Mutex::new(Vec::new());

/// Encodes, with the quantizer's bug.
pub fn encode(
    planted: &Planted,
    weight: &[f32],
    shape: [u64; 2],
    segments: &mut [&mut [u8]],
    workspace: &mut [u8],
) -> Result<()> {
    if planted.bug != Some(Bug::TakesNan)
        && let Some(at) = weight.iter().position(|x| !x.is_finite())
    {
        let message = format!("element {at} is not finite");
        return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
    }
    let count = planted.count_blocks(shape) as usize;
    let scales = scales(planted, weight, shape, count);
    keep(planted, &scales, workspace);
    let scales = kept(planted, scales);
    let [codes, stored @ ..] = segments else {
        return Err(PluginError::invalid("expected a segment of codes"));
    };
    encode_codes(planted, weight, &scales, codes);
    match stored {
        [absmax] => {
            for (scale, bytes) in scales.iter().zip(absmax.chunks_exact_mut(4)) {
                bytes.copy_from_slice(&scale.to_le_bytes());
            }
            Ok(())
        }
        [codes, nested, offset] => nested::encode(planted, &scales, codes, nested, offset),
        _ => Err(PluginError::invalid(
            "expected one or three segments of scales",
        )),
    }
}

/// The block of element `at`.
fn block_of(planted: &Planted, at: usize) -> usize {
    let size = planted.block_size() as usize;
    match planted.bug {
        Some(Bug::ShiftedBlock) => (at + 1) / size,
        _ => at / size,
    }
}

/// The largest magnitude of each block.
fn scales(planted: &Planted, weight: &[f32], shape: [u64; 2], count: usize) -> Vec<f32> {
    let mut scales = vec![0.0f32; count];
    for (at, x) in weight.iter().enumerate() {
        let block = block_of(planted, at).min(count - 1);
        scales[block] = scales[block].max(x.abs());
    }
    match planted.bug {
        Some(Bug::SingleRow) if shape[0] == 1 => {
            let first = scales[0];
            scales.fill(first);
        }
        Some(Bug::NanZeros) => {
            for scale in scales.iter_mut().filter(|scale| **scale == 0.0) {
                *scale = 0.0 / *scale;
            }
        }
        _ => {}
    }
    scales
}

/// Writes the scales where a stateless encoder would.
#[allow(unsafe_code)]
fn keep(planted: &Planted, scales: &[f32], workspace: &mut [u8]) {
    match planted.bug {
        Some(Bug::SharedScratch) => {
            *SCRATCH.lock().expect("no panic holds it") = scales.to_vec();
            std::thread::yield_now();
        }
        Some(Bug::WorkspaceOverrun) => {
            let start = workspace.as_mut_ptr();
            for (at, byte) in scales.iter().flat_map(|x| x.to_le_bytes()).enumerate() {
                // Unsound: the last four bytes are after the workspace. The kit reserves space
                // there.
                unsafe { start.add(at).write(byte) };
            }
        }
        _ => {
            for (scale, bytes) in scales.iter().zip(workspace.chunks_exact_mut(4)) {
                bytes.copy_from_slice(&scale.to_le_bytes());
            }
        }
    }
}

/// Reads them from there.
fn kept(planted: &Planted, scales: Vec<f32>) -> Vec<f32> {
    if planted.bug != Some(Bug::SharedScratch) {
        return scales;
    }
    let found = SCRATCH.lock().expect("no panic holds it").clone();
    let missing = scales.iter().skip(found.len());
    found
        .iter()
        .take(scales.len())
        .chain(missing)
        .copied()
        .collect()
}

fn encode_codes(planted: &Planted, weight: &[f32], scales: &[f32], codes: &mut [u8]) {
    let dither = match planted.bug {
        Some(Bug::CountsCalls) => CALLS.fetch_add(1, Ordering::Relaxed) % 2,
        Some(Bug::ReadsAddresses) => weight.as_ptr() as u64 / 64 % 2,
        _ => 0,
    };
    // A chunk holds whole blocks and whole bytes.
    let chunk = BLOCKS_AT_ONCE * planted.block_size() as usize;
    let chunks: Vec<_> = codes.chunks_mut(chunk / 2).map(Mutex::new).collect();
    planted.services.parallel_for(chunks.len(), &|index| {
        let mut codes = chunks[index].lock().expect("each is taken once");
        for (pair, byte) in codes.iter_mut().enumerate() {
            let at = index * chunk + 2 * pair;
            let code = |at: usize| {
                let at = match planted.bug {
                    Some(Bug::ShiftedNibbles) => at.saturating_sub(1),
                    _ => at,
                };
                let scale = scales[block_of(planted, at).min(scales.len() - 1)];
                nearest(weight[at], scale, dither)
            };
            *byte = match at + 1 < weight.len() {
                true => packed(planted, code(at), code(at + 1)),
                false => last(planted, code(at), *byte),
            };
        }
    });
}

/// The code of `x`; the dither shifts it slightly.
fn nearest(x: f32, scale: f32, dither: u64) -> u8 {
    let factor = if scale > 0.0 { 7.5 / scale } else { 0.0 };
    let moved = x * factor + 7.5 + 0.25 * dither as f32;
    moved.round().clamp(0.0, 15.0) as u8
}

fn packed(planted: &Planted, first: u8, second: u8) -> u8 {
    match planted.bug {
        Some(Bug::SwappedNibbles) => second << 4 | first,
        _ => first << 4 | second,
    }
}

/// The last byte of an odd number of codes.
fn last(planted: &Planted, code: u8, before: u8) -> u8 {
    match planted.bug {
        Some(Bug::LostTail) => 0,
        Some(Bug::StaleByte) => code << 4 | before & 0x0f,
        _ => code << 4,
    }
}
