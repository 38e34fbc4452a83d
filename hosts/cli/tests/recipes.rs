//! The recipes of `configs/cluster`: scripts that a shell parses, options that the program has, and
//! a hostfile for mpirun.

use std::path::{Path, PathBuf};
use std::process::Command;

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../configs/cluster")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(recipe(name)).expect("it is shipped")
}

#[test]
fn scripts_parse_in_bash_and_use_existing_options() {
    let help = Command::new(env!("CARGO_BIN_EXE_host"))
        .args(["train", "--help"])
        .output();
    let help = String::from_utf8(help.expect("it runs").stdout).expect("text");
    for name in ["mpirun.sh", "slurm.sbatch"] {
        let read_by_bash = Command::new("bash").arg("-n").arg(recipe(name)).status();
        assert!(read_by_bash.expect("bash is there").success(), "{name}");
        let script = read(name);
        let (_, command) = script
            .split_once("host train --plugins")
            .expect("it trains");
        let command = command.split("\n\n").next().expect("a command");
        let options = command
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        for option in options {
            assert!(help.contains(&format!("{option} ")), "{name}: {option}");
        }
    }
}

#[test]
fn the_hostfile_names_machines_with_equal_slots() {
    let lines = read("hostfile");
    let lines = lines
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let slots: Vec<u32> = lines
        .map(
            |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [_, slots] => slots
                    .strip_prefix("slots=")
                    .and_then(|count| count.parse().ok()),
                _ => None,
            },
        )
        .map(|slots| slots.expect("NAME slots=N"))
        .collect();
    assert!(
        slots.len() > 1 && slots.iter().all(|&count| count == slots[0]),
        "{slots:?}"
    );
    let all = format!("PROCESSES:-{}", slots.iter().sum::<u32>());
    assert!(read("mpirun.sh").contains(&all), "the script starts {all}");
}
