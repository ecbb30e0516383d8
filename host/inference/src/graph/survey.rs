//! A walk over every graph, function and constant of a model. What it keeps has a bound: two bytes
//! of a file can be a node, which is a hundred in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::external::{self, ExternalFile, Files, Packed};
use super::proto::{Entry, Opset, Tensor, ValueInfo};
use super::source::{Forward, Source};
use super::wire::{Field, Message, Unreadable};

/// Memory that all is kept in, in bytes: names and types of the largest real models fit many times.
const MEMORY: usize = 64 << 20;
/// What a name or a small message takes, beside its text: itself, its place in a table, and what an
/// allocation costs.
const ITEM: usize = 128;
/// What a byte of an input's or output's description may become: two are a dimension, which is kept
/// as it was read, for the plan and for people.
const TYPE: usize = 64;
/// A dimension of a tensor, in a list that grows.
const DIMENSION: usize = 24;
/// A file with weights, beside its names: more than it takes, as looking for it takes the time that a
/// thousand bytes of names take. One for each weight of the largest real models fits.
const FILE: usize = 1 << 10;

/// What ended the walk.
#[derive(Debug)]
pub(super) enum Fault {
    Unreadable(Unreadable),
    TooMuch(String),
    /// weights in other files: which tensor, and what is wrong with it
    External(String, String),
}

impl From<Unreadable> for Fault {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

/// What a model says of itself.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) ir_version: i64,
    pub(super) producer_name: String,
    pub(super) producer_version: String,
    pub(super) domain: String,
    pub(super) model_version: i64,
    pub(super) doc_string: String,
    pub(super) opsets: Vec<Opset>,
    pub(super) metadata: Vec<Entry>,
    /// none where there is no graph
    pub(super) graph: Option<Graph>,
    /// how often each occurs
    pub(super) operators: BTreeMap<String, usize>,
    /// numbers in weights
    pub(super) parameters: u64,
    pub(super) files: BTreeSet<ExternalFile>,
}

/// The graph that is not inside another.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) name: String,
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
    /// names of its weights
    pub(super) initializers: BTreeSet<String>,
    /// names that its loops take
    pub(super) looped: BTreeSet<String>,
}

/// Reads a whole model; `folder` is where it lies.
pub(super) fn survey<R: Forward>(source: &mut Source<R>, folder: &Path, packed: Packed) -> Result<Facts, Fault> {
    survey_within(MEMORY, source, folder, packed)
}

/// The same, with so much memory.
pub(super) fn survey_within<R: Forward>(
    memory: usize,
    source: &mut Source<R>,
    folder: &Path,
    packed: Packed,
) -> Result<Facts, Fault> {
    let mut survey = Survey { source, files: Files::new(folder), packed, left: memory, facts: Facts::default() };
    survey.model()?;
    Ok(Facts { files: survey.files.found(), ..survey.facts })
}

struct Survey<'a, R> {
    source: &'a mut Source<R>,
    files: Files<'a>,
    packed: Packed,
    /// of the memory, in bytes
    left: usize,
    facts: Facts,
}

impl<R: Forward> Survey<'_, R> {
    fn model(&mut self) -> Result<(), Fault> {
        let model = Message::WHOLE;
        while let Some(field) = self.source.field(model)? {
            match field.tag {
                1 => self.facts.ir_version = self.source.integer(field)?,
                2 => self.facts.producer_name = self.text(field)?,
                3 => self.facts.producer_version = self.text(field)?,
                4 => self.facts.domain = self.text(field)?,
                5 => self.facts.model_version = self.source.integer(field)?,
                6 => self.facts.doc_string = self.text(field)?,
                7 => self.main_graph(field, model)?,
                8 => {
                    let opset = self.message(field, 1)?;
                    self.facts.opsets.push(opset);
                }
                14 => {
                    let entry = self.message(field, 1)?;
                    self.facts.metadata.push(entry);
                }
                25 => self.function(field, model)?,
                // What trains a model (20) no engine looks at.
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// May come in parts.
    fn main_graph(&mut self, field: Field, model: Message) -> Result<(), Fault> {
        let message = self.source.enter(field, model)?;
        let mut graph = self.facts.graph.take().unwrap_or_default();
        while let Some(field) = self.source.field(message)? {
            match field.tag {
                1 => self.node(field, message, Some(&mut graph.looped))?,
                2 => graph.name = self.text(field)?,
                5 => {
                    let name = self.tensor(field, message, true)?;
                    self.keep(&mut graph.initializers, name)?;
                }
                11 => graph.inputs.push(self.message(field, TYPE)?),
                12 => graph.outputs.push(self.message(field, TYPE)?),
                15 => self.sparse(field, message, true)?,
                _ => self.source.skip(field)?,
            }
        }
        self.facts.graph = Some(graph);
        Ok(())
    }

    fn function(&mut self, field: Field, model: Message) -> Result<(), Fault> {
        let function = self.source.enter(field, model)?;
        while let Some(field) = self.source.field(function)? {
            match field.tag {
                7 => self.node(field, function, None)?,
                // What its nodes have where a call says nothing else.
                11 => self.attribute(field, function)?,
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// A graph inside of a node.
    fn inner_graph(&mut self, field: Field, attribute: Message) -> Result<(), Fault> {
        let graph = self.source.enter(field, attribute)?;
        while let Some(field) = self.source.field(graph)? {
            match field.tag {
                1 => self.node(field, graph, None)?,
                5 => drop(self.tensor(field, graph, true)?),
                15 => self.sparse(field, graph, true)?,
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// Counts it; what it takes goes into `looped` if it is a loop.
    fn node(&mut self, field: Field, graph: Message, looped: Option<&mut BTreeSet<String>>) -> Result<(), Fault> {
        let node = self.source.enter(field, graph)?;
        let left = self.left;
        let (mut operator, mut domain, mut inputs) = (String::new(), String::new(), Vec::new());
        // All that it keeps of its attributes lies below.
        let mut kept = 0;
        while let Some(field) = self.source.field(node)? {
            match field.tag {
                1 if looped.is_some() => inputs.push(self.text(field)?),
                4 => operator = self.text(field)?,
                5 => {
                    let before = self.left;
                    self.attribute(field, node)?;
                    kept += before - self.left;
                }
                7 => domain = self.text(field)?,
                _ => self.source.skip(field)?,
            }
        }
        self.left = left - kept;
        if let Some(looped) = looped
            && matches!(operator.as_str(), "Loop" | "Scan")
        {
            inputs.into_iter().try_for_each(|input| self.keep(looped, input))?;
        }
        let name = match domain.as_str() {
            "" | "ai.onnx" => operator,
            domain => format!("{domain}.{operator}"),
        };
        if !self.facts.operators.contains_key(&name) {
            self.take(ITEM + name.len())?;
        }
        *self.facts.operators.entry(name).or_default() += 1;
        Ok(())
    }

    fn attribute(&mut self, field: Field, outer: Message) -> Result<(), Fault> {
        let attribute = self.source.enter(field, outer)?;
        let (mut tensor, mut sparse) = (false, false);
        while let Some(field) = self.source.field(attribute)? {
            match field.tag {
                5 => {
                    once(&mut tensor)?;
                    self.tensor(field, attribute, false)?;
                }
                10 => drop(self.tensor(field, attribute, false)?),
                6 | 11 => self.inner_graph(field, attribute)?,
                22 => {
                    once(&mut sparse)?;
                    self.sparse(field, attribute, false)?;
                }
                23 => self.sparse(field, attribute, false)?,
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    fn sparse(&mut self, field: Field, outer: Message, weights: bool) -> Result<(), Fault> {
        let sparse = self.source.enter(field, outer)?;
        let (mut values, mut indices) = (false, false);
        while let Some(field) = self.source.field(sparse)? {
            match field.tag {
                1 => {
                    once(&mut values)?;
                    self.tensor(field, sparse, weights)?;
                }
                2 => {
                    once(&mut indices)?;
                    self.tensor(field, sparse, false)?;
                }
                _ => self.source.skip(field)?,
            }
        }
        Ok(())
    }

    /// Checks where its data lies, and counts its numbers if they are weights; its name.
    fn tensor(&mut self, field: Field, outer: Message, weights: bool) -> Result<String, Fault> {
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
                        Ok::<_, Fault>(())
                    })?;
                }
                2 => tensor.data_type = low(self.source.integer(field)?),
                8 => tensor.name = self.text(field)?,
                13 => tensor.external_data.push(self.message(field, 1)?),
                14 => tensor.data_location = low(self.source.integer(field)?),
                _ => self.source.skip(field)?,
            }
        }
        self.left = left;
        if weights {
            let count = (tensor.dims.iter())
                .try_fold(1_u64, |product, dimension| product.checked_mul(u64::try_from(*dimension).ok()?));
            self.facts.parameters = self.facts.parameters.saturating_add(count.unwrap_or(0));
        }
        // Engines look at either mark, so either counts.
        if tensor.data_location == 1 || !tensor.external_data.is_empty() {
            self.elsewhere(&tensor)?;
        }
        Ok(tensor.name)
    }

    /// Checks the file that holds a tensor's data.
    fn elsewhere(&mut self, tensor: &Tensor) -> Result<(), Fault> {
        let wrong = |reason| Fault::External(external::plain(&tensor.name), reason);
        let said = external::Said::of(tensor, self.packed).map_err(wrong)?;
        let place = said.place().map_err(wrong)?;
        if !self.files.knows(&place) {
            self.take(FILE + 2 * place.as_os_str().len())?;
        }
        let file = self.files.find(&place).map_err(wrong)?;
        said.check(tensor, &place, file).map_err(wrong)
    }

    fn text(&mut self, field: Field) -> Result<String, Fault> {
        let length = self.source.length(field)?;
        self.take(ITEM.saturating_add(length))?;
        Ok(self.source.text(length)?)
    }

    /// A small message whose bytes take up to `times` as many in memory.
    fn message<M: prost::Message + Default>(&mut self, field: Field, times: usize) -> Result<M, Fault> {
        let length = self.source.length(field)?;
        self.take(length.saturating_mul(times).saturating_add(2 * ITEM))?;
        Ok(self.source.message(length)?)
    }

    fn keep(&mut self, names: &mut BTreeSet<String>, name: String) -> Result<(), Fault> {
        if !names.contains(&name) {
            self.take(ITEM + name.len())?;
            names.insert(name);
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        take(&mut self.left, bytes)
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), Fault> {
    let rest = left.checked_sub(bytes);
    *left = rest.ok_or_else(|| {
        Fault::TooMuch(format!("its names, inputs and outputs would take more than {} MiB of memory", MEMORY >> 20))
    })?;
    Ok(())
}

/// Parts of one tensor would be put together, and none of them is what was checked.
fn once(seen: &mut bool) -> Result<(), Unreadable> {
    if std::mem::replace(seen, true) { Err(Unreadable::Twice) } else { Ok(()) }
}

/// As protobuf reads an `int32`: the low bits of what is written.
fn low(value: i64) -> i32 {
    value as i32
}
