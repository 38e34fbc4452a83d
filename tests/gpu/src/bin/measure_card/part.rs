//! The parts of each run: names, limits of time, and what measures them.

use anyhow::Result;

use crate::rows::Rows;
use crate::setting::Setting;
use crate::{
    bus, ceilings, golden, kit, longest_row, op_times, peer, sanitizer, step, streamed_model,
    trainings, versions,
};

/// A part of a run.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Seconds after which it is ended.
    pub limit_secs: u64,
    /// Whether nothing else may run on the card meanwhile, because it is timed.
    pub is_alone: bool,
    /// Whether it runs whatever parts are asked for.
    pub is_always: bool,
    /// Measures it.
    pub measure: fn(&Setting, &mut Rows) -> Result<()>,
}

/// A part that is timed.
const fn alone(
    name: &'static str,
    limit_secs: u64,
    measure: fn(&Setting, &mut Rows) -> Result<()>,
) -> Part {
    Part {
        name,
        limit_secs,
        is_alone: true,
        is_always: false,
        measure,
    }
}

/// A part that runs while its neighbours do.
const fn beside(
    name: &'static str,
    limit_secs: u64,
    measure: fn(&Setting, &mut Rows) -> Result<()>,
) -> Part {
    Part {
        is_alone: false,
        ..alone(name, limit_secs, measure)
    }
}

const VERSIONS: Part = Part {
    is_always: true,
    ..alone("versions", 60, versions::measure)
};

const FIRST: [Part; 10] = [
    VERSIONS,
    alone("ceilings", 60, ceilings::measure),
    beside("kit", 150, kit::measure),
    beside("golden", 170, golden::measure),
    beside("streamed", 100, trainings::streamed),
    beside("losses", 100, trainings::losses),
    alone("nccl", 100, trainings::nccl),
    alone("ops", 120, op_times::of_step),
    alone("decoders", 150, op_times::of_decoders),
    alone("sanitizer", 90, sanitizer::measure),
];

const SECOND: [Part; 6] = [
    VERSIONS,
    alone("step_none", 200, step::without_recompute),
    alone("peer_none", 150, peer::without_recompute),
    alone("step_layer", 200, step::with_recompute),
    alone("peer_layer", 150, peer::with_recompute),
    alone("formats", 200, step::of_formats),
];

const THIRD: [Part; 5] = [
    VERSIONS,
    alone("bus", 60, bus::measure),
    alone("longest_8b", 240, longest_row::measure),
    alone("ranks_70b", 240, streamed_model::two_ranks),
    alone("streamed_70b", 500, streamed_model::one_rank),
];

/// The parts of run 1, 2 or 3.
pub fn of_run(run: u8) -> &'static [Part] {
    match run {
        1 => &FIRST,
        2 => &SECOND,
        _ => &THIRD,
    }
}
