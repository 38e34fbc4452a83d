//! Turns each Rust file into findings: size, header, names, and macros that stand for missing work.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use crate::workspace::Workspace;

/// Lines above which a file is listed, and above which it fails.
const LONG: usize = 400;
const TOO_LONG: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "manager", "misc"];

/// What finished code does not contain; written in halves so that this file passes.
const UNFINISHED: [&str; 4] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
    concat!("#[ign", "ore"),
];

const UNWRAP: &str = concat!(".unw", "rap()");

pub fn check(workspace: &Workspace, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let text = fs::read_to_string(workspace.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        check_file(file, &text, findings);
    }
    Ok(())
}

fn check_file(file: &Path, text: &str, findings: &mut Findings) {
    let name = file.display();
    let lines = text.lines().count();
    if lines > TOO_LONG {
        findings.problem(format!("{name}: {lines} lines, at most {TOO_LONG}"));
    } else if lines > LONG {
        findings.note(format!(
            "{name}: {lines} lines, more than {LONG}: is it one noun?"
        ));
    }
    if !text.starts_with("//! ") {
        findings.problem(format!(
            "{name}: the first line is no `//!` that says what the file does"
        ));
    }
    let parts = file.iter().map(|part| part.to_string_lossy());
    for part in parts.filter(|part| EMPTY_NAMES.contains(&part.trim_end_matches(".rs"))) {
        findings.problem(format!(
            "{name}: `{part}` names nothing; use the domain's noun"
        ));
    }
    // Unit tests end a file; files of tests are tests throughout.
    let in_tests = ["tests", "benches", "tests.rs"]
        .iter()
        .any(|tests| file.iter().any(|part| part == *tests));
    let code_lines = if in_tests {
        0
    } else {
        text.lines()
            .position(|line| line.trim() == "#[cfg(test)]")
            .unwrap_or(lines)
    };
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let at = index + 1;
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            findings.problem(format!("{name}:{at}: `{word}` stands for missing work"));
        }
        if index < code_lines && line.contains(UNWRAP) {
            findings.problem(format!(
                "{name}:{at}: `{UNWRAP}` outside tests: use `expect(\"why\")`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(file: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_file(Path::new(file), text, &mut findings);
        findings.problems
    }

    #[test]
    fn a_good_file_passes() {
        assert_eq!(
            problems("plugins/nf4/src/encode.rs", "//! Turns a into b.\n"),
            [""; 0]
        );
    }

    #[test]
    fn each_fault_is_named() {
        let long = "//! Turns a into b.\n".repeat(TOO_LONG + 1);
        assert!(problems("a/src/b.rs", &long)[0].contains("601 lines"));
        assert!(problems("a/src/b.rs", "fn a() {}\n")[0].contains("first line"));
        assert!(problems("a/src/utils.rs", "//! A.\n")[0].contains("utils.rs"));
        assert!(problems("a/common/b.rs", "//! A.\n")[0].contains("common"));
        for word in UNFINISHED {
            let text = format!("//! A.\nfn a() {{\n    {word}\n}}\n");
            assert!(
                problems("a/src/b.rs", &text)[0].starts_with("a/src/b.rs:3"),
                "{word}"
            );
        }
    }

    #[test]
    fn unwrap_is_for_tests() {
        let code = format!("//! A.\nfn a() {{ b(){UNWRAP}; }}\n");
        assert_eq!(problems("a/src/b.rs", &code).len(), 1);
        assert_eq!(problems("tests/tests/b.rs", &code).len(), 0);
        let test =
            format!("//! A.\n#[cfg(test)]\nmod tests {{\n    fn a() {{ b(){UNWRAP}; }}\n}}\n");
        assert_eq!(problems("a/src/b.rs", &test).len(), 0);
    }
}
