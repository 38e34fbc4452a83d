//! The files of a repository -> those that a request needs.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use espalier_system::files::{FetchError, TOKENIZER_FILES, Wanted};
use serde::Deserialize;

/// Files beside the tokenizer's that describe a model or an adapter.
const DESCRIPTION: [&str; 3] = [
    "config.json",
    "generation_config.json",
    "adapter_config.json",
];
const WEIGHTS: &str = "model.safetensors";
/// The index of a model in several files.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
/// Extensions of files of rows.
const ROWS: [&str; 3] = ["jsonl", "json", "parquet"];
/// Files of weights that are not read here.
const OTHER_WEIGHTS: [&str; 4] = [
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "adapter_model.bin",
    "qmodel.pt",
];

/// The names of `all` that are needed for `wanted`. Of a model in several files the index alone:
/// its shards are [`shards`].
///
/// # Errors
/// [`FetchError::Lacks`] where there is none.
pub(crate) fn needed(all: &[String], wanted: Wanted) -> Result<Vec<String>, FetchError> {
    let named = |names: &[&str]| -> Vec<String> {
        let has = |name: &&&str| all.iter().any(|one| one == **name);
        let found = names.iter().filter(has);
        found.map(|name| (*name).to_owned()).collect()
    };
    let (found, expected) = match wanted {
        Wanted::Description => {
            let names = [&DESCRIPTION[..], &TOKENIZER_FILES].concat();
            (named(&names), "config.json or adapter_config.json")
        }
        Wanted::Weights => {
            let whole = named(&[WEIGHTS]);
            let found = if whole.is_empty() {
                named(&[INDEX])
            } else {
                whole
            };
            (found, "model.safetensors or model.safetensors.index.json")
        }
        Wanted::AdapterWeights => (named(&[ADAPTER_WEIGHTS]), ADAPTER_WEIGHTS),
        Wanted::Rows => {
            let rows = all.iter().filter(|name| is_rows(name)).cloned();
            (rows.collect(), ".jsonl, .json or .parquet file")
        }
    };
    if found.is_empty() {
        let other = named(&OTHER_WEIGHTS).into_iter().next();
        let found = other.map(|name| format!(", only {name}: it would have to be converted"));
        return Err(FetchError::Lacks {
            expected: expected.to_owned(),
            found: found.unwrap_or_default(),
        });
    }
    Ok(found)
}

fn is_rows(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|end| end.to_str());
    extension.is_some_and(|extension| ROWS.contains(&extension))
}

/// The shards that `index`, the text of an index, names.
///
/// # Errors
/// [`FetchError::Answer`] for a text that is no index.
pub(crate) fn shards(index: &str) -> Result<Vec<String>, FetchError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_str(index)
        .map_err(|error| FetchError::Answer(format!("{INDEX} is no index: {error}")))?;
    let mut shards: Vec<String> = index.weight_map.into_values().collect();
    shards.sort_unstable();
    shards.dedup();
    Ok(shards)
}

/// Whether the name of a file stays in the repository: parts of plain names.
pub(crate) fn is_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[&str], wanted: Wanted) -> Result<Vec<String>, FetchError> {
        let all: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
        needed(&all, wanted)
    }

    #[test]
    fn only_what_is_read_is_chosen() {
        let all = [
            "README.md",
            "config.json",
            "consolidated.safetensors",
            "generation_config.json",
            "chat_template.jinja",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "pytorch_model.bin",
            "special_tokens_map.json",
            "tokenizer.json",
        ];
        assert_eq!(
            of(&all, Wanted::Description).expect("a model"),
            [
                "config.json",
                "generation_config.json",
                "tokenizer.json",
                "special_tokens_map.json",
                "chat_template.jinja"
            ]
        );
        assert_eq!(of(&all, Wanted::Weights).expect("an index"), [INDEX]);
        let whole = [&all[..], &[WEIGHTS]].concat();
        assert_eq!(of(&whole, Wanted::Weights).expect("a file"), [WEIGHTS]);
        let rows = ["data/train.jsonl", "a.parquet", "README.md", "x.csv"];
        assert_eq!(of(&rows, Wanted::Rows).expect("rows"), rows[..2]);
    }

    #[test]
    fn what_a_repository_lacks_is_named_with_what_it_has() {
        let old = of(&["config.json", "pytorch_model.bin"], Wanted::Weights);
        let told = old.expect_err("no safetensors").to_string();
        assert!(
            told.contains("no model.safetensors") && told.contains("only pytorch_model.bin"),
            "{told}"
        );
        let none = of(&["README.md"], Wanted::Rows).expect_err("no rows");
        assert!(none.to_string().ends_with(".parquet file"), "{none}");
    }

    #[test]
    fn an_index_names_each_shard_once() {
        let index = r#"{"metadata": {}, "weight_map": {"a": "2.s", "b": "1.s", "c": "2.s"}}"#;
        assert_eq!(shards(index).expect("an index"), ["1.s", "2.s"]);
        assert!(shards("{}").is_err());
    }

    #[test]
    fn names_that_leave_the_repository_are_known() {
        for name in ["a", "data/train.jsonl", "..a"] {
            assert!(is_inside(name), "{name}");
        }
        for name in ["", "../a", "/etc/passwd", "a/../../b"] {
            assert!(!is_inside(name), "{name}");
        }
    }
}
