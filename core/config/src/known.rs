//! The known keys and their defaults, read off the option structs themselves.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::{Map, Value};

use super::{CompareOptions, Config, DataOptions, ModelOptions, OptimOptions, RunOptions};

/// `config` as a tree of sections, every key in the order of its struct. An unset key is `null`,
/// also where serializing leaves it out.
pub(super) fn tree(config: &Config) -> Map<String, Value> {
    let serialized = serde_json::to_value(config).expect("a config is plain data");
    let mut tree = filled::<Config>(serialized);
    let complete = |tree: &mut Map<String, Value>, section: &str, fill: fn(Value) -> _| {
        if let Some(value) = tree.get_mut(section) {
            *value = Value::Object(fill(value.take()));
        }
    };
    complete(&mut tree, "run", filled::<RunOptions>);
    complete(&mut tree, "model", filled::<ModelOptions>);
    complete(&mut tree, "data", filled::<DataOptions>);
    complete(&mut tree, "optim", filled::<OptimOptions>);
    complete(&mut tree, "compare", filled::<CompareOptions>);
    tree
}

/// All keys of `T`, with the values of `serialized` or `null`.
pub(super) fn filled<'de, T: Deserialize<'de>>(serialized: Value) -> Map<String, Value> {
    let keys = keys::<T>().iter();
    keys.map(|key| {
        let value = serialized.get(key).cloned().unwrap_or_default();
        ((*key).to_owned(), value)
    })
    .collect()
}

/// The keys that struct `T` reads, in the order of their declaration.
fn keys<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(KeysOnly) {
        Err(Keys(keys)) => keys,
        Ok(_) => &[],
    }
}

/// Answers the question for a struct with the struct's own field names, as an error.
struct KeysOnly;

/// The field names of a struct; empty for any other type.
#[derive(Debug)]
struct Keys(&'static [&'static str]);

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the keys {}", self.0.join(", "))
    }
}

impl std::error::Error for Keys {}

impl de::Error for Keys {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Keys(&[])
    }
}

impl<'de> Deserializer<'de> for KeysOnly {
    type Error = Keys;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Keys> {
        Err(Keys(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Keys> {
        Err(Keys(fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_keys_are_known_too_and_the_order_is_declared() {
        let tree = tree(&Config::default());
        assert_eq!(tree.keys().next().map(String::as_str), Some("plugins"));
        assert_eq!(tree["data"]["pack_tokens"], Value::Null);
        assert_eq!(tree["run"]["seed"], 42);
        let run: Vec<&String> = tree["run"].as_object().expect("a section").keys().collect();
        assert_eq!(run[..2], ["out", "seed"]);
    }
}
