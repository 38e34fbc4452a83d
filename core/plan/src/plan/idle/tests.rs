//! Ranks without work: which settings avoid them, and the message.

use super::*;

fn idle([batch_size, micro_batch]: [usize; 2], ranks: u64, rows: Option<u64>) -> Option<IdleRanks> {
    let data = DataOptions {
        batch_size,
        micro_batch,
        ..DataOptions::default()
    };
    let of_step = (batch_size as u64).min(rows.unwrap_or(u64::MAX));
    IdleRanks::of(&data, ranks, of_step.div_ceil(micro_batch as u64), rows)
}

/// Each proposed setting gives every rank a micro-batch.
#[test]
fn each_proposed_setting_is_enough() {
    for ranks in 1..9 {
        for batch in 1..20 {
            for micro in 1..20 {
                for rows in [None, Some(3), Some(30)] {
                    let Some(found) = idle([batch, micro], ranks, rows) else {
                        continue;
                    };
                    assert!(!found.set.is_empty(), "{found}");
                    for setting in &found.set {
                        let (key, value) = setting
                            .split_once(" = ")
                            .or_else(|| setting.split_once(' '))
                            .expect("a key and its value");
                        let value: usize = value.parse().expect("a number");
                        let after = match key {
                            "data.batch_size" => idle([value, micro], ranks, rows),
                            "data.micro_batch" => idle([batch, value], ranks, rows),
                            "--ranks" => idle([batch, micro], value as u64, rows),
                            other => panic!("{other}"),
                        };
                        assert_eq!(after, None, "{found}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_message_has_the_numbers() {
    let found = idle([4, 4], 2, None).expect("one of two");
    assert_eq!(
        found.to_string(),
        "1 of 2 ranks has nothing to do: a step has 1 micro-batch of 4 rows in all; set \
         data.batch_size = 8 or data.micro_batch = 2"
    );
    assert_eq!(idle([8, 1], 2, None), None);
}
