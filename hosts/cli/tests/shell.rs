//! `host completions` and `host manual`: every command is in them, and shells read them.

use std::fs;
use std::process::Command;

use espalier_torture::built::program;

/// The standard output of `host` with `words`.
fn printed(words: &[&str]) -> String {
    let output = Command::new(program()).args(words).output();
    let output = output.expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The commands that `host --help` lists.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]);
    let (_, listed) = help.split_once("Commands:\n").expect("a list");
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let names = listed
        .filter(|line| !line.starts_with("   "))
        .filter_map(first);
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

#[test]
fn completions_name_every_command_and_are_bash() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["host", "espalier"] {
        for shell in ["bash", "zsh", "fish"] {
            let text = printed(&["completions", shell, "--name", name]);
            for command in commands() {
                assert!(text.contains(&command), "{shell} has no `{command}`");
            }
            assert!(text.contains(name), "{shell}");
        }
        let script = folder.path().join(name);
        let text = printed(&["completions", "bash", "--name", name]);
        fs::write(&script, text).expect("written");
        // Bash completes the first word of a command line.
        let asked = format!(
            "source {}; COMP_WORDS=({name} tra); COMP_CWORD=1; _{name} {name} tra {name}; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &asked]).output();
        let output = output.expect("bash");
        let found = String::from_utf8_lossy(&output.stdout);
        assert_eq!(found.trim(), "train", "{output:?}");
    }
}

#[test]
fn a_name_that_is_no_program_is_refused() {
    let output = Command::new(program())
        .args(["completions", "bash", "--name", "a b"])
        .output()
        .expect("the host starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("expected the name of a program"), "{said}");
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    printed(&["manual", "--out", out.to_str().expect("UTF-8")]);
    assert!(out.join("host.1").is_file());
    for command in commands() {
        let page = fs::read_to_string(out.join(format!("host-{command}.1")));
        let page = page.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(page.starts_with(".ie"), "{command}: {page}");
        // What its help ends with.
        assert!(page.contains("Example"), "{command} has no example");
    }
}
