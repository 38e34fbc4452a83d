//! Refuses operations that need all weights on one device in a run that spreads them.

use espalier_system::failure::UsageError;

use crate::Error;
use crate::plan::RunPlan;

/// Refuses `what` in a run with several ranks, or with weights that do not stay on its device.
///
/// # Errors
/// [`Error::Usage`] with `what` and the number of ranks.
pub fn check(what: &str, plan: &RunPlan) -> Result<(), Error> {
    let mut units = 0..plan.program.units.len();
    let ranks = plan.demand.world.ranks;
    if ranks == 1 && units.all(|unit| plan.shard_layout.is_resident(unit)) {
        Ok(())
    } else {
        Err(refusal(what, ranks))
    }
}

/// The error for `what` in a run of `ranks` ranks.
fn refusal(what: &str, ranks: u32) -> Error {
    let found = match ranks {
        1 => "rank that moves weights to it",
        _ => "ranks",
    };
    Error::Usage(UsageError {
        message: format!(
            "{what} needs one rank with all weights on its device, found {ranks} {found}"
        ),
        next_step: "leave it out, or run on one rank with `--plugins single`".to_owned(),
    })
}
