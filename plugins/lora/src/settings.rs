//! Checked options -> the numbers that define a LoRA or a DoRA.

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{Options, PluginError, Result};
use serde_json::Value as Json;

use crate::targets::Targets;

/// The settings of a LoRA, independent of its model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is trained beside the two matrices.
    pub variant: Variant,
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

/// What is trained beside the two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    Lora,
    /// A magnitude for each row of the weight.
    Dora,
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
    pub fn read(variant: Variant, options: &Options) -> Result<Self> {
        let targets = options.0.get("targets").unwrap_or(&Json::Null);
        Ok(Settings {
            variant,
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

    /// Indices of the sites that are joined, in the order of `sites`.
    ///
    /// # Errors
    /// `INVALID` as [`Targets::pick`], and where a DoRA is to join a token table.
    pub fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let chosen = self.targets.pick(sites)?;
        let tables = chosen.iter().map(|&index| &sites[index]);
        let mut tables = tables.filter(|site| site.kind == SiteKind::Embedding);
        match (self.variant, tables.next()) {
            (Variant::Dora, Some(table)) => Err(PluginError::invalid(format!(
                "the targets name the token table `{}`: `dora` joins linears and the head alone; \
                 leave it out, or use `lora`",
                table.name
            ))),
            _ => Ok(chosen),
        }
    }

    /// `s`, the factor of `B A x`.
    pub fn factor(&self) -> f64 {
        match self.scaling {
            Scaling::Rank => self.alpha / self.rank as f64,
            Scaling::RankRoot => self.alpha / (self.rank as f64).sqrt(),
        }
    }
}
