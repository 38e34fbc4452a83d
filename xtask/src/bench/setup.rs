//! A folder with a model of random weights, rows and plugins, and the times of runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::random_model::Shape;
use crate::metrics;
use crate::workspace::{Workspace, run};

/// The model.
const RANDOM: Shape = Shape::new([1024, 3, 16, 8, 2816, 2048]);

/// A folder with a model of random weights, rows and plugins.
pub struct BenchSetup<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
}

impl<'a> BenchSetup<'a> {
    /// Builds the host and these sample plugins, writes config and rows, and has the host make
    /// random weights.
    ///
    /// # Errors
    /// Where a build or the host fails.
    pub fn prepare(workspace: &'a Workspace, samples: &[&str]) -> Result<Self> {
        let setup = BenchSetup {
            workspace,
            folder: workspace.target.join("bench"),
        };
        RANDOM.make_inputs(&setup.folder, 64, 128)?;
        fs::create_dir_all(setup.folder.join("plugins"))?;
        let host = ["build", "--release", "--quiet", "--package", "espalier-cli"];
        run(workspace.cargo().args(host))?;
        for sample in samples {
            workspace.put_sample(sample, &setup.folder.join("plugins"))?;
        }
        setup.make_model()?;
        Ok(setup)
    }

    fn make_model(&self) -> Result<()> {
        let random = ["--set", "model.init=random", "--set", "run.max_steps=0"];
        self.host(&self.folder.join("model"), "random", &random)
    }

    /// Trains in `out` with further arguments.
    fn host(&self, model: &Path, out: &str, more: &[&str]) -> Result<()> {
        let mut host = Command::new(self.workspace.target.join("release/host"));
        host.current_dir(&self.folder)
            .args(["train", "--quiet", "--data", "rows.jsonl", "--out", out])
            .args(["--plugin-dir", "plugins"])
            .args(["--set", "model.compute=f32", "--model"])
            .arg(model)
            .args(more);
        run(&mut host)
    }

    /// The step times of two kinds of alternating runs. The first step of each, which touches
    /// memory for the first time, is left out.
    ///
    /// # Errors
    /// Where a run fails.
    pub fn in_turns(&self, runs: [&[&str]; 2], rounds: usize, steps: usize) -> Result<[Times; 2]> {
        let mut secs = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (run, secs) in runs.iter().zip(&mut secs) {
                secs.extend(self.steps(run, steps)?.into_iter().skip(1));
            }
        }
        Ok(secs.map(Times::of))
    }

    /// The step times of a run, in seconds.
    fn steps(&self, more: &[&str], steps: usize) -> Result<Vec<f64>> {
        let out = self.folder.join("run");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let steps = format!("run.max_steps={steps}");
        let model = self.folder.join("random/model");
        self.host(&model, "run", &[&["--set", &steps], more].concat())?;
        metrics::numbers(&out, "step_secs")
    }
}

/// The step times of one kind of run, in seconds.
pub struct Times {
    /// The shortest.
    pub least: f64,
    /// The median.
    pub median: f64,
}

impl Times {
    fn of(mut secs: Vec<f64>) -> Self {
        secs.sort_by(f64::total_cmp);
        Times {
            least: secs[0],
            median: secs[secs.len() / 2],
        }
    }
}
