//! `optim.in_backward`: a request to a strategy -> one for updates within the backward pass, or a
//! refusal.

use espalier_compile::params::Training;
use espalier_config::Config;
use espalier_interface::schedule::ShardingRequest;
use espalier_system::failure::UsageError;

use crate::Error;

/// The request for the run's updates where the config says.
///
/// # Errors
/// [`Error::Usage`] for steps of several micro-batches a rank: their gradients are summed before
/// they are applied.
pub(super) fn requested(
    config: &Config,
    training: Training,
    request: ShardingRequest,
) -> Result<ShardingRequest, Error> {
    if !config.optim.in_backward || training == Training::Nothing {
        return Ok(request);
    }
    if request.micro_batches > 1 {
        return Err(Error::Usage(several(config, &request)));
    }
    Ok(ShardingRequest {
        micro_batches: 1,
        update_in_backward: true,
        ..request
    })
}

/// The error for steps of several micro-batches.
fn several(config: &Config, request: &ShardingRequest) -> UsageError {
    let (data, world) = (&config.data, request.world.max(1) as usize);
    let (key, found, set) = match data.pack_tokens {
        Some(tokens) => (
            "data.pack_tokens",
            tokens,
            "raise data.pack_tokens, or lower data.batch_size".to_owned(),
        ),
        None => (
            "data.micro_batch",
            data.micro_batch,
            format!(
                "set data.micro_batch = {}, or data.batch_size = {}",
                data.batch_size.div_ceil(world),
                data.micro_batch * world
            ),
        ),
    };
    UsageError {
        message: format!(
            "optim.in_backward = true applies the gradients of one micro-batch a step, and {key} = {found} makes {} of a \
             rank's part of data.batch_size = {}",
            request.micro_batches, data.batch_size
        ),
        next_step: format!("{set}, or optim.in_backward = false"),
    }
}
