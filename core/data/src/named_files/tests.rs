//! Names of data files and of parts of a dataset -> paths, or what is missing.

use std::fs;

use super::*;

/// A cache with one dataset of the given files.
fn cache(files: &[&str]) -> (tempfile::TempDir, HubCache) {
    let root = tempfile::tempdir().expect("a directory");
    let repository = root.path().join("datasets--org--rows");
    fs::create_dir_all(repository.join("refs")).expect("refs");
    fs::write(repository.join("refs/main"), "abc").expect("a revision");
    for file in files {
        let path = repository.join("snapshots/abc").join(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, "{}").expect("a file");
    }
    let cache = HubCache::at(root.path());
    (root, cache)
}

fn found(cache: &HubCache, name: &str, part: RepositoryPart) -> Result<Vec<String>, String> {
    let files = named_files(cache, &[name.into()], part).map_err(|e| e.to_string())?;
    let file = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into();
    Ok(files.iter().map(file).collect())
}

#[test]
fn names_tell_the_part() {
    let files = [
        "data/train-1.parquet",
        "data/train-0.parquet",
        "data/test-0.parquet",
        "README.md",
    ];
    let (_root, cache) = cache(&files);
    let of = |part| found(&cache, "org/rows", part).expect("found");
    assert_eq!(
        of(RepositoryPart::Training),
        ["train-0.parquet", "train-1.parquet"]
    );
    assert_eq!(of(RepositoryPart::HeldOut), ["test-0.parquet"]);
}

#[test]
fn without_telling_names_all_files_are_meant() {
    let (_root, cache) = cache(&["rows.jsonl"]);
    assert_eq!(
        found(&cache, "org/rows", RepositoryPart::Training).expect("found"),
        ["rows.jsonl"]
    );
}

#[test]
fn what_is_missing_is_told_with_its_remedy() {
    let (_root, cache) = cache(&["README.md"]);
    let none = found(&cache, "org/rows", RepositoryPart::Training).expect_err("no rows");
    assert!(none.contains("no .jsonl, .json or .parquet"), "{none}");
    let absent =
        named_files(&cache, &["org/other".into()], RepositoryPart::Training).expect_err("absent");
    let DataError::Repository(error) = absent else {
        panic!("{absent}")
    };
    assert!(
        error
            .to_string()
            .contains("hf download --repo-type dataset org/other"),
        "{error}"
    );
}

#[test]
fn paths_stay_as_they_are() {
    let (_root, cache) = cache(&[]);
    for path in ["data/train.jsonl", "train.jsonl", "/abs/rows", "a/b/c"] {
        let files =
            named_files(&cache, &[path.into()], RepositoryPart::Training).expect("as it is");
        assert_eq!(files, [PathBuf::from(path)]);
    }
}
