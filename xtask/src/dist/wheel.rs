//! The Python package and the host -> a wheel, whose bytes depend on its content alone.
//!
//! The format is PEP 427's; the names are those of "binary distribution format" of PyPA's
//! specifications.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::VERSION;

/// The package, and the folder of its sources in the repository.
const PACKAGE: &str = "espalier_train";
const SOURCES: &str = "hosts/python/espalier_train";
/// The systems on which it runs: those with this glibc or a newer one.
const PLATFORM: &str = "manylinux_2_35_x86_64";

/// Writes the wheel of the sources below `root` and of `host` into `out`, and returns its path.
///
/// # Errors
/// Where a file cannot be read or written.
pub fn write(root: &Path, host: &Path, out: &Path) -> Result<PathBuf> {
    let path = out.join(format!("{PACKAGE}-{VERSION}-py3-none-{PLATFORM}.whl"));
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut wheel = Wheel {
        zip: ZipWriter::new(file),
        record: String::new(),
    };
    for name in names(&root.join(SOURCES))? {
        let content = fs::read(root.join(SOURCES).join(&name))?;
        wheel.add(&format!("{PACKAGE}/{name}"), &content, 0o644)?;
    }
    wheel.add(&format!("{PACKAGE}/bin/host"), &fs::read(host)?, 0o755)?;
    let information = format!("{PACKAGE}-{VERSION}.dist-info");
    let license = fs::read(root.join("LICENSE"))?;
    for (name, content) in [
        ("METADATA", metadata().into_bytes()),
        ("WHEEL", about().into_bytes()),
        ("entry_points.txt", entry_points().into_bytes()),
        ("licenses/LICENSE", license),
    ] {
        wheel.add(&format!("{information}/{name}"), &content, 0o644)?;
    }
    wheel.end(&format!("{information}/RECORD"))?;
    Ok(path)
}

/// A wheel while it is written, and the lines of its RECORD.
struct Wheel {
    zip: ZipWriter<File>,
    record: String,
}

impl Wheel {
    fn add(&mut self, name: &str, content: &[u8], mode: u32) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            .last_modified_time(DateTime::default())
            .unix_permissions(mode);
        self.zip.start_file(name, options)?;
        self.zip.write_all(content)?;
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        self.record += &format!("{name},sha256={digest},{}\n", content.len());
        Ok(())
    }

    fn end(mut self, name: &str) -> Result<()> {
        let record = format!("{}{name},,\n", self.record);
        self.add(name, record.as_bytes(), 0o644)?;
        self.zip.finish()?.sync_all()?;
        Ok(())
    }
}

/// The sources' names, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".py") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn metadata() -> String {
    format!(
        "Metadata-Version: 2.4
Name: espalier-train
Version: {VERSION}
Summary: Fine-tunes large language models on hardware that has no room for them
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
"
    )
}

fn about() -> String {
    format!(
        "Wheel-Version: 1.0
Generator: espalier xtask {VERSION}
Root-Is-Purelib: false
Tag: py3-none-{PLATFORM}
"
    )
}

/// The program under its other name: a `host` would hide bind9's.
fn entry_points() -> String {
    format!("[console_scripts]\nespalier = {PACKAGE}.__main__:main\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_wheel_is_what_python_reads_and_starts_its_host() {
        let scratch = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let host = scratch.path().join("host");
        fs::write(&host, "#!/bin/sh\necho \"the host: $*\"\n").expect("written");
        let write_to = |name: &str| {
            let out = scratch.path().join(name);
            fs::create_dir(&out).expect("a folder");
            write(&root, &host, &out).expect("a wheel")
        };
        let [wheel, again] = ["first", "second"].map(write_to);
        assert_eq!(
            fs::read(&wheel).expect("read"),
            fs::read(again).expect("read")
        );
        // As installers do: each file is the recorded one, and executable files stay so.
        let script = "
import base64, csv, hashlib, io, os, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
[record] = [name for name in wheel.namelist() if name.endswith('.dist-info/RECORD')]
rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
assert sorted(row[0] for row in rows) == sorted(wheel.namelist())
for name, digest, size in rows:
    if name != record:
        found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b'=')
        assert digest == 'sha256=' + found.decode() and int(size) == len(wheel.read(name)), name
for entry in wheel.infolist():
    path = wheel.extract(entry, sys.argv[2])
    if entry.external_attr >> 16 & 0o111:
        os.chmod(path, 0o755)
";
        let site = scratch.path().join("site");
        let read = Command::new("python3")
            .args(["-c", script])
            .args([&wheel, &site])
            .output()
            .expect("python3");
        assert!(read.status.success(), "{read:?}");
        let started = Command::new("python3")
            .args(["-m", PACKAGE, "--version"])
            .env("PYTHONPATH", &site)
            .env_remove("ESPALIER_HOST")
            .output()
            .expect("python3");
        let said = String::from_utf8_lossy(&started.stdout);
        assert_eq!(said, "the host: --version\n", "{started:?}");
    }
}
