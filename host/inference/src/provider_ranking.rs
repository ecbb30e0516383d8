//! Ranks the offered providers by a model's run time, measured once in child processes and cached.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::hardware::Hardware;
use super::providers::{ExecutionProvider, ProviderChoice};
use super::step::ModelOptions;
use super::trial_context::Trial;
use super::validation;
use gpux_core::files::digest;
use gpux_core::{CacheDir, CacheFolder, authenticated_file};

/// The run time of one provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderTiming {
    /// which one
    pub provider: ExecutionProvider,
    /// the middle of the times of its runs, in milliseconds
    pub milliseconds: Option<f64>,
    /// why there is no time
    pub failure: Option<String>,
}

/// The providers of a model, the fastest first, those that do not work last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderRanking {
    /// each provider that the engine offers
    pub measured: Vec<ProviderTiming>,
    /// whether it was known before
    pub cached: bool,
    /// why nothing was measured
    pub warning: Option<String>,
}

impl ProviderRanking {
    fn new(mut measured: Vec<ProviderTiming>, cached: bool) -> Self {
        let time = |measured: &ProviderTiming| measured.milliseconds.unwrap_or(f64::INFINITY);
        measured.sort_by(|a, b| time(a).total_cmp(&time(b)));
        Self { measured, cached, warning: None }
    }

    /// The providers that work, in this order; the usual order where none was measured.
    pub fn choice(&self) -> ProviderChoice {
        let works = |measured: &&ProviderTiming| measured.milliseconds.is_some();
        let providers: Vec<_> = self.measured.iter().filter(works).map(|measured| measured.provider).collect();
        if providers.is_empty() { ProviderChoice::Auto } else { ProviderChoice::These(providers) }
    }
}

impl fmt::Display for ProviderRanking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |measured: &ProviderTiming| match measured.milliseconds {
            Some(time) => format!("{} {time:.3} ms", measured.provider),
            None => format!("{} does not run it", measured.provider),
        };
        let shown: Vec<_> = self.measured.iter().map(shown).collect();
        write!(f, "{}{}", shown.join(", "), if self.cached { " (measured before)" } else { "" })
    }
}

/// Measures each provider that the engine offers, or reads the remembered times; `again` measures in
/// any case. Times hold for this model, library, machine and these options. Inputs are
/// zeros of these `shapes`; dimensions that neither they nor the model tell are 1.
pub fn rank_providers(
    trial: &Trial<'_>,
    options: &ModelOptions,
    shapes: &[Option<Vec<usize>>],
    again: bool,
) -> ProviderRanking {
    let key = key(trial, options);
    if !again && let Some(measured) = trial.cache.and_then(|cache| cached(cache, &key)) {
        return ProviderRanking::new(measured, true);
    }
    let Some(program) = trial.program else {
        let warning =
            "the fastest provider is not known, and cannot be measured in this process; the usual order holds";
        return ProviderRanking { warning: Some(warning.to_owned()), ..ProviderRanking::default() };
    };
    let measure = |provider: &ExecutionProvider| {
        let (milliseconds, failure) = match validation::measure(program, trial, *provider, options, shapes) {
            Ok(Some(time)) => (Some(time.as_secs_f64() * 1e3), None),
            Ok(None) => (None, Some("a run on zeros gives no result".to_owned())),
            Err(error) => (None, Some(error.to_string())),
        };
        ProviderTiming { provider: *provider, milliseconds, failure }
    };
    let ranking = ProviderRanking::new(trial.engine.providers().iter().map(measure).collect(), false);
    let text = serde_json::to_string(&ranking.measured).unwrap_or_default();
    // Not remembering costs the next start a measurement, no more.
    let _ = trial.cache.map(|cache| authenticated_file::write(cache, CacheFolder::Rankings, &key, text.as_bytes()));
    ranking
}

/// The name of the file that remembers.
fn key(trial: &Trial<'_>, options: &ModelOptions) -> String {
    let hardware = Hardware::detect();
    let key = format!(
        "{}\0{}\0{}\0{:?}\0{:?}\0{:?}\0{:?}\0{:?}\0{}",
        trial.file.digest(),
        trial.engine.identity(),
        env!("CARGO_PKG_VERSION"),
        hardware.cpu,
        hardware.gpus,
        hardware.drivers,
        options.provider_options,
        options.threads,
        options.precision,
    );
    digest(key)
}

fn cached(cache: &CacheDir, key: &str) -> Option<Vec<ProviderTiming>> {
    serde_json::from_slice(&authenticated_file::read(cache, CacheFolder::Rankings, key)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{embedded, model};

    fn measured(provider: ExecutionProvider, milliseconds: Option<f64>) -> ProviderTiming {
        ProviderTiming { provider, milliseconds, failure: None }
    }

    #[test]
    fn ranks_by_time_without_failures() {
        use ExecutionProvider::{Cpu, Cuda, OpenVino};
        let all = vec![measured(Cuda, None), measured(OpenVino, Some(2.0)), measured(Cpu, Some(1.5))];
        let ranking = ProviderRanking::new(all, false);
        assert_eq!(ranking.choice(), ProviderChoice::These(vec![Cpu, OpenVino]));
        assert_eq!(ranking.to_string(), "cpu 1.500 ms, openvino 2.000 ms, cuda does not run it");
        assert_eq!(ProviderRanking::new(vec![measured(Cuda, None)], true).choice(), ProviderChoice::Auto);
    }

    #[test]
    fn caches_timings_by_options() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path());
        let (file, engine) = (model("conv"), embedded());
        let trial =
            Trial { program: None, cache: Some(&cache), file: &file, engine: &*engine, library: None, plugins: &[] };
        let options = ModelOptions::default();
        let unknown = rank_providers(&trial, &options, &[], false);
        assert!(unknown.warning.is_some() && unknown.choice() == ProviderChoice::Auto);
        let known = vec![measured(ExecutionProvider::Cpu, Some(3.0))];
        let text = serde_json::to_vec(&known).unwrap();
        authenticated_file::write(&cache, CacheFolder::Rankings, &key(&trial, &options), &text).unwrap();
        let ranking = rank_providers(&trial, &options, &[], false);
        assert!(ranking.cached && ranking.measured == known);
        let other = ModelOptions { threads: Some(1), ..options };
        assert!(!rank_providers(&trial, &other, &[], false).cached, "threads change the times");
    }
}
