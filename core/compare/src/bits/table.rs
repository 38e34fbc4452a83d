//! What every quantizer option costs every site, as a file that grows while it is measured.

use std::path::Path;

use espalier_system::failure::UsageError;
use espalier_system::files::{FileHash, FileKind, read_object, write_json};
use espalier_trainer::checkpoint::tree_differences;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::options::OptionRecord;
use crate::Error;

/// The measured table, `bits.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BitTable {
    /// What was measured on.
    pub subject: Subject,
    /// The options that were measured; a later call may add more.
    pub options: Vec<OptionRecord>,
    /// Bytes in memory of the weights that no option changes.
    pub other_bytes: u64,
    /// The sites that have a choice, in the model's order.
    pub sites: Vec<SiteRecord>,
    /// The other sites, which stay dense: token tables, and heads tied to them.
    pub other_sites: Vec<String>,
    /// What was measured so far, in any order.
    pub measured: Vec<Measured>,
}

/// What a table was measured on: equal subjects give equal numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Version of the program.
    pub espalier: String,
    /// The model's files with their hashes.
    pub model: Vec<FileHash>,
    /// Hash of the rows' tokens and labels, as they were batched.
    pub rows_sha256: String,
    /// Rows.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Tokens whose predictions were compared.
    pub compared_tokens: u64,
    /// Dtype of the computation.
    pub compute: String,
    /// Compute backend, its version and the hash of its library.
    pub backend: String,
}

/// A site with a choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteRecord {
    /// Its name.
    pub name: String,
    /// Elements of its weight.
    pub elements: u64,
    /// Bytes of its weight in memory where it stays dense.
    pub dense_bytes: u64,
    /// Whether a run's own quantizer packs it: a linear of a layer, not the head.
    pub by_default: bool,
}

/// What one option costs one site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The site's name.
    pub site: String,
    /// The option's name.
    pub option: String,
    /// Bytes of the packed weight in memory; `None` where the option cannot pack this weight.
    pub bytes: Option<u64>,
    /// `|decoded - dense|^2 / |dense|^2`.
    pub weight_error: f64,
    /// Mean `KL(dense || this weight packed)` over the compared tokens, in nats; `None` where it is
    /// not finite.
    pub divergence: Option<f64>,
    /// Standard error of that mean over rows; `None` for one row.
    pub divergence_error: Option<f64>,
}

impl BitTable {
    /// The table in `path`; `None` where there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no such table.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        if !path.exists() {
            return Ok(None);
        }
        let value = read_object(path, FileKind::Record)?;
        let table = serde_json::from_value(value).map_err(|error| {
            Error::Usage(UsageError {
                message: format!("{} is no table of measured bits: {error}", path.display()),
                next_step: "name another file with --auto-bits FILE".to_owned(),
            })
        })?;
        Ok(Some(table))
    }

    /// Writes the table to `path` atomically.
    ///
    /// # Errors
    /// A directory that cannot be written, a full disk.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let value = serde_json::to_value(self).expect("a table is plain data");
        Ok(write_json(path, &value)?)
    }

    /// Takes the measurements of `old`, which was read from `path`; its options stay.
    ///
    /// # Errors
    /// [`Error::Usage`] where `old` was measured on something else.
    pub(super) fn going_on(mut self, old: BitTable, path: &Path) -> Result<Self, Error> {
        let of = |table: &BitTable| {
            let named = |option: &OptionRecord| (option.name.clone(), json!(option));
            json!({
                "subject": table.subject,
                "options": table.options.iter().map(named).collect::<serde_json::Map<_, Json>>(),
                "other_bytes": table.other_bytes,
                "sites": table.sites,
            })
        };
        let mut common = old.clone();
        let asked = |option: &OptionRecord| self.option(&option.name).is_some();
        common.options.retain(asked);
        let mut own = self.clone();
        own.options
            .retain(|option| old.option(&option.name).is_some());
        let differences = tree_differences(&of(&common), &of(&own));
        if let Some(first) = differences.first() {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{} was measured on something else: {first}{}",
                    path.display(),
                    match differences.len() - 1 {
                        0 => String::new(),
                        more => format!(", and {more} more"),
                    }
                ),
                next_step: "measure into another file with --auto-bits FILE, or remove this one"
                    .to_owned(),
            }));
        }
        let more = old.options.into_iter();
        let more: Vec<_> = more
            .filter(|option| self.option(&option.name).is_none())
            .collect();
        self.options.extend(more);
        self.measured = old.measured;
        Ok(self)
    }

    /// The measurement of an option on a site, where it is done.
    pub fn found(&self, site: &str, option: &str) -> Option<&Measured> {
        let measured = self.measured.iter();
        measured
            .rev()
            .find(|one| one.site == site && one.option == option)
    }

    /// The option called `name`.
    pub fn option(&self, name: &str) -> Option<&OptionRecord> {
        self.options.iter().find(|option| option.name == name)
    }
}
