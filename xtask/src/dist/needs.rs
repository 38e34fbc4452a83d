//! Programs -> the system libraries that they need, with the newest symbol version of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;

/// `libc.so.6 (GLIBC_2.34 or newer)` and so on, sorted by library.
///
/// # Errors
/// Where a file is not a 64-bit ELF file.
pub fn of(programs: &[PathBuf]) -> Result<Vec<String>> {
    let mut newest = BTreeMap::new();
    for program in programs {
        let data = fs::read(program)?;
        read(&data, &mut newest)
            .with_context(|| format!("cannot read the needs of {}", program.display()))?;
    }
    Ok(newest
        .into_iter()
        .map(|(library, version)| format!("{library} ({version} or newer)"))
        .collect())
}

fn read(data: &[u8], newest: &mut BTreeMap<String, String>) -> Result<()> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((mut libraries, strings)) = sections.gnu_verneed(endian, data)? else {
        return Ok(());
    };
    let strings = sections.strings(endian, data, strings)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    while let Some((library, mut versions)) = libraries.next()? {
        let file = library.file(endian, strings);
        let file = text(file.ok().context("a library without a name")?);
        while let Some(version) = versions.next()? {
            let name = version.name(endian, strings);
            let name = text(name.ok().context("a version without a name")?);
            let known = newest.entry(file.clone()).or_default();
            if numbers(&name) > numbers(known) {
                *known = name;
            }
        }
    }
    Ok(())
}

/// `GLIBC_2.34` -> `[2, 34]`.
fn numbers(version: &str) -> Vec<u32> {
    let digits = version.rsplit('_').next().unwrap_or_default();
    digits
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("GLIBC_2.34") > numbers("GLIBC_2.5"));
        assert!(numbers("GLIBC_2.2.5") > numbers("GLIBC_2.2"));
    }

    #[test]
    fn this_test_needs_the_c_library() {
        let own = std::env::current_exe().expect("a path");
        let needs = of(&[own]).expect("an ELF file");
        assert!(needs.iter().any(|need| need.contains("GLIBC_2.")));
    }
}
