//! cuBLASLt in runs over the mock libraries: when it is started, and which kernels of the backend's
//! own are compiled beside it.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{Case, ORDERS, kernels, libraries};
use espalier_torture::built::program;
use espalier_torture::training::{Trained, Training, last_line, messages, names, refused, trained};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Products of every kind in bf16. Rows are shorter than they may be.
const CASE: Case = Case {
    name: "products of bf16",
    compute: "bf16",
    words: "--plugins nf4,lora,single --set data.max_seq_len=64 --set run.max_steps=2",
    ranks: 1,
    bound: 5e-3,
};

/// Fewest rows, columns and depth that cuBLASLt takes: more than a step has tokens, fewer than it
/// may have.
const LEAST: &str = "16";

fn training() -> Training {
    // Ranks of adapters that are not below that.
    CASE.training("--set adapter.lora.rank=16")
}

/// The lines of a file that the mock cuBLASLt writes at each start.
fn starts(calls: &Path) -> Vec<String> {
    let text = fs::read_to_string(calls).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn cards_are_listed_without_starting_the_library() {
    let training = training();
    let calls = training.path("starts");
    let mut host = Command::new(program());
    host.args(["doctor", "--set"]);
    host.arg(format!(
        "backend.cuda.libraries={}",
        libraries(folder()).display()
    ));
    host.env("XDG_DATA_HOME", training.path("data"));
    host.env("XDG_CACHE_HOME", training.path("cache"));
    host.env("MOCK_CUDA_DEVICES", "3");
    host.env("MOCK_CUBLASLT_CALLS", &calls);
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    let listed = printed.matches("products of bf16 by cuBLASLt 13.0.2");
    assert_eq!(listed.count(), 3, "{printed}");
    // A product is computed on the first device, which is opened for it.
    assert_eq!(starts(&calls), ["0"]);
}

/// Ranks wait for each other while kernels are compiled.
#[test]
fn a_training_starts_the_library_once_for_each_card_that_it_opens() {
    let case = Case {
        words: "--plugins nf4,lora,fsdp --set run.max_steps=1 --set run.peer_timeout_secs=600",
        ranks: 2,
        ..CASE
    };
    let training = case.training("");
    let calls = training.path("starts");
    let mut host = training.command("out", "");
    let host = case.mocked(&mut host, folder(), ORDERS[0]);
    host.env("MOCK_CUBLASLT_CALLS", &calls);
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let mut starts = starts(&calls);
    starts.sort_unstable();
    assert_eq!(starts, ["0", "1"]);
}

/// The instruction set of a card in `run.json` says what computes its products.
#[test]
fn a_library_that_does_not_start_ends_the_run_with_what_to_do() {
    let training = training();
    let mut host = training.command("out", "");
    let host = CASE.mocked(&mut host, folder(), ORDERS[0]);
    let output = host.env("MOCK_CUBLASLT_OLD", "1").output();
    let words = "start: CUBLAS_STATUS_NOT_INITIALIZED of version 13.0.2 | update NVIDIA's driver | backend.cuda.products = \"own\"";
    refused(&output.expect("the host starts"), 5, words, "an old driver");
}

/// Trains with products of a kind into folder `out`, with a variable of the mock cuBLASLt set, and
/// returns the sources that were compiled but those that every training compiles, which `common`
/// has.
fn compiled(
    training: &Training,
    common: &Path,
    [out, products, least]: [&str; 3],
) -> (Vec<String>, Trained) {
    let cache = training.path(&format!("{out}-kernels"));
    let more = format!(
        "--backend cuda --set backend.cuda.products={products} --set backend.cuda.libraries={} --set backend.cuda.kernels={} --set backend.cuda.cache_dir={}",
        libraries(folder()).display(),
        common.display(),
        cache.display(),
    );
    let mut host = training.command(out, &more);
    host.env("MOCK_CUDA_ORDER", ORDERS[0]);
    host.env("MOCK_CUBLASLT_LEAST", least);
    let output = host.output().expect("the host starts");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{out}: {}",
        messages(&output)
    );
    let source = |name: &String| name.split("-sm_").next().unwrap_or_default().to_owned();
    let mut sources: Vec<String> = names(&cache).iter().map(source).collect();
    sources.dedup();
    (sources, trained(&training.path(out)))
}

/// The kernels that a training compiles, but those of products, in a folder.
fn without_products(training: &Training) -> std::path::PathBuf {
    let to = training.path("common");
    fs::create_dir(&to).expect("a folder");
    CASE.on_cuda(training, folder(), ORDERS[0]);
    for file in fs::read_dir(kernels(folder())).expect("kernels") {
        let file = file.expect("an entry");
        let name = file.file_name().to_string_lossy().into_owned();
        if !name.starts_with("product_") && !name.starts_with("finish-") {
            fs::hard_link(file.path(), to.join(&name)).expect("linked");
        }
    }
    to
}

#[test]
fn own_products_are_compiled_where_the_library_has_none_and_with_the_same_bits() {
    let training = training();
    let common = without_products(&training);
    let of = |run| compiled(&training, &common, run);
    // It adds the second of two matrices to a product.
    let (sources, _) = of(["library", "cublaslt", "1"]);
    assert_eq!(sources, ["finish"]);
    let (sources, own) = of(["own", "own", "1"]);
    assert_eq!(sources, ["product_bf16"]);
    // Prepared for more tokens, which the library would multiply.
    let (sources, refused) = of(["refused", "cublaslt", LEAST]);
    assert_eq!(sources, ["finish", "product_bf16"]);
    assert_eq!(refused, own);
}
