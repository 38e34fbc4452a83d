//! A word -> whether it can be a plugin's name.

use espalier_registry::Listing;
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use super::lock;

/// Most letters of a name: a line of code with it fits 100 columns.
pub const LONGEST: usize = 40;

/// Words that cannot be the name of a Rust crate. Source: the Rust reference, "Keywords", editions
/// to 2024; `cargo new`.
const OF_RUST: [&str; 61] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "panic",
];

/// Words with another meaning where a component is named.
const OF_THE_HOST: [&str; 1] = ["none"];

/// Refuses names that no crate can have, and names of existing components.
///
/// # Errors
/// `Usage`, with the fault and the letters that a name can have.
pub fn check_name(name: &str, listings: &[Listing]) -> Result<(), Error> {
    let refuse = |why: String| {
        Err(Error::Usage(UsageError {
            message: format!("`{name}` cannot be a plugin's name: {why}"),
            next_step: "choose another name, such as `my-quantizer`".to_owned(),
        }))
    };
    if let Some(why) = misspelt(name) {
        return refuse(why);
    }
    if OF_RUST.contains(&name) {
        return refuse("the word belongs to Rust".to_owned());
    }
    if OF_THE_HOST.contains(&name) {
        return refuse("in a config it means that no component is used".to_owned());
    }
    if lock::names(name) {
        return refuse("it is a library that every plugin uses".to_owned());
    }
    let taken = |listing: &&Listing| listing.component == name || listing.plugin == name;
    match listings.iter().find(taken) {
        Some(found) if found.file.is_none() => {
            let (plugin, role) = (&found.plugin, &found.role);
            refuse(format!(
                "the host ships it, {role} of its plugin `{plugin}`"
            ))
        }
        Some(found) => refuse(format!("{} has it already", found.location())),
        None => Ok(()),
    }
}

/// The fault in the letters of a name.
fn misspelt(name: &str) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(letter) = name.chars().find(|&letter| !is_allowed(letter)) {
        return Some(format!(
            "expected lower case letters, digits and `-`, found `{}`",
            letter.escape_debug()
        ));
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("it does not begin with a letter".to_owned());
    }
    if name.ends_with('-') || name.contains("--") {
        return Some("expected `-` only between letters or digits".to_owned());
    }
    (name.len() > LONGEST)
        .then(|| format!("expected at most {LONGEST} letters, found {}", name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_crate_names_that_are_free_pass() {
        for name in ["my-quantizer", "q3", "nf3-outliers"] {
            check_name(name, &[]).expect(name);
        }
        let long = "x".repeat(LONGEST + 1);
        for (name, word) in [
            ("", "begin with a letter"),
            ("My-quantizer", "found `M`"),
            ("my_quantizer", "found `_`"),
            ("../up", "found `.`"),
            ("a\nb", "found `\\n`"),
            ("3bit", "begin with a letter"),
            ("-a", "begin with a letter"),
            ("a-", "between"),
            ("a--b", "between"),
            (&long, "at most 40"),
            ("loop", "belongs to Rust"),
            ("test", "belongs to Rust"),
            ("none", "no component"),
            ("serde", "every plugin uses"),
            ("espalier-interface", "every plugin uses"),
        ] {
            let error = check_name(name, &[]).expect_err(name);
            assert_eq!(error.exit_code(), 2, "{name}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
