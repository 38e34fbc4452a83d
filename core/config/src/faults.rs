//! All faults of a config, which are told at once.

use std::collections::BTreeSet;

use crate::ConfigError;

/// Faults found so far, and the keys whose values are at fault by themselves.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<ConfigError>,
    keys: BTreeSet<String>,
}

impl Faults {
    /// Adds the fault of the value of `key`, the first one alone.
    pub fn add_value(&mut self, key: &str, fault: ConfigError) {
        self.add_of(&[key], fault);
        self.keys.insert(key.to_owned());
    }

    /// Adds a fault that comes of the values of `keys` together: none where one of them is at fault
    /// by itself.
    pub fn add_of(&mut self, keys: &[&str], fault: ConfigError) {
        let is_at_fault = |key: &&str| {
            let mut faulty = self.keys.iter();
            faulty.any(|faulty| key.starts_with(faulty.as_str()))
        };
        if !keys.iter().any(is_at_fault) {
            self.found.push(fault);
        }
    }

    /// The end of a check.
    ///
    /// # Errors
    /// The fault, or [`ConfigError::Several`].
    pub fn result(self) -> Result<(), ConfigError> {
        ConfigError::all(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(key: &str) -> ConfigError {
        ConfigError::Missing {
            key: key.to_owned(),
            flag: "--set".to_owned(),
        }
    }

    #[test]
    fn faults_that_come_of_others_are_not_told() {
        let mut faults = Faults::default();
        faults.add_value("data.eval_split", missing("one"));
        faults.add_value("data.eval_split", missing("of the same"));
        faults.add_of(&["run.eval_every", "data.eval_split"], missing("of it"));
        faults.add_of(&["run.eval_every"], missing("two"));
        let told = faults.result().expect_err("two").to_string();
        assert_eq!(told, "2 faults: `one` is not set; `two` is not set");
        assert!(Faults::default().result().is_ok());
        let mut one = Faults::default();
        one.add_of(&[], missing("one"));
        assert_eq!(
            one.result().expect_err("one").to_string(),
            "`one` is not set"
        );
    }
}
