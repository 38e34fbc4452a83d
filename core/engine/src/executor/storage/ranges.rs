//! The places of params, gradients and optimizer state in the buffers of a storage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::Param;
use espalier_interface::schedule::Place;
use espalier_interface::{BufferRange, DType};
use espalier_plan::storage_layout::{Part, StateKind, StorageLayout};

use super::batch::BatchRanges;
use super::{Storage, part};
use crate::executor::allocation::Allocation;

/// The buffers of a storage by what they hold.
type Buffers = BTreeMap<Part, Arc<Allocation>>;

impl Storage {
    /// Places every param in the buffers of its part.
    pub(super) fn of(layout: &StorageLayout<'_>, parts: Buffers) -> Self {
        let whole = |part: Part| parts[&part].whole();
        let mut own = OwnRanges::new(layout, &parts);
        let units = 0..layout.units;
        let frozen = units.clone().map(|unit| own.next(unit, StateKind::Frozen));
        let frozen = frozen.collect();
        let saved = units.map(|unit| own.next(unit, StateKind::Saved)).collect();
        let trained = TrainedRanges::of(layout, &parts, &mut own);
        let mut params = frozen_params(layout, &parts);
        for (param, values) in trained.values {
            params[param] = vec![values];
        }
        let batch = BatchRanges::of(
            whole(Part::Batch),
            (layout.batch, layout.by_length),
            layout.units,
            layout.shard_layout.sweep,
        );
        let regions = parts.get(&Part::Regions).map(|part| part.whole());
        let staging = parts.get(&Part::Staging).map(|part| part.whole());
        let (arena, workspace) = (whole(Part::Arena), whole(Part::Workspace));
        Storage {
            parts,
            params,
            gradients: trained.gradients,
            trained: trained.runs,
            frozen,
            saved,
            whole_gradients: trained.whole_gradients,
            regions,
            staging,
            arena,
            batch,
            workspace,
        }
    }
}

/// The segments of each frozen param that is whole on the device; none of the others.
fn frozen_params(layout: &StorageLayout<'_>, parts: &Buffers) -> Vec<Vec<BufferRange>> {
    let mut ranges = vec![Vec::new(); layout.params.len()];
    let optimizer = &layout.shard_layout.optimizer;
    let of_no_unit = FlatParams::of(layout.params, Param::OF_NO_UNIT, optimizer);
    let units = layout.shard_layout.flat_params[..layout.units].iter();
    for (unit, flat) in units.enumerate().chain([(Param::OF_NO_UNIT, &of_no_unit)]) {
        let Some(resident) = parts.get(&Part::Frozen(unit)) else {
            continue;
        };
        for (param, segments) in &flat.frozen {
            let segment = |bytes: &Range<u64>| part(resident.whole(), bytes, 1);
            ranges[*param] = segments.iter().map(segment).collect();
        }
    }
    ranges
}

/// Hands out the ranges of units that are cut or offloaded, one unit after the other.
struct OwnRanges<'a> {
    layout: &'a StorageLayout<'a>,
    parts: &'a Buffers,
    /// Bytes handed out of each buffer.
    taken: BTreeMap<Part, u64>,
}

impl<'a> OwnRanges<'a> {
    fn new(layout: &'a StorageLayout<'a>, parts: &'a Buffers) -> Self {
        OwnRanges {
            layout,
            parts,
            taken: BTreeMap::new(),
        }
    }

    /// The range of the next unit; none where the unit is neither cut nor offloaded.
    fn next(&mut self, unit: usize, kept: StateKind) -> Option<BufferRange> {
        let (side, bytes) = self.layout.own(unit, kept)?;
        let place = Part::Own(kept, side);
        let offset = self.taken.entry(place).or_default();
        let begin = *offset;
        *offset += bytes;
        let buffer = self.parts.get(&place)?.whole();
        Some(part(buffer, &(begin..begin + bytes), 1))
    }
}

/// What a rank keeps of a unit's trainable run, between steps or during its update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::executor) struct TrainedRun {
    pub(in crate::executor) gradients: BufferRange,
    pub(in crate::executor) values: BufferRange,
    /// The tensors of the optimizer's state.
    pub(in crate::executor) state: Vec<BufferRange>,
}

/// The locations of trained values.
struct TrainedRanges {
    /// For each unit, as far as this rank keeps it.
    runs: Vec<TrainedRun>,
    /// The gradient of each param that is whole on the device.
    gradients: Vec<Option<BufferRange>>,
    /// The values of the params that are whole on the device.
    values: Vec<(usize, BufferRange)>,
    whole_gradients: BufferRange,
}

impl TrainedRanges {
    fn of(layout: &StorageLayout<'_>, parts: &Buffers, own: &mut OwnRanges<'_>) -> Self {
        let shard_layout = layout.shard_layout;
        let whole = |part: Part| parts[&part].whole();
        let [gradients_at, values_at] = [Part::Gradients, Part::Values].map(whole);
        let tensors = shard_layout.optimizer.tensors().len();
        let [params_bytes, gradient_bytes] =
            [layout.dtypes.params, layout.dtypes.gradients].map(DType::bytes);
        let mut optimizer = Vec::with_capacity(layout.units);
        // Bytes of each state tensor of the runs that are not cut.
        let mut kept_bytes = vec![0; tensors];
        let mut gradients = vec![None; layout.params.len()];
        let mut values = Vec::new();
        // Elements of the runs that are not cut: of gradients, and of values.
        let (mut reduced, mut updated) = (0, 0);
        for unit in 0..layout.units {
            let flat = &shard_layout.flat_params[unit];
            let keeps_gradients = shard_layout.keeps_gradients(unit);
            let shared = shard_layout.shared_gradients(unit);
            let whole_run = match shared {
                Some(shared) => {
                    let begin = shard_layout.arena_bytes + shared.offset;
                    part(whole(Part::Arena), &(begin..begin + shared.bytes), 1)
                }
                None => {
                    // Those of updates in the backward pass are in regions alone.
                    let elements = u64::from(keeps_gradients) * flat.elements;
                    part(gradients_at, &(reduced..reduced + elements), gradient_bytes)
                }
            };
            let gradients_run = own.next(unit, StateKind::Gradients).unwrap_or(whole_run);
            let whole_run = part(values_at, &(updated..updated + flat.elements), params_bytes);
            let values_run = own.next(unit, StateKind::Values).unwrap_or(whole_run);
            let state = (0..tensors).map(|tensor| {
                let kept = StateKind::State(tensor);
                own.next(unit, kept).unwrap_or_else(|| {
                    let bytes = layout.bytes_of(unit, kept, flat.elements);
                    let begin = kept_bytes[tensor];
                    kept_bytes[tensor] += bytes;
                    part(whole(Part::State(tensor)), &(begin..begin + bytes), 1)
                })
            });
            optimizer.push(TrainedRun {
                gradients: gradients_run,
                values: values_run,
                state: state.collect(),
            });
            let whole_values = shard_layout.placements[unit].trainable == Place::Replicated;
            for (param, elements) in &flat.trainable {
                if keeps_gradients || shared.is_some() {
                    gradients[*param] = Some(part(gradients_run, elements, gradient_bytes));
                }
                if whole_values {
                    values.push((*param, part(values_run, elements, params_bytes)));
                }
            }
            reduced += u64::from(keeps_gradients) * flat.elements;
            updated += u64::from(whole_values) * flat.elements;
        }
        TrainedRanges {
            runs: optimizer,
            gradients,
            values,
            whole_gradients: part(gradients_at, &(0..reduced), gradient_bytes),
        }
    }
}
