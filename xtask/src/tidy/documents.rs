//! Checks the width of prose in Markdown files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Findings;
use super::sources::MOST_COLUMNS;
use crate::workspace::Workspace;

pub fn check(workspace: &Workspace, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
    {
        let text = fs::read_to_string(workspace.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        for line in wide_lines(&text) {
            findings.problem(format!(
                "{}:{line}: prose of more than {MOST_COLUMNS} columns",
                file.display()
            ));
        }
    }
    Ok(())
}

/// The lines, counted from 1, of prose that is too wide. Tables, fenced and indented text, and
/// lines of one word, such as a link, cannot be wrapped.
fn wide_lines(text: &str) -> Vec<usize> {
    let mut fenced = false;
    let mut is_wide = move |line: &str| {
        let content = line.trim_start();
        let is_fence = content.starts_with("```");
        fenced ^= is_fence;
        let is_verbatim =
            fenced || is_fence || line.starts_with("    ") || content.starts_with('|');
        let words = content.trim_start_matches("- ").trim_end();
        !is_verbatim && words.contains(' ') && line.chars().count() > MOST_COLUMNS
    };
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| is_wide(line))
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_that_can_be_wrapped_is_found() {
        let words = " word".repeat(20);
        let link = format!("https://example.org/{}", "a".repeat(MOST_COLUMNS));
        for prose in [format!("Says{words}"), format!("- Says{words}")] {
            assert_eq!(wide_lines(&format!("# A\n\n{prose}\n")), [3], "{prose}");
        }
        for verbatim in [
            format!("| a |{words}"),
            format!("    code{words}"),
            format!("```\ncode{words}\n```"),
            format!("- [a]({link})"),
            "é".repeat(MOST_COLUMNS),
        ] {
            assert_eq!(wide_lines(&format!("{verbatim}\n")), [0; 0], "{verbatim}");
        }
        let after_a_fence = format!("```\ncode{words}\n```\nSays{words}\n");
        assert_eq!(wide_lines(&after_a_fence), [4]);
    }
}
