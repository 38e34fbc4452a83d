//! The numbers of a step's update: the learning-rate schedule, gradient clipping, and the scalars
//! of the optimizer's op.

use espalier_config::{LearningRateSchedule, OptimOptions};
use espalier_interface::optimizer::{OptimizerSpec, scalar};

/// The scalars that a step gives, beside the settings of its optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepScalars {
    /// The group's learning rate of this step.
    pub learning_rate: f64,
    /// The group's weight decay.
    pub weight_decay: f64,
    /// Updates so far, this one included.
    pub step: u64,
    /// Factor of the gradients, from clipping.
    pub factor: f64,
    /// The run's seed.
    pub seed: u64,
}

/// The scalars of each group's update, in the order of the op of `optimizer`; 0 for those of single
/// launches.
pub fn scalars(
    optimizer: &OptimizerSpec,
    optim: &OptimOptions,
    groups: &[StepScalars],
) -> Vec<Vec<f64>> {
    let settings = optim.scalars(optimizer);
    let value = |own: &StepScalars, name: &str| match name {
        scalar::LEARNING_RATE => own.learning_rate,
        scalar::WEIGHT_DECAY => own.weight_decay,
        scalar::STEP => own.step as f64,
        scalar::FACTOR => own.factor,
        scalar::SEED_LOW => f64::from(own.seed as u32),
        scalar::SEED_HIGH => f64::from((own.seed >> 32) as u32),
        setting => settings.get(setting).copied().unwrap_or(0.0),
    };
    let of_group = |own: &StepScalars| {
        let names = optimizer.scalars.iter();
        names.map(|name| value(own, name)).collect()
    };
    groups.iter().map(of_group).collect()
}

/// The learning rate of step `step` (from 0) of a run of `total_steps`.
///
/// Warm-up rises linearly from 0 and reaches the peak at step `warmup`. Then the schedule falls to
/// `floor` times the peak at the end of the run.
///
/// # Source
/// transformers' `get_{constant,linear,cosine}_schedule_with_warmup`.
pub fn learning_rate(optim: &OptimOptions, step: u64, total_steps: u64) -> f64 {
    scheduled(optim.learning_rate, optim, step, total_steps)
}

/// As [`learning_rate`], for a group of params whose learning rate is `peak`.
pub fn scheduled(peak: f64, optim: &OptimOptions, step: u64, total_steps: u64) -> f64 {
    let warmup = optim.warmup(total_steps);
    if step < warmup {
        return peak * step as f64 / warmup.max(1) as f64;
    }
    let left = total_steps.saturating_sub(warmup).max(1);
    let progress = ((step - warmup) as f64 / left as f64).min(1.0);
    let shape = match optim.schedule {
        LearningRateSchedule::Constant => 1.0,
        LearningRateSchedule::Linear => 1.0 - progress,
        LearningRateSchedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
    };
    let floor = if optim.schedule == LearningRateSchedule::Constant {
        0.0
    } else {
        optim.floor
    };
    peak * (floor + (1.0 - floor) * shape)
}

/// The factor that clips a gradient of norm `norm` to `clip_norm`; 0 clips nothing.
///
/// # Source
/// `torch.nn.utils.clip_grad_norm_`: the norm is enlarged by 1e-6, the factor at most 1.
pub fn clip_factor(norm: f64, clip_norm: f64) -> f64 {
    if clip_norm > 0.0 {
        (clip_norm / (norm + 1e-6)).min(1.0)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(floor: f64) -> OptimOptions {
        OptimOptions {
            learning_rate: 2e-3,
            schedule: LearningRateSchedule::Cosine,
            floor,
            warmup_steps: 4,
            ..OptimOptions::default()
        }
    }

    #[test]
    fn cosine_with_warmup_is_that_of_transformers() {
        // get_cosine_schedule_with_warmup(opt, 4, 20) at a peak of 2e-3.
        let optim = cosine(0.0);
        for (step, expected) in [
            (0, 0.0),
            (1, 5e-4),
            (4, 2e-3),
            (12, 1e-3),
            (16, 2.928_932_188e-4),
        ] {
            let found = learning_rate(&optim, step, 20);
            assert!(
                (found - expected).abs() < 1e-12,
                "step {step}: {found}, expected {expected}"
            );
        }
    }

    #[test]
    fn the_floor_is_where_the_run_ends() {
        let found = learning_rate(&cosine(0.1), 20, 20);
        assert!((found - 2e-4).abs() < 1e-15, "{found}");
    }

    #[test]
    fn a_short_gradient_is_left_alone() {
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert_eq!(clip_factor(7.0, 0.0), 1.0);
        assert!((clip_factor(2.0, 1.0) - 0.5).abs() < 1e-6);
    }
}
