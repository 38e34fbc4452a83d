//! Metrics files, torn lines included -> steps and evaluations in order.

use super::*;

fn metrics(lines: &[&str]) -> RunMetrics {
    let mut metrics = RunMetrics::default();
    for line in lines {
        metrics.take(line.as_bytes());
    }
    metrics
}

#[test]
fn a_torn_line_is_counted_and_a_missing_number_is_none() {
    let metrics = metrics(&[
        r#"{"step":1,"loss":2.5,"tokens_per_sec":100.0,"step_secs":0.5}"#,
        r#"{"step":2,"loss":null,"grad_norm":1}"#,
        r#"{"step":3,"loss":NaN,"grad_norm":-Infinity}"#,
        "",
        r#"{"step":4,"lo"#,
        "[1]",
    ]);
    assert_eq!((metrics.steps.len(), metrics.unreadable), (3, 2));
    assert_eq!(metrics.tokens(), 50);
    assert!(metrics.steps[1].loss.is_nan() && metrics.steps[2].grad_norm.is_nan());
    assert_eq!(metrics.secs(), 0.5);
}

#[test]
fn repeated_steps_replace_the_later_ones() {
    let metrics = metrics(&[
        r#"{"step":1,"loss":3}"#,
        r#"{"step":2,"loss":2}"#,
        r#"{"step":2,"eval_loss":2,"eval_samples":[{"question":"a","expected":"b","answer":"c","right":false}]}"#,
        r#"{"step":2,"swap":{"step":2,"asked":"quantizer=nf4","outcome":"taken"}}"#,
        r#"{"step":3,"loss":1}"#,
        r#"{"step":2,"loss":5}"#,
        r#"{"step":2,"swap":{"step":2,"asked":"quantizer=fp4"}}"#,
        r#"{"step":2,"swap":"torn"}"#,
    ]);
    let losses: Vec<f64> = metrics.steps.iter().map(|step| step.loss).collect();
    assert_eq!(losses, [3.0, 5.0]);
    assert!(metrics.evals.is_empty() && metrics.samples.is_empty());
    let asked: Vec<&str> = metrics
        .swaps
        .iter()
        .map(|swap| swap.asked.as_str())
        .collect();
    assert_eq!((asked, metrics.unreadable), (vec!["quantizer=fp4"], 1));
}

#[test]
fn evaluations_of_one_step_are_merged() {
    let metrics = metrics(&[
        r#"{"step":0,"eval_loss":3,"eval_token_accuracy":0.5}"#,
        r#"{"step":0,"eval_exact_match":0.25}"#,
    ]);
    let [eval] = metrics.evals[..] else {
        panic!("one evaluation")
    };
    assert_eq!((eval.loss, eval.exact_match), (Some(3.0), Some(0.25)));
}
