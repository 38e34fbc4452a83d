//! Checks uses among the files of a crate: files that need each other in a circle.
//!
//! A file uses the file that defines a name it contains, however the name was imported or
//! re-exported. A module and those within it are one: they may share types either way. Of the
//! modules within one, each with all that is within it, none may need another that needs it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Path as CodePath, UseTree, Visibility};

use super::Findings;
use super::rust_crate::{ModulePath, RustCrate};
use crate::workspace::Workspace;

/// Most re-exports that are followed for a name.
const MOST_HOPS: usize = 16;

/// Reports each circle among the files of the members.
///
/// # Errors
/// A file that cannot be read or is not Rust.
pub fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    for package in &workspace.packages {
        let source = workspace.root.join(&package.folder).join("src");
        for root in ["lib.rs", "main.rs"] {
            let root = source.join(root);
            if root.exists() {
                report(&package.name, &RustCrate::read(&root)?, findings);
            }
        }
    }
    Ok(())
}

fn report(name: &str, of: &RustCrate, findings: &mut Findings) {
    for (siblings, files) in circles(&uses(of)) {
        let siblings: Vec<String> = siblings.iter().map(|module| shown(module)).collect();
        let files: Vec<String> = files
            .iter()
            .map(|(user, used)| format!("{} uses {}", shown(user), shown(used)))
            .collect();
        findings.problem(format!(
            "{name}: {} use each other ({}); move what they share into a module below them, or make them one",
            siblings.join(", "),
            files.join(", ")
        ));
    }
}

fn shown(module: &[String]) -> String {
    if module.is_empty() {
        "the root".to_owned()
    } else {
        module.join("::")
    }
}

type Graph = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// Which file uses which others.
fn uses(of: &RustCrate) -> Graph {
    let names = Names::of(of);
    let of_file = |(module, file): (&ModulePath, &super::rust_crate::RustFile)| {
        let mut written = Written::default();
        for item in &file.items {
            match item {
                // A re-export is followed where it is used.
                Item::Use(item) if is_reexport(item) => {}
                item => written.visit_item(item),
            }
        }
        let used = written.paths.iter();
        let used = used.filter_map(|path| names.file_of(module, path, MOST_HOPS));
        (module.clone(), used.filter(|used| used != module).collect())
    };
    of.files.iter().map(of_file).collect()
}

fn is_reexport(item: &ItemUse) -> bool {
    !matches!(item.vis, Visibility::Inherited)
}

/// The definitions of names in each module.
struct Names<'a> {
    modules: BTreeSet<&'a ModulePath>,
    /// By module and name: the imported path.
    imported: BTreeMap<(&'a ModulePath, String), Vec<String>>,
    /// Modules from which a module imports everything.
    globs: BTreeMap<&'a ModulePath, Vec<Vec<String>>>,
    /// By module: the names defined there.
    defined: BTreeMap<&'a ModulePath, BTreeSet<String>>,
}

impl<'a> Names<'a> {
    fn of(of: &'a RustCrate) -> Self {
        let mut names = Names {
            modules: of.files.keys().collect(),
            imported: BTreeMap::new(),
            globs: BTreeMap::new(),
            defined: BTreeMap::new(),
        };
        for (module, file) in &of.files {
            for item in &file.items {
                match item {
                    Item::Use(item) => {
                        for (name, path) in entries(&item.tree) {
                            match name.as_str() {
                                "*" => names.globs.entry(module).or_default().push(path),
                                _ => drop(names.imported.insert((module, name), path)),
                            }
                        }
                    }
                    item => {
                        let defined = names.defined.entry(module).or_default();
                        defined.extend(defined_name(item));
                    }
                }
            }
        }
        names
    }

    /// The module whose file defines `path`, as written in `module`; none for other crates' names.
    fn file_of(&self, module: &ModulePath, path: &[String], hops: usize) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        let hops = hops.checked_sub(1)?;
        match first.as_str() {
            "crate" => self.within(&Vec::new(), rest, hops),
            "self" => self.within(module, rest, hops),
            "super" => {
                let parent = module.split_last()?.1.to_vec();
                match rest.first().map(String::as_str) {
                    Some("super") => self.file_of(&parent, rest, hops),
                    _ => self.within(&parent, rest, hops),
                }
            }
            _ => {
                let known = self.is_known(module, first);
                known.then(|| self.within(module, path, hops)).flatten()
            }
        }
    }

    fn is_known(&self, module: &ModulePath, name: &str) -> bool {
        self.child(module, name).is_some()
            || self.imported.contains_key(&(module, name.to_owned()))
            || self.is_defined(module, name)
    }

    fn is_defined(&self, module: &ModulePath, name: &str) -> bool {
        let defined = self.defined.get(module);
        defined.is_some_and(|defined| defined.contains(name))
    }

    fn child(&self, module: &ModulePath, name: &str) -> Option<ModulePath> {
        let mut child = module.clone();
        child.push(name.to_owned());
        self.modules.contains(&child).then_some(child)
    }

    /// As [`Names::file_of`], for `path` within `module`.
    fn within(&self, module: &ModulePath, path: &[String], hops: usize) -> Option<ModulePath> {
        let hops = hops.checked_sub(1)?;
        let Some((name, rest)) = path.split_first() else {
            return Some(module.clone());
        };
        if self.is_defined(module, name) {
            return Some(module.clone());
        }
        if let Some(child) = self.child(module, name) {
            return self.within(&child, rest, hops);
        }
        if let Some(imported) = self.imported.get(&(module, name.clone())) {
            // `use self::a` and `use a` of another crate: paths of other crates end here.
            let whole: Vec<String> = imported.iter().chain(rest).cloned().collect();
            return if imported.first().is_some_and(|first| first == name) && imported.len() == 1 {
                None
            } else {
                self.file_of(module, &whole, hops)
            };
        }
        let globs = self.globs.get(module).into_iter().flatten();
        let mut found = globs.filter_map(|glob| {
            let inner = self.file_of(module, glob, hops)?;
            self.is_known(&inner, name)
                .then(|| self.within(&inner, path, hops))?
        });
        found.next()
    }
}

/// The names that an import adds, `*` for all, each with its whole path.
fn entries(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    fn collect(tree: &UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => collect(&path.tree, &with(path.ident.to_string()), found),
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                found.push((last, before.to_vec()));
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                found.push((name.clone(), with(name)));
            }
            UseTree::Rename(renamed) => {
                let whole = if renamed.ident == "self" {
                    before.to_vec()
                } else {
                    with(renamed.ident.to_string())
                };
                found.push((renamed.rename.to_string(), whole));
            }
            UseTree::Glob(_) => found.push(("*".to_owned(), before.to_vec())),
            UseTree::Group(group) => {
                for tree in &group.items {
                    collect(tree, before, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    collect(tree, &[], &mut found);
    found
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        // Modules within the file.
        Item::Mod(item) if item.content.is_some() => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The paths in a file's code, including imports.
#[derive(Default)]
struct Written {
    paths: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Written {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let paths = entries(&item.tree).into_iter().map(|(_, path)| path);
        self.paths.extend(paths);
    }

    fn visit_path(&mut self, path: &'ast CodePath) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// A use: the file that uses, and the used one.
type Use = (ModulePath, ModulePath);

/// The sets of modules within one module of which each uses the others, directly or through others
/// of the set. Each set has the uses that connect it.
fn circles(files: &Graph) -> Vec<(Vec<ModulePath>, Vec<Use>)> {
    let mut levels: BTreeMap<ModulePath, Vec<(ModulePath, ModulePath, Use)>> = BTreeMap::new();
    for (user, used) in files
        .iter()
        .flat_map(|(user, all)| all.iter().map(move |used| (user, used)))
    {
        let shared = user.iter().zip(used).take_while(|(a, b)| a == b).count();
        if shared < user.len() && shared < used.len() {
            let sibling = |module: &ModulePath| module[..=shared].to_vec();
            let both = (user.clone(), used.clone());
            let level = levels.entry(user[..shared].to_vec()).or_default();
            level.push((sibling(user), sibling(used), both));
        }
    }
    let mut found = Vec::new();
    for uses in levels.values() {
        let mut graph = Graph::new();
        for (user, used, _) in uses {
            graph.entry(user.clone()).or_default().insert(used.clone());
            graph.entry(used.clone()).or_default();
        }
        for circle in connected(&graph) {
            let within = |(user, used, _): &&(ModulePath, ModulePath, Use)| {
                circle.contains(user) && circle.contains(used)
            };
            let uses = uses.iter().filter(within).map(|(_, _, both)| both.clone());
            found.push((circle.clone(), uses.collect()));
        }
    }
    found
}

/// The sets of modules of which each reaches the others.
fn connected(graph: &Graph) -> Vec<Vec<ModulePath>> {
    let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = graph
        .keys()
        .map(|module| (module, reached(graph, module)))
        .collect();
    let mut sets: Vec<Vec<ModulePath>> = Vec::new();
    for (module, others) in &reached {
        let known = sets.iter().any(|set| set.contains(module));
        if known || !others.contains(module) {
            continue;
        }
        let set = others
            .iter()
            .filter(|other| reached[*other].contains(module));
        sets.push(set.map(|other| (*other).clone()).collect());
    }
    sets
}

fn reached<'a>(graph: &'a Graph, from: &ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&ModulePath> = graph[from].iter().collect();
    while let Some(module) = left.pop() {
        if reached.insert(module) {
            left.extend(&graph[module]);
        }
    }
    reached
}

#[cfg(test)]
mod tests;
