//! Planned and measured memory of a run's processes -> the bar of the report.

use super::*;
use espalier_plan::plan::HostMemoryPlan;

fn record() -> Record {
    Record {
        memory: MemoryPlan {
            weights: 50,
            arena: 20,
            program: 10,
            ..MemoryPlan::default()
        },
        ..Record::default()
    }
}

#[test]
fn the_bar_shows_plan_and_observation() {
    let bar = Memory::new(&record(), [100, 0]).bar().expect("a bar");
    let widths: Vec<f64> = bar.parts.iter().map(|part| part.width_percent).collect();
    assert_eq!(widths, [50.0, 20.0, 10.0]);
    let observed = bar.observed.expect("an observation");
    assert_eq!(
        (observed.at_percent, observed.compared.as_str()),
        (100.0, ", 25.0 % above the plan")
    );
    assert!(Memory::new(&Record::default(), [0, 0]).bar().is_none());
}

/// Two ranks hold twice a rank's bytes, the program once, and the host's bytes.
#[test]
fn all_ranks_of_a_process_are_in_the_bar() {
    let mut record = record();
    record.world = 2;
    record.world_memory = Some(WorldMemory {
        ranks_per_process: 2,
        processes_per_machine: 1,
        rank_bytes: 70,
        process: HostMemoryPlan {
            weights: 50,
            devices: 140,
            program: 10,
            ..HostMemoryPlan::default()
        },
        ..WorldMemory::default()
    });
    let memory = Memory::new(&record, [200, 0]);
    assert_eq!((memory.planned_peak_bytes, memory.step_bytes()), (200, 200));
    let bar = memory.bar().expect("a bar");
    let names: Vec<&str> = bar.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        ["weights", "arena", "weights on the host", "program"]
    );
    assert!(bar.ranks.expect("ranks").contains("Each of the 2 ranks"));
    let compared = bar.observed.expect("an observation").compared;
    assert_eq!(compared, ", 0.0 % above the plan");
}

#[test]
fn the_plan_of_one_rank_is_not_compared_with_several_ranks() {
    let mut record = record();
    record.world = 2;
    let bar = Memory::new(&record, [200, 0]).bar().expect("a bar");
    assert!(bar.ranks.expect("said").contains("one of 2 ranks"));
    assert_eq!(bar.observed.expect("an observation").compared, "");
}
