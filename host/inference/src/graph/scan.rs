//! Scans every graph, function and constant of a model within a memory budget: two bytes of a file
//! can become a node of a hundred bytes.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Buf as _;

use super::external_data_check::{self, ExternalFile, ExternalFiles, PrepackedWeights};
use super::forward_reader::{ForwardRead, ForwardReader};
use super::proto::{Entry, Opset, Tensor, ValueInfo};
use super::wire::{Field, Message, WireError};

/// The memory budget in bytes: names and types of the largest real models fit many times.
const MEMORY: usize = 64 << 20;
/// Bytes of descriptions and metadata that are read, for people: of what is larger, only the size is told.
const TEXTS: usize = 16 << 20;
/// The overhead of a name or a small message beside its text: the value, its table entry and its
/// allocation.
const ITEM: usize = 128;
/// Bytes in memory for each byte of an input's or output's type: two are a dimension, which is kept
/// as it was read, for the plan and for people.
const TYPE: usize = 64;
/// A dimension of a tensor, in a list that grows.
const DIMENSION: usize = 24;
/// A file with weights, beside its names: more than it takes, as looking for it takes the time that a
/// thousand bytes of names take. One for each weight of the largest real models fits.
const FILE: usize = 1 << 10;

/// Why a scan failed.
#[derive(Debug)]
pub(super) enum ScanError {
    WireError(WireError),
    TooLarge(String),
    /// weights in other files: the tensor, and the defect
    External(String, String),
}

impl From<WireError> for ScanError {
    fn from(error: WireError) -> Self {
        Self::WireError(error)
    }
}

/// The facts that a scan collects.
#[derive(Debug, Default)]
pub(super) struct ScannedModel {
    pub(super) ir_version: i64,
    pub(super) producer_name: String,
    pub(super) producer_version: String,
    pub(super) domain: String,
    pub(super) model_version: i64,
    pub(super) doc_string: String,
    pub(super) opsets: Vec<Opset>,
    pub(super) metadata: Vec<Entry>,
    /// keys of `metadata` whose value is too large
    pub(super) omitted: BTreeSet<String>,
    /// none where there is no graph
    pub(super) graph: Option<Graph>,
    /// how often each occurs
    pub(super) operators: BTreeMap<String, usize>,
    /// those that the model defines itself
    pub(super) functions: BTreeSet<String>,
    /// numbers in weights
    pub(super) parameters: u64,
    pub(super) files: BTreeSet<ExternalFile>,
    /// where the model says that they lie
    pub(super) locations: BTreeMap<PathBuf, PathBuf>,
}

/// The graph that is not inside another.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) name: String,
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
    /// the size of the first axis of its weights, by name
    pub(super) initializers: BTreeMap<String, u64>,
    /// names that its loops take
    pub(super) loop_inputs: BTreeSet<String>,
    /// what its `Gather` nodes take: a table, and what indexes it
    pub(super) gathers: BTreeSet<(String, String)>,
}

impl Graph {
    /// The rows of the smallest table of weights that an input's elements index.
    pub(super) fn index_limit(&self, input: &str) -> Option<u64> {
        let tables = self.gathers.iter().filter(|(_, indices)| indices == input);
        tables.filter_map(|(table, _)| self.initializers.get(table).copied()).min()
    }
}

/// What is kept of a tensor.
struct ScannedTensor {
    name: String,
    /// the size of its first axis
    rows: u64,
    elements: u64,
}

/// Scans a whole model whose weights may lie in `files`.
pub(super) fn scan<R: ForwardRead>(
    source: &mut ForwardReader<R>,
    files: ExternalFiles<'_>,
    packed: PrepackedWeights,
) -> Result<ScannedModel, ScanError> {
    scan_within(MEMORY, source, files, packed)
}

/// The same, with so much memory.
pub(super) fn scan_within<R: ForwardRead>(
    memory: usize,
    source: &mut ForwardReader<R>,
    files: ExternalFiles<'_>,
    packed: PrepackedWeights,
) -> Result<ScannedModel, ScanError> {
    let mut scan = Scanner { source, files, packed, left: memory, texts: TEXTS, result: ScannedModel::default() };
    scan.model()?;
    let locations = scan.files.locations();
    Ok(ScannedModel { files: scan.files.into_files(), locations, ..scan.result })
}

struct Scanner<'a, R> {
    source: &'a mut ForwardReader<R>,
    files: ExternalFiles<'a>,
    packed: PrepackedWeights,
    /// of the memory, in bytes
    left: usize,
    /// of [`TEXTS`]
    texts: usize,
    result: ScannedModel,
}

impl<R: ForwardRead> Scanner<'_, R> {
    fn model(&mut self) -> Result<(), ScanError> {
        let model = Message::WHOLE;
        while let Some(field) = self.source.field(model)? {
            match field.tag {
                1 => self.result.ir_version = self.source.integer(field)?,
                2 => self.result.producer_name = self.text(field)?,
                3 => self.result.producer_version = self.text(field)?,
                4 => self.result.domain = self.text(field)?,
                5 => self.result.model_version = self.source.integer(field)?,
                6 => {
                    let is_omitted;
                    (self.result.doc_string, is_omitted) = self.long_text(field)?;
                    if is_omitted {
                        self.result.omitted.insert("description".to_owned());
                    }
                }
                7 => self.main_graph(field, model)?,
                8 => {
                    let opset = self.message(field, 1)?;
                    self.result.opsets.push(opset);
                }
                14 => {
                    let entry = self.metadata(field, model)?;
                    self.result.metadata.push(entry);
                }
                25 => self.function(field, model)?,
                // Engines ignore training information (20).
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// May come in parts.
    fn main_graph(&mut self, field: Field, model: Message) -> Result<(), ScanError> {
        let message = self.source.enter(field, model)?;
        let mut graph = self.result.graph.take().unwrap_or_default();
        while let Some(field) = self.source.field(message)? {
            match field.tag {
                1 => self.node(field, message, Some(&mut graph))?,
                2 => graph.name = self.text(field)?,
                5 => {
                    let ScannedTensor { name, rows, elements } = self.tensor(field, message)?;
                    self.count_parameters(elements);
                    if let MapEntry::Vacant(vacant) = graph.initializers.entry(name) {
                        self.take(ITEM + vacant.key().len())?;
                        vacant.insert(rows);
                    }
                }
                11 => graph.inputs.push(self.message(field, TYPE)?),
                12 => graph.outputs.push(self.message(field, TYPE)?),
                15 => {
                    let elements = self.sparse(field, message)?;
                    self.count_parameters(elements);
                }
                _ => self.source.skip(field)?,
            }
        }
        self.result.graph = Some(graph);
        Ok(())
    }

    fn function(&mut self, field: Field, model: Message) -> Result<(), ScanError> {
        let function = self.source.enter(field, model)?;
        let (mut name, mut domain) = (String::new(), String::new());
        while let Some(field) = self.source.field(function)? {
            match field.tag {
                1 => name = self.text(field)?,
                10 => domain = self.text(field)?,
                7 => self.node(field, function, None)?,
                // Default attributes.
                11 => drop(self.attribute(field, function)?),
                _ => self.source.skip(field)?,
            }
        }
        self.result.functions.insert(qualified(name, &domain));
        Ok(())
    }

    /// A graph inside of a node.
    fn inner_graph(&mut self, field: Field, attribute: Message) -> Result<(), ScanError> {
        let graph = self.source.enter(field, attribute)?;
        while let Some(field) = self.source.field(graph)? {
            match field.tag {
                1 => self.node(field, graph, None)?,
                5 => {
                    let elements = self.tensor(field, graph)?.elements;
                    self.count_parameters(elements);
                }
                15 => {
                    let elements = self.sparse(field, graph)?;
                    self.count_parameters(elements);
                }
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// Counts it; what it takes goes into the `main` graph if it is a loop or looks something up.
    fn node(&mut self, field: Field, outer: Message, main: Option<&mut Graph>) -> Result<(), ScanError> {
        let node = self.source.enter(field, outer)?;
        let left = self.left;
        let (mut operator, mut domain, mut inputs) = (String::new(), String::new(), Vec::new());
        // Memory that its attributes' nested graphs keep.
        let mut kept = 0;
        let mut elements = 0_u64;
        while let Some(field) = self.source.field(node)? {
            match field.tag {
                1 if main.is_some() => inputs.push(self.text(field)?),
                4 => operator = self.text(field)?,
                5 => {
                    let before = self.left;
                    elements = elements.saturating_add(self.attribute(field, node)?);
                    kept += before - self.left;
                }
                7 => domain = self.text(field)?,
                _ => self.source.skip(field)?,
            }
        }
        self.left = left - kept;
        if let Some(graph) = main {
            self.keep_inputs(graph, &operator, inputs)?;
        }
        let name = qualified(operator, &domain);
        // Some exporters write weights as such nodes.
        if name == "Constant" {
            self.count_parameters(elements);
        }
        if !self.result.operators.contains_key(&name) {
            self.take(ITEM + name.len())?;
        }
        *self.result.operators.entry(name).or_default() += 1;
        Ok(())
    }

    fn keep_inputs(&mut self, graph: &mut Graph, operator: &str, inputs: Vec<String>) -> Result<(), ScanError> {
        match (operator, inputs.as_slice()) {
            ("Loop" | "Scan", _) => inputs.into_iter().try_for_each(|input| self.keep(&mut graph.loop_inputs, input)),
            ("Gather", [table, indices]) => {
                self.take(2 * ITEM + table.len() + indices.len())?;
                graph.gathers.insert((table.clone(), indices.clone()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Gives how many elements its tensor has, without those of lists and of nested graphs.
    fn attribute(&mut self, field: Field, outer: Message) -> Result<u64, ScanError> {
        let attribute = self.source.enter(field, outer)?;
        let (mut tensor, mut sparse) = (false, false);
        let mut elements = 0;
        while let Some(field) = self.source.field(attribute)? {
            match field.tag {
                5 => {
                    ensure_once(&mut tensor)?;
                    elements = self.tensor(field, attribute)?.elements;
                }
                10 => drop(self.tensor(field, attribute)?),
                6 | 11 => self.inner_graph(field, attribute)?,
                22 => {
                    ensure_once(&mut sparse)?;
                    elements = self.sparse(field, attribute)?;
                }
                23 => drop(self.sparse(field, attribute)?),
                _ => self.source.skip(field)?,
            }
        }
        Ok(elements)
    }

    /// Gives how many values it has.
    fn sparse(&mut self, field: Field, outer: Message) -> Result<u64, ScanError> {
        let sparse = self.source.enter(field, outer)?;
        let (mut values, mut indices) = (false, false);
        let mut elements = 0;
        while let Some(field) = self.source.field(sparse)? {
            match field.tag {
                1 => {
                    ensure_once(&mut values)?;
                    elements = self.tensor(field, sparse)?.elements;
                }
                2 => {
                    ensure_once(&mut indices)?;
                    self.tensor(field, sparse)?;
                }
                _ => self.source.skip(field)?,
            }
        }
        Ok(elements)
    }

    fn count_parameters(&mut self, elements: u64) {
        self.result.parameters = self.result.parameters.saturating_add(elements);
    }

    /// Checks the location of its data.
    fn tensor(&mut self, field: Field, outer: Message) -> Result<ScannedTensor, ScanError> {
        let message = self.source.enter(field, outer)?;
        let left = self.left;
        let mut tensor = Tensor::default();
        while let Some(field) = self.source.field(message)? {
            match field.tag {
                1 => {
                    let room = &mut self.left;
                    self.source.integers(field, |dimension| {
                        take(room, DIMENSION)?;
                        tensor.dims.push(dimension);
                        Ok::<_, ScanError>(())
                    })?;
                }
                2 => tensor.data_type = low_32_bits(self.source.integer(field)?),
                8 => tensor.name = self.text(field)?,
                13 => tensor.external_data.push(self.message(field, 1)?),
                14 => tensor.data_location = low_32_bits(self.source.integer(field)?),
                _ => self.source.skip(field)?,
            }
        }
        self.left = left;
        let elements = (tensor.dims.iter())
            .try_fold(1_u64, |product, dimension| product.checked_mul(u64::try_from(*dimension).ok()?));
        // Engines look at either mark, so either counts.
        if tensor.data_location == 1 || !tensor.external_data.is_empty() {
            self.check_external_data(&tensor)?;
        }
        let rows = tensor.dims.first().map_or(0, |rows| u64::try_from(*rows).unwrap_or(0));
        Ok(ScannedTensor { name: tensor.name, rows, elements: elements.unwrap_or(0) })
    }

    /// Checks the file that holds a tensor's data.
    fn check_external_data(&mut self, tensor: &Tensor) -> Result<(), ScanError> {
        let wrong = |reason| ScanError::External(external_data_check::sanitize(&tensor.name), reason);
        let data = external_data_check::ExternalData::new(tensor, self.packed).map_err(wrong)?;
        let place = data.place().map_err(wrong)?;
        if !self.files.contains(&place) {
            self.take(FILE + 2 * place.as_os_str().len())?;
        }
        let file = self.files.find(&place).map_err(wrong)?;
        data.check(tensor, &place, file).map_err(wrong)
    }

    fn metadata(&mut self, field: Field, model: Message) -> Result<Entry, ScanError> {
        self.take(2 * ITEM)?;
        let message = self.source.enter(field, model)?;
        let mut entry = Entry::default();
        let mut is_omitted = false;
        while let Some(field) = self.source.field(message)? {
            match field.tag {
                1 => entry.key = self.text(field)?,
                2 => (entry.value, is_omitted) = self.long_text(field)?,
                _ => self.source.skip(field)?,
            }
        }
        if is_omitted {
            self.take(ITEM + entry.key.len())?;
            self.result.omitted.insert(entry.key.clone());
        }
        Ok(entry)
    }

    /// A text that no engine depends on, or a note that it is too large, and whether it is.
    fn long_text(&mut self, field: Field) -> Result<(String, bool), ScanError> {
        let length = self.source.length(field)?;
        self.take(ITEM)?;
        if let Some(rest) = self.texts.checked_sub(length) {
            self.texts = rest;
            return Ok((self.source.text(length)?, false));
        }
        self.source.advance(length);
        Ok((format!("({length} bytes, which are not shown)"), true))
    }

    fn text(&mut self, field: Field) -> Result<String, ScanError> {
        let length = self.source.length(field)?;
        self.take(ITEM.saturating_add(length))?;
        Ok(self.source.text(length)?)
    }

    /// A small message whose bytes take up to `times` as many in memory.
    fn message<M: prost::Message + Default>(&mut self, field: Field, times: usize) -> Result<M, ScanError> {
        let length = self.source.length(field)?;
        self.take(length.saturating_mul(times).saturating_add(2 * ITEM))?;
        Ok(self.source.message(length)?)
    }

    fn keep(&mut self, names: &mut BTreeSet<String>, name: String) -> Result<(), ScanError> {
        if !names.contains(&name) {
            self.take(ITEM + name.len())?;
            names.insert(name);
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), ScanError> {
        take(&mut self.left, bytes)
    }
}

/// An operator's name with its domain, which ONNX's own operators have none of.
fn qualified(name: String, domain: &str) -> String {
    match domain {
        "" | "ai.onnx" => name,
        domain => format!("{domain}.{name}"),
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), ScanError> {
    let rest = left.checked_sub(bytes);
    *left = rest.ok_or_else(|| {
        ScanError::TooLarge(format!(
            "its names, inputs and outputs would take more than {} MiB of memory",
            MEMORY >> 20
        ))
    })?;
    Ok(())
}

/// Parsers merge the parts of a repeated field, and the merged tensor is not the checked one.
fn ensure_once(seen: &mut bool) -> Result<(), WireError> {
    if std::mem::replace(seen, true) { Err(WireError::Twice) } else { Ok(()) }
}

/// As protobuf reads an `int32`: the low 32 bits of the varint.
fn low_32_bits(value: i64) -> i32 {
    value as i32
}
