//! A folder with damaged models, rows and adapters -> the program's result.
#![allow(dead_code)] // Each test uses a part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

/// A folder with two rows; models are copied into it by name.
pub struct RunFolder(pub tempfile::TempDir, tempfile::TempDir);

/// How the program ended.
pub struct Outcome {
    code: Option<i32>,
    stderr: String,
}

/// The bytes of a safetensors file.
pub struct Weights(pub Vec<u8>);

impl RunFolder {
    pub fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        // The probe record of libraries belongs to no run.
        let place = RunFolder(folder(), folder());
        let row = |start: u32| json!({"input_ids": (start..start + 12).collect::<Vec<_>>()});
        place.write("rows.jsonl", &format!("{}\n{}\n", row(5), row(40)));
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Changes a JSON file.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Json)) {
        let mut value = serde_json::from_str(&self.read(name)).expect("JSON");
        edit(&mut value);
        self.write(name, &value.to_string());
    }

    /// Copies the golden model.
    pub fn model(&self, name: &str) {
        copy_directory("tiny-trained", &self.path(name));
    }

    /// Copies a golden packed checkpoint, its dense source, or an adapter.
    pub fn packed(&self, variant: &str, name: &str) {
        copy_directory(&format!("../packed/{variant}"), &self.path(name));
    }

    /// The sorted names in a directory; empty if it does not exist.
    pub fn names(&self, directory: &str) -> String {
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return String::new();
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.map(|e| name(e.expect("an entry"))).collect();
        names.sort();
        names.join(" ")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(self.0.path()).stderr(Stdio::piped());
        command.env("XDG_DATA_HOME", self.1.path());
        command
    }

    pub fn run(&self, command: &mut Command) -> Outcome {
        command.env("XDG_DATA_HOME", self.1.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOST__")) {
            command.env_remove(name);
        }
        let output = command.current_dir(self.0.path()).output();
        Outcome::new(&output.expect("the program starts"))
    }

    pub fn host(&self, arguments: &str) -> Outcome {
        self.run(self.command().args(arguments.split_whitespace()))
    }

    /// The arguments of two short steps on two rows, and of `more`.
    pub fn words(model: &str, more: &str) -> Vec<String> {
        let line = format!(
            "train --threads 1 --data rows.jsonl --set model.compute=f32 --set run.epochs=2 \
             --set run.max_steps=2 --model {model} {more}"
        );
        line.split_whitespace().map(str::to_owned).collect()
    }

    pub fn train(&self, model: &str, more: &str) -> Outcome {
        self.run(self.command().args(RunFolder::words(model, more)))
    }
}

impl Outcome {
    pub fn new(output: &Output) -> Self {
        Outcome {
            code: output.status.code(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
    }

    /// Whether standard error has `words`.
    pub fn told(&self, words: &str) -> bool {
        self.stderr.contains(words)
    }

    /// Ended with `code` and without a panic; the last line has a next step and all of `words`,
    /// which are separated by ` | `. What a signal stopped is no error.
    pub fn refused(&self, case: &str, code: i32, words: &str) {
        let all = &self.stderr;
        assert!(!all.contains("panicked"), "{case}: {all}");
        assert_eq!(self.code, Some(code), "{case}: {all}");
        let line = all.lines().last().unwrap_or_default();
        let begin = if code > 128 {
            "stopped by signal "
        } else {
            "error: "
        };
        let shaped = line.starts_with(begin) && line.contains("; next: ");
        assert!(shaped, "{case}: {all}");
        for word in words.split(" | ") {
            assert!(line.contains(word), "{case}: no {word:?} in {line}");
        }
    }
}

impl Weights {
    pub fn edit(path: &Path, edit: impl FnOnce(&mut Weights)) {
        let mut weights = Weights(fs::read(path).expect("weights"));
        edit(&mut weights);
        fs::write(path, &weights.0).expect("written");
    }

    /// The header, and the offset of the data.
    fn parsed(&self) -> (Json, usize) {
        let length = u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"));
        let start = 8 + length as usize;
        (
            serde_json::from_slice(&self.0[8..start]).expect("a header"),
            start,
        )
    }

    pub fn header(&mut self, edit: impl FnOnce(&mut Json)) {
        let (mut header, start) = self.parsed();
        edit(&mut header);
        let text = header.to_string();
        let length = (text.len() as u64).to_le_bytes();
        self.0 = [&length[..], text.as_bytes(), &self.0[start..]].concat();
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        self.header(|header| {
            let tensors = header.as_object_mut().expect("a header");
            let entry = tensors.shift_remove(from).expect("a tensor");
            tensors.insert(to.to_owned(), entry);
        });
    }

    /// The bytes of a tensor.
    pub fn data(&mut self, name: &str) -> &mut [u8] {
        let (header, start) = self.parsed();
        let offset = |at: usize| {
            header[name]["data_offsets"][at]
                .as_u64()
                .expect("an offset")
        };
        &mut self.0[start + offset(0) as usize..start + offset(1) as usize]
    }
}

/// Copies a directory of the golden data, which has no links.
pub fn copy_directory(golden: &str, to: &Path) {
    let llama = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama");
    fs::create_dir(to).expect("created");
    for entry in fs::read_dir(llama.join(golden)).expect("a directory") {
        let entry = entry.expect("an entry");
        let bytes = fs::read(entry.path()).expect("a file");
        fs::write(to.join(entry.file_name()), bytes).expect("written");
    }
}

/// Every file below a directory with its bytes.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match fs::read(&path) {
            Ok(bytes) => drop(files.insert(path, bytes)),
            Err(_) => files.extend(contents(&path)),
        }
    }
    files
}
