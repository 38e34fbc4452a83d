//! A folder without search permission as working directory: commands that write there are refused
//! with a message.

mod place;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use espalier_samples::{Facility, lacks};
use place::{Outcome, RunFolder, copy_directory};

/// Root can search any folder unless it drops that capability.
const WITHOUT_RIGHTS: [&str; 2] = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"];

/// Command prefix for a user without these rights; `None` if this machine has no such user.
fn user() -> Option<Vec<&'static str>> {
    if fs::metadata("/proc/self").expect("Linux").uid() != 0 {
        return Some(Vec::new());
    }
    let [program, rights] = WITHOUT_RIGHTS;
    let tried = Command::new(program).args([rights, "true"]).output();
    let why = match tried {
        Ok(tried) if tried.status.success() => return Some(WITHOUT_RIGHTS.to_vec()),
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    lacks(Facility::FewerRights, &why);
    None
}

#[test]
fn commands_that_write_into_an_unsearchable_folder_are_refused() {
    let Some(user) = user() else {
        return;
    };
    let place = RunFolder::new();
    place.model("model");
    copy_directory("adapter_trained_f32", &place.path("adapter"));
    fs::create_dir(place.path("locked")).expect("created");
    let [model, adapter, rows] =
        ["model", "adapter", "rows.jsonl"].map(|name| place.path(name).display().to_string());
    for line in [
        format!("merge --model {model} --adapter {adapter} --out out"),
        format!("quantize --model {model} --plugins nf4 --out out"),
        format!("quantize --model {model} --plugins nf4 --out far/below/out"),
        format!("train --model {model} --plugins lora --data {rows} --out out"),
    ] {
        let words = user.iter().copied();
        let mut words = words.chain(["sh", "-c", "chmod 0 . && exec \"$@\"", "sh"]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).arg(env!("CARGO_BIN_EXE_host"));
        command.args(line.split_whitespace());
        command.env("XDG_DATA_HOME", place.path("data"));
        let output = command.current_dir(place.path("locked")).output();
        let open = fs::Permissions::from_mode(0o700);
        fs::set_permissions(place.path("locked"), open).expect("ours");
        let outcome = Outcome::new(&output.expect("it starts"));
        outcome.refused(&line, 2, "ermission denied | choose another");
        assert_eq!(place.names("locked"), "", "{line}");
    }
}
