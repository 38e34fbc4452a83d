//! Metrics files, torn lines included -> steps and evaluations in order.

use super::*;

fn course(lines: &[&str]) -> Course {
    let mut course = Course::default();
    for line in lines {
        course.take(line.as_bytes());
    }
    course
}

#[test]
fn a_torn_line_is_counted_and_a_missing_number_is_none() {
    let course = course(&[
        r#"{"step":1,"loss":2.5,"tokens_per_sec":100.0,"step_secs":0.5}"#,
        r#"{"step":2,"loss":null,"grad_norm":1}"#,
        r#"{"step":3,"loss":NaN,"grad_norm":-Infinity}"#,
        "",
        r#"{"step":4,"lo"#,
        "[1]",
    ]);
    assert_eq!((course.steps.len(), course.unreadable), (3, 2));
    assert_eq!(course.tokens(), 50);
    assert!(course.steps[1].loss.is_nan() && course.steps[2].grad_norm.is_nan());
    assert_eq!(course.secs(), 0.5);
}

#[test]
fn steps_that_come_again_replace_what_followed() {
    let course = course(&[
        r#"{"step":1,"loss":3}"#,
        r#"{"step":2,"loss":2}"#,
        r#"{"step":2,"eval_loss":2}"#,
        r#"{"step":2,"swap":{"step":2,"asked":"quantizer=nf4","outcome":"taken"}}"#,
        r#"{"step":3,"loss":1}"#,
        r#"{"step":2,"loss":5}"#,
        r#"{"step":2,"swap":{"step":2,"asked":"quantizer=fp4"}}"#,
        r#"{"step":2,"swap":"torn"}"#,
    ]);
    let losses: Vec<f64> = course.steps.iter().map(|step| step.loss).collect();
    assert_eq!(losses, [3.0, 5.0]);
    assert!(course.evals.is_empty());
    let asked: Vec<&str> = course
        .swaps
        .iter()
        .map(|swap| swap.asked.as_str())
        .collect();
    assert_eq!((asked, course.unreadable), (vec!["quantizer=fp4"], 1));
}

#[test]
fn evaluations_of_one_step_are_one() {
    let course = course(&[
        r#"{"step":0,"eval_loss":3,"eval_token_accuracy":0.5}"#,
        r#"{"step":0,"eval_exact_match":0.25}"#,
    ]);
    let [eval] = course.evals[..] else {
        panic!("one evaluation")
    };
    assert_eq!((eval.loss, eval.exact_match), (Some(3.0), Some(0.25)));
}
