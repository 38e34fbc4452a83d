//! One sealed copy for each hash, and builds of one path.

use std::fs;

use super::*;

fn content(bytes: &[u8]) -> Content {
    let mut file = tempfile::tempfile().expect("room");
    file.write_all(bytes).expect("room");
    file.rewind().expect("a file");
    let bytes = read_mapped(&mut file, bytes.len()).expect("memory");
    let sha256 = hash_bytes(&bytes);
    Content {
        file,
        bytes,
        sha256,
    }
}

#[test]
fn a_file_of_another_length_is_not_read() {
    let mut file = tempfile::tempfile().expect("room");
    file.write_all(b"three").expect("room");
    for size in [4, 6] {
        file.rewind().expect("a file");
        let error = read_mapped(&mut file, size).expect_err("five bytes");
        assert!(error.to_string().contains("changed"), "{error}");
    }
}

#[test]
fn each_hash_has_one_copy_that_cannot_be_changed() {
    let path = Path::new("/no/such/place.so");
    let placed = |bytes: &[u8]| content(bytes).place(path).expect("memory").path;
    let (first, second) = (placed(b"one"), placed(b"two"));
    assert_ne!(first, second);
    assert_eq!(placed(b"one"), first);
    let elsewhere = content(b"two").place(Path::new("/other.so"));
    assert_eq!(elsewhere.expect("memory").path, second);
    assert_eq!(fs::read(&second).expect("a copy"), b"two");
    fs::write(&second, "three").expect_err("sealed");
    assert_eq!(fs::read(&second).expect("a copy"), b"two");
}

#[test]
fn builds_of_one_path_are_opened_by_different_spellings_and_rewritten_ones_not_at_all() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("lib.so");
    let mut opened = Opened::default();
    let mut put = |bytes: &[u8], is_new: bool| {
        if is_new {
            fs::write(path.with_extension("new"), bytes).expect("room");
            fs::rename(path.with_extension("new"), &path).expect("the same folder");
        } else {
            fs::write(&path, bytes).expect("room");
        }
        let content = Content::read(&path).expect("just written");
        opened.original(&path, content).map(|place| place.path)
    };
    let first = put(b"one", true).expect("new");
    let second = put(b"two", true).expect("new");
    assert_eq!(first.as_os_str(), path.as_os_str());
    assert_ne!(first.as_os_str(), second.as_os_str());
    assert_eq!(
        fs::canonicalize(&second).ok(),
        fs::canonicalize(&first).ok()
    );
    let rewritten = put(b"three", false).expect_err("in place").to_string();
    assert!(rewritten.contains("rewritten in place"), "{rewritten}");
}

#[test]
fn code_of_another_file_is_refused() {
    let file = tempfile::tempfile().expect("room");
    file.set_len(10).expect("room");
    let place = PlacedLibrary {
        path: PathBuf::new(),
        original: Some((file, "another".to_owned())),
    };
    let here = code_of_another_file_is_refused as *const () as usize;
    assert_eq!(place.check(here), Err(LibraryFault::Exchanged));
}
