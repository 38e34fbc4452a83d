//! A member's `Cargo.toml` -> the same file without values inherited from the workspace.

use std::error::Error;
use std::fmt::Write;

use toml::{Table, Value};

/// The text of `member` with everything that it inherits written out. A dependency on one of
/// `siblings`, packages and their folders, becomes one on the folder beside it. Lints and
/// dependencies of the project's own tests are left out.
pub fn standing_alone(
    member: &Table,
    workspace: &Table,
    siblings: &[(&str, &str)],
) -> Result<String, Box<dyn Error>> {
    let shared = table(workspace, "workspace")?;
    let mut text = String::new();
    let is_first = |section: &&String| section.as_str() == "package";
    let left_out = |section: &&String| ["lints", "dev-dependencies"].contains(&section.as_str());
    let (first, others): (Vec<_>, Vec<_>) = member.keys().partition(is_first);
    let others = others.into_iter().filter(|section| !left_out(section));
    for section in first.into_iter().chain(others) {
        let value = &member[section];
        let entries = value
            .as_table()
            .ok_or_else(|| format!("`{section}` is no table"))?;
        let inherited = match section.as_str() {
            "package" => Some(table(shared, "package")?),
            "dependencies" => Some(table(shared, "dependencies")?),
            _ => None,
        };
        writeln!(text, "[{section}]")?;
        for (key, value) in entries {
            let whole = written_out(key, value, inherited)?;
            let sibling = siblings.iter().find(|(name, _)| name == key);
            let value = match sibling.filter(|_| section == "dependencies") {
                Some((_, folder)) => beside(folder).into(),
                None => whole,
            };
            writeln!(text, "{key} = {value}")?;
        }
        text.push('\n');
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// `value`, or the workspace's where it has `workspace = true`, with the features that it adds.
fn written_out(
    key: &str,
    value: &Value,
    inherited: Option<&Table>,
) -> Result<Value, Box<dyn Error>> {
    let own = value.as_table();
    if own.and_then(|own| own.get("workspace")) != Some(&true.into()) {
        return Ok(value.clone());
    }
    let more = own.is_some_and(|own| own.len() > 1);
    match inherited.and_then(|table| table.get(key)) {
        Some(_) if more => Err(format!("`{key}` says more than `workspace = true`").into()),
        Some(shared) => Ok(shared.clone()),
        None => Err(format!("the workspace has no `{key}`").into()),
    }
}

/// `{ path = "../NAME" }`.
fn beside(folder: &str) -> Table {
    let path = format!("../{}", super::last(folder));
    Table::from_iter([("path".to_owned(), Value::from(path))])
}

fn table<'a>(table: &'a Table, key: &str) -> Result<&'a Table, String> {
    let found = table.get(key).and_then(Value::as_table);
    found.ok_or_else(|| format!("Cargo.toml has no table `{key}`"))
}
