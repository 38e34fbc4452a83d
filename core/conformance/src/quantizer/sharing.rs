//! The checks of one instance used by many threads, and of several instances at once.

use std::sync::Barrier;

use espalier_interface::Quantizer;

use super::case::{Case, bits_differ, decode, difference, each, encode};
use crate::checked::{Checked, Fault, calm};
use crate::{Subject, Suite, Threads, weights};

/// Threads that use an instance at once.
const THREADS: usize = 8;
/// Rounds of each thread.
const ROUNDS: usize = 10;

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "share.threads",
        "8 threads that encode and decode other weights at once, through one instance, each get what one alone gets",
        || {
            each(subject, |case| match case.shape {
                [128, 256] | [17, 100] => at_once(subject, case),
                _ => Ok(()),
            })
        },
    );
    suite.check(
        "share.instances",
        "an instance with other options changes nothing in another instance",
        || {
            let sets = subject.option_sets();
            each(subject, |case| {
                let others = sets.iter().filter(|set| set.options != case.set.options);
                for other in others {
                    beside(subject, case, other)?;
                }
                Ok(())
            })
        },
    );
}

fn at_once(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>) -> Checked {
    let quantizer = subject.make(&case.set.options, Threads::new(2))?;
    let quantizer = quantizer.as_ref();
    let whole = || (0..case.shape[0], 0..case.shape[1]);
    let mut expected = Vec::new();
    for seed in 0..THREADS as u64 {
        let mut weight = weights::ordinary(case.shape, 20 + seed);
        // Weights of different magnitudes, so that another thread's scale shows.
        let factor = 1.0 + seed as f32;
        weight.iter_mut().for_each(|x| *x *= factor);
        let encoded = encode(quantizer, &case.format, &weight, 0)??;
        let decoded = decode(quantizer, case.shape, &encoded.segments(), whole())?;
        expected.push((weight, encoded, decoded));
    }
    let start = Barrier::new(THREADS);
    let format = &case.format;
    let shape = case.shape;
    let run = |index: usize| -> Checked {
        let (weight, alone, numbers) = &expected[index];
        start.wait();
        for _ in 0..ROUNDS {
            let found = encode(quantizer, format, weight, 0)??;
            if let Some(place) = difference(format, &found.segments(), &alone.segments()) {
                return Err(Fault::Failed(format!("encoding at once: {place}")));
            }
            let decoded = decode(quantizer, shape, &alone.segments(), whole())?;
            if let Some(place) = bits_differ(&decoded, numbers, shape[1]) {
                return Err(Fault::Failed(format!("decoding at once: {place}")));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS)
            .map(|index| scope.spawn(move || calm(|| run(index))))
            .collect();
        let ends = threads.into_iter().map(|thread| {
            let panicked = Fault::Failed("a thread panicked".to_owned());
            thread.join().unwrap_or(Err(panicked))
        });
        // All threads are joined before the first failure is reported.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn beside(
    subject: &Subject<'_, dyn Quantizer>,
    case: &Case<'_>,
    other: &crate::OptionSet,
) -> Checked {
    let weight = weights::ordinary(case.shape, 30);
    let (before, decoded) = case.round_trip(&weight)?;
    // An instance that refuses its options or the shape is left out.
    let Ok(second) = subject.make(&other.options, Threads::new(1)) else {
        return Ok(());
    };
    let Ok(format) = second.format(case.shape) else {
        return Ok(());
    };
    let bytes = encode(second.as_ref(), &format, &weight, 0)?;
    if let Ok(bytes) = bytes {
        let whole = (0..case.shape[0], 0..case.shape[1]);
        decode(second.as_ref(), case.shape, &bytes.segments(), whole)?;
    }
    let what = format!("after one with {} was used", other.label);
    let after = case.encode(&weight, 0)?;
    case.same(&after.segments(), &before.segments(), &what)?;
    let again = case.decode(&before.segments())?;
    match bits_differ(&again, &decoded, case.shape[1]) {
        None => Ok(()),
        Some(place) => Err(Fault::Failed(format!("{what}: {place}"))),
    }
}
