//! Checked options -> the numbers that define a LoRA or a DoRA.

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{Options, PluginError, Result};
use serde_json::Value as Json;

use crate::init::Init;
use crate::patterns::Patterns;
use crate::targets::Targets;
use crate::whole;

/// The settings of a LoRA, independent of its model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is trained beside the two matrices.
    pub variant: Variant,
    /// `R`, but for the sites of `ranks`.
    pub rank: u64,
    /// Factor of the update before the division by the rank, but for the sites of `alphas`.
    pub alpha: f64,
    /// Ranks of single sites.
    pub ranks: Patterns,
    /// Alphas of single sites.
    pub alphas: Patterns,
    /// Probability of dropping a channel, below 1.
    pub dropout: f64,
    /// Sites that it joins.
    pub targets: Targets,
    /// The divisor of alpha.
    pub scaling: Scaling,
    /// Sites that are trained whole, by the ends of their names.
    pub modules_to_save: Vec<String>,
    /// Learning rate of B and of magnitudes over that of A: LoRA+ (Hayou et al. 2024).
    pub learning_rate_ratio: f64,
    /// How the two matrices begin.
    pub init: Init,
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
    /// `INVALID` for targets or patterns that are not regular expressions, and as [`Init::read`].
    pub fn read(variant: Variant, options: &Options) -> Result<Self> {
        let targets = options.0.get("targets").unwrap_or(&Json::Null);
        Ok(Settings {
            variant,
            rank: options.count("rank")?,
            alpha: options.number("alpha")?,
            ranks: Patterns::read("rank_pattern", options.0.get("rank_pattern"))?,
            alphas: Patterns::read("alpha_pattern", options.0.get("alpha_pattern"))?,
            dropout: options.number("dropout")?,
            targets: Targets::read(targets)?,
            modules_to_save: options.texts("modules_to_save")?,
            learning_rate_ratio: options.number("learning_rate_ratio")?,
            init: Init::read(options)?,
            scaling: if options.flag("rslora")? {
                Scaling::RankRoot
            } else {
                Scaling::Rank
            },
        })
    }

    /// Indices of the sites that get an update, in the order of `sites`: the targets without the
    /// sites that are trained whole, as in PEFT.
    ///
    /// # Errors
    /// `INVALID` as [`Targets::pick`] and [`whole::pick`], for a pattern that matches none of them,
    /// where a DoRA is to join a token table, and as [`Init::check`].
    pub fn pick(&self, sites: &[Site]) -> Result<Vec<usize>> {
        let whole = self.whole(sites)?;
        self.init.check_whole(&self.modules_to_save)?;
        let mut chosen = self.targets.pick(sites)?;
        chosen.retain(|index| !whole.contains(index));
        if chosen.is_empty() {
            return Err(PluginError::invalid(
                "modules_to_save has every site that the targets select: add a target, or leave \
                 the adapter out to train the whole model",
            ));
        }
        let joined: Vec<&Site> = chosen.iter().map(|&index| &sites[index]).collect();
        self.ranks.check(&joined)?;
        self.alphas.check(&joined)?;
        for site in &joined {
            let (rank, factor) = (self.rank(site), self.factor(site));
            self.init.check(site, rank, factor)?;
        }
        let mut joined = joined.iter();
        let table = joined.find(|site| site.kind == SiteKind::Embedding);
        match (self.variant, table) {
            (Variant::Dora, Some(table)) => Err(PluginError::invalid(format!(
                "the targets name the token table `{}`: `dora` joins linears and the head alone; \
                 leave it out, or use `lora`",
                table.name
            ))),
            _ => Ok(chosen),
        }
    }

    /// Indices of the sites that are trained whole.
    ///
    /// # Errors
    /// As [`whole::pick`].
    pub fn whole(&self, sites: &[Site]) -> Result<Vec<usize>> {
        whole::pick(&self.modules_to_save, sites)
    }

    /// `R` of a site.
    pub fn rank(&self, site: &Site) -> u64 {
        let own = self.ranks.of(site).and_then(Json::as_u64);
        own.unwrap_or(self.rank)
    }

    /// `s` of a site, the factor of `B A x`.
    pub fn factor(&self, site: &Site) -> f64 {
        let own = self.alphas.of(site).and_then(Json::as_f64);
        let (alpha, rank) = (own.unwrap_or(self.alpha), self.rank(site) as f64);
        match self.scaling {
            Scaling::Rank => alpha / rank,
            Scaling::RankRoot => alpha / rank.sqrt(),
        }
    }
}
