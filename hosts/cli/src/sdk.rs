//! A plugin's name and kind -> the files of a crate that builds, loads and passes the conformance
//! kit as written.
//!
//! The crate builds on its own. Beside its own files it holds, in `espalier/`, the sources of the
//! interface and of the kit that this host was built with. Its lock file has the versions of the
//! libraries that those were built with.

mod lock;
mod name;

pub use name::check_name;

use clap::ValueEnum;

/// Sources of the interface and the kit, and the packages locked for them; gathered by the build
/// script.
mod gathered {
    include!(concat!(env!("OUT_DIR"), "/sources.rs"));
}

/// What a plugin does for the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Packs weights
    Quantizer,
    /// Packs weights with statistics of their inputs
    #[value(skip)]
    CalibratedQuantizer,
    /// Adds trainable params to a model's linears
    Adapter,
    /// Turns a config.json into a model
    Family,
    /// Places bytes and orders a step
    Sharding,
}

/// The parts of a kind's crate.
struct Template {
    source: &'static str,
    /// Packages that the source names besides the interface.
    uses: &'static [&'static str],
    /// How the README trains with it.
    train: &'static str,
}

impl Kind {
    fn template(self) -> Template {
        let (source, uses, train) = match self {
            Kind::Quantizer => (
                include_str!("../templates/quantizer.rs"),
                &[][..],
                "--plugins my-plugin,lora --model DIR",
            ),
            Kind::CalibratedQuantizer => (
                include_str!("../templates/calibrated_quantizer.rs"),
                &[][..],
                "--plugins my-plugin,lora --model DIR",
            ),
            Kind::Adapter => (
                include_str!("../templates/adapter.rs"),
                &["serde_json"][..],
                "--plugins nf4,my-plugin --model DIR",
            ),
            Kind::Family => (
                include_str!("../templates/family.rs"),
                &["serde_json"][..],
                "--plugins my-plugin,nf4,lora --model DIR",
            ),
            Kind::Sharding => (
                include_str!("../templates/sharding.rs"),
                &[][..],
                "--plugins my-plugin,nf4,lora --model DIR",
            ),
        };
        Template {
            source,
            uses,
            train,
        }
    }
}

/// The crate's files, each with its path in the crate; deterministic for a name and a kind.
pub fn files(name: &str, kind: Kind) -> Vec<(String, String)> {
    let template = kind.template();
    let uses: String = template
        .uses
        .iter()
        .map(|package| format!("{package} = \"{}\"\n", lock::requirement(package)))
        .collect();
    let manifest = include_str!("../templates/Cargo.toml").replace("# USES\n", &uses);
    let readme = include_str!("../templates/README.md")
        .replace("TRAIN", template.train)
        .replace("VERSION", env!("CARGO_PKG_VERSION"));
    let sources =
        include_str!("../templates/SOURCES.md").replace("VERSION", env!("CARGO_PKG_VERSION"));
    let own = [
        ("Cargo.toml", manifest.as_str()),
        (".gitignore", "/target\n"),
        ("README.md", readme.as_str()),
        ("src/lib.rs", template.source),
        ("tests/kit.rs", include_str!("../templates/kit.rs")),
        ("espalier/README.md", sources.as_str()),
    ];
    let mut files: Vec<(String, String)> = own
        .into_iter()
        .map(|(path, text)| (path.to_owned(), named(text, name)))
        .collect();
    files.push(("Cargo.lock".to_owned(), lock::text(name, template.uses)));
    for (path, text) in gathered::SOURCES {
        files.push((format!("espalier/{path}"), (*text).to_owned()));
    }
    files
}

/// A template's text with the plugin's name in all its spellings.
fn named(text: &str, name: &str) -> String {
    let snake = name.replace('-', "_");
    text.replace("my-plugin", name)
        .replace("my_plugin", &snake)
        .replace("MY_PLUGIN", &snake.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Kind> {
        let named = Kind::value_variants().iter().copied();
        named.chain([Kind::CalibratedQuantizer])
    }

    #[test]
    fn a_crate_has_its_name_everywhere_and_builds_on_its_own() {
        for kind in all() {
            let files = files("three-bit", kind);
            for (path, text) in &files {
                for word in ["my-plugin", "my_plugin", "MY_PLUGIN", "USES", "TRAIN "] {
                    let is_ours = !path.starts_with("espalier/");
                    assert!(!(is_ours && text.contains(word)), "{path}: {word}");
                }
                if path.ends_with("Cargo.toml") {
                    assert!(!text.contains("workspace = true"), "{path}: {text}");
                }
            }
            let has = |name: &str| files.iter().any(|(path, _)| path == name);
            assert!(has("espalier/interface/src/lib.rs") && has("espalier/LICENSE"));
            assert_eq!(files, super::files("three-bit", kind));
        }
    }

    #[test]
    fn generated_lines_fit_with_every_name_length() {
        let longest = "x".repeat(name::LONGEST);
        for kind in all() {
            for (path, text) in files(&longest, kind) {
                let is_code = path.ends_with(".rs") && !path.starts_with("espalier/");
                let code = |line: &&str| !line.trim_start().starts_with("//");
                let long = text.lines().filter(code).find(|line| line.len() > 100);
                assert!(!is_code || long.is_none(), "{path}: {long:?}");
            }
        }
    }
}
