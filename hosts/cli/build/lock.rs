//! The workspace's `Cargo.lock` -> the entries of some packages and of all that they depend on.

use std::collections::BTreeMap;
use std::fmt::Write;

use toml::{Table, Value};

/// A package of a lock file.
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its `[[package]]` as cargo writes it.
    pub text: String,
}

/// The entries of `roots` and of all that they depend on, in cargo's order.
pub fn closure(lock: &Table, roots: &[&str]) -> Result<Vec<Entry>, String> {
    let packages: Vec<&Table> = lock
        .get("package")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_table).collect())
        .ok_or("Cargo.lock lists no package")?;
    let mut found = BTreeMap::new();
    let mut wanted: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
    while let Some(wish) = wanted.pop() {
        let package = find(&packages, &wish)?;
        let id = (text(package, "name"), text(package, "version"));
        if found.insert(id, package).is_none() {
            wanted.extend(dependencies(package));
        }
    }
    let is_alone = |name: &str| found.keys().filter(|(one, _)| *one == name).count() == 1;
    let entry = |(&(name, _), &package): (&(&str, &str), &&Table)| Entry {
        name: name.to_owned(),
        text: written(package, &is_alone),
    };
    Ok(found.iter().map(entry).collect())
}

/// The package that a lock file calls `wish`: `name`, or `name version` where several share the
/// name.
fn find<'a>(packages: &[&'a Table], wish: &str) -> Result<&'a Table, String> {
    let mut words = wish.split(' ');
    let name = words.next().unwrap_or_default();
    let version = words.next();
    let is_meant = |package: &&&Table| {
        text(package, "name") == name && version.is_none_or(|v| text(package, "version") == v)
    };
    let found = packages.iter().find(is_meant);
    found.copied().ok_or(format!("Cargo.lock has no {wish}"))
}

fn dependencies(package: &Table) -> Vec<String> {
    let list = package.get("dependencies").and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

fn text<'a>(package: &'a Table, key: &str) -> &'a str {
    package.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A package as cargo writes it. A dependency has its version only where another package has its
/// name.
fn written(package: &Table, is_alone: &dyn Fn(&str) -> bool) -> String {
    let mut out = "[[package]]\n".to_owned();
    for key in ["name", "version", "source", "checksum"] {
        if let Some(value) = package.get(key) {
            writeln!(out, "{key} = {value}").expect("a text takes all");
        }
    }
    let names = dependencies(package);
    if !names.is_empty() {
        out += "dependencies = [\n";
        for wish in names {
            let name = wish.split(' ').next().unwrap_or_default();
            let shown = if is_alone(name) { name } else { &wish };
            writeln!(out, " {shown:?},").expect("a text takes all");
        }
        out += "]\n";
    }
    out
}
