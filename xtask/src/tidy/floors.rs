//! Imports among the modules of the trainer -> findings: no module imports from a higher floor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::Findings;
use crate::workspace::Workspace;

/// Where the modules lie.
const FOLDER: &str = "core/trainer/src";

/// The floors, lowest first, with their modules. `error` ties them together still, and is on none.
const FLOORS: [(&str, &[&str]); 8] = [
    (
        "ground",
        &[
            "arena", "files", "machine", "memory", "notice", "number", "shell", "signal", "stop",
            "threads", "world",
        ],
    ),
    (
        "compile",
        &[
            "grad",
            "params",
            "program",
            "recompute",
            "splice",
            "unit_runs",
        ],
    ),
    ("data", &["data"]),
    (
        "config and registry",
        &[
            "answer", "config", "devices", "library", "preset", "probe", "registry", "search",
            "sections", "select",
        ],
    ),
    (
        "plan",
        &[
            "document_loss",
            "exact_match",
            "observer",
            "packing",
            "patterns",
            "plan",
            "resident",
            "shard_layout",
            "stage_layout",
            "step_plan",
            "storage_layout",
        ],
    ),
    (
        "engine",
        &[
            "call_watch",
            "decoder",
            "encoded",
            "executor",
            "gather",
            "load",
            "measure",
            "optim",
            "ranks",
            "step",
            "team",
        ],
    ),
    (
        "trainer",
        &[
            "checkpoint",
            "conformance",
            "convert",
            "evaluate",
            "export",
            "generate",
            "planner",
            "record",
            "session",
            "swap",
            "train",
        ],
    ),
    ("report", &["compare", "report", "tensorboard"]),
];

/// Imports that still point upward.
const STILL_UPWARD: [(&str, &str); 2] = [("train", "compare"), ("train", "report")];

/// Reports upward imports, and modules that are on no floor.
///
/// # Errors
/// A file that cannot be read.
pub fn check(
    workspace: &Workspace,
    files: &[std::path::PathBuf],
    findings: &mut Findings,
) -> Result<()> {
    let mut imports = Imports::new();
    for path in files {
        let Ok(inner) = path.strip_prefix(FOLDER) else {
            continue;
        };
        let (Some(module), true) = (
            module_of(inner),
            inner.extension().is_some_and(|end| end == "rs"),
        ) else {
            continue;
        };
        let text = std::fs::read_to_string(workspace.root.join(path))?;
        for imported in imported(&text) {
            imports
                .entry((module.clone(), imported))
                .or_default()
                .insert(inner.display().to_string());
        }
        if floor_of(&module).is_none() && !["lib", "error"].contains(&module.as_str()) {
            findings.problem(format!(
                "{}: `{module}` is on no floor (xtask/src/tidy/floors.rs)",
                path.display()
            ));
        }
    }
    report(&imports, findings);
    Ok(())
}

/// Module and imported module -> the files that import it.
type Imports = BTreeMap<(String, String), BTreeSet<String>>;

fn report(imports: &Imports, findings: &mut Findings) {
    let mut upward = BTreeSet::new();
    for ((module, imported), files) in imports {
        let (Some(lower), Some(higher)) = (floor_of(module), floor_of(imported)) else {
            continue;
        };
        if lower >= higher {
            continue;
        }
        upward.insert((module.as_str(), imported.as_str()));
        if !STILL_UPWARD.contains(&(module, imported)) {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            findings.problem(format!(
                "{}: `{module}` is on the floor \"{}\" and must not import `{imported}` of \"{}\"",
                files.join(", "),
                FLOORS[lower].0,
                FLOORS[higher].0
            ));
        }
    }
    for (module, imported) in STILL_UPWARD.iter().filter(|pair| !upward.contains(*pair)) {
        findings.problem(format!(
            "`{module}` does not import `{imported}` any more: take the exception out of xtask/src/tidy/floors.rs"
        ));
    }
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS
        .iter()
        .position(|(_, modules)| modules.contains(&module))
}

/// The top-level module of a file; none of tests in a file of their own.
fn module_of(inner: &Path) -> Option<String> {
    let is_test = inner.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        ["tests", "tests.rs", "simulation.rs"].contains(&part.as_ref())
    });
    let first = inner.components().next()?.as_os_str().to_string_lossy();
    (!is_test).then(|| first.trim_end_matches(".rs").to_owned())
}

/// The modules of the crate that a file names, outside of its tests and comments.
fn imported(text: &str) -> BTreeSet<String> {
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => found.extend(first_names(list)),
            None => found.extend(first_name(rest)),
        }
    }
    found
}

fn first_name(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The first name of each entry of a list, up to its closing brace.
fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut entry, mut found) = (0, String::new(), Vec::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => found.extend(first_name(std::mem::take(&mut entry).trim())),
            _ if depth == 0 => entry.push(c),
            _ => {}
        }
    }
    found.extend(first_name(entry.trim()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_lists_and_paths_and_not_in_tests() {
        let text = "use crate::{Error, answer, config::{self, Config}, plan as p};\n// crate::notes\nfn f() { crate::train::run() }\n#[cfg(test)]\nmod tests {\n use crate::compare::x;\n}\n";
        let names = ["Error", "answer", "config", "plan", "train"].map(str::to_owned);
        assert_eq!(imported(text), BTreeSet::from(names));
    }

    #[test]
    fn an_upward_import_is_a_problem_and_an_exception_that_is_not_needed_too() {
        let pair = |a: &str, b: &str| {
            (
                (a.to_owned(), b.to_owned()),
                BTreeSet::from(["a.rs".to_owned()]),
            )
        };
        let mut findings = Findings::default();
        report(
            &Imports::from([
                pair("plan", "executor"),
                pair("executor", "plan"),
                pair("train", "compare"),
            ]),
            &mut findings,
        );
        assert_eq!(findings.problems.len(), 2, "{:?}", findings.problems);
        assert!(
            findings.problems[0].contains("\"engine\""),
            "{:?}",
            findings.problems
        );
        assert!(
            findings.problems[1].contains("exception"),
            "{:?}",
            findings.problems
        );
    }
}
