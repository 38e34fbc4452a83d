//! Bytes as a run's own files: its config, and a checkpoint's.

use std::{fs, str};

use espalier_config::{Sources, resolve};
use espalier_system::failure::Failure;
use espalier_system::files::{TensorStore, hash_bytes};
use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};

use crate::place::{parts, place, write};

/// Resolves a run's TOML.
pub fn config(data: &[u8]) {
    let path = place(|_| ()).join("run.toml");
    write(&path, data);
    match resolve(&Sources::default().file(&path)) {
        Ok(resolved) => assert!(!format!("{:?}", resolved.config()).is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(text) = str::from_utf8(data) {
        // The same text as values of `--set`.
        let lines = text.lines().take(8);
        let set = lines.fold(Sources::default(), |sources, line| sources.set(line));
        if let Err(error) = resolve(&set) {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Chooses the checkpoint from which a run resumes: `checkpoint.json` below its hash, a zero byte,
/// `params.safetensors`.
///
/// Hashes are corrected, or no code after their check would be reached: `@HASH` and `@SIZE` are
/// replaced by those of the second file.
pub fn checkpoint(data: &[u8]) {
    let out = place(|_| ()).join("out");
    let folder = out.join("checkpoints/step-4");
    fs::create_dir_all(&folder).expect("a folder");
    let (manifest, params) = parts(data);
    let manifest = replaced(manifest, b"@HASH", &hash_bytes(params));
    let manifest = replaced(&manifest, b"@SIZE", &params.len().to_string());
    let head = format!("{{\n  \"sha256\": \"{}\",\n", hash_bytes(&manifest));
    write(
        &folder.join("checkpoint.json"),
        &[head.as_bytes(), &manifest].concat(),
    );
    let file = folder.join("params.safetensors");
    write(&file, params);
    match Checkpoints::of(&out).choose(ResumeFrom::Newest) {
        Ok(chosen) => {
            let chosen = chosen.expect("there is one");
            assert_eq!(chosen.manifest.progress.step, 4);
            if let Err(error) = TensorStore::open(&file) {
                assert_eq!(error.exit_class().code(), 4, "{error}");
            }
        }
        Err(error) => assert_eq!(error.exit_code(), 4, "{error}"),
    }
}

fn replaced(bytes: &[u8], from: &[u8], to: &str) -> Vec<u8> {
    let mut made = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|piece| piece == from) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(to.as_bytes());
        rest = &rest[at + from.len()..];
    }
    made.extend_from_slice(rest);
    made
}
