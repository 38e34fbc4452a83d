//! Ranks that load together: every weight is read and encoded once per machine, and every rank gets
//! its exact part.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Barrier, Mutex};

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::Param;
use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::Error;
use espalier_engine::load::{
    DrawnBy, LoadReport, Loader, Member, Origin, RankLoader, Staging, packing,
};
use espalier_engine::observer::Unobserved;
use espalier_interface::optimizer::OptimizerSpec;
use espalier_interface::schedule::{Part, Place, Placement};
use espalier_interface::{BufferRange, DType, Device, MemoryKind, Stream};
use espalier_plan::plan::RunPlan;
use espalier_plan::stage_layout::{StageLayout, StageRegion};
use espalier_system::files::TensorStore;
use espalier_system::stop::StopFlag;
use espalier_system::world::World;
use espalier_tests::golden_path;
use espalier_trainer::session::Session;

/// Messages exchanged by ranks, all in this process.
struct Table {
    sent: Mutex<Vec<Vec<u8>>>,
    all: Barrier,
}

struct Rank<'a> {
    number: u32,
    world: World,
    table: &'a Table,
}

impl Member for Rank<'_> {
    fn rank(&self) -> u32 {
        self.number
    }

    fn world(&self) -> World {
        self.world
    }

    fn exchange(&self, _: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.table.sent.lock().expect("whole")[self.number as usize] = sent.to_vec();
        self.table.all.wait();
        let all = self.table.sent.lock().expect("whole").clone();
        self.table.all.wait();
        Ok(all)
    }
}

/// The parts of a rank by unit and run, and its load report.
type Parts = (BTreeMap<(usize, Part), Vec<u8>>, LoadReport);

fn config(model: &Path) -> ResolvedConfig {
    let keys = [
        "plugins=[\"nf4\", \"lora\"]",
        "model.compute=\"f32\"",
        "data.max_seq_len=16",
    ];
    let sources = Sources::default().set(format!("model.path={model:?}"));
    let sources = keys
        .into_iter()
        .fold(sources, |sources, key| sources.set(key));
    resolve(&sources).expect("a config")
}

/// A session of a world whose frozen runs use every possible placement.
fn session(model: &Path, world: World) -> Session {
    let mut session = Session::open(&config(model), &Unobserved).expect("a plan");
    let places = [
        Place::Host,
        Place::Sharded,
        Place::Replicated,
        Place::ShardedOnHost,
    ];
    let shard_layout = &mut session.run.plan.shard_layout;
    shard_layout.parts = u64::from(world.ranks);
    shard_layout.placements = (0..shard_layout.flat_params.len())
        .map(|unit| Placement {
            frozen: places[unit % places.len()],
            trainable: Place::Sharded,
            optimizer: Place::Sharded,
        })
        .collect();
    session
}

fn origin<'a>(param: &Param, store: &'a TensorStore) -> Origin<'a> {
    match param.kind {
        Some(_) => Origin::Files(store),
        None => Origin::Random,
    }
}

fn download(device: &dyn Device, range: BufferRange) -> Vec<u8> {
    let mut bytes = vec![0; range.bytes as usize];
    device.download(range, &mut bytes, Stream(0)).expect("read");
    bytes
}

/// Loads on one thread per rank; each rank keeps its part of every run.
fn load(model: &Path, world: World) -> Vec<Result<Parts, Error>> {
    let session = &session(model, world);
    let table = &Table {
        sent: Mutex::new(vec![Vec::new(); world.ranks as usize]),
        all: Barrier::new(world.ranks as usize),
    };
    let stagings: Vec<Staging> = (0..world.processes)
        .map(|_| Staging::new(&session.run.plan))
        .collect();
    let stagings = &stagings;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world.ranks)
            .map(|number| {
                let process = number / world.ranks_per_process();
                let world = World { process, ..world };
                let rank = Rank {
                    number,
                    world,
                    table,
                };
                scope.spawn(move || load_rank(session, &stagings[process as usize], &rank))
            })
            .collect();
        let ranks = ranks.into_iter();
        ranks.map(|rank| rank.join().expect("no panic")).collect()
    })
}

fn load_rank(session: &Session, staging: &Staging, rank: &Rank<'_>) -> Result<Parts, Error> {
    let (plan, config) = (&session.run.plan, config(session.directory.path()));
    let device = &session.run.device;
    let store = session.directory.tensors().expect("a model");
    let mut parts = BTreeMap::new();
    let stage = staging.open(rank)?;
    let loader = RankLoader {
        params: &plan.params,
        device,
        services: session.services,
        stage: &stage,
        member: rank,
        origin: &|param| origin(param, &store),
        packing: &|index| packing(&plan.quantizers, &plan.saved, index),
        seed: config.config().run.seed,
        drawn_by: DrawnBy::Device,
        observer: &Unobserved,
        stop: &StopFlag::new(),
        inspector: None,
        kept: None,
        calibrated: None,
        cache: None,
        initialise: None,
    };
    let report = loader.load(&|_, _| true, &mut |run| {
        let each = run.bytes.len() / rank.world.ranks as usize;
        let own = &run.bytes[each * rank.number as usize..][..each];
        parts.insert((run.unit, run.part), own.to_vec());
        Ok(())
    })?;
    let buffer = device.import(stage.copy.memory()).expect("lent");
    for unit in 0..plan.shard_layout.flat_params.len() {
        if let Some(bytes) = stage.layout.copied(unit) {
            let range = BufferRange {
                buffer,
                offset: bytes.start,
                bytes: bytes.end - bytes.start,
            };
            parts.insert((unit, Part::Frozen), download(device.as_ref(), range));
        }
    }
    device.free(buffer).expect("given back");
    Ok((parts, report))
}

/// The whole runs of a plan, with every param loaded alone.
fn alone(model: &Path) -> (BTreeMap<(usize, Part), Vec<u8>>, LoadReport) {
    let session = Session::open(&config(model), &Unobserved).expect("a plan");
    let RunPlan { params, dtypes, .. } = &session.run.plan;
    let device = &session.run.device;
    let store: TensorStore = session.directory.tensors().expect("a model");
    let seed = config(model).config().run.seed;
    let mut loader = Loader::new(device.as_ref(), session.services, seed);
    let mut runs = BTreeMap::new();
    for unit in 0..session.run.plan.program.units.len() {
        let places = FlatParams::of(params, unit, &OptimizerSpec::default());
        let mut frozen = vec![0; places.frozen_bytes as usize];
        let mut trainable = vec![0; (places.elements * dtypes.params.bytes()) as usize];
        let each = dtypes.params.bytes();
        let trained = places.trainable.iter();
        let trained = trained.map(|(index, at)| {
            let bytes = at.start * each..at.end * each;
            (*index, Vec::from([bytes]))
        });
        let of_trained: Vec<_> = trained.collect();
        for (run, places) in [(&mut frozen, &places.frozen), (&mut trainable, &of_trained)] {
            for (index, places) in places {
                let buffers = places.iter().map(|place| BufferRange {
                    buffer: device
                        .alloc(place.end - place.start, MemoryKind::DEVICE)
                        .expect("memory"),
                    offset: 0,
                    bytes: place.end - place.start,
                });
                let ranges: Vec<BufferRange> = buffers.collect();
                let param = &params[*index];
                let origin = origin(param, &store);
                let packing = packing(
                    &session.run.plan.quantizers,
                    &session.run.plan.saved,
                    *index,
                );
                loader
                    .load((*index, param), &ranges, origin, packing)
                    .expect("loaded");
                for (place, range) in places.iter().zip(ranges) {
                    let place = place.start as usize..place.end as usize;
                    run[place].copy_from_slice(&download(device.as_ref(), range));
                    device.free(range.buffer).expect("ours");
                }
            }
        }
        runs.insert((unit, Part::Frozen), frozen);
        runs.insert((unit, Part::Trainable), trainable);
    }
    runs.retain(|_, run| !run.is_empty());
    (runs, loader.report())
}

fn world(ranks: u32, processes: u32, processes_per_machine: u32) -> World {
    World {
        ranks,
        processes,
        processes_per_machine,
        process: 0,
    }
}

#[test]
fn every_world_loads_the_bytes_of_one_rank_and_encodes_once_a_machine() {
    let model = golden_path("llama/tiny-trained");
    let (expected, counts) = alone(&model);
    assert!(counts.encoded > 0 && counts.placed > counts.encoded);
    for world in [
        world(1, 1, 1),
        world(3, 1, 1),
        world(7, 1, 1),
        // Processes that share a file; two machines that share nothing.
        world(4, 2, 2),
        world(3, 3, 3),
        world(4, 4, 2),
    ] {
        let loaded = load(&model, world).into_iter();
        let loaded: Vec<Parts> = loaded.map(|rank| rank.expect("loaded")).collect();
        for (rank, (parts, report)) in loaded.iter().enumerate() {
            let found = (report.encoded, report.placed);
            assert_eq!(found, (counts.encoded, counts.placed), "{world:?}");
            assert!(parts.keys().eq(expected.keys()), "rank {rank} of {world:?}");
        }
        for (&(unit, part), whole) in &expected {
            let own = |(parts, _): &Parts| parts[&(unit, part)].clone();
            // Units 0, 4, 8 .. are in the machine's copy, which every rank reads whole.
            if part == Part::Frozen && unit % 4 == 0 {
                let all = loaded.iter().map(own);
                assert!(all.into_iter().all(|copy| copy == *whole), "unit {unit}");
                continue;
            }
            let mut joined: Vec<u8> = loaded.iter().flat_map(own).collect();
            let padding = joined.split_off(whole.len());
            assert_eq!(joined, *whole, "{part:?} of unit {unit}, {world:?}");
            assert!(padding.iter().all(|byte| *byte == 0), "unit {unit}");
        }
    }
}

#[test]
fn the_staging_buffer_is_as_large_as_the_largest_unit() {
    let model = golden_path("llama/tiny-trained");
    let plan = session(&model, world(3, 1, 1)).run.plan;
    let layout = StageLayout::new(&plan.shard_layout, plan.dtypes);
    let page = |bytes: u64| bytes.next_multiple_of(4096);
    let units = FlatParams::of_all(
        &plan.params,
        plan.program.units.len(),
        &OptimizerSpec::default(),
    );
    let passing = units.iter().enumerate().map(|(unit, runs)| {
        let frozen = match layout.copied(unit) {
            Some(_) => 0,
            None => 3 * runs.part_bytes(3),
        };
        page(frozen) + page(3 * runs.part_elements(3) * DType::F32.bytes())
    });
    assert_eq!(layout.passing_bytes, passing.max().expect("a unit"));
    let copied = units.iter().step_by(4).map(|runs| page(runs.frozen_bytes));
    assert_eq!(layout.copy_bytes, copied.sum::<u64>());
    let runs = layout.units.iter().flatten();
    assert!(runs.clone().any(|run| run.region == StageRegion::Copy));
    let longest = runs.map(|run| run.bytes.end).max().expect("a run");
    assert!(longest <= layout.copy_bytes.max(layout.passing_bytes));
}

#[test]
fn a_failed_rank_ends_all_ranks_and_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(golden_path("llama/tiny-trained")).expect("a model") {
        let file = entry.expect("a file").path();
        let to = place.path().join(file.file_name().expect("a name"));
        std::fs::copy(&file, to).expect("copied");
    }
    // The first number of the last tensor in the file.
    let weights = place.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("weights");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&weights, bytes).expect("written");
    let ends = load(place.path(), world(4, 2, 2));
    let failed = |end: &&Result<Parts, Error>| matches!(end, Err(Error::Weights(_)));
    let first_failed = ends.iter().position(|end| failed(&end)).expect("one fails");
    assert_eq!(ends.iter().filter(failed).count(), 1);
    for (number, end) in ends
        .iter()
        .enumerate()
        .filter(|(rank, _)| *rank != first_failed)
    {
        let Err(Error::Peer(lost)) = end else {
            panic!("rank {number} continues");
        };
        assert_eq!(lost.rank as usize, first_failed);
        let message = lost.to_string();
        assert!(message.contains("is not a finite number"), "{message}");
    }
}
