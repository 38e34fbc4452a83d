//! The name of a profile -> the details in which versions of hqq differ.

use espalier_interface::{PluginError, Result};

/// A version of the solver and of its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// hqq 0.2.8: beta stays constant, narrow groups keep a scale of 1, scales and zeros are stored
    /// plainly.
    V0_2_8,
    /// hqq of March 2024 (0.1.x): beta grows by kappa, narrow groups get the largest scale, zeros
    /// are quantized.
    March2024,
}

/// Iterations of the solver.
pub const ITERATIONS: usize = 20; // hqq/core/optimize.py, opt_params["iters"]
const BETA: f64 = 1e1; // opt_params["beta"]
const KAPPA: f64 = 1.01; // opt_params["kappa"]

impl Profile {
    /// The profile of that name.
    ///
    /// # Errors
    /// `INVALID`, naming the known profiles.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "0.2.8" => Ok(Profile::V0_2_8),
            "2024-03" => Ok(Profile::March2024),
            _ => Err(PluginError::invalid(format!(
                "option `profile`: expected \"0.2.8\" or \"2024-03\", found \"{name}\""
            ))),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::V0_2_8 => "0.2.8",
            Profile::March2024 => "2024-03",
        }
    }

    /// `1 / beta` of every iteration.
    pub fn inverse_betas(self) -> [f32; ITERATIONS] {
        let mut beta = BETA;
        std::array::from_fn(|_| {
            let inverse = (1.0 / beta) as f32;
            if self == Profile::March2024 {
                beta *= KAPPA;
            }
            inverse
        })
    }

    /// The bound on the error of the first iteration.
    pub fn first_best(self) -> f32 {
        match self {
            Profile::V0_2_8 => f32::INFINITY,
            Profile::March2024 => 1e4,
        }
    }

    /// Codes per unit of weight, for a group whose values span `range` and codes up to `top`.
    #[inline(always)]
    pub fn scale(self, range: f32, top: f32) -> f32 {
        let scale = 1.0 / range * top; // how torch divides a number by a tensor
        let scale = match self {
            Profile::V0_2_8 if range <= 1e-4 => 1.0,
            _ => scale,
        };
        if scale > 2e4 { 2e4 } else { scale }
    }
}
