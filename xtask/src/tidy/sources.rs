//! Checks each Rust file: size, header, names, and macros for missing work.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Findings, own_arithmetic};
use crate::workspace::Workspace;

/// Most lines of a file.
const MOST_LINES: usize = 400;

/// The median of the lines of all files stays below it.
const MEDIAN_LINES: usize = 120;

/// Most columns of a comment or of prose, except tables and unbreakable words.
pub const MOST_COLUMNS: usize = 100;

/// Names that do not describe their contents.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "manager", "misc"];

/// Text that finished code does not contain; written in halves so that this file passes.
const UNFINISHED: [&str; 4] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
    concat!("#[ign", "ore"),
];

const UNWRAP: &str = concat!(".unw", "rap()");

/// Functions that return the other number where one is NaN.
const DROPS_NAN: [&str; 4] = ["f64::max", "f32::max", "f64::min", "f32::min"];

/// Calls in which a comparison of floats would hide a NaN.
const FOLDS: [&str; 2] = ["fold(", "reduce("];

pub fn check(workspace: &Workspace, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    let mut lines = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let text = fs::read_to_string(workspace.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        check_file(file, &text, findings);
        lines.push(text.lines().count());
    }
    check_median(lines, findings);
    Ok(())
}

fn check_median(mut lines: Vec<usize>, findings: &mut Findings) {
    lines.sort_unstable();
    let median = lines.get(lines.len() / 2).copied().unwrap_or_default();
    if median >= MEDIAN_LINES {
        findings.problem(format!(
            "the median file has {median} lines, expected fewer than {MEDIAN_LINES}: split files \
             that hold several nouns"
        ));
    }
}

fn check_file(file: &Path, text: &str, findings: &mut Findings) {
    let name = file.display();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        findings.problem(format!(
            "{name}: {lines} lines, at most {MOST_LINES}: a file is one noun"
        ));
    }
    for at in wide_comments(text) {
        findings.problem(format!(
            "{name}:{at}: a comment of more than {MOST_COLUMNS} columns"
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
    // Plugins below `tests/plugins` follow the rules of third-party code, not of tests.
    if !file.starts_with("tests/plugins") {
        for at in lost_nans(text).filter(|at| in_tests || *at > code_lines) {
            findings.problem(format!(
                "{name}:{at}: a fold by `f64::max` or the like loses a NaN, and the test passes: use \
                 `largest` or `largest_difference` of espalier-conformance"
            ));
        }
    }
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let at = index + 1;
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            findings.problem(format!("{name}:{at}: `{word}` marks missing work"));
        }
        if index < code_lines
            && let Some(own) = own_arithmetic::found(file, line)
        {
            findings.problem(format!(
                "{name}:{at}: `{own}`: a backend on a tensor library computes by that library"
            ));
        }
        if index < code_lines && line.contains(UNWRAP) {
            findings.problem(format!(
                "{name}:{at}: `{UNWRAP}` outside tests: use `expect(\"why\")`"
            ));
        }
    }
}

/// The lines, counted from 1, of comments that are too wide. Tables and quoted texts, which are
/// indented or fenced, cannot be wrapped.
fn wide_comments(text: &str) -> impl Iterator<Item = usize> {
    let mut fenced = false;
    let mut is_wide = move |line: &str| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            return false;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        fenced ^= comment.trim_start().starts_with("```");
        let is_verbatim = fenced || comment.starts_with(" |") || comment.starts_with("     ");
        let has_words = comment.trim().contains(' ');
        !is_verbatim && has_words && line.chars().count() > MOST_COLUMNS
    };
    let lines: Vec<usize> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| is_wide(line))
        .map(|(at, _)| at)
        .collect();
    lines.into_iter()
}

/// The lines, counted from 1, of the start of a fold over floats that ignores a NaN.
fn lost_nans(text: &str) -> impl Iterator<Item = usize> {
    let begins = FOLDS
        .iter()
        .flat_map(|fold| text.match_indices(fold).map(|(at, _)| at + fold.len()));
    let loses = |&begin: &usize| {
        let body = arguments(&text[begin..]);
        let has = |word: &str| body.contains(word);
        let method = has(".max(") || has(".min(");
        DROPS_NAN.iter().any(|path| has(path)) || method && names_floats(body)
    };
    let mut lines: Vec<usize> = begins
        .filter(loses)
        .filter(|&begin| !is_comment(text, begin))
        .map(|begin| text[..begin].lines().count())
        .collect();
    lines.sort_unstable();
    lines.into_iter()
}

/// The text before the bracket that closes a call.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let closes = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    };
    text.find(closes).map_or(text, |end| &text[..end])
}

/// Whether the text has a number with a point, or the name of a float type.
fn names_floats(text: &str) -> bool {
    let point = |three: &[u8]| three[0].is_ascii_digit() && three[1..] == *b".0";
    text.contains("f64") || text.contains("f32") || text.as_bytes().windows(3).any(point)
}

/// Whether the line of `at` is a comment.
fn is_comment(text: &str, at: usize) -> bool {
    let line = text[..at].rsplit('\n').next().unwrap_or_default();
    line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests;
