//! Values by step -> the same smoothed, or thinned to screen resolution.

/// Spans of a thinned series; each keeps its least and its greatest value.
const SPANS: usize = 400;
/// A smoothed value averages over 1 / `SMOOTHED_PART` of the run.
const SMOOTHED_PART: usize = 20;
/// Fewest and most steps that it averages over.
const SMOOTHED_STEPS: [usize; 2] = [10, 500];

/// A value by step; NaN where there is none.
pub type Point = (f64, f64);

/// Steps over which a series of `len` steps is smoothed.
pub fn smoothed_steps(len: usize) -> usize {
    let [least, most] = SMOOTHED_STEPS;
    (len / SMOOTHED_PART).clamp(least, most)
}

/// The exponential mean over about [`smoothed_steps`], which starts at the first value.
pub fn smoothed(points: &[Point]) -> Vec<Point> {
    let newest = 2.0 / (smoothed_steps(points.len()) as f64 + 1.0);
    let mut mean = None;
    let mut smooth = |value: f64| {
        if value.is_finite() {
            mean = Some(mean.map_or(value, |mean: f64| mean + newest * (value - mean)));
        }
        mean.unwrap_or(f64::NAN)
    };
    points.iter().map(|(x, y)| (*x, smooth(*y))).collect()
}

/// At most about 800 of the points: the first, the last, and the least and greatest of every span.
/// Gaps are kept.
pub fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= 2 * SPANS {
        return points.to_vec();
    }
    let span = points.len().div_ceil(SPANS);
    let mut kept: Vec<usize> = vec![0, points.len() - 1];
    for (index, span_points) in points.chunks(span).enumerate() {
        let at = |within: usize| index * span + within;
        let value = |i: &usize| span_points[*i].1;
        let finite = (0..span_points.len()).filter(|i| value(i).is_finite());
        kept.extend(
            finite
                .clone()
                .min_by(|a, b| value(a).total_cmp(&value(b)))
                .map(at),
        );
        kept.extend(finite.max_by(|a, b| value(a).total_cmp(&value(b))).map(at));
        let gap = (0..span_points.len()).find(|i| !value(i).is_finite());
        kept.extend(gap.map(at));
    }
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().map(|index| points[index]).collect()
}

/// The mean of the finite values; NaN without any.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let (sum, count) = finite.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// The `share` quantile of the finite values.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let mut finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    finite.sort_unstable_by(f64::total_cmp);
    let last = finite.len().checked_sub(1)?;
    finite.get((share * last as f64).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_extremes_ends_and_gaps() {
        let mut points: Vec<Point> = (0..100_000).map(|i| (i as f64, (i as f64).sin())).collect();
        points[54_321].1 = 99.0;
        points[12_345].1 = -99.0;
        points[777].1 = f64::NAN;
        let kept = thinned(&points);
        assert!(kept.len() <= 2 * SPANS + 3, "{} points", kept.len());
        assert!(kept.contains(&(54_321.0, 99.0)) && kept.contains(&(12_345.0, -99.0)));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[99_999]));
        assert!(kept.iter().any(|(x, y)| *x == 777.0 && y.is_nan()));
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn smoothing_starts_at_the_first_value_and_skips_gaps() {
        let smooth = smoothed(&[(1.0, 4.0), (2.0, f64::NAN), (3.0, 1.0)]);
        let last = 4.0 - 3.0 * 2.0 / 11.0;
        assert_eq!(smooth, [(1.0, 4.0), (2.0, 4.0), (3.0, last)]);
    }

    #[test]
    fn quantiles_and_means_skip_nan() {
        let values = [3.0, f64::NAN, 1.0, 2.0];
        assert_eq!(quantile(values, 0.5), Some(2.0));
        assert_eq!(mean(values), 2.0);
        assert_eq!(quantile([], 0.5), None);
    }
}
