//! The reference against the structs and checks that it is made from.

use super::*;
use crate::{Sources, resolve};

fn key(name: &str) -> KeyReference {
    let all = reference().into_iter().flat_map(|section| section.keys);
    let mut found = all.filter(|entry| entry.key == name);
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_key_of_the_structs_is_there_once_with_its_meaning() {
    let sections = reference();
    let keys: Vec<&KeyReference> = sections.iter().flat_map(|section| &section.keys).collect();
    for (section, value) in known::tree(&Config::default()) {
        let of_plugins = Config::ROLES.contains(&section.as_str());
        let names: Vec<String> = match &value {
            Value::Object(keys) if !of_plugins => {
                let names = keys.keys().filter(|name| *name != "groups");
                names.map(|name| format!("{section}.{name}")).collect()
            }
            Value::Array(_) if section == "plugins" => vec![section],
            _ => Vec::new(),
        };
        for name in names {
            let count = keys.iter().filter(|entry| entry.key == name).count();
            assert_eq!(count, 1, "{name}");
        }
    }
    for entry in keys {
        assert!(
            entry.meaning.ends_with('.'),
            "{}: {}",
            entry.key,
            entry.meaning
        );
        assert!(
            !entry.meaning.contains("[`"),
            "{}: {}",
            entry.key,
            entry.meaning
        );
    }
    for section in &sections[1..] {
        assert!(section.meaning.len() > 10, "{section:?}");
    }
}

#[test]
fn defaults_and_allowed_values_are_those_of_the_code() {
    let of = |name: &str| {
        let KeyReference {
            kind,
            default,
            allowed,
            ..
        } = key(name);
        [kind, default, allowed]
    };
    assert_eq!(of("run.seed"), ["whole number", "42", "below 2^63"]);
    assert_eq!(of("run.epochs")[2], "1 or more");
    assert_eq!(
        of("model.recompute"),
        ["choice", "\"none\"", "`none`, `selective`, `layer`"]
    );
    assert_eq!(of("data.max_seq_len")[2], "at least 2; at most 2147483647");
    assert_eq!(of("optim.learning_rate"), ["number", "0.0002", "above 0"]);
    assert!(of("optim.name")[2].contains("`adamw8bit`"));
    assert_eq!(of("optim.betas")[0], "two numbers");
    assert!(!of("optim.momentum")[2].is_empty());
    assert_eq!(of("optim.groups.weight_decay")[2], "0 or more");
    assert_eq!(of("sites.match")[0], "text");
    assert_eq!(of("run.out"), ["path", "unset", ""]);
    assert_eq!(of("compare.schedule")[2], "`interleaved`, `sequential`");
}

#[test]
fn every_choice_lists_its_values() {
    for entry in reference().into_iter().flat_map(|section| section.keys) {
        if entry.kind == "choice" {
            assert!(entry.allowed.contains("`, `"), "{entry:?}");
            let default = entry.default.trim_matches('"');
            let listed = entry.allowed.contains(&format!("`{default}`"));
            assert!(listed || default == "unset", "{entry:?}");
        }
    }
}

#[test]
fn defaults_read_back() {
    for entry in reference().into_iter().flat_map(|section| section.keys) {
        if entry.default == "unset" {
            continue;
        }
        let set = format!("{}={}", entry.key, entry.default);
        let resolved = resolve(&Sources::default().set(set)).expect(&entry.key);
        assert_eq!(resolved.config(), &Config::default(), "{}", entry.key);
    }
}
