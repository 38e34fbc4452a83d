//! A config -> the command line that trains it alone.

use espalier_config::{ResolvedConfig, Sources, resolve, toml_value};
use espalier_system::shell;
use serde_json::{Map, Value as Json};

use crate::Error;

/// Keys with their own flags, and keys that the user adds.
const FLAGS: [(&str, &str); 4] = [
    ("plugins", "--plugins"),
    ("model.path", "--model"),
    ("model.adapter", "--adapter"),
    ("data.files", "--data"),
];
const GIVEN: [&str; 2] = ["run.out", "run.seed"];

/// The command line of `resolved`, without `--out` and `run.seed`.
///
/// # Errors
/// Where the defaults are no valid config.
pub(crate) fn train_command(resolved: &ResolvedConfig) -> Result<String, Error> {
    let defaults = resolve(&Sources::default())?.values();
    let mut words = vec!["host".to_owned(), "train".to_owned()];
    let mut sets = Vec::new();
    collect(
        &resolved.values(),
        &defaults,
        "",
        &mut |key, value| match FLAGS.iter().find(|(flagged, _)| *flagged == key) {
            _ if GIVEN.contains(&key) => {}
            Some((_, flag)) => {
                words.push((*flag).to_owned());
                words.extend(flag_values(key, value));
            }
            None => sets.push(format!("{key}={}", toml_value(value))),
        },
    );
    for set in sets {
        words.extend(["--set".to_owned(), set]);
    }
    let words: Vec<String> = words.iter().map(|word| shell::quoted(word)).collect();
    Ok(words.join(" "))
}

/// The values of `tree` that differ from the defaults, by dotted key.
fn collect(
    tree: &Map<String, Json>,
    defaults: &Map<String, Json>,
    path: &str,
    take: &mut dyn FnMut(&str, &Json),
) {
    let none = Map::new();
    for (key, value) in tree {
        let here = match path {
            "" => key.clone(),
            _ => format!("{path}.{key}"),
        };
        let default = defaults.get(key);
        match value {
            Json::Object(inner) => {
                let default = default.and_then(Json::as_object).unwrap_or(&none);
                collect(inner, default, &here, take);
            }
            value if default == Some(value) => {}
            value => take(&here, value),
        }
    }
}

/// A value as the words after its flag.
fn flag_values(key: &str, value: &Json) -> Vec<String> {
    let words: Vec<String> = match value {
        Json::Array(items) => items.iter().map(plain).collect(),
        value => vec![plain(value)],
    };
    match key {
        "plugins" => vec![words.join(",")],
        _ => words,
    }
}

fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_contains_all_values_that_are_no_defaults() {
        let sources = Sources::default()
            .set("plugins=[\"nf4\", \"lora\"]")
            .set("model.path=models/a b")
            .set("data.files=[\"x.jsonl\", \"y.jsonl\"]")
            .set("data.eval_split=0.1")
            .set("quantizer.nf4.block_size=128")
            .set("optim.learning_rate=1e-3")
            .set("run.seed=7")
            .set("sites=[{match = \"*.down_proj\", quantizer = \"none\"}]");
        let resolved = resolve(&sources).expect("a config");
        let command = train_command(&resolved).expect("a command");
        assert_eq!(
            command,
            "host train --plugins nf4,lora --model 'models/a b' --data x.jsonl y.jsonl \
             --set data.eval_split=0.1 --set optim.learning_rate=0.001 \
             --set quantizer.nf4.block_size=128 \
             --set 'sites=[{match = \"*.down_proj\", quantizer = \"none\", options = {}}]'"
        );
    }
}
