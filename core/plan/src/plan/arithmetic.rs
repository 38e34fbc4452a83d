//! A plan -> the numbers from which its memory and traffic follow, to check them by hand.

use std::fmt;

use espalier_compile::params::Param;
use espalier_interface::WeightLayout;
use espalier_interface::model::UnitKind;
use espalier_interface::schedule::{Act, When};
use serde::Serialize;

use super::{Mover, RunPlan};

/// The numbers of a plan; fields whose name ends in `bytes` are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Arithmetic {
    /// Elements of packed frozen weights.
    pub packed_weights: u64,
    /// Bytes of packed frozen weights.
    pub packed_bytes: u64,
    /// Elements of dense frozen weights: embedding tables and norms.
    pub dense_weights: u64,
    /// Bytes of dense frozen weights.
    pub dense_bytes: u64,
    /// Frozen bytes of the largest layer, which is gathered at once.
    pub layer_bytes: u64,
    /// Frozen bytes of the embedding and the head together.
    pub ends_bytes: u64,
    /// A rank's part of the frozen weights, where they are sharded.
    pub part_bytes: u64,
    /// Trained params.
    pub trained_params: u64,
    /// Trained params with their optimizer state, and their gradients where these are kept through
    /// the step.
    pub trained_bytes: u64,
    /// Activations saved for the backward pass, per token.
    pub saved_bytes_per_token: u64,
    /// Frozen and trained bytes that a rank gathers from other ranks for a micro-batch, or for
    /// `micro_batches_per_fetch` of them.
    pub gathered_bytes: u64,
    /// Bytes that a rank fetches from host memory for them.
    pub fetched_bytes: u64,
    /// Micro-batches for which each fetch and gather is held.
    pub micro_batches_per_fetch: u64,
}

impl Arithmetic {
    /// The numbers of a plan.
    pub fn of(plan: &RunPlan) -> Self {
        let mut found = Arithmetic::default();
        for param in plan.params.iter().filter(|param| !param.trainable) {
            let (count, bytes) = match param.layout {
                WeightLayout::Packed(_) => (&mut found.packed_weights, &mut found.packed_bytes),
                WeightLayout::Dense(_) => (&mut found.dense_weights, &mut found.dense_bytes),
            };
            *count += param.elements();
            *bytes += param.bytes();
        }
        let units = plan
            .program
            .units
            .iter()
            .zip(&plan.shard_layout.flat_params);
        for (unit, flat) in units {
            let bytes = flat.frozen_bytes;
            match unit.kind {
                UnitKind::Embedding | UnitKind::Head => found.ends_bytes += bytes,
                UnitKind::Layer => found.layer_bytes = found.layer_bytes.max(bytes),
            }
        }
        let units = 0..plan.shard_layout.flat_params.len();
        found.part_bytes = units.map(|unit| plan.shard_layout.part_bytes(unit)).sum();
        let trained = plan.params.iter().filter(|param| param.trainable);
        found.trained_params = trained.map(Param::elements).sum();
        let elements: u64 = plan
            .shard_layout
            .flat_params
            .iter()
            .map(|flat| flat.elements)
            .sum();
        let gradient = if plan.shard_layout.updates_in_backward {
            0
        } else {
            plan.dtypes.gradients.bytes()
        };
        let each = plan.dtypes.params.bytes() + gradient;
        found.trained_bytes = elements * each + plan.shard_layout.state_bytes();
        let tokens = plan.demand.limits.max_tokens.max(1);
        let mover = Mover::of(plan);
        found.micro_batches_per_fetch = mover.sweep();
        found.saved_bytes_per_token = plan.memory.saved_activations / tokens / mover.sweep();
        let tasks = plan.step_plan.micro_batch.iter().map(|task| &task.action);
        for action in tasks.filter(|action| action.when == When::Every) {
            let moved = mover.moved(action);
            match action.act {
                Act::Gather => found.gathered_bytes += moved.between_ranks + moved.between_machines,
                Act::Fetch => found.fetched_bytes += moved.host_to_device,
                _ => {}
            }
        }
        found
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |bytes: u64, count: u64| 8.0 * bytes as f64 / count.max(1) as f64;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, text: String| {
            writeln!(f, "  {name:<20} {text}")
        };
        writeln!(f, "\nthe arithmetic, in GB of 10^9 bytes")?;
        for (name, count, bytes) in [
            ("packed weights", self.packed_weights, self.packed_bytes),
            ("dense weights", self.dense_weights, self.dense_bytes),
        ] {
            if count > 0 {
                let bits = bits(bytes, count);
                let text = format!("{count} x {bits:.3} bits = {} GB", gb(bytes));
                row(f, name, text)?;
            }
        }
        row(
            f,
            "base",
            format!("{} GB", gb(self.packed_bytes + self.dense_bytes)),
        )?;
        row(f, "largest layer", format!("{} GB", gb(self.layer_bytes)))?;
        row(
            f,
            "embedding and head",
            format!("{} GB", gb(self.ends_bytes)),
        )?;
        row(f, "a rank's part", format!("{} GB", gb(self.part_bytes)))?;
        if self.trained_params > 0 {
            let each = self.trained_bytes as f64 / self.trained_params as f64;
            let text = format!(
                "{} x {each:.2} bytes = {} GB of params, optimizer state and the gradients that are kept",
                self.trained_params,
                gb(self.trained_bytes)
            );
            row(f, "trained", text)?;
        }
        row(
            f,
            "saved by a token",
            format!("{} bytes", self.saved_bytes_per_token),
        )?;
        for (name, bytes) in [
            ("taken from ranks", self.gathered_bytes),
            ("taken from the host", self.fetched_bytes),
        ] {
            if bytes > 0 {
                let of = match self.micro_batches_per_fetch {
                    0 | 1 => "a micro-batch".to_owned(),
                    held => format!("for {held} micro-batches"),
                };
                row(f, name, format!("{} GB {of}", gb(bytes)))?;
            }
        }
        Ok(())
    }
}

fn gb(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e9)
}
