//! The choice among tried plans.

use espalier_compile::recompute::Recompute;
use espalier_config::Section;
use espalier_interface::search::MemoryStage;

use super::*;

fn tried(strategy: &str, offload: &str, needed: u64, secs: f64) -> Tried {
    let options = [("strategy", strategy), ("offload", offload)];
    let options = options.map(|(name, value)| (name.to_owned(), value.into()));
    let choice = Choice {
        strategy: "fsdp".to_owned(),
        options: Section::from_iter(options),
        recompute: Recompute::Layer,
        micro_batch: Some(2),
        stage: match (strategy, offload) {
            (_, "params") => MemoryStage::OffloadWeights,
            ("shard_grad_op", _) => MemoryStage::ShardState,
            _ => MemoryStage::ShardWeights,
        },
        defaults: Section::from_iter([("offload".to_owned(), "none".into())]),
    };
    Tried {
        step: GuideStage::of(&choice),
        choice,
        device: Some(Room {
            needed,
            available: Some(100),
        }),
        host: Room {
            needed: 10,
            available: None,
        },
        time: StepTime {
            secs,
            ..StepTime::default()
        },
    }
}

#[test]
fn the_fastest_plan_that_fits_is_chosen_and_the_simpler_of_equals() {
    let all = [
        tried("shard_grad_op", "none", 120, 1.0),
        tried("full_shard", "params", 60, 1.998),
        tried("full_shard", "none", 90, 2.0),
        tried("full_shard", "params", 40, 3.0),
    ];
    let chosen = best(&all).expect("there are some");
    assert_eq!(chosen, &all[2]);
    assert!(chosen.fits() && !all[0].fits());
    assert_eq!(
        chosen.choice.to_string(),
        "fsdp, strategy full_shard; recompute layer, micro_batch 2"
    );
}

#[test]
fn without_a_fitting_plan_the_nearest_reports_its_missing_memory() {
    let all = [
        tried("full_shard", "none", 400, 1.0),
        tried("full_shard", "params", 150, 2.0),
    ];
    let nearest = best(&all).expect("there are some");
    assert_eq!(nearest, &all[1]);
    let advice = advice(nearest, Training::Adapter);
    assert!(advice.contains("a device needs 150 B of 100 B"), "{advice}");
}
