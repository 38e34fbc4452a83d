//! Short trainings of a tiny model over the mock libraries, in several orders of the streams.

use std::path::Path;
use std::process::Command;

use espalier_torture::training::{Trained, Training, last_line, trained};

/// Orders in which work that streams leave open runs: as late as it can, as early as it can, by
/// chance.
pub const ORDERS: [&str; 3] = ["late", "early", "17"];

/// The environment variable with which every training runs, in every order of the streams.
pub const ALL_TRAININGS: &str = "ESPALIER_TESTS_ALL_TRAININGS";

/// A training.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The dtype that it computes in.
    pub compute: &'static str,
    /// What follows on the command line.
    pub words: &'static str,
    /// Ranks, each with a device of its own.
    pub ranks: usize,
    /// Largest relative difference of a step's loss from that on `cpu`. f32: sums in another order;
    /// bf16: values between products are rounded at other places, by 2^-9 each.
    pub bound: f64,
}

/// A case of LoRA on NF4.
const fn case(name: &'static str, compute: &'static str, words: &'static str) -> Case {
    Case {
        name,
        compute,
        words,
        ranks: 1,
        bound: if matches!(compute.as_bytes(), b"f32") {
            1e-4
        } else {
            5e-3
        },
    }
}

const SINGLE: &str = "--plugins nf4,lora,single";
const PARAMS: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=params";
const ALL: &str = "--plugins nf4,lora,fsdp --set sharding.fsdp.offload=params+optimizer";

/// All trainings, the cheapest first.
pub const CASES: [Case; 6] = [
    case("single, f32", "f32", SINGLE),
    case("single, bf16", "bf16", SINGLE),
    case("fsdp with offload of params, f32", "f32", PARAMS),
    case("fsdp with offload, bf16", "bf16", ALL),
    Case {
        ranks: 2,
        ..case("fsdp with offload of params, f32, 2 devices", "f32", PARAMS)
    },
    Case {
        ranks: 2,
        ..case("fsdp with offload, f32, 2 devices", "f32", ALL)
    },
];

impl Case {
    /// The training; `more` follows on the command line.
    pub fn training(&self, more: &str) -> Training {
        Training::new(&format!(
            "{} --set adapter.lora.rank=4 --set model.compute={} --ranks {} {more}",
            self.words, self.compute, self.ranks
        ))
    }

    /// The results on `cpu`.
    ///
    /// # Panics
    /// Where the run fails.
    pub fn on_cpu(&self, training: &Training) -> Trained {
        training.succeed("cpu", "--backend cpu")
    }

    /// The results over the mock libraries, built into `folder`, in an order of the streams.
    ///
    /// # Panics
    /// Where the run fails.
    pub fn on_cuda(&self, training: &Training, folder: &Path, order: &str) -> Trained {
        self.succeed(training, folder, order, [order, ""])
    }

    /// The results of a run in folder `out`; `more` follows on the command line.
    ///
    /// # Panics
    /// Where the run fails.
    pub fn succeed(
        &self,
        training: &Training,
        folder: &Path,
        order: &str,
        [out, more]: [&str; 2],
    ) -> Trained {
        let mut host = training.command(out, more);
        let output = self.mocked(&mut host, folder, order).output();
        let output = output.expect("the host starts");
        let code = output.status.code();
        assert_eq!(code, Some(0), "{self:?} {order}: {}", last_line(&output));
        trained(&training.path(out))
    }

    /// `host` over the mock libraries, built into `folder`, in an order of the streams.
    pub fn mocked<'a>(&self, host: &'a mut Command, folder: &Path, order: &str) -> &'a mut Command {
        let libraries = crate::libraries(folder).display();
        let cache = crate::kernels(folder);
        host.args(["--backend", "cuda", "--set"]);
        host.arg(format!("backend.cuda.libraries={libraries}"));
        host.arg("--set");
        host.arg(format!("backend.cuda.cache_dir={}", cache.display()));
        host.env("MOCK_CUDA_ORDER", order);
        host.env("MOCK_CUDA_DEVICES", self.ranks.to_string())
    }

    /// Requires that losses are within the bound of those on `cpu`.
    ///
    /// # Panics
    /// Where they are not.
    pub fn assert_near(&self, ours: &Trained, cpu: &Trained) {
        let [ours, cpu] = [losses(ours), losses(cpu)];
        assert_eq!(ours.len(), cpu.len(), "{self:?}");
        assert!(!cpu.is_empty(), "{self:?}: no losses");
        for (step, (ours, cpu)) in ours.iter().zip(&cpu).enumerate() {
            let difference = (ours - cpu).abs() / cpu.abs();
            assert!(
                difference <= self.bound,
                "{}, step {step}: loss {ours}, on cpu {cpu}",
                self.name
            );
        }
    }
}

/// The losses of a run's steps.
fn losses(of: &Trained) -> Vec<f64> {
    let losses = of.metrics.iter().map(|line| line[1].as_f64());
    losses.flatten().collect()
}
