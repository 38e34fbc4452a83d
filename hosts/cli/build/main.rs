//! Gathers what `host plugins new` unpacks: sources of the interface and of the conformance kit,
//! made to build on their own. Also gathers the library versions that they were built with.
//!
//! They become a table of `include_str!` in the binary: 500 KB of readable text. So neither an
//! archive nor a library to unpack one is needed.
#![allow(clippy::print_stdout)] // Output of a build script, read by cargo.

mod lock;
mod manifest;

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use toml::Table;

/// The crates that are unpacked: package and folder in the repository. Each is written to
/// `espalier/` under its last name.
const CRATES: [(&str, &str); 2] = [
    ("espalier-interface", "core/interface"),
    ("espalier-conformance", "core/conformance"),
];

fn main() -> Result<(), Box<dyn Error>> {
    // The 50 test binaries need no line tables of what they link: 2 MB each instead of 45 MB.
    println!("cargo::rustc-link-arg-tests=-Wl,-S");
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let root = root.canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let read = |name: &str| {
        println!("cargo::rerun-if-changed={}", root.join(name).display());
        fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let workspace: Table = read("Cargo.toml")?.parse()?;
    let mut files = vec![("LICENSE".to_owned(), root.join("LICENSE"))];
    for (package, folder) in CRATES {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
        let text = read(&format!("{folder}/Cargo.toml"))?;
        let text = manifest::standing_alone(&text.parse()?, &workspace, &CRATES)?;
        let path = out.join(format!("{package}.toml"));
        fs::write(&path, text)?;
        let name = last(folder);
        files.push((format!("{name}/Cargo.toml"), path));
        for source in sources(&root.join(folder).join("src"))? {
            let inside = source.strip_prefix(root.join(folder))?.to_owned();
            files.push((format!("{name}/{}", inside.display()), source));
        }
    }
    let locked = lock::closure(&read("Cargo.lock")?.parse()?, &CRATES.map(|(name, _)| name))?;
    fs::write(out.join("sources.rs"), table(&files, &locked)?)?;
    Ok(())
}

/// The last part of a path.
fn last(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

/// All files below `folder`, sorted.
fn sources(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?)
        } else {
            found.push(path)
        }
    }
    found.sort();
    Ok(found)
}

/// The Rust text of the constants `SOURCES` and `LOCKED`.
fn table(files: &[(String, PathBuf)], locked: &[lock::Entry]) -> Result<String, std::fmt::Error> {
    let mut text = "pub const SOURCES: &[(&str, &str)] = &[\n".to_owned();
    for (name, path) in files {
        let path = path.display().to_string();
        writeln!(text, "    ({name:?}, include_str!({path:?})),")?;
    }
    text += "];\npub const LOCKED: &[(&str, &str)] = &[\n";
    for lock::Entry { name, text: entry } in locked {
        writeln!(text, "    ({name:?}, {entry:?}),")?;
    }
    text += "];\n";
    Ok(text)
}
