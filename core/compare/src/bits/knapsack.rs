//! What each site's options cost in bytes and in divergence -> the option of each site: least
//! divergence in all within a number of bytes (a multiple-choice knapsack).

/// An option of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Bytes of the site's weight.
    pub bytes: u64,
    /// Divergence that it causes, in nats; finite and not negative.
    pub divergence: f64,
}

/// Most cells of the dynamic program's row; its memory is this many bytes a site.
pub const MOST_CELLS: u64 = 1 << 16;

/// The fewest bytes that all sites can take together.
pub fn least_bytes(sites: &[Vec<Item>]) -> u64 {
    sites.iter().map(|items| least(items)).sum()
}

/// The number of the chosen option of each site; `None` where even the smallest options exceed
/// `most_bytes`.
///
/// `best[i][w]` is the least divergence of the first `i` sites with at most `w` units above their
/// fewest bytes: `best[i][w] = min_j best[i-1][w - excess(i, j)] + divergence(i, j)`. The unit is
/// the greatest common divisor of all differences, which makes the choice exact. Where that needs
/// more than `most_cells` cells, the unit is larger and bytes are rounded up: the choice then fits
/// and can miss the best by as much as the rounding, and bytes left over are spent one option at a
/// time.
///
/// # Panics
/// Where a site has no option.
///
/// # Source
/// Kellerer, Pferschy, Pisinger: Knapsack Problems (2004), section 11.5.
pub fn choose(sites: &[Vec<Item>], most_bytes: u64, most_cells: u64) -> Option<Vec<usize>> {
    let most = most_bytes.checked_sub(least_bytes(sites))?;
    let excess = |items: &[Item], item: &Item| item.bytes - least(items);
    let all = || {
        sites
            .iter()
            .flat_map(|items| items.iter().map(move |item| excess(items, item)))
    };
    let largest: u64 = sites
        .iter()
        .map(|items| {
            items
                .iter()
                .map(|item| excess(items, item))
                .max()
                .unwrap_or(0)
        })
        .sum();
    let most = most.min(largest);
    let divisor = all().fold(0, greatest_common_divisor).max(1);
    let unit = if most / divisor < most_cells {
        divisor
    } else {
        most.div_ceil(most_cells - 1)
    };
    let cells = (most / unit) as usize + 1;
    let mut best = vec![0.0; cells];
    let mut taken: Vec<Vec<u8>> = Vec::with_capacity(sites.len());
    for items in sites {
        assert!(
            !items.is_empty() && items.len() <= usize::from(u8::MAX),
            "options of a site"
        );
        let mut next = vec![f64::INFINITY; cells];
        let mut choice = vec![0u8; cells];
        for (number, item) in items.iter().enumerate() {
            let units = excess(items, item).div_ceil(unit) as usize;
            for cell in units..cells {
                let sum = best[cell - units] + item.divergence;
                if sum < next[cell] {
                    next[cell] = sum;
                    choice[cell] = number as u8;
                }
            }
        }
        best = next;
        taken.push(choice);
    }
    let mut cell = cells - 1;
    // Among equal sums the one of fewest bytes.
    while cell > 0 && best[cell - 1] == best[cell] {
        cell -= 1;
    }
    let mut chosen = vec![0; sites.len()];
    for (site, items) in sites.iter().enumerate().rev() {
        chosen[site] = usize::from(taken[site][cell]);
        cell -= excess(items, &items[chosen[site]]).div_ceil(unit) as usize;
    }
    spend(sites, most_bytes, &mut chosen);
    Some(chosen)
}

/// Takes better options while bytes are left, each time the one that lowers the divergence most.
fn spend(sites: &[Vec<Item>], most_bytes: u64, chosen: &mut [usize]) {
    loop {
        let used: u64 = sites
            .iter()
            .zip(&*chosen)
            .map(|(items, &at)| items[at].bytes)
            .sum();
        let mut found: Option<(f64, usize, usize)> = None;
        for (site, items) in sites.iter().enumerate() {
            let now = items[chosen[site]];
            for (number, item) in items.iter().enumerate() {
                let gain = now.divergence - item.divergence;
                let fits = used - now.bytes + item.bytes <= most_bytes;
                if fits && gain > found.map_or(0.0, |(most, ..)| most) {
                    found = Some((gain, site, number));
                }
            }
        }
        match found {
            Some((_, site, number)) => chosen[site] = number,
            None => return,
        }
    }
}

fn least(items: &[Item]) -> u64 {
    items.iter().map(|item| item.bytes).min().unwrap_or(0)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::random;

    use super::*;

    /// A random instance: up to 6 sites of up to 4 options, in multiples of `unit` bytes.
    fn instance(seed: u32, unit: u64) -> Vec<Vec<Item>> {
        let draw = |at: [u32; 2]| random::philox([seed, 7], [at[0], at[1], 0, 0]);
        let sites = 1 + draw([99, 0])[0] % 6;
        let items = |site: u32| {
            let options = 1 + draw([site, 99])[0] % 4;
            let item = |option: u32| {
                let [bytes, divergence, ..] = draw([site, option]);
                Item {
                    bytes: unit * u64::from(bytes % 40),
                    // Coarse, so that sums are exact and some are equal.
                    divergence: f64::from(divergence % 64) / 64.0,
                }
            };
            (0..options).map(item).collect()
        };
        (0..sites).map(items).collect()
    }

    fn sums(sites: &[Vec<Item>], chosen: &[usize]) -> (u64, f64) {
        let items = || sites.iter().zip(chosen).map(|(items, &at)| items[at]);
        (
            items().map(|item| item.bytes).sum(),
            items().map(|item| item.divergence).sum(),
        )
    }

    /// The least divergence of all choices within `most_bytes`.
    fn brute_force(sites: &[Vec<Item>], most_bytes: u64) -> Option<f64> {
        let count: usize = sites.iter().map(Vec::len).product();
        let choices = (0..count).map(|mut number| {
            let digit = |items: &Vec<Item>| {
                let at = number % items.len();
                number /= items.len();
                at
            };
            sites.iter().map(digit).collect::<Vec<usize>>()
        });
        let fitting = choices.map(|chosen| sums(sites, &chosen));
        let fitting = fitting.filter(|(bytes, _)| *bytes <= most_bytes);
        fitting
            .map(|(_, divergence)| divergence)
            .min_by(f64::total_cmp)
    }

    #[test]
    fn choices_equal_those_of_brute_force() {
        for seed in 0..400 {
            let unit = [1, 64, 4096][seed as usize % 3];
            let sites = instance(seed, unit);
            let least = least_bytes(&sites);
            for more in [0, 1, 7 * unit, 30 * unit, 1000 * unit] {
                let most = least + more;
                let chosen = choose(&sites, most, MOST_CELLS).expect("it fits");
                let (bytes, divergence) = sums(&sites, &chosen);
                assert!(bytes <= most);
                assert_eq!(Some(divergence), brute_force(&sites, most), "{seed} {more}");
            }
            if least > 0 {
                assert_eq!(choose(&sites, least - 1, MOST_CELLS), None);
            }
        }
    }

    #[test]
    fn coarse_cells_still_fit_and_are_close() {
        let mut missed = 0.0;
        for seed in 0..400 {
            let sites = instance(seed, 1);
            let most = least_bytes(&sites) + 40;
            let chosen = choose(&sites, most, 16).expect("it fits");
            let (bytes, divergence) = sums(&sites, &chosen);
            assert!(bytes <= most, "{seed}");
            let best = brute_force(&sites, most).expect("it fits");
            assert!(divergence >= best);
            missed += divergence - best;
        }
        assert!(missed / 400.0 < 0.03, "{missed}");
    }
}
