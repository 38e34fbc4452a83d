//! Checked options -> the numbers that define a LoRA.

use espalier_interface::{Options, Result};
use serde_json::Value as Json;

use crate::targets::Targets;

/// The settings of a LoRA, independent of its model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `R`.
    pub rank: u64,
    /// Factor of the update before the division by the rank.
    pub alpha: f64,
    /// Probability of dropping a channel, below 1.
    pub dropout: f64,
    /// Sites that it joins.
    pub targets: Targets,
    /// The divisor of alpha.
    pub scaling: Scaling,
}

/// The divisor of alpha.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// The rank, as in LoRA.
    Rank,
    /// The rank's square root, as in rsLoRA (Kalajdzievski 2023).
    RankRoot,
}

impl Settings {
    /// Reads the options, which the host has checked.
    ///
    /// # Errors
    /// `INVALID` for targets that are not a regular expression.
    pub fn read(options: &Options) -> Result<Self> {
        let targets = options.0.get("targets").unwrap_or(&Json::Null);
        Ok(Settings {
            rank: options.count("rank")?,
            alpha: options.number("alpha")?,
            dropout: options.number("dropout")?,
            targets: Targets::read(targets)?,
            scaling: if options.flag("rslora")? {
                Scaling::RankRoot
            } else {
                Scaling::Rank
            },
        })
    }

    /// `s`, the factor of `B A x`.
    pub fn factor(&self) -> f64 {
        match self.scaling {
            Scaling::Rank => self.alpha / self.rank as f64,
            Scaling::RankRoot => self.alpha / (self.rank as f64).sqrt(),
        }
    }
}
