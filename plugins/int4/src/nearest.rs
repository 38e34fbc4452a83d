//! A weight -> grids from the ends of its groups and the nearest codes.

use espalier_interface::{ErrorCode, PluginError, Result, Services, in_pieces};

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

    /// Runs `work` on the rows of a weight, `at_once` of them at a time, by the host's threads.
    ///
    /// # Errors
    /// `CANCELLED` when the user stopped the run.
    pub fn by_rows(
        &mut self,
        groups: Grouping,
        weight: &[f32],
        at_once: usize,
        services: &dyn Services,
        work: impl Fn(FoundRows<'_>) + Sync,
    ) -> Result<()> {
        let (elements, numbers) = (at_once * groups.cols, at_once * groups.per_row());
        let pieces = weight
            .chunks(elements)
            .zip(self.codes.chunks_mut(elements))
            .zip(self.scales.chunks_mut(numbers))
            .zip(self.zeros.chunks_mut(numbers))
            .map(|(((weight, codes), scales), zeros)| FoundRows {
                weight,
                codes,
                scales,
                zeros,
            });
        in_pieces(services, pieces.collect(), |rows| {
            if !services.cancelled() {
                work(rows);
            }
        });
        heed_cancel(services)
    }
}

/// Rows of a weight, and where what is found of them goes.
pub struct FoundRows<'a> {
    /// The weights.
    pub weight: &'a [f32],
    /// A code a weight.
    pub codes: &'a mut [u8],
    /// One a group.
    pub scales: &'a mut [f32],
    /// One a group.
    pub zeros: &'a mut [f32],
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
    found.by_rows(groups, weight, 1, services, |row| {
        let FoundRows {
            weight,
            codes,
            scales,
            zeros,
        } = row;
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
    })
}
