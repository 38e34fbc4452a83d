//! Optimizers as data: granules, blocks, small params, scalars.

use super::*;

/// AdamW with moments of 8 bits and a scale for each block of `block` elements.
fn blockwise(block: u64) -> OptimizerSpec {
    let codes = |name: &str| StateTensor {
        dtype: DType::U8,
        ..StateTensor::per_element(name)
    };
    let scales = |name: &str| StateTensor {
        extent: Extent::PerBlock(block),
        ..StateTensor::per_element(name)
    };
    OptimizerSpec {
        state: vec![
            codes("first_moment"),
            scales("first_absmax"),
            codes("second_moment"),
            scales("second_absmax"),
        ],
        ..OptimizerSpec::default()
    }
    .of_run(&|_| 0.0, Numbers::all(DType::F32))
}

#[test]
fn adamw_keeps_two_numbers_of_each_element() {
    let adamw = OptimizerSpec::named("adamw").expect("shipped");
    let adamw = adamw.of_run(&|_| 0.5, Numbers::all(DType::F32));
    let names: Vec<&str> = adamw.state.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["first_moment", "second_moment"]);
    assert_eq!((adamw.state_bytes(640), adamw.granule()), (640 * 8, 64));
}

#[test]
fn blocks_are_shared_by_no_params_and_no_ranks() {
    let spec = blockwise(256);
    // 16 scales are 64 bytes.
    assert_eq!((spec.granule(), blockwise(100).granule()), (4096, 1600));
    assert_eq!(spec.state_bytes(4096), 2 * (4096 + 16 * 4));
    let scales = &spec.state[1];
    assert_eq!(scales.range(&(256..600)), 1..3);
    assert_eq!((scales.shape(&[3, 100]), scales.elements(0)), (vec![2], 0));
    assert_eq!(spec.state[0].shape(&[3, 100]), [3, 100]);
}

#[test]
fn state_without_its_scalar_is_not_kept() {
    let mut spec = blockwise(64);
    spec.state[0].kept_with = Some("momentum".to_owned());
    let kept = |momentum| {
        let spec = spec.clone().of_run(&|_| momentum, Numbers::all(DType::F32));
        spec.state.len()
    };
    assert_eq!((kept(0.9), kept(0.0)), (4, 3));
}

#[test]
fn a_param_is_small_by_its_elements() {
    let mut spec = blockwise(256);
    let adamw = OptimizerSpec::named("adamw").expect("shipped");
    spec.small = Some(Box::new(SmallParams {
        below: "least".to_owned(),
        elements: 0,
        optimizer: adamw,
    }));
    let of_run = |least| spec.clone().of_run(&|_| least, Numbers::all(DType::F32));
    let (found, all) = (of_run(4096.0), of_run(0.0));
    let sizes = [4095, 4096].map(|elements| found.size_of(elements));
    assert_eq!(sizes, [ParamSize::Small, ParamSize::Large]);
    assert_eq!((all.size_of(1), &all.small), (ParamSize::Large, &None));
    let tensors = found.tensors();
    let small = &tensors[found.tensors_of(ParamSize::Small)];
    assert_eq!((tensors.len(), small.len()), (6, 2));
    assert_eq!(small[0].1.name, "first_moment");
    assert_eq!(small[0].1.dtype, DType::F32);
    assert_eq!(found.of_size(ParamSize::Small).name, "adamw");
    assert_eq!(
        (found.block(), all.of_size(ParamSize::Large).block()),
        (256, 256)
    );
}

#[test]
fn every_scalar_is_the_steps_or_a_settings() {
    let own = [
        scalar::LEARNING_RATE,
        scalar::WEIGHT_DECAY,
        scalar::STEP,
        scalar::FACTOR,
        scalar::SEED_LOW,
        scalar::SEED_HIGH,
        scalar::NAME_LOW,
        scalar::NAME_HIGH,
        scalar::FIRST,
    ];
    let stochastic = Numbers {
        rounding: Rounding::Stochastic,
        ..Numbers::all(DType::F32)
    };
    let of_run = |spec: OptimizerSpec| spec.of_run(&|_| 1.0, stochastic);
    let shipped = OptimizerSpec::shipped().into_iter();
    for spec in shipped.clone().chain(shipped.map(of_run)) {
        let settings = spec.settings.iter().flat_map(|setting| &setting.scalars);
        let known: Vec<&str> = own
            .into_iter()
            .chain(settings.map(String::as_str))
            .collect();
        for name in &spec.scalars {
            assert!(known.contains(&name.as_str()), "{}: `{name}`", spec.name);
        }
    }
}

#[test]
fn the_op_has_the_version_of_the_runs_numbers() {
    let plain = Numbers::all(DType::F32);
    let narrow = Numbers {
        gradients: DType::BF16,
        state: DType::BF16,
        ..plain
    };
    let stochastic = Numbers {
        rounding: Rounding::Stochastic,
        ..plain
    };
    for spec in OptimizerSpec::shipped() {
        for (numbers, version) in [(plain, 1), (narrow, 2), (stochastic, 3)] {
            let spec = spec.clone().of_run(&|_| 1.0, numbers);
            assert_eq!(spec.version, version, "{}", spec.name);
            assert_eq!(spec.updates_params_apart(), version == 3, "{}", spec.name);
            assert!(definition(&spec.op, version).is_some(), "{}", spec.name);
        }
    }
    let of_run = |name: &str| {
        let spec = OptimizerSpec::named(name).expect("shipped");
        spec.of_run(&|_| 1.0, narrow)
    };
    let adamw = of_run("adamw");
    assert_eq!((adamw.state_bytes(640), adamw.granule()), (640 * 4, 64));
    assert_eq!(of_run("sgd").state_bytes(640), 640 * 2);
    // Codes and absmax stay.
    let coded = of_run("adamw8bit").state_bytes(4096);
    assert_eq!(coded, 2 * (4096 + 16 * 4));
}
