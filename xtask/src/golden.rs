//! Computes the golden numbers of the committed models and data again, with the original peers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask golden`.
#[derive(Args)]
pub struct GoldenOptions {
    /// A Python with the packages of tests/golden/scripts/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    python: PathBuf,
    /// Where to write [default: the target directory's `golden`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes the golden data to a separate folder and prints the differences from the committed data.
///
/// # Errors
/// Where Python lacks a package, a script fails, or a number differs by more than rounding.
pub fn regenerate(workspace: &Workspace, options: &GoldenOptions) -> Result<()> {
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("golden"));
    let golden = workspace.root.join("tests/golden");
    let scripts = golden.join("scripts");
    let requirements = scripts.join("requirements.txt");
    let modules = format!("{PEERS}, compressed_tensors, gguf");
    require_modules(&options.python, &requirements, &modules)?;
    let script = |name: &str| {
        let mut command = Command::new(&options.python);
        command
            .arg(scripts.join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    run(script("bnb.py").current_dir(&out))?;
    run(script("make_hqq.py").current_dir(&out))?;
    for made in [
        "make_llama.py",
        "make_bf16.py",
        "make_families.py",
        "make_longrope.py",
        "make_generation.py",
        "make_gptq.py",
        "make_awq.py",
        "make_ia3.py",
        "make_vera.py",
        "make_config_keys.py",
        "make_optimizers.py",
        "make_adamw8bit.py",
        "make_true_bf16.py",
        "make_dora.py",
        "make_expand.py",
        "make_gguf.py",
        "make_higgs.py",
        "make_hira.py",
        "make_lora.py",
        "make_split.py",
    ] {
        run(script(made).arg(&golden).arg(&out))?;
    }
    run(script("make_packed.py").arg(&out))?;
    run(script("make_ops.py").arg(&out))?;
    run(script("make_packed_hqq.py").arg(&golden).arg(&out))?;
    run(script("make_compressed_tensors.py").arg(&golden).arg(&out))?;
    run(script("make_int4.py").arg(&golden).arg(&out))?;
    run(script("chat.py").arg(&out))?;
    run(script("chat_tools.py").arg(&out))?;
    run(script("compare.py").arg(&golden).arg(&out))
        .context("the golden data differs; the peers' versions or the processor may be others")?;
    println!(
        "\nmade in {}; to adopt it, copy it over {}",
        out.display(),
        golden.display()
    );
    Ok(())
}

/// The modules of every program that uses peers.
const PEERS: &str = "torch, transformers, peft, bitsandbytes, hqq, safetensors, tokenizers";

/// Prints missing packages before a script fails half-way.
///
/// # Errors
/// Where Python cannot run or cannot import a peer.
pub fn require(python: &Path, requirements: &Path) -> Result<()> {
    require_modules(python, requirements, PEERS)
}

fn require_modules(python: &Path, requirements: &Path, modules: &str) -> Result<()> {
    let output = Command::new(python)
        .args(["-c", &format!("import {modules}")])
        .output()
        .with_context(|| format!("cannot run {}: pass --python PYTHON", python.display()))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let why = error.lines().last().unwrap_or("unknown error");
        bail!(
            "{} lacks a peer ({why}); install what {} lists, for example with `{} -m pip install -r {}`",
            python.display(),
            requirements.display(),
            python.display(),
            requirements.display(),
        );
    }
    Ok(())
}
