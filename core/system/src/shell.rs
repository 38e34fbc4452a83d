//! A word, a path or a program -> its form in a command line that can be copied to a shell.

use std::borrow::Cow;
use std::fs;
use std::path::{self, Component, Path, PathBuf};

/// The program, and its name on machines that have another `host`.
const NAMES: [&str; 2] = ["host", "espalier"];

/// The name by which this program was started, if it is one of its own; else `host`.
pub fn own_name() -> &'static str {
    named(&std::env::args().next().unwrap_or_default())
}

/// The own name in `started`, which may be a path.
fn named(started: &str) -> &'static str {
    let name = Path::new(started).file_name().unwrap_or_default();
    let own = NAMES.into_iter().find(|own| name == *own);
    own.unwrap_or(NAMES[0])
}

/// `line` with the commands that it names as [`own_name`] starts them.
pub fn by_own_name(line: &str) -> Cow<'_, str> {
    renamed(line, own_name())
}

fn renamed<'a>(line: &'a str, name: &str) -> Cow<'a, str> {
    if name == NAMES[0] {
        return line.into();
    }
    line.replace(&format!("`{} ", NAMES[0]), &format!("`{name} "))
        .into()
}

/// `word` unchanged where a shell needs no quotes, in single quotes otherwise.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./=,:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// `path` as it is found from any folder, without `..` where it exists. Itself where the present
/// folder was removed.
pub fn absolute(path: &Path) -> PathBuf {
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    let real = goes_up.then(|| fs::canonicalize(path).ok()).flatten();
    real.or_else(|| path::absolute(path).ok())
        .unwrap_or_else(|| path.to_owned())
}

/// As [`absolute`], quoted.
pub fn path(path: &Path) -> String {
    quoted(&absolute(path).display().to_string())
}

/// The program that was started as `name`: a path is made absolute, a plain name is searched for by
/// the shell.
pub fn program(name: &str) -> String {
    if name.contains('/') {
        path(Path::new(name))
    } else {
        quoted(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_from_any_folder() {
        let here = std::env::current_dir().expect("a folder");
        assert_eq!(path(Path::new("/my runs")), "'/my runs'");
        let below = quoted(&here.join("bin/host").display().to_string());
        assert_eq!(program("bin/host"), below);
        assert_eq!(program("host"), "host");
        assert_eq!(
            absolute(Path::new("./../")),
            here.parent().expect("a folder")
        );
        assert_eq!(absolute(Path::new("no/../way")), here.join("no/../way"));
    }

    #[test]
    fn commands_are_named_as_the_program_was_started() {
        for (started, expected) in [
            ("espalier", "see `espalier doctor` of the host"),
            ("/bin/espalier", "see `espalier doctor` of the host"),
            ("/bin/host", "see `host doctor` of the host"),
            ("other", "see `host doctor` of the host"),
            ("", "see `host doctor` of the host"),
        ] {
            let found = renamed("see `host doctor` of the host", named(started));
            assert_eq!(found, expected, "{started}");
        }
    }

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        assert_eq!(quoted("runs/first-1"), "runs/first-1");
        assert_eq!(quoted("my runs/$x"), "'my runs/$x'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
