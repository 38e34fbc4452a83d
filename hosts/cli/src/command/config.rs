//! `host config`: a reference of all keys, those of plugins as their descriptors declare them.

use std::io::{self, Write};

use anyhow::Result;
use espalier_config::{Config, KeyReference, SectionReference, nearest, reference, resolve};
use espalier_registry::{Listing, Registry, SearchPath, Status};
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use crate::arguments::ConfigReferenceArguments;

/// The beginning of the page.
const PAGE: &str = "# Every key of a config

<!-- Written by `host config --markdown`; a test compares it with the program. -->

A key is written in a section of a TOML file, as `--set optim.learning_rate=1e-4`, or as
`HOST__OPTIM__LEARNING_RATE=1e-4` in the environment: see [Settings](runs.md#settings). `host config
optim` prints a section in the terminal, `host train ... --dry-run` the values of a run and where
each came from. An unset key has no value; its row says what holds then.
";

/// Prints all keys, or those that are asked for.
pub fn run(arguments: &ConfigReferenceArguments, out: &mut dyn Write) -> Result<()> {
    arguments.check()?;
    let resolved = resolve(&arguments.config.sources()).map_err(Error::from)?;
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let mut sections = reference();
    sections.extend(of_plugins(&registry.list()));
    if let Some(key) = &arguments.key {
        sections = chosen(sections, key)?;
    }
    if arguments.markdown {
        write!(out, "{PAGE}")?;
        sections.iter().try_for_each(|one| page(one, out))?;
    } else {
        sections.iter().try_for_each(|one| text(one, out))?;
    }
    Ok(())
}

/// The sections of the components that can be chosen, in the order of a config.
fn of_plugins(listings: &[Listing]) -> Vec<SectionReference> {
    let mut available: Vec<&Listing> = listings
        .iter()
        .filter(|one| one.status == Status::Available && !one.options.is_empty())
        .collect();
    let place = |one: &Listing| Config::ROLES.iter().position(|role| *role == one.role);
    available.retain(|one| place(one).is_some());
    available.sort_by_key(|one| (place(one), one.component.clone()));
    available.into_iter().map(of_component).collect()
}

fn of_component(listing: &Listing) -> SectionReference {
    let section = format!("{}.{}", listing.role, listing.component);
    let keys = listing.options.iter().map(|option| KeyReference {
        key: format!("{section}.{}", option.name),
        kind: in_words(&option.kind).to_owned(),
        default: match &option.default {
            value if value.is_null() => "unset".to_owned(),
            value => espalier_config::toml_value(value),
        },
        allowed: option.range.clone(),
        meaning: option.doc.clone(),
    });
    SectionReference {
        header: format!("[{section}]"),
        meaning: listing.doc.clone(),
        keys: keys.collect(),
    }
}

/// The kind of a plugin's option in the words of the other keys.
fn in_words(kind: &str) -> &str {
    match kind {
        "bool" => "true or false",
        "integer" => "whole number",
        "number" => "number",
        "text" => "text",
        "texts" => "text or list of texts",
        "integer_table" => "table of whole numbers",
        "number_table" => "table of numbers",
        other => other,
    }
}

/// The keys that are `key`, or in it.
fn chosen(sections: Vec<SectionReference>, key: &str) -> Result<Vec<SectionReference>, Error> {
    let key = key.trim_matches(['[', ']', '.']);
    let names: Vec<String> = sections.iter().flat_map(names).collect();
    let is_asked_for = |name: &str| {
        let rest = name.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let chosen = sections.into_iter().filter_map(|mut section| {
        section.keys.retain(|one| is_asked_for(&one.key));
        (!section.keys.is_empty()).then_some(section)
    });
    let chosen: Vec<SectionReference> = chosen.collect();
    if chosen.is_empty() {
        let meant = nearest(key, names.iter().map(String::as_str));
        let meant = meant.map(|name| format!("; the nearest is `{name}`"));
        return Err(Error::Usage(UsageError {
            message: format!("no key `{key}`{}", meant.unwrap_or_default()),
            next_step: "see `host config` for all".to_owned(),
        }));
    }
    Ok(chosen)
}

/// The names by which a section can be asked for.
fn names(section: &SectionReference) -> Vec<String> {
    let header = section.header.trim_matches(['[', ']']).to_owned();
    let keys = section.keys.iter().map(|one| one.key.clone());
    keys.chain([header]).collect()
}

fn text(section: &SectionReference, out: &mut dyn Write) -> io::Result<()> {
    if !section.header.is_empty() {
        writeln!(out, "\n{}: {}", section.header, section.meaning)?;
    }
    for key in &section.keys {
        let allowed = match key.allowed.as_str() {
            "" => String::new(),
            allowed => format!(": {allowed}"),
        };
        let KeyReference {
            key,
            kind,
            default,
            meaning,
            ..
        } = key;
        writeln!(
            out,
            "\n{key} = {default}   ({kind}{allowed})\n    {meaning}"
        )?;
    }
    Ok(())
}

fn page(section: &SectionReference, out: &mut dyn Write) -> io::Result<()> {
    let title = match section.header.as_str() {
        "" => "Before all sections".to_owned(),
        header => format!("`{header}`"),
    };
    writeln!(out, "\n## {title}\n")?;
    if !section.meaning.is_empty() {
        let mut words = section.meaning.chars();
        let first = words.next().map(|first| first.to_uppercase().to_string());
        let sentence = format!("{}{}", first.unwrap_or_default(), words.as_str());
        let sentence = sentence.trim_end_matches('.');
        writeln!(out, "{}\n", wrapped(&format!("{sentence}.")))?;
    }
    writeln!(out, "| key | type | default | allowed | meaning |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for KeyReference {
        key,
        kind,
        default,
        allowed,
        meaning,
    } in &section.keys
    {
        let default = match default.as_str() {
            "unset" => default.clone(),
            value => format!("`{value}`"),
        };
        let cells = [&format!("`{key}`"), kind, &default, allowed, meaning];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// Prose in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_a_section_can_be_asked_for() {
        let of = |key: &str| chosen(reference(), key).map_err(|error| error.to_string());
        let keys = |key: &str| -> Vec<String> {
            let sections = of(key).expect(key);
            sections
                .into_iter()
                .flat_map(|one| one.keys)
                .map(|one| one.key)
                .collect()
        };
        assert_eq!(keys("run.seed"), ["run.seed"]);
        assert!(keys("[optim]").contains(&"optim.groups.pattern".to_owned()));
        assert!(
            keys("optim.groups")
                .iter()
                .all(|key| key.starts_with("optim.groups."))
        );
        let unknown = of("run.sead").expect_err("no key");
        assert!(unknown.contains("the nearest is `run.seed`"), "{unknown}");
    }

    #[test]
    fn long_prose_is_wrapped() {
        let text = wrapped(&"word ".repeat(60));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.chars().count() <= 100));
    }
}
