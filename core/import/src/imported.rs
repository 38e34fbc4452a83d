//! A config that was taken over, and what is to be said of it.

use std::fmt::Write;

use toml::{Table, Value};

/// What is said of a key of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The key in the file.
    pub key: String,
    /// Why it is not set here, or what differs.
    pub why: String,
}

/// A config that was taken over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// This program's config.
    pub config: Table,
    /// Keys that are set here, with a difference.
    pub differs: Vec<Remark>,
    /// Keys without a counterpart.
    pub lacks: Vec<Remark>,
    /// Keys that this program does not need.
    pub needless: Vec<Remark>,
}

impl Imported {
    /// The config in TOML. Comments say what differs, and what has no counterpart.
    ///
    /// # Panics
    /// Never: tables of numbers, texts and lists are TOML.
    pub fn to_toml(&self, from: &str) -> String {
        let mut text = format!("# From {from}\n");
        for (what, remarks) in [("differs", &self.differs), ("no counterpart", &self.lacks)] {
            for Remark { key, why } in remarks {
                let _ = writeln!(text, "# {what}: {key}: {why}");
            }
        }
        let config = toml::to_string(&self.config).expect("tables of values");
        text + "\n" + &config
    }
}

/// A config while it is made.
#[derive(Default)]
pub struct Making(Imported);

impl Making {
    /// Sets the value of a dotted key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let mut table = &mut self.0.config;
        let mut names: Vec<&str> = key.split('.').collect();
        let last = names.pop().unwrap_or_default();
        for name in names {
            let inner = table.entry(name).or_insert_with(|| Table::new().into());
            let Value::Table(inner) = inner else {
                unreachable!("`{key}` is in a section")
            };
            table = inner;
        }
        table.insert(last.to_owned(), value.into());
    }

    /// Adds a plugin.
    pub fn plugin(&mut self, name: &str) {
        let plugins = self.0.config.entry("plugins");
        let plugins = plugins.or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(plugins) = plugins {
            plugins.push(name.into());
        }
    }

    /// Says what differs.
    pub fn differs(&mut self, key: impl Into<String>, why: impl Into<String>) {
        self.0.differs.push(remark(key, why));
    }

    /// Says that a key has no counterpart.
    pub fn lacks(&mut self, key: impl Into<String>, why: impl Into<String>) {
        self.0.lacks.push(remark(key, why));
    }

    /// Says that a key is not needed.
    pub fn needless(&mut self, key: impl Into<String>, why: impl Into<String>) {
        self.0.needless.push(remark(key, why));
    }

    /// What was made.
    pub fn done(self) -> Imported {
        self.0
    }
}

fn remark(key: impl Into<String>, why: impl Into<String>) -> Remark {
    Remark {
        key: key.into(),
        why: why.into(),
    }
}
