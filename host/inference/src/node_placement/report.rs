//! The nodes of a model, counted by operator.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::NodeExecution;
use super::flops::flops;
use crate::embedded::unsupported_operators;
use crate::graph::ModelInfo;
use crate::providers::ExecutionProvider;

/// Where a model's nodes run, and their floating-point operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeReport {
    /// the shapes it was run with, by input; empty if it could not be run
    pub inputs: BTreeMap<String, Vec<usize>>,
    /// each operator of the file, subgraphs included
    pub operators: Vec<OperatorNodes>,
    /// operations of one run, as far as they are counted
    pub flops: Option<u64>,
    /// operators whose arithmetic is not counted
    pub uncounted: BTreeSet<String>,
    /// where the nodes run, for each provider
    pub providers: Vec<Placement>,
}

/// The nodes of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorNodes {
    /// its name, with its domain if that is not ONNX's own
    pub operator: String,
    /// how many nodes the file has of it
    pub nodes: usize,
    /// operations of all their runs together
    pub flops: Option<u64>,
    /// whether the embedded engine has it
    pub embedded: bool,
}

/// Where the nodes run with one provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Placement {
    /// its name
    pub provider: String,
    /// nodes that run on it, by operator
    pub here: BTreeMap<String, usize>,
    /// compiled parts of the graph, each of many nodes
    pub subgraphs: usize,
    /// nodes that run on the CPU instead, by operator
    pub on_cpu: BTreeMap<String, usize>,
    /// nodes that did not run: constants, and branches that were not taken
    pub not_run: BTreeMap<String, usize>,
    /// why the model does not run there at all
    pub refused: Option<String>,
}

impl NodeReport {
    /// The nodes of the model, before any run.
    pub(super) fn new(info: &ModelInfo, inputs: BTreeMap<String, Vec<usize>>) -> Self {
        let lacking = unsupported_operators(info.operators.keys().map(String::as_str));
        let operator = |(operator, nodes): (&String, &usize)| OperatorNodes {
            operator: operator.clone(),
            nodes: *nodes,
            flops: None,
            embedded: !lacking.contains(operator.as_str()),
        };
        Self { inputs, operators: info.operators.iter().map(operator).collect(), ..Self::default() }
    }

    /// Counts the arithmetic of a run on the CPU.
    pub(super) fn count(&mut self, ran: &[NodeExecution]) {
        for node in ran {
            let Some(flops) = flops(&node.operator, &node.inputs, &node.outputs) else {
                self.uncounted.insert(node.operator.clone());
                continue;
            };
            let add = |sum: &mut Option<u64>| *sum = Some(sum.unwrap_or(0).saturating_add(flops));
            add(&mut self.flops);
            // A function of the model's own runs as the operators that it is made of.
            if let Some(known) =
                self.operators.iter_mut().find(|known| is_same_operator(&known.operator, &node.operator))
            {
                add(&mut known.flops);
            }
        }
    }

    /// Notes where a run had its nodes.
    pub(super) fn place(&mut self, provider: ExecutionProvider, ran: &Result<Vec<NodeExecution>, String>) {
        let mut placement = Placement { provider: provider.name().to_owned(), ..Placement::default() };
        match ran {
            Err(reason) => placement.refused = Some(reason.clone()),
            Ok(ran) => self.count_nodes(&mut placement, ran),
        }
        self.providers.push(placement);
    }

    fn count_nodes(&self, placement: &mut Placement, ran: &[NodeExecution]) {
        let mut seen = BTreeSet::new();
        for NodeExecution { node, operator, provider, .. } in ran {
            if !seen.insert((node, operator)) {
                continue;
            }
            let known = self.operators.iter().find(|known| is_same_operator(&known.operator, operator));
            let name = known.map_or(operator, |known| &known.operator).clone();
            match known {
                None if *provider == placement.provider && provider != ExecutionProvider::Cpu.name() => {
                    placement.subgraphs += 1;
                }
                _ if *provider == placement.provider => *placement.here.entry(name).or_default() += 1,
                _ => *placement.on_cpu.entry(name).or_default() += 1,
            }
        }
        for OperatorNodes { operator, nodes, .. } in &self.operators {
            let shown = [&placement.here, &placement.on_cpu].iter().filter_map(|map| map.get(operator)).sum();
            let left = nodes.saturating_sub(shown);
            // A compiled subgraph is one event: it holds the nodes that have no event of their own.
            let compiled = placement.subgraphs > 0 && !matches!(operator.as_str(), "Constant" | "If" | "Loop" | "Scan");
            if left > 0 {
                let map = if compiled { &mut placement.here } else { &mut placement.not_run };
                *map.entry(operator.clone()).or_default() += left;
            }
        }
    }
}

/// Whether an operator of the file, with its domain, is the one that ran.
fn is_same_operator(known: &str, ran: &str) -> bool {
    known == ran || known.rsplit_once('.').is_some_and(|(_, name)| name == ran)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::model;

    fn ran(node: &str, operator: &str, provider: &str, shapes: [&[u64]; 2]) -> NodeExecution {
        let [given, gave] = shapes.map(|shape| vec![shape.to_vec()]);
        NodeExecution {
            node: node.into(),
            operator: operator.into(),
            provider: provider.into(),
            inputs: given,
            outputs: gave,
        }
    }

    fn report() -> NodeReport {
        let operators = [("Add".to_owned(), 3), ("Loop".to_owned(), 1), ("com.example.Odd".to_owned(), 2)];
        let info = ModelInfo { operators: operators.into(), ..model("adds").info().clone() };
        NodeReport::new(&info, BTreeMap::new())
    }

    #[test]
    fn counts_nodes_once_and_flops_each_run() {
        let mut report = report();
        let cpu = "CPUExecutionProvider";
        let run = vec![
            ran("0 a", "Add", cpu, [&[4], &[4]]),
            ran("0 a", "Add", cpu, [&[4], &[4]]),
            ran("1 b", "Odd", cpu, [&[8], &[2]]),
            ran("2 l", "Loop", cpu, [&[], &[2]]),
            ran("3 e", "Einsum", cpu, [&[8], &[2]]),
        ];
        report.count(&run);
        report.place(ExecutionProvider::Cpu, &Ok(run));
        assert_eq!((report.flops, report.uncounted.first().unwrap().as_str()), (Some(10), "Einsum"));
        assert_eq!(report.operators[0].flops, Some(8));
        let placement = &report.providers[0];
        assert_eq!((placement.here["Add"], placement.here["com.example.Odd"], placement.subgraphs), (1, 1, 0));
        assert_eq!((placement.not_run["Add"], placement.not_run["com.example.Odd"]), (2, 1));
        assert!(placement.on_cpu.is_empty());
    }

    #[test]
    fn attributes_missing_nodes_to_subgraphs() {
        let mut report = report();
        let run = vec![
            ran("0 part", "OpenVINO-EP-subgraph_1", "OpenVINOExecutionProvider", [&[4], &[4]]),
            ran("1 b", "Odd", "CPUExecutionProvider", [&[8], &[2]]),
        ];
        report.place(ExecutionProvider::OpenVino, &Ok(run));
        let placement = &report.providers[0];
        assert_eq!((placement.subgraphs, placement.here["Add"], placement.here["com.example.Odd"]), (1, 3, 1));
        assert_eq!((placement.on_cpu["com.example.Odd"], placement.not_run["Loop"]), (1, 1));
        report.place(ExecutionProvider::Cuda, &Err("no driver".to_owned()));
        assert_eq!(report.providers[1].refused.as_deref(), Some("no driver"));
    }

    #[test]
    fn marks_operators_of_the_embedded_engine() {
        let report = report();
        let embedded: Vec<_> = report.operators.iter().map(|operator| operator.embedded).collect();
        assert_eq!(embedded, [true, false, false], "{:?}", report.operators);
    }
}
