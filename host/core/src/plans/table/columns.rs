//! Which cells of a row are which input.

use csv::StringRecord;
use serde_json::Value as Json;

use super::TableOptions;
use super::cell::{CellFormat, is_missing};
use crate::{
    ElementSet, ElementType, JsonError, Kind, PlanInput, Port, Reader, Request, TensorKind, ValidationError, from_json,
    shorten,
};

/// Columns from which numbers that rise are more likely a header than a row.
const MANY: usize = 8;

/// What the columns are to the pipeline.
pub(super) struct Columns {
    /// the names of the columns, where there is a header
    header: Option<Vec<String>>,
    inputs: Inputs,
    format: CellFormat,
}

enum Inputs {
    /// the columns of each input that has some
    Named(Vec<InputCells>),
    /// all cells are the elements of the one input, in their order
    InOrder,
}

/// The cells of an input.
struct InputCells {
    /// the input's name
    name: String,
    /// their columns
    cells: Vec<usize>,
}

impl Columns {
    /// From the first rows.
    pub(super) fn new(
        first: &StringRecord,
        second: Option<&StringRecord>,
        options: TableOptions,
        decimal_comma: bool,
        reader: Reader<'_>,
    ) -> Result<Self, ValidationError> {
        let format = CellFormat { decimal_comma };
        let names: Vec<String> = first.iter().map(|name| name.trim().to_owned()).collect();
        let inputs = reader.signature().inputs();
        let has_name = |name: &String| column_names(inputs).any(|known| known == name);
        let has_columns = inputs.iter().any(|input| input.columns.as_ref().is_some_and(|list| !list.names.is_empty()));

        // One tensor without `columns:` may have elements that are called like an input.
        let is_sole_tensor = !has_columns && reader.single().is_some_and(|port| tensor_kind(&port.kind).is_some());
        let are_inputs = if is_sole_tensor && !options.ignores_extra {
            names.iter().all(has_name)
        } else {
            names.iter().any(has_name) || has_columns && options.has_header == Some(true)
        };
        if are_inputs && options.has_header != Some(false) {
            let inputs = named(&names, options, reader)?;
            return Ok(Self { header: Some(names), inputs: Inputs::Named(inputs), format });
        }

        let Some((port, kind)) = reader.single().and_then(|port| Some((port, tensor_kind(&port.kind)?))) else {
            return Err(ValidationError::request(format!(
                "its columns ({}) are not inputs of the pipeline, which takes {}",
                shorten(&names.join(", ")),
                reader.signature().describe_inputs(),
            )));
        };

        let has_header = match options.has_header {
            Some(has_header) => has_header,
            None if has_columns => {
                let expected = shorten(&column_names(inputs).collect::<Vec<_>>().join(", "));
                return Err(ValidationError::input(
                    &port.name,
                    format_args!(
                        "its columns are {expected}, but the first row is {}; {}",
                        shorten(&names.join(", ")),
                        "where the table has no header, say so (`--header absent`; over HTTP `text/csv; header=absent`)"
                    ),
                ));
            }
            None => is_header(first, second, format, kind).ok_or_else(|| {
                ValidationError::request(format!(
                    "it is not certain whether the first row ({}) is a header: say so (`--header present` or \
                     `--header absent`; over HTTP `text/csv; header=present`), or name the columns of `{}` in gpux.yml (`columns:`)",
                    shorten(&names.join(", ")),
                    port.name
                ))
            })?,
        };

        if has_header && names.first().is_some_and(String::is_empty) {
            return Err(ValidationError::request(
                "the first column has no name, as pandas writes its index: write the table without it \
                 (`to_csv(index=False)`)",
            ));
        }
        Ok(Self { header: has_header.then_some(names), inputs: Inputs::InOrder, format })
    }

    pub(super) const fn has_header(&self) -> bool {
        self.header.is_some()
    }

    pub(super) fn unchecked_header(&self) -> Option<&[String]> {
        self.header.as_deref().filter(|_| matches!(self.inputs, Inputs::InOrder))
    }

    /// The request that a row is.
    pub(super) fn request(
        &self,
        row: &StringRecord,
        line: u64,
        reader: Reader<'_>,
    ) -> Result<Request, ValidationError> {
        if let Some(columns) = self.header.as_ref().map(Vec::len).filter(|columns| *columns != row.len()) {
            let cells = row.len();
            return Err(ValidationError::request(format!(
                "line {line}: the row has another number of cells ({cells}) than the head ({columns})"
            )));
        }
        match &self.inputs {
            Inputs::InOrder => {
                let port =
                    reader.single().ok_or_else(|| ValidationError::request("there is no input for its cells"))?;
                let cells: Vec<usize> = (0..row.len()).collect();
                Ok(vec![(port.name.clone(), self.list(port, &cells, row, line)?)])
            }
            Inputs::Named(inputs) => {
                let mut request = Request::new();
                for InputCells { name, cells } in inputs {
                    let input = reader.signature().inputs().iter().find(|input| input.port.name == *name);
                    let Some(input) = input else { continue };
                    let port = &input.port;
                    let is_missing = cells.iter().all(|cell| is_missing(&row[*cell], &port.kind));
                    if is_missing && !input.is_required() {
                        continue;
                    }
                    let value = match (&port.kind, cells.as_slice()) {
                        (Kind::Tensor(_), cells) => self.list(port, cells, row, line)?,
                        (kind, [cell]) => {
                            let cell = *cell;
                            let json = match kind {
                                Kind::Text | Kind::Bytes => row[cell].into(),
                                _ => serde_json::from_str(&row[cell]).unwrap_or_else(|_| row[cell].into()),
                            };
                            from_json(json, kind).map_err(|error| self.error(port, cell, line, &error))?
                        }
                        _ => return Err(ValidationError::input(name, "several columns make a tensor only")),
                    };
                    request.push((name.clone(), value));
                }
                Ok(request)
            }
        }
    }

    /// A tensor of these cells.
    fn list(
        &self,
        port: &Port,
        cells: &[usize],
        row: &StringRecord,
        line: u64,
    ) -> Result<crate::Value, ValidationError> {
        let elements = tensor_kind(&port.kind).map_or(ElementSet::ANY, |kind| kind.elements);
        let element = |cell: &usize| {
            self.format.element(&row[*cell], elements).map_err(|error| self.error(port, *cell, line, &error))
        };
        let mut list = cells.iter().map(element).collect::<Result<Vec<Json>, _>>()?;
        // One cell may hold a list.
        let json = if matches!(list.as_slice(), [Json::Array(_)]) { list.remove(0) } else { Json::Array(list) };
        let culprit = |error: &JsonError| {
            let one = Kind::Tensor(TensorKind::of_elements(elements));
            let is_wrong = |cell: &&usize| {
                let json = self.format.element(&row[**cell], elements).unwrap_or_default();
                !json.is_array() && from_json(json, &one).is_err()
            };
            match cells.iter().find(is_wrong) {
                Some(cell) => self.error(port, *cell, line, error),
                None => ValidationError::input(&port.name, format_args!("line {line}: {error}")),
            }
        };
        from_json(json, &port.kind).map_err(|error| culprit(&error))
    }

    fn error(&self, port: &Port, cell: usize, line: u64, error: &impl std::fmt::Display) -> ValidationError {
        let column = match self.header.as_ref().and_then(|names| names.get(cell)).filter(|name| !name.is_empty()) {
            Some(name) => format!("`{name}`"),
            None => (cell + 1).to_string(),
        };
        ValidationError::input(&port.name, format_args!("line {line}, column {column}: {error}"))
    }
}

/// The names that columns can have.
fn column_names(inputs: &[PlanInput]) -> impl Iterator<Item = &str> {
    inputs.iter().flat_map(|input| {
        let (names, own) = column_names_of(input);
        names.iter().map(String::as_str).chain(own)
    })
}

/// The names in `columns:`, or else the input's own.
fn column_names_of(input: &PlanInput) -> (&[String], Option<&str>) {
    match &input.columns {
        Some(columns) if !columns.names.is_empty() => (&columns.names, None),
        _ => (&[], Some(&input.port.name)),
    }
}

/// Finds the columns of each input.
fn named(header: &[String], options: TableOptions, reader: Reader<'_>) -> Result<Vec<InputCells>, ValidationError> {
    let inputs = reader.signature().inputs();
    let mut is_used = vec![false; header.len()];
    let (mut found, mut missing) = (Vec::new(), Vec::new());

    for input in inputs {
        let (names, own) = column_names_of(input);
        let names: Vec<&str> = names.iter().map(String::as_str).chain(own).collect();

        let cells: Vec<Option<usize>> =
            names.iter().map(|name| header.iter().position(|column| column == name)).collect();
        if let Some(twice) = names.iter().find(|name| header.iter().filter(|column| column == *name).count() > 1) {
            return Err(ValidationError::input(&input.port.name, format_args!("there are several columns `{twice}`")));
        }
        cells.iter().flatten().for_each(|cell| is_used[*cell] = true);

        let absent: Vec<&str> =
            names.iter().zip(&cells).filter(|(_, cell)| cell.is_none()).map(|(name, _)| *name).collect();
        if absent.is_empty() {
            found.push(InputCells { name: input.port.name.clone(), cells: cells.into_iter().flatten().collect() });
        } else if absent.len() < names.len() || input.is_required() && !reader.knows(&input.port) {
            missing.extend(absent);
        }
    }

    let quoted = |names: &[&str]| shorten(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "));
    if !missing.is_empty() {
        return Err(ValidationError::request(format!(
            "there is no column {}; the table has {}",
            quoted(&missing),
            quoted(&header.iter().map(String::as_str).collect::<Vec<_>>())
        )));
    }

    let ignores_extra = options.ignores_extra
        || inputs.iter().any(|input| input.columns.as_ref().is_some_and(|list| list.ignores_extra));
    // An unnamed first column is the index that pandas writes.
    let is_extra = |(number, name): &(usize, &String)| !(is_used[*number] || *number == 0 && name.is_empty());
    let extra: Vec<&str> = header.iter().enumerate().filter(is_extra).map(|(_, name)| name.as_str()).collect();
    if !extra.is_empty() && !ignores_extra {
        return Err(ValidationError::request(format!(
            "no input takes the column {}; leave it out, or say `--extra-columns ignore` or, in gpux.yml, \
             `extra: ignore` beside an input; the pipeline takes {}",
            quoted(&extra),
            reader.signature().describe_inputs()
        )));
    }
    Ok(found)
}

/// Whether the first row of a table without names that the pipeline knows is a header; `None` if that is not certain.
fn is_header(
    first: &StringRecord,
    second: Option<&StringRecord>,
    format: CellFormat,
    kind: &TensorKind,
) -> Option<bool> {
    if kind.element() == Some(ElementType::String) {
        // A header and a row look alike.
        return None;
    }
    let cell_kind = Kind::Tensor(kind.clone());
    let is_text = |cell: &str| !is_missing(cell, &cell_kind) && !format.is_number(cell);
    let texts = first.iter().filter(|cell| is_text(cell)).count();
    let unnamed = usize::from(first.get(0).is_some_and(|cell| cell.trim().is_empty()));
    match texts {
        0 if is_numbered(first, second) => None,
        0 => Some(false),
        texts if texts + unnamed == first.len() => Some(true),
        // Numbers and texts side by side are a bad row, or an odd header.
        _ => None,
    }
}

/// Whether a row of numbers may be a header: 0, 1, 2, … as pandas numbers columns without names, or many whole numbers
/// that rise, such as wavelengths, above numbers that are not whole.
fn is_numbered(first: &StringRecord, second: Option<&StringRecord>) -> bool {
    let whole = |cell: &str| cell.trim().parse::<u64>().ok();
    let Some(numbers) = first.iter().map(whole).collect::<Option<Vec<_>>>() else { return false };
    let is_range = numbers.iter().zip(0..).all(|(number, index)| *number == index);
    let is_rising = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    let is_above_fractions = second.is_some_and(|row| row.iter().any(|cell| whole(cell).is_none()));
    match numbers.len() {
        1 => is_range && is_above_fractions,
        2..MANY => is_range,
        _ => is_range || is_rising && is_above_fractions,
    }
}

const fn tensor_kind(kind: &Kind) -> Option<&TensorKind> {
    if let Kind::Tensor(kind) = kind { Some(kind) } else { None }
}
