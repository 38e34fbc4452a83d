//! Plans of this process's ranks -> the same with their peers: joined, watched, with checked
//! settings.

use std::sync::Arc;
use std::time::Duration;

use espalier_config::Config;
use espalier_engine::executor::PreparedRun;
use espalier_engine::ranks::{self, Peers, Watch};
use espalier_interface::MemberDevice;
use espalier_registry::select::{Collectives, DeviceCollective};
use espalier_system::failure::UsageError;
use espalier_system::stop::StopFlag;
use serde_json::Value as Json;

use super::agreement::agree;
use crate::Error;

/// Extra timeout of a collective beyond the watch's, since the watch can name the missing process.
const LONGER: Duration = Duration::from_secs(5);

/// The plans of this process's ranks, each with its collective. All processes run the same from
/// `step` on, with the `circumstances` in `run.json`.
///
/// # Errors
/// A rank that does not connect; a process that cannot be watched.
pub(crate) fn join_ranks(
    runs: Vec<PreparedRun>,
    collectives: &Collectives,
    config: &Config,
    stop: &StopFlag,
    (circumstances, step): (&Json, u64),
) -> Result<Vec<(PreparedRun, Arc<Peers>)>, Error> {
    let world = runs[0].plan.demand.world;
    let peers = match world.ranks {
        1 => vec![Peers::alone()],
        _ => {
            let timeout = Duration::from_secs(config.run.peer_timeout_secs);
            let watch = Watch::start(world, timeout, stop);
            let shards = runs[0].plan.shard_layout.parts as u32;
            // Other processes can have more rows or a slower disk.
            let within = Duration::from_secs(config.run.join_timeout_secs);
            watch.meet_within(within);
            let mut peers = ranks::join(&world, shards, collectives, &watch, within + LONGER)?;
            watch.meet(|sent| by_process(&peers, "addresses", sent))?;
            if let Some(devices) = &collectives.devices {
                join_devices(&mut peers, &runs, devices, within)?;
            }
            peers
        }
    };
    agree(&world, circumstances, step, |sent| {
        Ok(by_process(&peers, "agreement", sent)?)
    })?;
    let peers = peers.into_iter().map(Arc::new);
    Ok(runs.into_iter().zip(peers).collect())
}

/// Joins the devices of this process's ranks with those of the others.
fn join_devices(
    peers: &mut [Peers],
    runs: &[PreparedRun],
    devices: &DeviceCollective,
    within: Duration,
) -> Result<(), Error> {
    let join = |peers: &mut Peers, run: &PreparedRun| {
        let number = run.device.native_device().ok_or_else(|| {
            let backend = &devices.backend;
            UsageError {
                message: format!(
                    "run.device_collective needs the native number of a device, and backend `{backend}` gives none for {}",
                    run.plan.device_info.name
                ),
                next_step: "leave run.device_collective out".to_owned(),
            }
        });
        let device = MemberDevice {
            backend: devices.backend.clone(),
            number: number?,
        };
        peers.join_devices(&devices.collective, &device, within)
    };
    std::thread::scope(|scope| {
        let ranks = peers.iter_mut().zip(runs);
        let joining: Vec<_> = ranks
            .map(|(peers, run)| {
                let join = &join;
                scope.spawn(move || join(peers, run))
            })
            .collect();
        let mut joined = joining.into_iter().map(|one| one.join());
        joined.try_for_each(|joined| joined.expect("joining does not panic"))
    })?;
    Ok(())
}

/// The message of every process, by process.
fn by_process(
    peers: &[Peers],
    label: &str,
    sent: &[u8],
) -> Result<Vec<Vec<u8>>, espalier_engine::Error> {
    let received = exchange(peers, label, sent)?;
    Ok(received.into_iter().step_by(peers.len()).collect())
}

/// The message of every rank, by rank; all ranks of this process send the same one.
fn exchange(
    peers: &[Peers],
    label: &str,
    sent: &[u8],
) -> Result<Vec<Vec<u8>>, espalier_engine::Error> {
    let mut received: Vec<Result<_, espalier_engine::Error>> = std::thread::scope(|scope| {
        let exchange_one = |peers: &'_ Peers| peers.exchange(label, sent);
        let sending: Vec<_> = peers
            .iter()
            .map(|peers| scope.spawn(move || exchange_one(peers)))
            .collect();
        let received = sending.into_iter().map(|one| one.join());
        received
            .map(|received| received.expect("an exchange does not panic"))
            .collect()
    });
    received.swap_remove(0)
}
