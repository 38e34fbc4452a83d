//! `host plugins pack` and `install`: a library -> an archive -> a plugin that a run finds; damaged
//! and foreign archives are refused, and nothing of them is written.

mod place;
use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use place::contents;
use serde_json::Value as Json;
use training::{Training, refused};

/// The members of an archive with their names.
type Members = Vec<(String, Vec<u8>)>;

/// A folder with an archive of the shipped plugin `nf4`.
struct Folder {
    training: Training,
    archive: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let training = Training::new("--set run.max_steps=1");
        let mut folder = Folder {
            training,
            archive: PathBuf::new(),
        };
        fs::write(folder.path("LICENSE"), "Do as you like.\n").expect("written");
        let library = built::library("nf4");
        let words = format!(
            "plugins pack {} --license LICENSE --out dist",
            library.display()
        );
        succeeded(&folder.host(&words));
        let packed = fs::read_dir(folder.path("dist")).expect("a folder").next();
        folder.archive = packed.expect("an archive").expect("an entry").path();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.training.path(name)
    }

    fn host(&self, words: &str) -> Output {
        let mut command = self.training.program();
        command.args(words.split_whitespace());
        Self::ended(command)
    }

    /// Runs `command` with the installed plugins first: only folders that `HOST_PLUGIN_PATH` names
    /// come before them.
    fn ended(mut command: Command) -> Output {
        command.env_remove("HOST_PLUGIN_PATH");
        command.output().expect("the host starts")
    }

    fn members(&self) -> Members {
        members(&self.archive)
    }

    /// Writes an archive of `members` and installs it.
    fn install(&self, members: &Members) -> Output {
        let path = self.path("other.tar.gz");
        fs::write(&path, archive(members)).expect("written");
        self.host("plugins install other.tar.gz")
    }
}

fn members(archive: &Path) -> Members {
    let file = fs::File::open(archive).expect("an archive");
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().expect("members").map(|entry| {
        let mut entry = entry.expect("a member");
        let name = entry.path().expect("a name").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("its bytes");
        (name, bytes)
    });
    entries.collect()
}

/// A compressed archive, also with names that `tar` does not write.
fn archive(members: &Members) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).expect("in memory");
    }
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(&tar.into_inner().expect("in memory"))
        .expect("in memory");
    zip.finish().expect("in memory")
}

/// Changes `plugin.json`, the first member.
fn with_manifest(mut members: Members, edit: impl FnOnce(&mut Json)) -> Members {
    let mut manifest = serde_json::from_slice(&members[0].1).expect("JSON");
    edit(&mut manifest);
    members[0].1 = manifest.to_string().into_bytes();
    members
}

fn succeeded(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    out.into_owned()
}

#[test]
fn a_packed_plugin_is_small_installs_and_serves_a_run() {
    let folder = Folder::new();
    let built = fs::metadata(built::library("nf4"))
        .expect("a library")
        .len();
    let members = folder.members();
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plugin.json", "libnf4.so", "LICENSE"]);
    let (packed, library) = (
        fs::read(&folder.archive).expect("bytes"),
        members[1].1.len(),
    );
    assert!(library * 2 < built as usize, "{library} of {built} bytes");
    assert!(
        packed.len() < library,
        "{} of {library} bytes",
        packed.len()
    );
    let manifest: Json = serde_json::from_slice(&members[0].1).expect("JSON");
    assert_eq!(manifest["components"][0]["name"], "nf4");
    assert_eq!(manifest["license_files"][0]["file"], "LICENSE");

    // The same library gives the same bytes; an archive is not overwritten.
    let library = built::library("nf4").display().to_string();
    let words = format!("plugins pack {library} --license LICENSE --out");
    succeeded(&folder.host(&format!("{words} again")));
    let again = folder
        .path("again")
        .join(folder.archive.file_name().expect("a name"));
    assert!(fs::read(again).expect("an archive") == packed);
    refused(
        &folder.host(&format!("{words} again")),
        2,
        "exists already",
        "again",
    );

    let install = format!("plugins install {}", folder.archive.display());
    let printed = succeeded(&folder.host(&install));
    assert!(printed.contains("nf4 0.1.0 is installed"), "{printed}");
    let sha256 = manifest["library"]["sha256"].as_str().expect("a hash");
    let shown = succeeded(&folder.host("plugins inspect nf4"));
    assert!(
        shown.contains(sha256) && shown.contains("probe      passed"),
        "{shown}"
    );
    let run = folder.training.command("out", "--plugins nf4,lora");
    succeeded(&Folder::ended(run));
    let run = fs::read_to_string(folder.path("out/run.json")).expect("a record");
    assert!(run.contains(sha256), "{run}");

    let printed = succeeded(&folder.host(&install));
    assert!(printed.contains("was installed already"), "{printed}");
    let installed = folder.path("data/espalier/plugins/libnf4.so");
    let mut other = fs::read(&installed).expect("a library");
    other.push(0);
    fs::write(&installed, other).expect("written");
    refused(
        &folder.host(&install),
        2,
        "is installed already | --replace",
        "another one",
    );
    succeeded(&folder.host(&format!("{install} --replace")));
    assert!(fs::read(&installed).expect("a library") == members[1].1);
}

/// Changes of the members of a whole archive, and words of what refuses each.
fn damages(whole: &Members) -> Vec<(&'static str, Members, &'static str)> {
    let mut flipped = whole.clone();
    let middle = flipped[1].1.len() / 2;
    flipped[1].1[middle] ^= 1;
    let named = |at: usize, name: &str| {
        let mut members = whole.clone();
        members[at].0 = name.to_owned();
        members
    };
    let edited = |edit: fn(&mut Json)| with_manifest(whole.clone(), edit);
    let more = [whole.clone(), vec![("more.so".to_owned(), vec![1])]].concat();
    let twice = [whole.clone(), vec![whole[2].clone()]].concat();
    vec![
        (
            "a flipped bit",
            flipped,
            "is not what was packed: expected sha256",
        ),
        (
            "a parent",
            named(1, "../libnf4.so"),
            "holds `../libnf4.so` | do not use it",
        ),
        ("a root", named(2, "/tmp/LICENSE"), "holds `/tmp/LICENSE`"),
        ("a folder", named(2, "a/LICENSE"), "holds `a/LICENSE`"),
        (
            "not first",
            named(0, "plugin.txt"),
            "begins with `plugin.txt`",
        ),
        ("one more", more, "`more.so` is not one of the files"),
        ("twice", twice, "`LICENSE` is in it twice"),
        ("one less", whole[..2].to_vec(), "it lacks `LICENSE`"),
        ("empty", Vec::new(), "it has no plugin.json"),
        (
            "another machine",
            edited(|manifest| manifest["target"] = "riscv64-unknown-linux-gnu".into()),
            "is for riscv64-unknown-linux-gnu, expected ",
        ),
        (
            "a later interface",
            edited(|manifest| manifest["interface"] = serde_json::json!([0, 99])),
            "built for plugin interface 0.99 | update this host",
        ),
        (
            "a later format",
            edited(|manifest| manifest["format"] = 2.into()),
            "has format 2, this host reads 1",
        ),
        (
            "a name that escapes",
            edited(|manifest| manifest["library"]["file"] = "../../lib.so".into()),
            "holds `../../lib.so`",
        ),
        (
            "another description",
            edited(|manifest| manifest["version"] = "9.9.9".into()),
            "its library describes another plugin than plugin.json",
        ),
    ]
}

#[test]
fn damaged_and_foreign_archives_are_refused_and_nothing_is_written() {
    let folder = Folder::new();
    for (case, members, words) in &damages(&folder.members()) {
        refused(&folder.install(members), 5, words, case);
    }
    let bytes = fs::read(&folder.archive).expect("an archive");
    for kept in [0, 9, 100, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
        fs::write(folder.path("cut.tar.gz"), &bytes[..kept]).expect("written");
        let output = folder.host("plugins install cut.tar.gz");
        refused(
            &output,
            5,
            "is no complete plugin archive",
            &format!("{kept} bytes"),
        );
    }
    let output = folder.host("plugins install none.tar.gz");
    refused(&output, 2, "cannot read", "no file");
    let data = folder.path("data/espalier/plugins");
    let left = if data.exists() {
        contents(&data)
    } else {
        Default::default()
    };
    let libraries = left
        .keys()
        .filter(|path| path.extension().is_some_and(|end| end == "so"));
    assert_eq!(libraries.count(), 0, "{:?}", left.keys());
}

#[test]
fn a_crate_that_is_not_built_or_has_no_licence_is_not_packed() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("crate/target/release")).expect("folders");
    let manifest = "[package]\nname = \"my-crate\"\nversion = \"0.1.0\"\nlicense = \"MIT\"\n";
    fs::write(folder.path("crate/Cargo.toml"), manifest).expect("written");
    let pack = "plugins pack crate";
    refused(
        &folder.host(pack),
        2,
        "target/release/libmy_crate.so | cargo build",
        "not built",
    );
    let library = folder.path("crate/target/release/libmy_crate.so");
    fs::copy(built::library("nf4"), &library).expect("copied");
    refused(
        &folder.host(pack),
        2,
        "no licence file in | --license FILE",
        "no licence",
    );
    fs::write(folder.path("crate/LICENSE-MIT"), "MIT\n").expect("written");
    succeeded(&folder.host(pack));
    let name = folder.archive.file_name().expect("a name");
    let manifest = &members(&folder.path(&name.to_string_lossy()))[0].1;
    let manifest: Json = serde_json::from_slice(manifest).expect("JSON");
    assert_eq!(
        (&manifest["license"], &manifest["name"]),
        (&"MIT".into(), &"nf4".into())
    );
    fs::write(&library, b"\x7fELF").expect("written");
    refused(
        &folder.host(pack),
        5,
        "truncated or damaged",
        "half a library",
    );
}
