//! A measured table and a number of bytes -> the option of each site, as text, as `[[sites]]` and
//! beside uniform options.

use std::fmt;

use espalier_config::{ResolvedConfig, SiteRule, toml_value};
use espalier_interface::bytes::Bytes;
use espalier_system::failure::UsageError;
use serde_json::{Map, Value as Json};

use super::knapsack::{Item, MOST_CELLS, choose, least_bytes};
use super::options::{NONE, OptionRecord};
use super::rules::rules;
use super::table::{BitTable, SiteRecord};
use crate::Error;

/// A choice of options that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct BitChoice {
    /// Bytes that all weights of the base may take.
    pub memory: Bytes,
    /// Bytes that they take.
    pub bytes: Bytes,
    /// Of those, bytes of the weights without a choice.
    pub other_bytes: Bytes,
    /// Predicted mean KL to the dense base, in nats: the sum over sites.
    pub divergence: f64,
    /// The sites with the name of their option, in the model's order.
    pub sites: Vec<(String, String)>,
    /// What each option is used for.
    pub options: Vec<OptionUse>,
    /// Each option on all linears of layers, as `--plugins` gives it.
    pub uniform: Vec<Uniform>,
    /// Rules that give these options.
    pub rules: Vec<SiteRule>,
}

/// The use of an option in a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionUse {
    /// The option.
    pub option: String,
    /// Sites that have it.
    pub sites: u64,
    /// Elements of their weights.
    pub elements: u64,
    /// Bytes of their weights.
    pub bytes: Bytes,
    /// Their part of the predicted KL.
    pub divergence: f64,
}

/// One option on all linears of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Uniform {
    /// The option.
    pub option: String,
    /// Bytes of all weights.
    pub bytes: Bytes,
    /// Predicted mean KL to the dense base, in nats.
    pub divergence: f64,
}

/// A site with the options that it can have: their number among the options, bytes and divergence.
struct Choosing<'a> {
    site: &'a SiteRecord,
    options: Vec<usize>,
    items: Vec<Item>,
}

impl BitChoice {
    /// The choice among the options called `names`, of least predicted KL with all weights of the
    /// base in `memory`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a table that is not complete, and for less memory than the smallest
    /// options need.
    pub fn of(table: &BitTable, names: &[String], memory: Bytes) -> Result<Self, Error> {
        let options = names.iter().filter_map(|name| table.option(name));
        let options: Vec<OptionRecord> = options.cloned().collect();
        let sites = table.sites.iter();
        let sites = sites.map(|site| Choosing::of(site, table, &options));
        let sites: Vec<Choosing<'_>> = sites.collect::<Result<_, _>>()?;
        let items: Vec<Vec<Item>> = sites.iter().map(|site| site.items.clone()).collect();
        let least = table.other_bytes + least_bytes(&items);
        let most = memory.0.checked_sub(table.other_bytes);
        let chosen = most.and_then(|most| choose(&items, most, MOST_CELLS));
        let chosen = chosen.ok_or_else(|| too_little(memory, least, table.other_bytes))?;
        let number = |(site, &at): (&Choosing<'_>, &usize)| site.options[at];
        let numbers: Vec<usize> = sites.iter().zip(&chosen).map(number).collect();
        // Dense sites of a kind without any option have the number after the last.
        let mut all = options.clone();
        if !all.iter().any(|option| option.name == NONE) {
            all.push(OptionRecord {
                name: NONE.to_owned(),
                ..OptionRecord::default()
            });
        }
        let taken = || {
            sites
                .iter()
                .zip(&chosen)
                .map(|(site, &at)| (site, site.items[at]))
        };
        let uses = all.iter().enumerate().map(|(number, option)| {
            let with = || {
                taken()
                    .zip(&numbers)
                    .filter(move |(_, one)| **one == number)
            };
            OptionUse {
                option: option.name.clone(),
                sites: with().count() as u64,
                elements: with().map(|((site, _), _)| site.site.elements).sum(),
                bytes: Bytes(with().map(|((_, item), _)| item.bytes).sum()),
                divergence: with().map(|((_, item), _)| item.divergence).sum(),
            }
        });
        let pairs = table.sites.iter().zip(&numbers);
        let pairs: Vec<(&str, usize)> = pairs
            .map(|(site, &number)| (site.name.as_str(), number))
            .collect();
        Ok(BitChoice {
            memory,
            bytes: Bytes(table.other_bytes + taken().map(|(_, item)| item.bytes).sum::<u64>()),
            other_bytes: Bytes(table.other_bytes),
            divergence: taken().map(|(_, item)| item.divergence).sum(),
            options: uses.filter(|one| one.sites > 0).collect(),
            uniform: (0..options.len())
                .map(|number| uniform(number, &options[number], &sites, table.other_bytes))
                .collect(),
            rules: rules(&pairs, &table.other_sites, &all),
            sites: pairs
                .iter()
                .map(|(site, number)| ((*site).to_owned(), all[*number].name.clone()))
                .collect(),
        })
    }

    /// The quantizers that it uses, each once.
    pub fn quantizers(&self) -> Vec<&str> {
        let named = self
            .rules
            .iter()
            .filter_map(|rule| rule.quantizer.as_deref());
        let mut named: Vec<&str> = named.filter(|name| *name != NONE).collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    /// The rules as values of the config key `sites`.
    pub fn rules_json(&self) -> Json {
        serde_json::to_value(&self.rules).expect("rules are plain data")
    }

    /// `resolved` with these options; its own `[[sites]]` come after them, and so hold.
    ///
    /// # Errors
    /// [`Error::Trainer`] where the config is no longer valid.
    pub fn laid_over(&self, resolved: &ResolvedConfig) -> Result<ResolvedConfig, Error> {
        let own = resolved.config().sites.iter();
        let sites: Vec<SiteRule> = self.rules.iter().chain(own).cloned().collect();
        let sites = serde_json::to_value(sites).expect("rules are plain data");
        let values = Map::from_iter([("sites".to_owned(), sites)]);
        Ok(resolved.overlaid("the chosen bits", values, &[])?)
    }

    /// The rules as a config file.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "# Chosen by `host quantize --auto-bits` for {} of weights: they take {}, with a \
             predicted\n# KL of {:.6} to the dense model. Of the rules that match a weight, the \
             last one holds.\n",
            self.memory, self.bytes, self.divergence
        );
        for rule in &self.rules {
            text.push_str("\n[[sites]]\n");
            text.push_str(&format!(
                "match = {}\n",
                toml_value(&rule.pattern.as_str().into())
            ));
            if let Some(quantizer) = &rule.quantizer {
                text.push_str(&format!(
                    "quantizer = {}\n",
                    toml_value(&quantizer.as_str().into())
                ));
            }
            if !rule.options.is_empty() {
                let options = Json::Object(rule.options.clone());
                text.push_str(&format!("options = {}\n", toml_value(&options)));
            }
        }
        text
    }
}

impl<'a> Choosing<'a> {
    fn of(site: &'a SiteRecord, table: &BitTable, options: &[OptionRecord]) -> Result<Self, Error> {
        let mut choosing = Choosing {
            site,
            options: Vec::new(),
            items: Vec::new(),
        };
        for (number, option) in options.iter().enumerate() {
            if option.quantizer.is_none() {
                choosing.push_dense(number);
                continue;
            }
            let found = table.found(&site.name, &option.name);
            let found = found.ok_or_else(|| incomplete(&site.name, &option.name))?;
            if let (Some(bytes), Some(divergence)) = (found.bytes, found.divergence) {
                choosing.options.push(number);
                choosing.items.push(Item { bytes, divergence });
            }
        }
        if choosing.items.is_empty() {
            choosing.push_dense(options.len());
        }
        Ok(choosing)
    }

    fn push_dense(&mut self, number: usize) {
        self.options.push(number);
        self.items.push(Item {
            bytes: self.site.dense_bytes,
            divergence: 0.0,
        });
    }
}

/// The option number `number` on all linears of layers; sites that cannot have it stay dense.
fn uniform(
    number: usize,
    option: &OptionRecord,
    sites: &[Choosing<'_>],
    other_bytes: u64,
) -> Uniform {
    let mut sum = Uniform {
        option: option.name.clone(),
        bytes: Bytes(other_bytes),
        divergence: 0.0,
    };
    for choosing in sites {
        let at = choosing.options.iter().position(|&one| one == number);
        match at.filter(|_| choosing.site.by_default) {
            Some(at) => {
                sum.bytes.0 += choosing.items[at].bytes;
                sum.divergence += choosing.items[at].divergence;
            }
            None => sum.bytes.0 += choosing.site.dense_bytes,
        }
    }
    sum
}

fn incomplete(site: &str, option: &str) -> Error {
    Error::Usage(UsageError {
        message: format!("the table has no measurement of `{option}` on `{site}`: it was stopped"),
        next_step: "run `host quantize --auto-bits` on it again: it goes on".to_owned(),
    })
}

fn too_little(memory: Bytes, least: u64, other_bytes: u64) -> Error {
    Error::Usage(UsageError {
        message: format!(
            "--memory {memory} ({} bytes) is less than the smallest options need: {} ({least} \
             bytes), of which {} are weights that stay as they are",
            memory.0,
            Bytes(least),
            Bytes(other_bytes)
        ),
        next_step: "give at least that, or add a smaller option to --options".to_owned(),
    })
}

impl fmt::Display for BitChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.options.iter().map(|one| &one.option);
        let names = names.chain(self.uniform.iter().map(|one| &one.option));
        let width = names
            .map(|name| name.len())
            .max()
            .unwrap_or(0)
            .max("uniform".len());
        writeln!(
            f,
            "{:<width$}  {:>5}  {:>12}  {:>11}  {:>12}",
            "option", "sites", "bytes", "bits/weight", "predicted KL"
        )?;
        for one in &self.options {
            writeln!(
                f,
                "{:<width$}  {:>5}  {:>12}  {:>11.3}  {:>12.6}",
                one.option,
                one.sites,
                one.bytes,
                8.0 * one.bytes.0 as f64 / one.elements.max(1) as f64,
                one.divergence
            )?;
        }
        writeln!(
            f,
            "{:<width$}  {:>5}  {:>12}",
            "others", "", self.other_bytes
        )?;
        writeln!(
            f,
            "{:<width$}  {:>5}  {:>12}  {:>11}  {:>12.6}  of {}",
            "chosen",
            self.sites.len(),
            self.bytes,
            "",
            self.divergence,
            self.memory
        )?;
        writeln!(
            f,
            "\n{:<width$}  {:>5}  {:>12}  {:>11}  {:>12}",
            "uniform", "", "bytes", "", "predicted KL"
        )?;
        for one in &self.uniform {
            let fits = if one.bytes <= self.memory {
                ""
            } else {
                "  does not fit"
            };
            writeln!(
                f,
                "{:<width$}  {:>5}  {:>12}  {:>11}  {:>12.6}{fits}",
                one.option, "", one.bytes, "", one.divergence
            )?;
        }
        Ok(())
    }
}
