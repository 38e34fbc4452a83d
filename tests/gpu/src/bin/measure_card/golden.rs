//! The tests with the peers' golden data, on the card: how many of each program pass.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::rows::Rows;
use crate::setting::Setting;

/// The program that has the tests of all modules.
const PROGRAM: &str = "golden_on_backend";

/// The tests' modules, the shortest first.
const MODULES: [&str; 8] = [
    "llama_golden",
    "ia3",
    "vera",
    "dora",
    "families_golden",
    "lora",
    "optimizers",
    "split",
];

/// The test that small runs keep.
const SMALL: &str = "llama_golden::a_padded_row_equals_a_shorter_row";

/// Characters of a failed test's last words that are kept.
const MOST_WORDS: usize = 1500;

/// Measures the part.
///
/// # Errors
/// Where a test fails; the other programs still run.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let mut failed = Vec::new();
    let filters: Vec<String> = if setting.is_small {
        vec![SMALL.to_owned()]
    } else {
        MODULES.iter().map(|module| format!("{module}::")).collect()
    };
    for filter in filters {
        let mut tests = setting.program(PROGRAM)?;
        tests.arg(&filter);
        tests.env("ESPALIER_TEST_BACKEND", "cuda");
        tests.env("ESPALIER_TESTS_TREE", &setting.tree);
        if let Some(folder) = &setting.kernels {
            let option = format!("backend.cuda.kernels={}", folder.display());
            tests.env("ESPALIER_TEST_SET", option);
        }
        let counts = run(&mut tests)?;
        let name = filter.trim_end_matches("::");
        rows.add(&json!({
            "program": name,
            "passed": counts.passed,
            "failed": counts.failed,
            "failures": counts.failures,
            "why": counts.why,
        }))?;
        if counts.failed > 0 || counts.passed == 0 {
            failed.push(name.to_owned());
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// What a program of tests said.
struct Counts {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    /// Last words, where a test failed.
    why: Option<String>,
}

/// Runs a program of tests.
fn run(tests: &mut Command) -> Result<Counts> {
    let output = tests.output().context("the tests cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = count(&text, "passed");
    let failures = text.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?;
        name.strip_suffix(" ... FAILED").map(str::to_owned)
    });
    let failures: Vec<String> = failures.collect();
    let is_whole = passed.is_some() && failures.is_empty();
    let why = (!is_whole).then(|| {
        let begin = text.find("failures:").unwrap_or_default();
        let words: String = text[begin..].chars().take(MOST_WORDS).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: String = errors.chars().take(MOST_WORDS).collect();
        format!("{}; {words} {errors}", output.status)
    });
    Ok(Counts {
        passed: passed.unwrap_or(0),
        // A program that ended early has failed at least one.
        failed: count(&text, "failed").unwrap_or(1),
        failures,
        why,
    })
}

/// The number before `word` in the line of results.
fn count(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("test result:"))?;
    let mut parts = line.split([';', '.']).map(str::trim);
    let number = parts.find_map(|part| part.strip_suffix(word))?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_program_of_tests_are_read() {
        let script = "echo 'test a::one ... ok'; echo 'test a::two ... FAILED'; echo 'failures:'; \
                      echo 'test result: FAILED. 10 passed; 1 failed; 2 ignored; finished in 1.5s'; exit 101";
        let counts = run(Command::new("sh").args(["-c", script])).expect("a shell");
        assert_eq!((counts.passed, counts.failed), (10, 1));
        assert_eq!(counts.failures, ["a::two"]);
        assert!(counts.why.is_some_and(|why| why.contains("101")));
        // It crashed before it told a result.
        let counts = run(Command::new("sh").args(["-c", "echo 'test a::one ... ok'; kill -9 $$"]));
        let counts = counts.expect("a shell");
        assert_eq!((counts.passed, counts.failed), (0, 1));
        assert!(counts.why.is_some());
    }
}
