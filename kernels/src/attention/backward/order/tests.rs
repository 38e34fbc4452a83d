//! Tasks cover all queries once, in an order in which none waits for a later one.

use espalier_interface::Services;

use super::*;
use crate::attention::tests::shapes;
use crate::matmul::threads::Threads;

#[test]
fn tasks_cover_all_queries_the_longest_sequence_first() {
    let cu_seqlens = [0, 3, 3, 303, 304, 454];
    for shape in shapes() {
        let mut workspace = vec![0xFF; workspace_bytes(&shape, 454)];
        let (order, _) = TaskOrder::new(&shape, &cu_seqlens, &mut workspace);
        let mut seen = vec![0; 454 * shape.kv_heads];
        let mut lens = Vec::new();
        for idx in 0..order.tasks() {
            let place = order.place(idx);
            lens.push(place.sequence.len());
            for query in place.queries.clone() {
                seen[(place.sequence.start + query) * shape.kv_heads + place.head] += 1;
            }
            if place.queries.start > 0 {
                let before = order.place(idx - shape.kv_heads);
                assert_eq!(before.queries.end, place.queries.start);
                assert_eq!((before.sequence, before.head), (place.sequence, place.head));
            }
        }
        assert!(lens.is_sorted_by(|a, b| a >= b));
        assert_eq!(seen, vec![1; 454 * shape.kv_heads]);
    }
}

#[test]
fn each_block_is_left_before_the_next_task_enters_it() {
    const BLOCKS: usize = 5;
    let shape = AttentionShape {
        heads: 1,
        kv_heads: 1,
        ..shapes()[0]
    };
    let mut workspace = vec![0xFF; workspace_bytes(&shape, 1000)];
    let (order, _) = TaskOrder::new(&shape, &[0, 1000], &mut workspace);
    let next = AtomicU32::new(0);
    let entered: [AtomicU32; BLOCKS] = Default::default();
    Threads(3).parallel_for(3, &|_| {
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            if idx as usize >= order.tasks() {
                return;
            }
            let turn = order.turn(idx as usize);
            for (block, entered) in entered.iter().enumerate() {
                turn.wait_for(block);
                assert_eq!(entered.load(Ordering::Relaxed), idx);
                std::thread::yield_now();
                entered.store(idx + 1, Ordering::Relaxed);
                turn.finish(block);
            }
        }
    });
    assert_eq!(next.into_inner() as usize, order.tasks() + 3);
}

#[test]
fn a_task_that_panics_holds_up_no_other() {
    let shape = shapes()[0];
    let mut workspace = vec![0xFF; workspace_bytes(&shape, 1000)];
    let (order, _) = TaskOrder::new(&shape, &[0, 1000], &mut workspace);
    // Without the hook of panics, whose backtrace takes more memory than these tests have.
    let fails = std::panic::AssertUnwindSafe(|| {
        let _turn = order.turn(0);
        std::panic::resume_unwind(Box::new("planned"));
    });
    assert!(std::panic::catch_unwind(fails).is_err());
    order.turn(shape.kv_heads).wait_for(7);
}
