//! The layout of weights while a machine loads them.

use espalier_interface::optimizer::OptimizerSpec;
use espalier_interface::schedule::Placement;
use espalier_interface::{DType, Init, WeightLayout};

use super::*;
use espalier_compile::params::Param;

fn frozen(unit: usize, elements: u64) -> Param {
    Param {
        name: format!("{unit}.{elements}"),
        aliases: Vec::new(),
        shape: vec![elements],
        kind: None,
        trainable: false,
        layout: WeightLayout::Dense(DType::F32),
        init: Init::Zeros,
        learning_rate_ratio: 1.0,
        unit,
        part_of: None,
    }
}

fn trainable(unit: usize, elements: u64) -> Param {
    Param {
        trainable: true,
        ..frozen(unit, elements)
    }
}

fn layout(place: Place) -> StageLayout {
    let params = [
        frozen(0, 10),
        trainable(0, 100),
        frozen(0, 3),
        frozen(1, 2000),
    ];
    let placement = Placement {
        frozen: place,
        ..Placement::default()
    };
    let shard_layout = ShardLayout {
        placements: vec![placement; 2],
        flat_params: FlatParams::of_all(&params, 2, &OptimizerSpec::default()),
        parts: 3,
        wire: None,
        ..ShardLayout::default()
    };
    let dtypes = Dtypes::all(DType::F32);
    StageLayout::new(&shard_layout, dtypes)
}

#[test]
fn sharded_runs_pass_through_one_buffer_in_equal_parts() {
    let layout = layout(Place::Sharded);
    let [frozen, trained] = &layout.units[0][..] else {
        panic!("two runs");
    };
    // 64 + 12 bytes in three parts of 64; 128 elements in three parts of 64.
    assert_eq!(frozen.bytes, 0..192);
    let one = |bytes: Range<u64>| vec![bytes];
    assert_eq!(frozen.params, [(0, one(0..40)), (2, one(64..76))]);
    assert_eq!(frozen.gaps(), [40..64, 76..192]);
    assert_eq!(trained.bytes, 4096..4096 + 768);
    assert_eq!(trained.params, [(1, one(4096..4496))]);
    assert_eq!(layout.units[1][0].bytes, 0..3 * 2688);
    assert_eq!((layout.copy_bytes, layout.passing_bytes), (0, 8192));
    assert_eq!(layout.copied(0), None);
}

#[test]
fn the_machine_copy_has_consecutive_whole_runs() {
    let layout = layout(Place::Host);
    assert_eq!(layout.copied(0), Some(0..128));
    assert_eq!(layout.copied(1), Some(4096..12096));
    assert_eq!((layout.copy_bytes, layout.passing_bytes), (12288, 4096));
}
