//! Where CUDA's libraries are found: in the system, in folders of Python's packages, or nowhere,
//! which the program says with what to install.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use espalier_samples::leave_out;
use espalier_tests_gpu::{CASES, libraries};
use espalier_torture::built::program;
use espalier_torture::training::{Training, last_line, refused};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Whether this machine has a driver or a toolkit of its own, which would be found first.
fn has_cuda() -> bool {
    let own = ["/dev/nvidiactl", "/usr/local/cuda"];
    let found = own.into_iter().find(|path| Path::new(path).exists());
    if let Some(path) = found {
        leave_out(&format!("this machine has {path}"));
    }
    found.is_some()
}

/// A training of one step on `cuda` with a driver in the system and a Python whose `site-packages`
/// have the mock compiler as `nvrtc`.
fn train(training: &Training, nvrtc: &str) -> Output {
    let mock = libraries(folder());
    let system = training.path("system");
    fs::create_dir_all(&system).expect("a folder");
    fs::copy(mock.join("libcuda.so.1"), system.join("libcuda.so.1")).expect("copied");
    let python = training.path("python");
    let packages = python.join("lib/python3.12/site-packages");
    fs::create_dir_all(&packages).expect("a folder");
    if !nvrtc.is_empty() {
        let to = packages.join(nvrtc);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(mock.join("libnvrtc.so.13"), to).expect("copied");
    }
    let cache = folder().join("mock-cuda-kernels");
    let cache = format!("--set backend.cuda.cache_dir={}", cache.display());
    let mut host = training.command("out", &format!("--backend cuda {cache}"));
    host.env("LD_LIBRARY_PATH", system)
        .env("VIRTUAL_ENV", python);
    for name in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"] {
        host.env_remove(name);
    }
    host.output().expect("the host starts")
}

#[test]
fn the_compiler_is_found_in_the_folders_of_pythons_packages() {
    if has_cuda() {
        return;
    }
    let files = [
        "nvidia/cu13/lib/libnvrtc.so.13",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ];
    for file in files {
        let training = CASES[0].training("--set run.max_steps=1");
        let output = train(&training, file);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{file}: {}", last_line(&output));
    }
    let training = CASES[0].training("--set run.max_steps=1");
    let words = "NVRTC, cannot be used | pip install nvidia-cuda-nvrtc";
    refused(&train(&training, ""), 5, words, "no compiler");
}

#[test]
fn without_a_driver_the_backend_is_listed_with_what_to_install() {
    if has_cuda() {
        return;
    }
    let remedy = "install NVIDIA's driver";
    let place = CASES[0].training("");
    let mut host = Command::new(program());
    host.arg("doctor").env("XDG_DATA_HOME", place.path("data"));
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    let line = printed.lines().find(|line| line.contains(remedy));
    let line = line.unwrap_or_else(|| panic!("no {remedy:?} in {printed}"));
    assert!(
        line.contains("cuda: ") && line.contains("libcuda.so.1"),
        "{line}"
    );
    // The other backends are as usable as before.
    assert!(printed.contains("(backend cpu)"), "{printed}");
    let output = place.run("out", "--backend cuda");
    refused(&output, 5, remedy, "training without a driver");
}
