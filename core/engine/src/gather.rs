//! The parts of a trained param that ranks keep -> the whole param, in order, a part at a time.

use std::ops::Range;

use espalier_interface::schedule::Place;
use espalier_interface::{DType, WeightLayout};
use espalier_numeric::widen;

use crate::Error;
use crate::executor::{Executor, StatePart};
use crate::team::Team;

/// Bytes that are gathered at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// Passes the bytes of a part of a trainable param, little-endian, at most 1 MiB at once. Every
/// process has to call this, and every process receives all bytes.
///
/// # Errors
/// `Error::Plugin`: a call to a backend failed. `Error::Peer`: a rank is lost. The error of `take`.
pub fn gather(
    team: &Team,
    param: usize,
    part: StatePart,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let first = team.first();
    let ranks = keepers(first, param);
    if team.world().processes == 1 {
        let mut keepers = team.executors()[..ranks as usize].iter();
        return keepers.try_for_each(|executor| executor.download_state(param, part, take));
    }
    let step = CHUNK_BYTES / first.state_dtype(param, part).bytes();
    let all: u64 = first.state_shape(param, part).iter().product();
    let label = format!("gathering `{}`", first.params()[param].name);
    for begin in (0..all).step_by(step as usize) {
        let wanted = begin..all.min(begin + step);
        let received = team.each(|executor| {
            let mut own = Vec::new();
            if executor.peers().rank() < ranks {
                let elements = common(&executor.own_elements(param, part), &wanted);
                own = executor.state_bytes(param, part, elements)?;
            }
            executor.peers().exchange(&label, &own)
        })?;
        received[0].iter().try_for_each(|piece| take(piece))?;
    }
    Ok(())
}

/// Passes the values of a dense param as f32, a part at a time, as [`gather`] does.
///
/// # Errors
/// As [`gather`].
pub fn gather_f32(
    team: &Team,
    param: usize,
    take: &mut dyn FnMut(&[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let of = &team.first().params()[param];
    let (WeightLayout::Dense(dtype), true) = (&of.layout, of.trainable) else {
        return team.first().param_parts(param, take);
    };
    gather(team, param, StatePart::Values, &mut |bytes| {
        take(&floats(bytes, *dtype))
    })
}

fn floats(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / dtype.bytes() as usize];
    widen(bytes, dtype, &mut values);
    values
}

/// The elements in both ranges; where there are none, an empty range at the beginning of `own`.
fn common(own: &Range<u64>, wanted: &Range<u64>) -> Range<u64> {
    let (start, end) = (own.start.max(wanted.start), own.end.min(wanted.end));
    if start < end {
        start..end
    } else {
        own.start..own.start
    }
}

/// Takes part in gathering `params` for another process that writes them.
///
/// # Errors
/// As [`gather`].
pub fn follow(team: &Team, params: &[usize]) -> Result<(), Error> {
    let mut params = params.iter();
    params.try_for_each(|&param| gather_f32(team, param, &mut |_| Ok(())))
}

/// How many ranks, counted from the first, share the elements of a trainable param.
pub fn keepers(executor: &Executor, param: usize) -> u32 {
    let unit = executor.params()[param].unit;
    match executor.placements()[unit].optimizer {
        Place::Replicated => 1,
        _ => executor.peers().shard().1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_do_not_meet_have_nothing_in_common() {
        assert_eq!(common(&(64..128), &(0..100)), 64..100);
        assert_eq!(common(&(64..128), &(70..80)), 70..80);
        assert_eq!(common(&(64..128), &(128..200)), 64..64);
        assert_eq!(common(&(0..0), &(0..10)), 0..0);
    }
}
