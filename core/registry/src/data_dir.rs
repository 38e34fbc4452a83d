//! The program's folder of data that belong to the user and to no run.

use std::env;
use std::path::PathBuf;

/// The folder of data that belong to the user and to no run: `espalier` in the user's data
/// directory.
pub fn data_dir() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/share"));
    let data_home = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data_home = data_home.filter(|path| path.is_absolute()).or_else(home)?;
    Some(data_home.join("espalier"))
}
