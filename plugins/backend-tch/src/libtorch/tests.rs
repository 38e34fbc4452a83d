//! Folders with and without files of libtorch's names -> the one that is used, or the error.

use super::*;

/// A folder with the files that are looked for, empty, and a `version.py`.
fn folder_of(version: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("lib")).expect("made");
    for file in FILES {
        fs::write(folder.path().join(file), "").expect("written");
    }
    let text = format!("from typing import Optional\n__version__ = '{version}'\n");
    fs::write(folder.path().join("version.py"), text).expect("written");
    folder
}

fn surroundings(libtorch: &Path) -> Surroundings {
    Surroundings {
        libtorch: Some(libtorch.as_os_str().to_owned()),
        ..Surroundings::default()
    }
}

#[test]
fn a_missing_file_is_named_with_how_to_get_it() {
    let folder = folder_of("2.13.0");
    fs::remove_file(folder.path().join("lib/libtorch_cpu.so")).expect("removed");
    let error = find_in(None, &surroundings(folder.path())).unwrap_err();
    assert_eq!(error.code, ErrorCode::DEVICE);
    let file = folder.path().join("lib/libtorch_cpu.so");
    let text = &error.message;
    assert!(
        text.starts_with(&format!("{} does not exist", file.display())),
        "{text}"
    );
    assert!(
        text.contains("cargo xtask setup-libtorch") && text.contains("LIBTORCH="),
        "{text}"
    );
}

#[test]
fn another_version_is_refused_with_both_versions() {
    let folder = folder_of("2.12.1+cpu");
    let error = find_in(None, &surroundings(folder.path())).unwrap_err();
    let text = &error.message;
    assert!(
        text.contains("expected libtorch 2.13.0, found 2.12.1+cpu in"),
        "{text}"
    );
    // The archives of libtorch have another file, which comes first.
    let folder = folder_of("2.13.0");
    fs::write(folder.path().join("build-version"), "2.7.0+cu128\n").expect("written");
    let error = find_in(None, &surroundings(folder.path())).unwrap_err();
    assert!(error.message.contains("found 2.7.0+cu128"), "{error}");
}

#[test]
fn an_unknown_version_is_refused() {
    let folder = folder_of("2.13.0");
    fs::remove_file(folder.path().join("version.py")).expect("removed");
    let error = find_in(None, &surroundings(folder.path())).unwrap_err();
    assert!(error.message.contains("version"), "{error}");
    assert!(error.message.contains("expected 2.13.0"), "{error}");
}

#[test]
fn the_option_is_used_before_the_environment_and_that_before_the_folder_near_the_host() {
    let (option, variable) = (folder_of("2.13.0+cu130"), folder_of("2.13.0"));
    let host = tempfile::tempdir().expect("a folder");
    let torch = host.path().join("libtorch/torch");
    fs::create_dir_all(torch.join("lib")).expect("made");
    let mut around = surroundings(variable.path());
    around.program = Some(host.path().join("release/host"));
    let named = option.path().to_str().expect("plain");
    assert_eq!(find_in(Some(named), &around).unwrap().folder, option.path());
    assert_eq!(find_in(None, &around).unwrap().folder, variable.path());
    around.libtorch = None;
    let error = find_in(None, &around).unwrap_err();
    assert!(
        error.message.contains(&torch.display().to_string()),
        "{error}"
    );
    for file in FILES {
        fs::write(torch.join(file), "").expect("written");
    }
    fs::write(torch.join("build-version"), "2.13.0+cpu").expect("written");
    assert_eq!(find_in(None, &around).unwrap().folder, torch);
}

#[test]
fn a_python_without_torch_is_told() {
    let around = Surroundings {
        python: Some(Err("`python3` has no package `torch`".to_owned())),
        ..Surroundings::default()
    };
    let error = find_in(None, &around).unwrap_err();
    assert!(
        error.message.contains("`python3` has no package `torch`"),
        "{error}"
    );
}

#[test]
fn a_libtorch_without_cuda_is_named_with_how_to_get_one() {
    let folder = folder_of("2.13.0+cpu");
    let libtorch = find_in(None, &surroundings(folder.path())).expect("it has its files");
    let error = cuda(&libtorch).unwrap_err();
    assert_eq!(error.code, ErrorCode::DEVICE);
    let text = &error.message;
    let file = folder.path().join("lib/libtorch_cuda.so");
    let begin = format!(
        "backend.tch.device is `cuda`, but {} does not exist",
        file.display()
    );
    assert!(text.starts_with(&begin), "{text}");
    for words in [
        "without CUDA",
        "LIBTORCH=DIR",
        "backend.tch.device = \"cpu\"",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    fs::write(folder.path().join("lib/libtorch_hip.so"), "").expect("written");
    let error = cuda(&libtorch).unwrap_err();
    assert!(error.message.contains("built for ROCm"), "{error}");
    fs::write(&file, "").expect("written");
    assert_eq!(cuda(&libtorch).expect("it is there"), file);
}
