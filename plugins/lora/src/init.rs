//! The options of a LoRA's first values -> the values of its two matrices, and what becomes of the
//! base.
//!
//! Legend: `M` width in, `N` width out, `R` rank, `s` the factor of the update.

use espalier_interface::adaptation::{BaseChange, Site, SiteKind};
use espalier_interface::{Options, PluginError, Result, Services};

use crate::svd::Svd;

/// How the two matrices begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// A at random and B with zeros: the update begins as zero.
    Zero,
    /// From the largest singular vectors of a matrix.
    Singular {
        /// Whether the matrix is the weight (0), or what packing loses, after so many rounds.
        rounds: u64,
        /// Iterations of the randomised SVD; 0: the exact one.
        niter: u64,
    },
}

impl Init {
    /// Reads the options `init`, `init_niter` and `loftq_iter`; without them it is zero.
    ///
    /// # Errors
    /// `INVALID` for an option of another `init`.
    pub fn read(options: &Options) -> Result<Self> {
        if !options.0.contains_key("init") {
            return Ok(Init::Zero);
        }
        let (init, niter) = (options.text("init")?, options.count("init_niter")?);
        let rounds = options.count("loftq_iter")?;
        let idle = |option: &str, value: u64, of: &str| {
            Err(PluginError::invalid(format!(
                "{option} = {value} changes nothing with init = {init}: leave it out, or set init \
                 to {of}"
            )))
        };
        match init.as_str() {
            "zero" if niter != DEFAULT_NITER => idle("init_niter", niter, "pissa or loftq"),
            "zero" | "pissa" if rounds != 1 => idle("loftq_iter", rounds, "loftq"),
            "zero" => Ok(Init::Zero),
            "pissa" => Ok(Init::Singular { rounds: 0, niter }),
            _ => Ok(Init::Singular { rounds, niter }),
        }
    }

    /// Its name among the values of the option `init`.
    fn name(self) -> &'static str {
        match self {
            Init::Zero => "zero",
            Init::Singular { rounds: 0, .. } => "pissa",
            Init::Singular { .. } => "loftq",
        }
    }

    /// The change of the base at the first `joins` joins, if there is one.
    pub fn base_change(self, joins: usize) -> Option<BaseChange> {
        match self {
            Init::Zero => None,
            Init::Singular { rounds, .. } => Some(BaseChange {
                joins: (0..joins).collect(),
                rounds,
                option: "init".to_owned(),
            }),
        }
    }

    /// Refuses a site that cannot begin so, with its rank and factor.
    ///
    /// # Errors
    /// `INVALID` for a token table, a rank above the weight's, and a factor of zero.
    pub fn check(self, site: &Site, rank: u64, factor: f64) -> Result<()> {
        if self == Init::Zero {
            return Ok(());
        }
        let (init, name, most) = (self.name(), &site.name, site.shape[0].min(site.shape[1]));
        let message = if site.kind == SiteKind::Embedding {
            format!(
                "init = {init} and targets with the token table `{name}`: only linears and the \
                 head begin so; leave it out of targets, or set init to zero"
            )
        } else if rank > most {
            format!(
                "init = {init} and rank = {rank} at `{name}`: its weight, {} x {}, has {most} \
                 singular values; set rank, or rank_pattern for this site, to {most} at most",
                site.shape[0], site.shape[1]
            )
        } else if factor == 0.0 {
            format!(
                "init = {init} and alpha = 0 at `{name}`: the update would add nothing; set alpha \
                 above 0, or init to zero"
            )
        } else {
            return Ok(());
        };
        Err(PluginError::invalid(message))
    }

    /// Refuses sites that are trained whole: their weights would be those before the change.
    ///
    /// # Errors
    /// `INVALID` where there are some.
    pub fn check_whole(self, modules_to_save: &[String]) -> Result<()> {
        match (self, modules_to_save.first()) {
            (Init::Singular { .. }, Some(name)) => Err(PluginError::invalid(format!(
                "init = {} and modules_to_save with `{name}`: no module is trained whole beside a \
                 changed base; leave modules_to_save out, or set init to zero",
                self.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Fills in `down`, `[R, M]`, and `up`, `[N, R]`, from the `R` largest singular values of
    /// `matrix`, `[N, M]`, so that `s B A` is their part of it: `A = sqrt(S / s) V^T` and
    /// `B = U sqrt(S / s)`.
    ///
    /// # Source
    /// PEFT 0.21, `LoraLayer.pissa_init` and `loftq_init`; the latter does not divide by `s`.
    ///
    /// # Errors
    /// As [`Svd::exact`].
    pub fn fill(
        self,
        (matrix, cols): (&[f32], usize),
        factor: f64,
        (seed, services): (u64, &dyn Services),
        (down, up): (&mut [f32], &mut [f32]),
    ) -> Result<()> {
        let rank = down.len() / cols;
        let svd = match self {
            Init::Singular { niter, .. } if niter > 0 => {
                Svd::randomised((matrix, cols), (rank, niter), seed, services)?
            }
            _ => Svd::exact((matrix, cols), rank)?,
        };
        let roots: Vec<f64> = svd.values.iter().map(|s| (s / factor).sqrt()).collect();
        for (r, row) in down.chunks_exact_mut(cols).enumerate() {
            for (m, value) in row.iter_mut().enumerate() {
                *value = (roots[r] * svd.right[(m, r)]) as f32;
            }
        }
        for (n, row) in up.chunks_exact_mut(rank).enumerate() {
            for (r, value) in row.iter_mut().enumerate() {
                *value = (svd.left[(n, r)] * roots[r]) as f32;
            }
        }
        Ok(())
    }
}

/// The default of the option `init_niter`.
pub const DEFAULT_NITER: u64 = 8;

#[cfg(test)]
mod tests;
