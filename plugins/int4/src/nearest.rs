//! A weight -> grids from the ends of its groups and the nearest codes.

use std::sync::Mutex;

use espalier_interface::{ErrorCode, PluginError, Result, Services};

use crate::grid::GridSpec;
use crate::grouping::Grouping;

/// Where an encoder leaves what it finds.
pub struct Found<'a> {
    /// `[N, M]`.
    pub codes: &'a mut [u8],
    /// `[N, M / group]`.
    pub scales: &'a mut [f32],
    /// `[N, M / group]`.
    pub zeros: &'a mut [f32],
}

impl<'a> Found<'a> {
    /// Bytes of workspace that it takes.
    pub fn bytes(groups: Grouping) -> u64 {
        // Four bytes may be lost to alignment.
        4 + 8 * groups.count() as u64 + groups.elements() as u64
    }

    /// Cut from `workspace`, of which the rest is returned.
    pub fn of(groups: Grouping, workspace: &'a mut [u8]) -> (Self, &'a mut [u8]) {
        let skipped = workspace.as_ptr().align_offset(align_of::<f32>());
        let (numbers, rest) = workspace[skipped..].split_at_mut(8 * groups.count());
        let (scales, zeros) = bytemuck::cast_slice_mut(numbers).split_at_mut(groups.count());
        let (codes, rest) = rest.split_at_mut(groups.elements());
        let found = Found {
            codes,
            scales,
            zeros,
        };
        (found, rest)
    }
}

/// # Errors
/// `NOT_FINITE` for a weight with an element that is not finite.
pub fn check_finite(weight: &[f32]) -> Result<()> {
    match weight.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(at) => Err(PluginError::new(
            ErrorCode::NOT_FINITE,
            format!("element {at} of the weight is {}", weight[at]),
        )),
    }
}

/// # Errors
/// `CANCELLED` when the user stopped the run.
pub fn heed_cancel(services: &dyn Services) -> Result<()> {
    if !services.cancelled() {
        return Ok(());
    }
    let message = "encoding was cancelled";
    Err(PluginError::new(ErrorCode::CANCELLED, message))
}

/// Rounds every weight to the nearest value of the grid of its group.
///
/// # Errors
/// `CANCELLED` when the user stopped the run.
pub fn round_to_nearest(
    spec: GridSpec,
    groups: Grouping,
    weight: &[f32],
    found: &mut Found<'_>,
    services: &dyn Services,
) -> Result<()> {
    let per_row = groups.per_row();
    let rows: Vec<_> = weight
        .chunks_exact(groups.cols)
        .zip(found.codes.chunks_exact_mut(groups.cols))
        .zip(found.scales.chunks_exact_mut(per_row))
        .zip(found.zeros.chunks_exact_mut(per_row))
        .map(Mutex::new)
        .collect();
    services.parallel_for(rows.len(), &|index| {
        if services.cancelled() {
            return;
        }
        let mut row = rows[index].lock().expect("each row is taken once");
        let (((weight, codes), scales), zeros) = &mut *row;
        let runs = weight
            .chunks_exact(groups.size)
            .zip(codes.chunks_exact_mut(groups.size));
        let numbers = scales.iter_mut().zip(zeros.iter_mut());
        for ((weight, codes), (scale, zero)) in runs.zip(numbers) {
            let grid = spec.of(weight);
            (*scale, *zero) = (grid.scale, grid.zero);
            for (code, &x) in codes.iter_mut().zip(weight) {
                *code = spec.code(grid, x) as u8;
            }
        }
    });
    heed_cancel(services)
}
