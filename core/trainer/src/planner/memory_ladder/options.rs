//! The settings of a rung -> the options of a command line that give its plan.

use espalier_config::{Config, ResolvedConfig};
use espalier_interface::Role;
use espalier_registry::Registry;
use serde::Serialize;
use serde_json::Map;

use super::published::RungSetting;
use crate::Error;

/// The adapter and the quantizer of a config that names none.
const ADAPTER: &str = "lora";
const QUANTIZER: &str = "nf4";

/// Rows of the first rung have this part of the longest length.
const SHORT: usize = 16;

/// Options of a command line beside the user's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RungOptions {
    /// `--plugins`, in place of the user's.
    pub plugins: Vec<String>,
    /// `key=value` of each `--set`.
    pub set: Vec<String>,
}

impl RungOptions {
    /// The words of the command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.plugins.is_empty() {
            words.extend(["--plugins".to_owned(), self.plugins.join(",")]);
        }
        for set in &self.set {
            words.extend(["--set".to_owned(), set.clone()]);
        }
        words
    }

    /// These options with those of `later` in their place where both set a key.
    pub(super) fn changed_by(&self, later: &RungOptions) -> RungOptions {
        let key = |set: &str| set.split('=').next().map(str::to_owned);
        let is_kept = |set: &&String| later.set.iter().all(|other| key(other) != key(set));
        let kept = self.set.iter().filter(is_kept);
        RungOptions {
            plugins: later.plugins.clone(),
            set: kept.chain(&later.set).cloned().collect(),
        }
    }

    /// The user's config with these options.
    ///
    /// # Errors
    /// Values that do not go together.
    pub(super) fn over(&self, user: &ResolvedConfig) -> Result<ResolvedConfig, Error> {
        let plugins = Map::from_iter([("plugins".to_owned(), self.plugins.clone().into())]);
        Ok(user.overlaid("--ladder", plugins, &self.set)?)
    }
}

/// The place where a rung's settings apply.
pub(super) struct Below<'a> {
    /// The user's config.
    pub user: &'a Config,
    /// The config of the rung that is changed, or of one below where that one is refused.
    pub config: &'a Config,
    /// Its plugins.
    pub plugins: &'a [String],
    /// All components.
    pub registry: &'a Registry,
    /// Whether rows are read.
    pub has_rows: bool,
    /// Ranks of the run.
    pub ranks: u32,
}

impl Below<'_> {
    /// The options that `settings` add.
    ///
    /// # Errors
    /// An unknown plugin of the user.
    pub fn options(&self, settings: &[RungSetting]) -> Result<RungOptions, Error> {
        let mut options = RungOptions {
            plugins: self.plugins.to_vec(),
            set: Vec::new(),
        };
        for setting in settings {
            match setting {
                RungSetting::Set(assignment) => options.set.push((*assignment).to_owned()),
                RungSetting::Whole => options.plugins = self.with_roles(&[])?,
                RungSetting::Adapter => {
                    options.plugins = self.with_roles(&[(Role::ADAPTER, ADAPTER)])?;
                }
                RungSetting::PackedAdapter => {
                    let roles = [(Role::QUANTIZER, QUANTIZER), (Role::ADAPTER, ADAPTER)];
                    options.plugins = self.with_roles(&roles)?;
                }
                RungSetting::ShortRows if !self.has_rows => {
                    let short = (self.config.data.max_seq_len / SHORT).max(2);
                    options.set.push(format!("data.max_seq_len={short}"));
                }
                RungSetting::ShortRows => {}
                RungSetting::PackedRows => options.set.extend(self.packed_rows()),
                RungSetting::OneMicroBatch => options.set.extend(self.one_micro_batch()),
            }
        }
        Ok(options)
    }

    /// The user's plugins without adapter and quantizer, and before them one of each of `roles`:
    /// the user's, or the one named.
    fn with_roles(&self, roles: &[(Role, &str)]) -> Result<Vec<String>, Error> {
        let named = self.registry.roles_of(&self.user.plugins)?;
        let of = |role: Role| named.get(&role);
        let chosen = roles
            .iter()
            .map(|(role, name)| of(*role).cloned().unwrap_or_else(|| (*name).to_owned()));
        let swapped = [of(Role::ADAPTER), of(Role::QUANTIZER)];
        let others = self.user.plugins.iter();
        let others = others.filter(|name| !swapped.contains(&Some(name)));
        Ok(chosen.chain(others.cloned()).collect())
    }

    /// Rows of the user's length, packed into a micro-batch.
    fn packed_rows(&self) -> Vec<String> {
        let data = &self.user.data;
        let tokens = data
            .pack_tokens
            .unwrap_or(data.micro_batch * data.max_seq_len);
        vec![
            format!("data.max_seq_len={}", data.max_seq_len),
            format!("data.pack_tokens={tokens}"),
        ]
    }

    /// The batch of one micro-batch on each rank, where it is another.
    fn one_micro_batch(&self) -> Option<String> {
        let data = &self.config.data;
        let batch = data.micro_batch * self.ranks as usize;
        let is_one = data.pack_tokens.is_some() || data.batch_size == batch;
        (!is_one).then(|| format!("data.batch_size={batch}"))
    }
}
