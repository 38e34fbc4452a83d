//! `host import`: a config of another trainer as one of this program's.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use espalier_config::{Sources, resolve};
use espalier_import::{Imported, import};
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use crate::arguments::ImportArguments;
use crate::display;

/// Prints or writes the config, and says what has no counterpart.
pub fn run(arguments: &ImportArguments, out: &mut dyn Write) -> Result<()> {
    let file = &arguments.file;
    let read = fs::read_to_string(file);
    let text = read.with_context(|| format!("cannot read {}", file.display()))?;
    let imported = import(&text).map_err(|error| {
        Error::Usage(UsageError {
            message: format!("{} cannot be taken over: {error}", file.display()),
            next_step: "correct the file, or write a config by `host config`".to_owned(),
        })
    })?;
    check(&imported, file)?;
    let toml = imported.to_toml(&file.display().to_string());
    say(&imported);
    let Some(to) = &arguments.out else {
        write!(out, "{toml}")?;
        return Ok(());
    };
    write_new(to, &toml)?;
    writeln!(out, "config    {}", to.display())?;
    writeln!(out, "next      host plan --config {}", to.display())?;
    Ok(())
}

/// Requires that the values are ones of the config.
fn check(imported: &Imported, file: &Path) -> Result<()> {
    let values = serde_json::to_value(&imported.config)?;
    let values = values.as_object().cloned().unwrap_or_default();
    let sources = Sources::default().recorded(&file.display().to_string(), values);
    resolve(&sources).map_err(Error::from)?;
    Ok(())
}

/// What differs, and what is missing, a line for each key.
fn say(imported: &Imported) {
    for (what, remarks) in [
        ("needless", &imported.needless),
        ("differs", &imported.differs),
        ("no counterpart", &imported.lacks),
    ] {
        for remark in remarks {
            display::say(&format!("{what}: {}: {}", remark.key, remark.why));
        }
    }
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Error::Usage(UsageError {
                message: format!("{} is there already", path.display()),
                next_step: "name another file with --out".to_owned(),
            })
            .into());
        }
        made => made.with_context(|| format!("cannot write {}", path.display()))?,
    };
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}
