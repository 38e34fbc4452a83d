//! A crate's files -> its modules, each with its parsed file, without code for tests alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Item, Meta};

/// The names from the crate's root to a module.
pub type ModulePath = Vec<String>;

/// A crate with all files of its modules.
pub struct RustCrate {
    /// By the path of their module.
    pub files: BTreeMap<ModulePath, RustFile>,
}

/// A file of a crate.
pub struct RustFile {
    /// Its items, without modules of tests.
    pub items: Vec<Item>,
}

impl RustCrate {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Errors
    /// A file that is missing or is not Rust.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        read(root, ModulePath::new(), &mut files)?;
        Ok(RustCrate { files })
    }

    /// The crate of `files`, each with the path of its module and its text.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(module, text)| {
            let path: ModulePath = module.split("::").map(str::to_owned).collect();
            let path = if module.is_empty() { Vec::new() } else { path };
            let parsed = syn::parse_file(text).expect("Rust");
            let file = RustFile {
                items: shipped(parsed.items),
            };
            (path, file)
        });
        RustCrate {
            files: files.collect(),
        }
    }
}

fn read(path: &Path, module: ModulePath, files: &mut BTreeMap<ModulePath, RustFile>) -> Result<()> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parsed =
        syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    let items = shipped(parsed.items);
    for item in &items {
        let Item::Mod(declared) = item else { continue };
        if declared.content.is_some() {
            continue;
        }
        let name = declared.ident.to_string();
        let mut inner = module.clone();
        inner.push(name.clone());
        read(&file_of(path, &module, &name), inner, files)?;
    }
    files.insert(module, RustFile { items });
    Ok(())
}

/// The file of the module `name` that the file `path` of `module` declares.
fn file_of(path: &Path, module: &[String], name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = if module.is_empty() || stem == "mod" {
        folder.to_owned()
    } else {
        folder.join(stem)
    };
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() {
        flat
    } else {
        folder.join(name).join("mod.rs")
    }
}

/// `items` without those that are compiled for tests alone.
fn shipped(items: Vec<Item>) -> Vec<Item> {
    let is_shipped = |item: &Item| !attributes(item).iter().any(is_for_tests);
    items.into_iter().filter(is_shipped).collect()
}

fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens
                .to_string()
                .split_whitespace()
                .collect::<String>()
                == "test"
        }
        _ => false,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
