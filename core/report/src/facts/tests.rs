//! Losses of a run -> the conclusions of its report.

use super::*;
use espalier_engine::observer::StepMetrics;

/// Steps with these losses and evaluations spread evenly over them.
fn metrics(losses: &[f64], evals: &[f64]) -> RunMetrics {
    let step = |(index, loss): (usize, &f64)| StepMetrics {
        step: index as u64 + 1,
        loss: *loss,
        ..StepMetrics::default()
    };
    let every = losses.len() / evals.len().saturating_sub(1).max(1);
    let eval = |(index, loss): (usize, &f64)| EvalPoint {
        step: (index * every) as u64,
        loss: Some(*loss),
        ..EvalPoint::default()
    };
    RunMetrics {
        steps: losses.iter().enumerate().map(step).collect(),
        evals: evals.iter().enumerate().map(eval).collect(),
        ..RunMetrics::default()
    }
}

fn verdict(losses: &[f64], evals: &[f64]) -> RunVerdict {
    let metrics = metrics(losses, evals);
    Facts::of(&metrics, &Record::default(), &|_| None).verdict
}

#[test]
fn the_verdict_follows_from_the_losses() {
    let falls: Vec<f64> = (0..20).map(|i| 4.0 - f64::from(i) * 0.1).collect();
    let rises: Vec<f64> = (0..20).map(|i| 4.0 + f64::from(i) * 0.1).collect();
    let noise: Vec<f64> = (0..20).map(|i| 4.0 + f64::from(i * i % 7)).collect();
    let flat = [3.0; 20];
    assert_eq!(verdict(&falls, &[4.0, 3.0]), RunVerdict::Learned);
    assert_eq!(verdict(&falls, &[]), RunVerdict::Learned);
    assert_eq!(verdict(&falls, &[4.0, 3.95]), RunVerdict::NothingLearned);
    assert_eq!(verdict(&falls, &[4.0, 4.2]), RunVerdict::GotWorse);
    assert_eq!(verdict(&falls, &[4.0, 3.0, 3.5]), RunVerdict::Overfits);
    assert_eq!(verdict(&falls, &[4.0, 3.0, 3.01]), RunVerdict::Learned);
    assert_eq!(verdict(&flat, &[]), RunVerdict::NothingLearned);
    assert_eq!(verdict(&noise, &[]), RunVerdict::CannotTell);
    assert_eq!(verdict(&rises, &[4.0, 3.0]), RunVerdict::Diverged);
    assert_eq!(verdict(&falls[..4], &[]), RunVerdict::TooShort);
    assert_eq!(verdict(&falls[..4], &[4.0, 3.0]), RunVerdict::Learned);
    assert_eq!(verdict(&[], &[]), RunVerdict::TooShort);
    assert_eq!(verdict(&[4.0, f64::NAN], &[]), RunVerdict::Diverged);
    assert_eq!(verdict(&falls, &[4.0, f64::NAN]), RunVerdict::Diverged);
}

/// The first and the last of sorted rows differ with or without training.
#[test]
fn file_order_is_distinguished_from_learning() {
    let sorted: Vec<f64> = (0..20).map(|i| 4.0 - f64::from(i % 10) * 0.1).collect();
    let mut record = Record {
        config: serde_json::json!({"data": {"shuffle": false}}),
        ..Record::default()
    };
    let verdict_of = |record: &Record, losses: &[f64]| {
        Facts::of(&metrics(losses, &[]), record, &|_| None).verdict
    };
    assert_eq!(verdict_of(&record, &sorted), RunVerdict::CannotTell);
    record.data.steps_per_epoch = Some(10);
    assert_eq!(verdict_of(&record, &sorted), RunVerdict::NothingLearned);
    assert_eq!(verdict_of(&record, &sorted[..19]), RunVerdict::CannotTell);
    let lower = sorted.iter().enumerate();
    let lower: Vec<f64> = lower.map(|(i, x)| x - 0.2 * (i / 10) as f64).collect();
    assert_eq!(verdict_of(&record, &lower), RunVerdict::Learned);
}

/// One row of a hundred makes the whole difference, so it does not generalize to other rows.
#[test]
fn held_out_rows_are_paired() {
    let row = |loss: f64| DocumentLoss {
        loss,
        correct: 0,
        trained: 1,
    };
    let before = vec![row(4.0); 100];
    let all: Vec<DocumentLoss> = before.iter().map(|one| row(one.loss - 0.2)).collect();
    let mut one = before.clone();
    one[7] = row(24.0);
    let verdict_of = |after: &[DocumentLoss]| {
        let mean = after.iter().map(|row| row.loss).sum::<f64>() / 100.0;
        let metrics = metrics(&[4.0; 20], &[4.0, mean]);
        let rows = |step: u64| Some([&before[..], after][(step / 20) as usize].to_vec());
        let facts = Facts::of(&metrics, &Record::default(), &rows);
        (facts.verdict, facts.held_out.map(|held_out| held_out.count))
    };
    assert_eq!(verdict_of(&all), (RunVerdict::Learned, Some(100)));
    assert_eq!(verdict_of(&one), (RunVerdict::CannotTell, Some(100)));
    assert_eq!(verdict_of(&before), (RunVerdict::NothingLearned, Some(100)));
}
