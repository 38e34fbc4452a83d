//! Checks the types of a crate: public names of two types.

use std::collections::BTreeMap;

use anyhow::Result;
use syn::{Item, Visibility};

use super::Findings;
use super::rust_crate::RustCrate;
use crate::workspace::Workspace;

/// Reports each type name that two files of a crate export.
///
/// # Errors
/// A file that cannot be read or is not Rust.
pub fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    for package in &workspace.packages {
        let source = workspace.root.join(&package.folder).join("src");
        let roots = ["lib.rs", "main.rs"].map(|root| source.join(root));
        for root in roots.iter().filter(|root| root.exists()) {
            report(&package.name, &RustCrate::read(root)?, findings);
        }
    }
    Ok(())
}

fn report(name: &str, of: &RustCrate, findings: &mut Findings) {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, file) in &of.files {
        for shown in file.items.iter().filter_map(shown_type) {
            places.entry(shown).or_default().push(module.join("::"));
        }
    }
    for (shown, modules) in places.iter().filter(|(_, modules)| modules.len() > 1) {
        findings.problem(format!(
            "{name}: `{shown}` names types of {}; name each by what it is",
            modules.join(" and ")
        ));
    }
}

/// The name of a type that other files can see.
fn shown_type(item: &Item) -> Option<String> {
    let (name, visibility) = match item {
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    let is_private = matches!(visibility, Visibility::Inherited);
    // Every crate calls a result with its own error `Result`.
    (!is_private && name != "Result").then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        report("a", &RustCrate::of(files), &mut findings);
        findings.problems
    }

    #[test]
    fn a_public_name_has_one_type() {
        let twice = [("x", "pub struct Row;"), ("y", "pub(crate) enum Row {}")];
        let found = problems(&twice);
        assert_eq!(
            found,
            ["a: `Row` names types of x and y; name each by what it is"]
        );
        assert!(problems(&[("x", "pub struct Row;"), ("y", "struct Row;")]).is_empty());
        assert!(
            problems(&[
                ("x", "pub type Result<T> = T;"),
                ("y", "pub type Result = ();")
            ])
            .is_empty()
        );
    }
}
