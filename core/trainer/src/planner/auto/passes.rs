//! A config -> the ways to run its micro-batches: recomputation, and sequences at once.

use espalier_compile::recompute::Recompute;
use espalier_config::{Origin, ResolvedConfig};
use espalier_system::world::World;

/// A way to run the passes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passes {
    /// The activations that are recomputed in the backward pass.
    pub recompute: Recompute,
    /// Sequences at once on a rank; `None` where `data.pack_tokens` sets them.
    pub micro_batch: Option<u64>,
}

/// All ways that keep the user's settings.
pub(super) fn all(resolved: &ResolvedConfig, world: World) -> Vec<Passes> {
    let config = resolved.config();
    let set = |key: &str| resolved.origin(key) != Origin::Default;
    let recomputes = if set("model.recompute") {
        vec![config.model.recompute]
    } else {
        vec![Recompute::None, Recompute::Selective, Recompute::Layer]
    };
    let data = &config.data;
    let micro_batches = match (data.pack_tokens, set("data.micro_batch")) {
        (Some(_), _) => vec![None],
        (None, true) => vec![Some(data.micro_batch as u64)],
        (None, false) => {
            let most = (data.batch_size as u64).div_ceil(u64::from(world.ranks));
            let powers = (0..).map(|power| 1 << power);
            let powers = powers.take_while(|&n: &u64| n <= most).map(Some);
            if config.optim.in_backward {
                // Several micro-batches a step are refused.
                vec![Some(most)]
            } else {
                powers.collect()
            }
        }
    };
    let each = |recompute| {
        let micro_batches = micro_batches.iter();
        micro_batches.map(move |&micro_batch| Passes {
            recompute,
            micro_batch,
        })
    };
    recomputes.into_iter().flat_map(each).collect()
}
