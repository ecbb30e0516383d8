//! Seeded random numbers, so that a failure can be repeated.

/// The number of cases of a suite, and the first one's seed.
pub struct Runs {
    count: u64,
    first: u64,
}

impl Runs {
    /// `usual` cases, or as many as GPUX_FUZZ_ITERATIONS says, from GPUX_FUZZ_SEED on.
    pub fn of(usual: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
        let first = number("GPUX_FUZZ_SEED").unwrap_or(1);
        Self { count: number("GPUX_FUZZ_ITERATIONS").unwrap_or(usual), first }
    }

    /// Calls `case` with the dice of each case; one that panics names its seed.
    pub fn each(&self, mut case: impl FnMut(&mut Dice)) {
        for seed in self.first..self.first + self.count {
            let named = Named(seed);
            case(&mut Dice::new(seed));
            drop(named);
        }
    }
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this case again: GPUX_FUZZ_SEED={} GPUX_FUZZ_ITERATIONS=1", self.0);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 up to `end`, without it.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
