//! A team that generates, and a row -> the logits of the row's tokens on each rank.

use espalier_data::MicroBatch;
use espalier_engine::Error;
use espalier_engine::executor::Executor;
use espalier_engine::team::Team;

/// Tokens of a row that pass at once.
const PART: usize = 7;

/// The bits of the logits of `row` on each rank, of the later half of each part. The row passes in
/// parts, in the rank's last slot.
///
/// # Panics
/// Where the team does not generate, or a pass fails.
pub fn row_logits(team: &Team, row: &[i32]) -> Vec<Vec<u64>> {
    let bits = team.each(|executor| of_rank(executor, row));
    bits.expect("logits")
}

fn of_rank(executor: &Executor, row: &[i32]) -> Result<Vec<u64>, Error> {
    let slots = executor.generation().expect("it generates").cache.slots;
    let mut bits = Vec::new();
    for (index, tokens) in row.chunks(PART).enumerate() {
        let (first, length) = ((PART * index) as i32, tokens.len() as i32);
        let micro = MicroBatch {
            tokens: tokens.to_vec(),
            positions: (first..first + length).collect(),
            cu_seqlens: vec![0, length],
            sequences: vec![slots as i32 - 1],
            ..MicroBatch::default()
        };
        // The first rows are moved to where the head reads them.
        let wanted: Vec<u64> = (length as u64 / 2..length as u64).collect();
        let mut take = |_: usize, row: &[f64]| bits.extend(row.iter().map(|x| x.to_bits()));
        executor.infer(&micro, &wanted, &mut take)?;
    }
    Ok(bits)
}
