//! Shares of a known peak, of one measured again and of one in an older record.

use super::*;
use espalier_engine::measure::Peaks;
use espalier_engine::observer::StepMetrics;

fn metrics(shares: &[f64]) -> RunMetrics {
    let step = |(index, share): (usize, &f64)| StepMetrics {
        step: index as u64 + 1,
        speed_of_light: Some(*share),
        ..StepMetrics::default()
    };
    RunMetrics {
        steps: shares.iter().enumerate().map(step).collect(),
        ..RunMetrics::default()
    }
}

fn shares(found: &SharesOfPeak) -> Vec<f64> {
    found.by_step.iter().map(|(_, share)| *share).collect()
}

#[test]
fn shares_are_of_the_highest_peak_and_name_its_source() {
    let mut machine = MachineRecord::default();
    machine.peak_rates.push(1, 100e9, Cause::Start);
    machine.peak_rates.push(3, 120e9, Cause::Again);
    machine.peak_rates.push(3, 125e9, Cause::Step);
    let found = SharesOfPeak::of(&metrics(&[0.5, 1.0, 1.0, 0.8]), &machine);
    assert_eq!(shares(&found), [0.4, 0.8, 1.0, 0.8]);
    let how = found.how.expect("it is known");
    for words in [
        "100 GFLOP/s before step 1",
        "120 GFLOP/s measured again after step 3",
        "125 GFLOP/s in step 3 itself",
    ] {
        assert!(how.contains(words), "{how}");
    }
}

#[test]
fn each_process_has_its_own_peak() {
    let mut machine = MachineRecord::default();
    machine.peak_rates.push(1, 100e9, Cause::Start);
    machine.peak_rates.push(3, 50e9, Cause::Start);
    let found = SharesOfPeak::of(&metrics(&[0.5, 0.5, 0.5]), &machine);
    assert_eq!(shares(&found), [0.5, 0.5, 0.5]);
    assert_eq!(found.flops_per_sec, Some(50e9));
}

#[test]
fn older_records_with_a_peak_below_a_step_report_it() {
    let machine = MachineRecord {
        gemm_flops_per_sec: 100e9,
        peak_rates: Peaks::default(),
        ..MachineRecord::default()
    };
    let found = SharesOfPeak::of(&metrics(&[1.34, 0.67]), &machine);
    assert_eq!(shares(&found), [1.0, 0.5]);
    let peak = found.flops_per_sec.expect("it is known");
    assert!((peak / 134e9 - 1.0).abs() < 1e-12, "{peak}");
    assert!(
        found
            .how
            .expect("it is known")
            .contains("134.0 % of what had been measured")
    );
    let unknown = SharesOfPeak::of(&metrics(&[1.5]), &MachineRecord::default());
    assert_eq!(shares(&unknown), [1.0]);
}
