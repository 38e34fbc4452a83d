//! A folder that may not be searched, in which the program runs: what writes there is refused, and
//! says so.

mod place;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use espalier_samples::{Facility, lacks};
use place::{Outcome, Place, copy_directory};

/// Root may search any folder, unless it gives up the right to.
const WITHOUT_RIGHTS: [&str; 2] = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"];

/// What a command of a user begins with who may not do all; `None` where this machine gives no such
/// user.
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
fn what_writes_into_a_folder_that_may_not_be_searched_is_refused() {
    let Some(user) = user() else {
        return;
    };
    let place = Place::new();
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
