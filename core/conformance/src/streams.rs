//! The trial of streams: a device -> whether tasks of several streams, ordered by events alone,
//! give the results of running one after the other. And whether the host reads results after their
//! event.
//!
//! A device may run tasks later than it is given them, so each read of the host follows a
//! wait. A device that has done its work when a call returns passes as it is.

mod program;
mod run;

use espalier_interface::{Device, MemoryKind, Stream};

use crate::checked::{Checked, Fault, ensure};
use program::{Program, StreamTask};
use run::Trial;

/// Random programs, by their seeds.
const SEEDS: std::ops::Range<u64> = 0..4;

/// Runs programs on several streams and compares every buffer with the program done in order.
///
/// # Errors
/// The first element that differs, or a call that fails.
pub fn chains(device: &dyn Device) -> Checked {
    let trial = Trial::new(device)?;
    let relay = [(Program::relay(), "a relay of three streams".to_owned())];
    let random = SEEDS.map(|seed| (Program::random(seed), format!("random program {seed}")));
    for (program, name) in relay.into_iter().chain(random) {
        trial.run(&program).map_err(|fault| fault.at(&name))?;
    }
    trial.close()
}

/// Reads results after events, streams and downloads while other streams work, and overwrites
/// what was uploaded.
///
/// # Errors
/// As [`chains`].
pub fn reads(device: &dyn Device) -> Checked {
    let trial = Trial::new(device)?;
    for behind in run::Behind::ALL {
        let name = format!("a read behind {behind}");
        trial.read(behind).map_err(|fault| fault.at(&name))?;
    }
    trial.close()
}

/// Fails at the first element that differs from `expected`.
fn compare(what: &str, found: &[u8], expected: &[f32]) -> Checked {
    let (found, _) = found.as_chunks::<4>();
    let mut both = found.iter().zip(expected).enumerate();
    let differs = both.find(|(_, (found, expected))| **found != expected.to_le_bytes());
    let Some((at, (found, expected))) = differs else {
        return Ok(());
    };
    Err(Fault::Failed(format!(
        "{what}: element {at} of {} is {}, expected {expected}: a task ran before the event that its \
         stream waits for, or a wait ended before the work that it is for",
        found.len().max(run::ELEMENTS),
        f32::from_le_bytes(*found)
    )))
}

/// A buffer of the device for the trial's elements.
fn buffer(device: &dyn Device, kind: MemoryKind) -> Checked<espalier_interface::BufferRange> {
    let bytes = 4 * run::ELEMENTS as u64;
    Ok(espalier_interface::BufferRange {
        buffer: device.alloc(bytes, kind)?,
        offset: 0,
        bytes,
    })
}

/// Streams of the device: the compute stream and others, all different.
fn streams(device: &dyn Device) -> Checked<[Stream; program::STREAMS]> {
    let mut streams = [Stream(0); program::STREAMS];
    for at in 1..streams.len() {
        streams[at] = device.stream()?;
        ensure(!streams[..at].contains(&streams[at]), || {
            "two streams have one name".to_owned()
        })?;
    }
    Ok(streams)
}

/// The elements that an upload with `seed` brings.
fn uploaded(seed: u64) -> Vec<f32> {
    let factor = 1.0 + seed as f32;
    let element = |at: usize| factor * ((at % 509) as f32 - 254.0) / 512.0;
    (0..run::ELEMENTS).map(element).collect()
}

impl StreamTask {
    /// Does the step on the host.
    fn apply(self, buffers: &mut [Vec<f32>]) {
        match self {
            StreamTask::Upload { to, seed } => buffers[to] = uploaded(seed),
            StreamTask::Copy { from, to } => buffers[to] = buffers[from].clone(),
            StreamTask::Add { a, b, to } => {
                let sum = buffers[a].iter().zip(&buffers[b]).map(|(a, b)| a + b);
                buffers[to] = sum.collect();
            }
        }
    }
}
