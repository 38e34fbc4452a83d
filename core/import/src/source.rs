//! A file of another trainer -> its values by axolotl's names.

use serde_json::{Map, Value};

use crate::ImportError;

/// Names of TRL's scripts and of `TrainingArguments`, and axolotl's for the same.
const OTHER_NAMES: [(&str, &str); 12] = [
    ("model_name_or_path", "base_model"),
    ("num_train_epochs", "num_epochs"),
    ("per_device_train_batch_size", "micro_batch_size"),
    ("lr_scheduler_type", "lr_scheduler"),
    ("optim", "optimizer"),
    ("max_length", "sequence_len"),
    ("max_seq_length", "sequence_len"),
    ("packing", "sample_packing"),
    ("use_dora", "peft_use_dora"),
    ("use_rslora", "peft_use_rslora"),
    ("dtype", "torch_dtype"),
    ("dataset_name", "datasets"),
];

/// A value, and the name that it has in the file.
pub struct Given {
    name: String,
    key: String,
    value: Value,
}

/// The values that are not taken yet. Empty ones are left out: they set nothing.
pub struct Source(Vec<Given>);

impl Source {
    /// The values of a file.
    ///
    /// # Errors
    /// A text that is not a table in YAML.
    pub fn read(text: &str) -> Result<Self, ImportError> {
        let read: Result<Map<String, Value>, _> = serde_saphyr::from_str(text);
        let read = read.map_err(|error| {
            let words = error.to_string();
            let first = words.lines().next().unwrap_or_default();
            ImportError::Yaml(first.trim_start_matches("error: ").to_owned())
        })?;
        let given = read.into_iter().filter(|(_, value)| !value.is_null());
        let given = given.map(|(name, value)| {
            let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
            let key = other.map_or(name.as_str(), |(_, key)| key).to_owned();
            Given { name, key, value }
        });
        let mut source = Source(given.collect());
        if source.0.iter().all(|one| one.key != "adapter") {
            // TRL names an adapter so.
            if let Some((name, true)) = source.flag("use_peft")? {
                let value = Value::from("lora");
                source.0.push(Given {
                    name,
                    key: "adapter".to_owned(),
                    value,
                });
            }
        }
        Ok(source)
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|one| one.key == key)
    }

    /// Takes a value, with its name in the file.
    pub fn take(&mut self, key: &str) -> Option<(String, Value)> {
        let at = self.0.iter().position(|one| one.key == key)?;
        let given = self.0.remove(at);
        Some((given.name, given.value))
    }

    /// Takes a text.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn text(&mut self, key: &str) -> Result<Option<(String, String)>, ImportError> {
        self.taken(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a number; a text that is one counts, as `"2e-5"` is in some files.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn number(&mut self, key: &str) -> Result<Option<(String, f64)>, ImportError> {
        self.taken(key, "a number", |value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        })
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn whole(&mut self, key: &str) -> Result<Option<(String, u64)>, ImportError> {
        self.taken(key, "a whole number", |value| match value.as_f64() {
            Some(number) if number >= 0.0 && number.fract() == 0.0 => Some(number as u64),
            _ => None,
        })
    }

    /// Takes `true` or `false`; `auto` is true.
    ///
    /// # Errors
    /// Another kind of value.
    pub fn flag(&mut self, key: &str) -> Result<Option<(String, bool)>, ImportError> {
        self.taken(key, "true or false", |value| match value {
            Value::String(text) if text == "auto" => Some(true),
            Value::String(text) => text.parse().ok(),
            other => other.as_bool(),
        })
    }

    fn taken<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<(String, T)>, ImportError> {
        let Some((name, value)) = self.take(key) else {
            return Ok(None);
        };
        match read(&value) {
            Some(read) => Ok(Some((name, read))),
            None => Err(ImportError::Value {
                key: name,
                expected,
                found: value.to_string(),
            }),
        }
    }

    /// Takes all that is left, by the names in the file.
    pub fn rest(&mut self) -> Vec<(String, Value)> {
        let rest = std::mem::take(&mut self.0);
        rest.into_iter().map(|one| (one.name, one.value)).collect()
    }
}
