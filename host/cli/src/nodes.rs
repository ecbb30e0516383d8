//! `gpux inspect --nodes`: the nodes of a model, where they run and their cost.

use std::collections::BTreeMap;

use super::printer::table;
use gpux::GpuxError;
use gpux::LoadOptions;
use gpux_inference::{
    ExecutionProvider, ModelFile, ModelInfo, NodeReport, Placement, ProviderChoice, ProviderOptions, Trial,
    profile_nodes,
};

/// Runs a model once on each of `providers`; without any, on those that the engine offers.
pub(super) fn report(
    load_options: &LoadOptions,
    file: &ModelFile,
    info: &ModelInfo,
    providers: &[ExecutionProvider],
    options: &ProviderOptions,
) -> Result<NodeReport, GpuxError> {
    let choice = if providers.is_empty() { ProviderChoice::Auto } else { ProviderChoice::These(providers.to_vec()) };
    let selected = gpux::internal::select_engine(load_options, &[choice])?;
    let trial = Trial {
        program: load_options.program.as_deref(),
        cache: None,
        file,
        engine: selected.engine.as_ref(),
        library: selected.library.as_deref(),
        plugins: &selected.plugins,
    };
    // The embedded engine does not tell, but says what it lacks in any case.
    let offered = if selected.library.is_some() { selected.engine.providers() } else { &[] };
    let providers = if providers.is_empty() { offered } else { providers };
    Ok(profile_nodes(&trial, info, providers, options))
}

/// The report as a table, a row for each operator.
pub(super) fn text(report: &NodeReport) -> String {
    let short = |placement: &Placement| {
        let name = placement.provider.strip_suffix("ExecutionProvider").unwrap_or(&placement.provider);
        match placement.subgraphs {
            0 => name.to_owned(),
            1 => format!("{name} (1 part)"),
            parts => format!("{name} ({parts} parts)"),
        }
    };
    let ran: Vec<_> = report.providers.iter().filter(|placement| placement.refused.is_none()).collect();
    let names: Vec<_> = ran.iter().map(|placement| short(placement)).collect();
    let heading: Vec<_> = ["operator", "nodes", "FLOPs"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(["embedded"])
        .collect();
    let row = |operator: &gpux_inference::OperatorNodes| {
        let mut row = vec![
            operator.operator.clone(),
            operator.nodes.to_string(),
            operator.flops.map(quantity).unwrap_or_default(),
        ];
        row.extend(ran.iter().map(|placement| place(placement, &operator.operator)));
        row.push(if operator.embedded { "has it" } else { "lacks it" }.to_owned());
        row
    };
    let mut shown = table(&heading, &[1, 2], report.operators.iter().map(row));
    if !report.inputs.is_empty() {
        let inputs = report.inputs.iter().map(|(name, shape)| format!("{name} {shape:?}"));
        shown = format!("nodes, with {}\n{shown}", inputs.collect::<Vec<_>>().join(", "));
    }
    if let Some(flops) = report.flops {
        let but: Vec<_> = report.uncounted.iter().map(String::as_str).collect();
        let but = if but.is_empty() { String::new() } else { format!(", {} not counted", but.join(", ")) };
        shown += &format!("\n\none run: {} FLOPs{but}", quantity(flops));
    }
    for placement in &report.providers {
        if let Some(reason) = &placement.refused {
            shown += &format!("\n\nnot run on {}: {reason}", placement.provider);
        }
    }
    shown
}

/// The providers that run the nodes of one operator.
fn place(placement: &Placement, operator: &str) -> String {
    let of = |map: &BTreeMap<String, usize>| map.get(operator).copied().unwrap_or(0);
    let parts =
        [(of(&placement.here), ""), (of(&placement.on_cpu), " on the CPU"), (of(&placement.not_run), " not run")];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count}{what}")).collect();
    parts.join(", ")
}

/// A number of operations: `820`, `1.2 k`, `3.4 M`, `8.2 G`.
fn quantity(number: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let unit = units.into_iter().find(|(unit, _)| number >= *unit);
    unit.map_or_else(|| number.to_string(), |(unit, name)| format!("{:.2} {name}", number as f64 / unit as f64))
}
