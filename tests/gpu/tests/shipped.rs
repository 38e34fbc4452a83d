//! The kernels that `cargo xtask gpu pack --arch` ships are all that trainings with the shipped
//! quantizers and the kit of ops ask for: over mock libraries without a compiler.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use espalier_backend_cuda::Recorder;
use espalier_conformance::ops;
use espalier_tests_gpu::{Case, ORDERS, kernels, libraries, shipped};
use espalier_torture::training::{Training, messages, refused, trained};
use tempfile::TempDir;

/// The mock card's compute capability.
const CAPABILITY: [i32; 2] = [8, 0];

/// Mock libraries that a machine without a compiler has.
const WITHOUT_COMPILER: [&str; 2] = ["libcuda.so.1", "libcublasLt.so.13"];

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The names of the shipped kernels' files, up to the compiler's version.
fn listed() -> &'static HashSet<String> {
    static LISTED: OnceLock<HashSet<String>> = OnceLock::new();
    LISTED.get_or_init(|| {
        let recorder = Recorder::new(libraries(folder()), CAPABILITY).expect("the mock compiler");
        let listed = shipped(&recorder, CAPABILITY).expect("described formats");
        listed.iter().map(|of| recorder.stem(of)).collect()
    })
}

/// A machine without a compiler.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let made = tempfile::tempdir().expect("a folder");
        for name in WITHOUT_COMPILER {
            fs::copy(libraries(folder()).join(name), made.path().join(name)).expect("copied");
        }
        Machine(made)
    }

    /// Puts those of the kernels that other tests compiled which are shipped into a folder.
    fn with_shipped(self) -> Self {
        let listed = listed();
        fs::create_dir(self.kernels()).expect("a folder");
        let compiled = fs::read_dir(kernels(folder())).expect("kernels");
        for file in compiled {
            let file = file.expect("an entry");
            let name = file.file_name().to_string_lossy().into_owned();
            let stem = name.split("-nvrtc").next().expect("the first part");
            // Not those that another process is about to write.
            if name.ends_with(".cubin") && listed.contains(stem) {
                fs::hard_link(file.path(), self.kernels().join(&name)).expect("linked");
            }
        }
        self
    }

    fn kernels(&self) -> PathBuf {
        self.0.path().join("kernels")
    }

    /// A training on it, into the folder `out`.
    fn train(&self, training: &Training, out: &str) -> Output {
        let mut host = training.command(out, "--backend cuda");
        for (key, path) in [
            ("libraries", self.0.path().to_owned()),
            ("kernels", self.kernels()),
            ("cache_dir", training.path("empty")),
        ] {
            host.arg("--set");
            host.arg(format!("backend.cuda.{key}={}", path.display()));
        }
        host.env("MOCK_CUDA_ORDER", ORDERS[0]);
        host.output().expect("the host starts")
    }
}

fn case(words: &'static str, compute: &'static str) -> Case {
    Case {
        name: words,
        compute,
        words,
        ranks: 1,
        bound: 0.0,
    }
}

/// Its blocks of 32 do not divide the rows of 176 of this model's down projections.
const MXFP4: &str = "--plugins mxfp4,lora,single \
                     --set sites=[{match=\"*.down_proj\",quantizer=\"none\"}]";

/// In f32: attention in bf16 is shipped for the head sizes of models, of which this one has none.
#[test]
fn trainings_with_shipped_quantizers_need_no_compiler() {
    for (words, compute) in [
        ("--plugins nf4,lora,single", "f32"),
        ("--plugins fp4,lora,single", "f32"),
        ("--plugins int8,lora,single", "f32"),
        ("--plugins hqq,lora,single", "f32"),
        (MXFP4, "f32"),
        ("--plugins nvfp4,lora,single", "f32"),
        ("--plugins nf4,dora,single", "f32"),
    ] {
        let case = case(words, compute);
        let training = case.training("--set run.max_steps=2");
        let expected = case.on_cuda(&training, folder(), ORDERS[0]);
        let output = Machine::new().with_shipped().train(&training, "shipped");
        let said = messages(&output);
        assert_eq!(output.status.code(), Some(0), "{words}, {compute}: {said}");
        assert_eq!(trained(&training.path("shipped")), expected, "{words}");
        assert!(
            !training.path("empty").exists(),
            "{words}: a file was written"
        );
    }
}

/// Ops whose kernels are compiled in more than one way. Those of attention are shipped for the head
/// sizes of models, and the kit has others.
const OPS: [&str; 6] = [
    "op.linear",
    "op.linear_input_backward",
    "op.linear_weight_backward",
    "op.matmul",
    "op.param_value",
    "op.adapted_row_norms",
];

#[test]
fn the_kit_of_ops_needs_no_compiler() {
    for op in OPS {
        assert!(ops::all().any(|check| check.name == op), "no check {op}");
        let check = |libraries: &Path, kernels: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_check_op"));
            command.args([op, "", "own"]).arg(libraries).arg(kernels);
            let output = command.output().expect("the check runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let compiled = kernels(folder());
        assert_eq!(check(libraries(folder()), &compiled), "passed", "{op}");
        let machine = Machine::new().with_shipped();
        let said = check(machine.0.path(), &machine.kernels());
        assert_eq!(said, "passed", "{op} without a compiler");
    }
}

#[test]
fn a_format_that_is_not_shipped_is_refused_with_what_to_do() {
    let case = case("--plugins nf4,lora,single", "f32");
    // With all kernels but those of the other blocks.
    case.on_cuda(&case.training("--set run.max_steps=1"), folder(), ORDERS[0]);
    let words = "--set quantizer.nf4.block_size=32 --set run.max_steps=1";
    let training = case.training(words);
    let machine = Machine::new().with_shipped();
    let output = machine.train(&training, "out");
    let kernels = machine.kernels();
    let kernels = kernels.display();
    let words = format!(
        "the decoder of this format of quantizer `nf4` cannot be used | decode.cu` is not among the kernels for sm_80 in {kernels} (backend.cuda.kernels) and | pip install nvidia-cuda-nvrtc"
    );
    refused(&output, 5, &words, "blocks of 32");
}
