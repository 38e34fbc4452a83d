//! The environment -> the program's folder of files that it can make again.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variable that names the folder; empty: there is none.
const VARIABLE: &str = "HOST_CACHE_DIR";

/// The folder of files that the program can make again: `HOST_CACHE_DIR`, else `espalier` in the
/// user's cache directory (`XDG_CACHE_HOME`, `~/.cache`). None where the variable is empty or no
/// variable names a folder.
pub fn cache_directory() -> Option<PathBuf> {
    named_by(|name| env::var_os(name))
}

fn named_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(named) = variable(VARIABLE) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let home = || Some(PathBuf::from(variable("HOME")?).join(".cache"));
    let cache_home = variable("XDG_CACHE_HOME").map(PathBuf::from);
    // The specification has relative paths ignored.
    let cache_home = cache_home.filter(|path| path.is_absolute()).or_else(home)?;
    Some(cache_home.join("espalier"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_own_variable_wins_and_an_empty_one_means_none() {
        let of = |given: &[(&str, &str)]| {
            let given: Vec<(String, OsString)> = given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect();
            named_by(|name| {
                let found = given.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone())
            })
        };
        let home = ("HOME", "/home/u");
        assert_eq!(
            of(&[home]).as_deref(),
            Some(Path::new("/home/u/.cache/espalier"))
        );
        let xdg = ("XDG_CACHE_HOME", "/cache");
        assert_eq!(
            of(&[home, xdg]).as_deref(),
            Some(Path::new("/cache/espalier"))
        );
        let relative = of(&[home, ("XDG_CACHE_HOME", "cache")]);
        assert_eq!(
            relative.as_deref(),
            Some(Path::new("/home/u/.cache/espalier"))
        );
        let own = of(&[home, xdg, (VARIABLE, "/own")]);
        assert_eq!(own.as_deref(), Some(Path::new("/own")));
        assert_eq!(of(&[home, (VARIABLE, "")]), None);
        assert_eq!(of(&[]), None);
    }
}
