//! Steps, their order and their extent, on small datasets.

use super::*;

/// Sequence `i` is `[i, i, ..]`, so a token tells its row.
fn dataset(lengths: &[usize]) -> Dataset {
    let rows: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(row, &length)| (vec![row as i32; length], None))
        .collect();
    Dataset::of_rows(&rows)
}

fn options(batch_size: usize, micro_batch: usize, pack_tokens: Option<usize>) -> DataOptions {
    DataOptions {
        batch_size,
        micro_batch,
        pack_tokens,
        shuffle: false,
        ..DataOptions::default()
    }
}

const ONCE: Horizon = Horizon {
    epochs: 1,
    max_steps: None,
};

/// The rows of a step in the step's own order, whatever the packing.
fn rows(step: &StepBatch) -> Vec<i32> {
    let mut rows: Vec<(i32, i32)> = Vec::new();
    for m in &step.micro_batches {
        for (s, &position) in m.sequences.iter().enumerate() {
            rows.push((position, m.tokens[m.cu_seqlens[s] as usize]));
        }
    }
    rows.sort_unstable();
    assert!(
        rows.iter()
            .map(|(position, _)| *position)
            .eq(0..rows.len() as i32)
    );
    rows.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn a_micro_batch_holds_sequences_end_to_end() {
    let data = Dataset::of_rows(&[
        (vec![1, 2, 3], None),
        (vec![4, 5], Some(vec![4, 5])),
        (vec![6, 7, 8], Some(vec![6, -100, 8])),
    ]);
    let schedule = BatchSchedule::training(&data, &options(3, 2, None), 1, ONCE).unwrap();
    let step = schedule.step(0).unwrap();
    assert_eq!(step.trained_tokens, 4);
    let first = MicroBatch {
        tokens: vec![1, 2, 3, 4, 5],
        positions: vec![0, 1, 2, 0, 1],
        cu_seqlens: vec![0, 3, 5],
        labels: vec![2, 3, -100, 5, -100],
        sequences: vec![0, 1],
        lengths: Vec::new(),
        num_trained: 3,
    };
    let second = MicroBatch {
        tokens: vec![6, 7, 8],
        positions: vec![0, 1, 2],
        cu_seqlens: vec![0, 3],
        labels: vec![-100, 8, -100],
        sequences: vec![2],
        lengths: Vec::new(),
        num_trained: 1,
    };
    assert_eq!(step.micro_batches, [first, second]);
    let extent = schedule.extent();
    assert_eq!((extent.max_tokens, extent.max_sequences), (5, 2));
    assert_eq!(
        (extent.max_sequence_tokens, extent.max_micro_batches),
        (3, 2)
    );
}

#[test]
fn an_epoch_ends_with_a_smaller_step_and_the_next_begins_anew() {
    let data = dataset(&[2; 5]);
    let twice = Horizon {
        epochs: 2,
        max_steps: None,
    };
    let schedule = BatchSchedule::training(&data, &options(2, 1, None), 1, twice).unwrap();
    assert_eq!((schedule.steps_per_epoch(), schedule.total_steps()), (3, 6));
    let seen: Vec<_> = (0..6).map(|k| rows(&schedule.step(k).unwrap())).collect();
    assert_eq!(seen[..3], [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(seen[..3], seen[3..]);
    assert_eq!(
        (
            schedule.step(2).unwrap().epoch,
            schedule.step(3).unwrap().epoch
        ),
        (0, 1)
    );
}

#[test]
fn the_earlier_end_counts() {
    let data = dataset(&[2; 5]);
    let total = |epochs, max_steps| {
        let horizon = Horizon { epochs, max_steps };
        let schedule = BatchSchedule::training(&data, &options(2, 1, None), 1, horizon).unwrap();
        (schedule.total_steps(), schedule.extent())
    };
    assert_eq!(total(2, Some(4)).0, 4);
    assert_eq!(total(2, Some(100)).0, 6);
    assert_eq!(total(u64::MAX, Some(7)).0, 7);
    assert_eq!(total(1, Some(0)), (0, Extent::default()));
    assert_eq!(total(0, None), (0, Extent::default()));
}

#[test]
fn packing_changes_neither_the_sequences_of_a_step_nor_their_numbers() {
    let data = dataset(&[3, 9, 4, 4, 2, 8, 5, 5, 6, 7, 2]);
    let shuffled = |micro_batch, pack_tokens| {
        let mut options = options(4, micro_batch, pack_tokens);
        options.shuffle = true;
        let horizon = Horizon {
            epochs: 3,
            max_steps: None,
        };
        BatchSchedule::training(&data, &options, 7, horizon).unwrap()
    };
    let (one, four, packed) = (shuffled(1, None), shuffled(4, None), shuffled(1, Some(12)));
    for k in 0..one.total_steps() {
        let expected = rows(&one.step(k).unwrap());
        assert_eq!(rows(&four.step(k).unwrap()), expected);
        assert_eq!(rows(&packed.step(k).unwrap()), expected);
        assert_eq!(
            four.step(k).unwrap().trained_tokens,
            packed.step(k).unwrap().trained_tokens
        );
    }
}

#[test]
fn a_step_depends_on_its_number_alone() {
    let mut options = options(3, 2, None);
    options.shuffle = true;
    let horizon = Horizon {
        epochs: 4,
        max_steps: None,
    };
    let data = dataset(&[2, 5, 3, 6, 4, 7, 3]);
    let new = || BatchSchedule::training(&data, &options, 42, horizon).unwrap();
    let schedule = new();
    let forward: Vec<StepBatch> = (0..12).map(|k| schedule.step(k).unwrap()).collect();
    for k in (0..12).rev() {
        assert_eq!(schedule.step(k).unwrap(), forward[k as usize]);
        assert_eq!(new().step(k).unwrap(), forward[k as usize]);
    }
    for epoch in forward.chunks(3) {
        let mut seen: Vec<i32> = epoch.iter().flat_map(rows).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..7));
    }
    assert_ne!(rows(&forward[0]), rows(&forward[3]));
}

#[test]
fn the_extent_is_exact_and_below_the_bound() {
    let lengths: Vec<usize> = (0..53).map(|i| 2 + (i * 29) % 31).collect();
    let data = dataset(&lengths);
    for (micro_batch, pack_tokens) in [(1, None), (3, None), (100, None), (1, Some(40))] {
        for (shuffle, max_steps) in [(true, None), (true, Some(9)), (false, Some(2))] {
            let mut options = options(7, micro_batch, pack_tokens);
            options.shuffle = shuffle;
            let horizon = Horizon {
                epochs: 3,
                max_steps,
            };
            let schedule = BatchSchedule::training(&data, &options, 5, horizon).unwrap();
            let mut seen = Extent::default();
            for k in 0..schedule.total_steps() {
                let step = schedule.step(k).unwrap();
                for m in &step.micro_batches {
                    let longest = m
                        .cu_seqlens
                        .windows(2)
                        .map(|w| (w[1] - w[0]) as usize)
                        .max();
                    seen = seen.join(Extent {
                        max_tokens: m.num_tokens(),
                        max_sequences: m.num_sequences(),
                        max_sequence_tokens: longest.unwrap(),
                        max_micro_batches: step.micro_batches.len(),
                    });
                }
            }
            assert_eq!(schedule.extent(), seen);
            assert_eq!(seen.join(schedule.bound()), schedule.bound());
        }
    }
}

#[test]
fn a_sequence_that_no_micro_batch_holds_is_named() {
    let refused = BatchSchedule::evaluation(&dataset(&[3, 9, 4]), &options(2, 1, Some(8)));
    let message = refused.err().expect("refused").to_string();
    assert!(
        message.starts_with("rows.jsonl:2: the row has 9 tokens, data.pack_tokens holds 8"),
        "{message}"
    );
}
