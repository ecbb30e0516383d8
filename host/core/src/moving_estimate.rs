//! A moving estimate of a quantity that varies, as TCP estimates round trips (RFC 6298).

/// Weight of the newest value in the mean.
const MEAN_WEIGHT: f64 = 0.125;
/// Weight of the newest value's distance in the deviation.
const DEVIATION_WEIGHT: f64 = 0.25;
/// The deviations above the mean that few values exceed: 1.6 standard deviations of a normal distribution.
const UPPER_DEVIATIONS: f64 = 2.0;

/// Mean and mean deviation of the latest values.
#[derive(Clone, Copy, Debug, Default)]
pub struct MovingEstimate {
    count: u32,
    mean: f64,
    deviation: f64,
}

impl MovingEstimate {
    /// Records a value.
    pub fn record(&mut self, value: f64) {
        if self.count == 0 {
            (self.mean, self.deviation) = (value, value / 2.0);
        } else {
            self.deviation += DEVIATION_WEIGHT * ((value - self.mean).abs() - self.deviation);
            self.mean += MEAN_WEIGHT * (value - self.mean);
        }
        self.count = self.count.saturating_add(1);
    }

    /// The number of recorded values.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The mean; `None` before the first value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// A bound that few values exceed; `None` before the first value.
    pub fn upper(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean + UPPER_DEVIATIONS * self.deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_values_and_their_spread() {
        let mut estimate = MovingEstimate::default();
        assert_eq!((estimate.mean(), estimate.upper()), (None, None));
        estimate.record(10.0);
        assert_eq!((estimate.mean(), estimate.upper()), (Some(10.0), Some(20.0)), "one value says little");
        (0..50).for_each(|_| estimate.record(10.0));
        assert!(estimate.upper().is_some_and(|upper| upper < 10.01), "{estimate:?}");
        (0..100).for_each(|number| estimate.record(if number % 2 == 0 { 8.0 } else { 12.0 }));
        assert!(estimate.mean().is_some_and(|mean| (mean - 10.0).abs() < 0.5), "{estimate:?}");
        assert!(estimate.upper().is_some_and(|upper| (13.0..16.0).contains(&upper)), "{estimate:?}");
    }
}
