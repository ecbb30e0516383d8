//! Wide vectors, chosen at run time: a crate built for every processor of its architecture still uses those that
//! the processor has.

use fearless_simd::{Level, Simd};

/// AVX2 with fused multiplication and addition.
#[cfg(target_arch = "x86_64")]
pub(crate) type Wide = fearless_simd::Avx2;
/// NEON, which every processor of this architecture has.
#[cfg(target_arch = "aarch64")]
pub(crate) type Wide = fearless_simd::Neon;
/// Never constructed: [`wide`] returns `None`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) type Wide = fearless_simd::Fallback;

/// The token that proves that this processor has wide vectors.
pub(crate) fn wide() -> Option<Wide> {
    let level = Level::new();
    #[cfg(target_arch = "x86_64")]
    return level.as_avx2();
    #[cfg(target_arch = "aarch64")]
    return level.as_neon();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return None.filter(|_| !level.is_fallback());
}

/// Runs `work` as compiled for wide vectors, where this processor has them. Everything that it calls must be
/// `#[inline(always)]`, the closure too.
#[inline(always)]
pub(crate) fn with_vectors<R>(work: impl FnOnce(Option<Wide>) -> R) -> R {
    match wide() {
        Some(wide) => wide.vectorize(
            #[inline(always)]
            || work(Some(wide)),
        ),
        None => work(None),
    }
}
