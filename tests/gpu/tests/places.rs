//! Where CUDA's libraries are found: in the system, in folders of Python's packages, or nowhere,
//! which the program says with what to install.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use espalier_samples::leave_out;
use espalier_tests_gpu::{CASES, kernels, libraries};
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

/// A mock library, and where a Python's `site-packages` have it.
type Placed<'a> = (&'a str, &'a str);

const NVRTC: Placed = ("libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc.so.13");
const CUBLASLT: Placed = ("libcublasLt.so.13", "nvidia/cu13/lib/libcublasLt.so.13");

/// The variable with the version of CUDA that the mock driver serves.
const VERSION: &str = "MOCK_CUDA_VERSION";

/// The program on a machine with a driver in the system and a Python whose `site-packages` have
/// mock libraries.
fn on_machine(mut host: Command, training: &Training, libraries_placed: &[Placed]) -> Command {
    let mock = libraries(folder());
    let system = training.path("system");
    fs::create_dir_all(&system).expect("a folder");
    fs::copy(mock.join("libcuda.so.1"), system.join("libcuda.so.1")).expect("copied");
    let python = training.path("python");
    let packages = python.join("lib/python3.12/site-packages");
    fs::create_dir_all(&packages).expect("a folder");
    for (library, place) in libraries_placed {
        let to = packages.join(place);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(mock.join(library), to).expect("copied");
    }
    host.env("LD_LIBRARY_PATH", system)
        .env("VIRTUAL_ENV", python)
        .env("XDG_DATA_HOME", training.path("data"));
    for name in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"] {
        host.env_remove(name);
    }
    host
}

/// A training of one step on `cuda` of such a machine; without libraries also without compiled
/// kernels.
fn train(training: &Training, more: &str, libraries_placed: &[Placed]) -> Output {
    let cache = match libraries_placed {
        [] => training.path("kernels"),
        _ => kernels(folder()),
    };
    let cache = format!("--set backend.cuda.cache_dir={}", cache.display());
    let host = training.command("out", &format!("--backend cuda {cache} {more}"));
    let mut host = on_machine(host, training, libraries_placed);
    host.output().expect("the host starts")
}

/// What `host doctor` says of the card of such a machine, with a variable of the mock libraries
/// set.
fn diagnosed([name, value]: [&str; 2], libraries_placed: &[Placed]) -> String {
    let training = CASES[0].training("");
    let mut host = Command::new(program());
    host.arg("doctor").env(name, value);
    let mut host = on_machine(host, &training, libraries_placed);
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    let card = printed.lines().find(|line| line.contains("cuda:0"));
    card.unwrap_or_else(|| panic!("no card in {printed}"))
        .to_owned()
}

#[test]
fn the_compiler_is_found_in_the_folders_of_pythons_packages() {
    if has_cuda() {
        return;
    }
    for place in [NVRTC.1, "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"] {
        let training = CASES[0].training("--set run.max_steps=1");
        let output = train(&training, "", &[(NVRTC.0, place)]);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{place}: {}", last_line(&output));
    }
    let training = CASES[0].training("--set run.max_steps=1");
    let words = "NVRTC, cannot be used | pip install nvidia-cuda-nvrtc";
    refused(&train(&training, "", &[]), 5, words, "no compiler");
}

#[test]
fn the_library_of_products_is_found_in_the_folders_of_pythons_packages() {
    if has_cuda() {
        return;
    }
    for (version, place) in [
        ("13000", CUBLASLT.1),
        ("13000", "nvidia/cublas/lib/libcublasLt.so.12"),
        ("12080", "nvidia/cublas/lib/libcublasLt.so.12"),
    ] {
        let card = diagnosed([VERSION, version], &[(CUBLASLT.0, place)]);
        let by = "products of bf16 by cuBLASLt 13.0.2, sm_80+cublaslt13.0.2-bf16";
        assert!(card.contains(by), "{place}, driver {version}: {card}");
    }
}

/// A library of a later version than the driver's, or without a function, is as good as none.
#[test]
fn without_a_library_of_products_the_program_says_what_to_do() {
    if has_cuda() {
        return;
    }
    let other: Placed = (NVRTC.0, CUBLASLT.1);
    let install = "`pip install nvidia-cublas`";
    for (set, placed, why, remedy) in [
        (
            [VERSION, "13000"],
            &[][..],
            "cuBLASLt cannot be used: the system has no libcublasLt.so.13",
            install,
        ),
        (
            [VERSION, "12080"],
            &[CUBLASLT],
            "cuBLASLt cannot be used: the system has no libcublasLt.so.12",
            install,
        ),
        (
            [VERSION, "13000"],
            &[other],
            "cuBLASLt cannot be used: it lacks `cublasLtGetProperty`",
            install,
        ),
    ] {
        let card = diagnosed(set, placed);
        let own = "products of bf16 by kernels of the backend's own: ";
        for part in [own, why, remedy, ", sm_80, "] {
            assert!(card.contains(part), "{part:?} in {card}");
        }
    }
    let training = CASES[0].training("--set run.max_steps=1");
    let asked = "--set backend.cuda.products=cublaslt";
    let words =
        "backend.cuda.products = \"cublaslt\" | libcublasLt.so.13 | pip install nvidia-cublas";
    refused(&train(&training, asked, &[NVRTC]), 5, words, "no library");
    let output = train(&training, "", &[NVRTC]);
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
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
